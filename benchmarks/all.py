"""Every benchmark with its defaults, one after the other, as Markdown: what docs/research/benchmarks.md is made from.

    make bench > bench.md
    python benchmarks/all.py [--only walk crf]

It begins with how steady the machine is: one small kernel, timed many times on one thread. If the quartiles are more
than a few per cent apart, other programs are running, and ratios close to 1 mean little. About 28 minutes on two idle
cores.
"""

import argparse
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

PROGRAMS = {  # program: heading
    "train_step": "Training step",
    "maps": "Maps",
    "commands": "Commands",
    "score": "Scores",
    "crf": "Dense CRF",
    "walk": "Random walk",
    "catalog": "A COCO-size catalog",
    "own_photos": "Your own photos",
    "studio": "The studio",
    "clicks": "Clicks",
}
SIDE, TIMES = 512, 400


def noise() -> str:
    """A sentence on the machine: milliseconds of one product of matrices, again and again."""
    torch.set_num_threads(1)
    matrix, seconds = torch.rand(SIDE, SIDE), []
    for _ in range(TIMES):
        began = time.perf_counter()
        matrix @ matrix
        seconds.append(time.perf_counter() - began)
    low, middle, high, slow = 1e3 * np.quantile(seconds, (0.25, 0.5, 0.75, 0.95))
    cores = f"{os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[0]:.1f}, torch {torch.__version__}"
    spread = f"quartiles {low:.2f}–{high:.2f} ms ({100 * (high - low) / middle:.0f} % apart), 95 % below {slow:.2f} ms"
    return f"{cores}; a {SIDE}×{SIDE} matrix product, {TIMES} times on one thread: median {middle:.2f} ms, {spread}."


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=PROGRAMS)
    began = time.monotonic()
    print(f"Before: {noise()}\n", flush=True)
    for program in parser.parse_args().only:
        print(
            f"## {PROGRAMS[program]}\n\n```bash\npython benchmarks/{program}.py\n```\n\n```text",
            flush=True,
        )
        start = time.monotonic()
        subprocess.run([sys.executable, Path(__file__).with_name(f"{program}.py")], check=True)
        print(f"```\n\nIt took {time.monotonic() - start:.0f} s.\n", flush=True)
    print(f"After {(time.monotonic() - began) / 60:.0f} minutes: {noise()}")


if __name__ == "__main__":
    main()
