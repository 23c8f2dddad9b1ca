"""Starts a studio's server again and again, each in a process of its own that can be killed.

    python -m tests.studio.zygote RUN

A line on stdin forks a server; its process and address are printed. Everything that is slow to import
is imported once.
"""

import os
import sys
from pathlib import Path

import torch

from tagmask.config import ExploreSettings
from tagmask.studio.opening import open_explorer
from tagmask.studio.server import Server

torch.set_num_threads(1)


def main() -> None:
    """Fork a server for every line."""
    run = Path(sys.argv[1])
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            with Server(open_explorer(ExploreSettings(out=run))) as server:
                print(os.getpid(), server.address, flush=True)
                server.serve_forever(poll_interval=0.05)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
