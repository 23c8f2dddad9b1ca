"""What the plan of a run says about memory, and what the run takes.

    python benchmarks/memory.py run photos tags.csv --out run

The words are those of a command of tagmask. Twenty times a second the resident memory of the
command and of all processes that it has started is added up, and so is their proportional memory,
in which pages that several processes share count once (Linux). The peak of each stage is printed,
and what the plan has told.
"""

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]

EVERY = 0.05  # seconds
STAGE = re.compile(r"^\[\d+/\d+\] (\w+)", re.MULTILINE)
TOLD = re.compile(r"memory: about ([\d.]+) (MB|GB), for (\w+)")
UNITS = {"MB": 1e6, "GB": 1e9}


def sizes(process: psutil.Process) -> tuple[float, float]:
    """Return the resident and the proportional bytes of a process and those below it."""
    resident = 0.0
    proportional = 0.0
    for one in [process, *process.children(recursive=True)]:
        try:
            own = one.memory_full_info()
        except psutil.Error:
            continue
        resident += own.rss
        proportional += getattr(own, "pss", own.rss)
    return resident, proportional


def main() -> None:
    """Run the command, watch it, print."""
    log = Path(tempfile.mkstemp(suffix=".log")[1])
    command = [sys.executable, "-m", "tagmask", *sys.argv[1:]]
    highest: dict[str, tuple[float, float]] = {}
    with log.open("w") as file:
        started = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    process = psutil.Process(started.pid)
    while started.poll() is None:
        said = log.read_text(errors="replace")
        stages = STAGE.findall(said)
        stage = stages[-1] if stages else "plan"
        try:
            now = sizes(process)
        except psutil.Error:
            break
        before = highest.get(stage, (0.0, 0.0))
        highest[stage] = (max(before[0], now[0]), max(before[1], now[1]))
        time.sleep(EVERY)
    said = log.read_text(errors="replace")
    if started.wait():
        sys.exit(f"the command failed:\n{said[-2000:]}")
    for stage, (resident, proportional) in highest.items():
        print(
            f"{stage:10} resident {resident / 1e9:6.2f} GB   shared once {proportional / 1e9:6.2f}"
        )
    peak = max(resident for resident, _ in highest.values())
    found = TOLD.search(said)
    if found is None:
        print("the command told nothing about memory")
        return
    told = float(found[1]) * UNITS[found[2]]
    print(
        f"told {told / 1e9:.2f} GB for {found[3]}; peak {peak / 1e9:.2f}; ratio {peak / told:.2f}"
    )


if __name__ == "__main__":
    main()
