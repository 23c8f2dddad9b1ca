"""A table of a million photos: time and memory to open it as a catalog.

    python benchmarks/manifest.py [--rows 1000000] [--json FILE]

The photos are empty files in the temporary folder, a thousand in each sub-folder; opening a catalog
lists them and reads the table, not the photos. Each row is measured in a process of its own.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CLASSES = [f"tag {number}" for number in range(60)]
IN_A_FOLDER = 1000


def generate(root: Path, rows: int) -> None:
    """Write empty photos, and a table of their tags."""
    draw = random.Random(0)
    images = root / "images"
    with (root / "tags.csv").open("w") as table:
        table.write("file,tags\n")
        for number in range(rows):
            folder = f"{number // IN_A_FOLDER:05d}"
            if number % IN_A_FOLDER == 0:
                (images / folder).mkdir(parents=True)
            file = f"{folder}/photo_{number:09d}.jpg"
            (images / file).touch()
            tags = draw.sample(CLASSES, draw.choice((1, 1, 2, 3)))
            table.write(f"{file},{';'.join(tags)}\n")


def measure(root: Path) -> None:
    """Open the catalog, and print seconds and megabytes."""
    from tagmask.data.folder import read_folder

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.process_time()
    catalog = read_folder(root / "images", root / "tags.csv")
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = {"rows": len(catalog), "open, s": seconds, "before, MB": before, "peak, MB": peak}
    start = time.process_time()
    catalog.fingerprint()
    rows["fingerprint, s"] = time.process_time() - start
    print(json.dumps(rows))


def main() -> None:
    """Generate, measure in another process, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.root is not None:
        measure(asked.root)
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), asked.rows)
        command = [sys.executable, __file__, "--root", folder]
        rows = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        # to remove a million files takes minutes
        for name, value in rows.items():
            print(f"{name:20} {value:10.1f}", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
