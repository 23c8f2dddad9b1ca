"""Batches loaded by processes that ignore Ctrl-C."""

import signal
import sys
from functools import cache
from multiprocessing import get_context
from types import TracebackType
from typing import Any

from torch.utils.data import DataLoader


def loader(data: Any, workers: int, **how: Any) -> "DataLoader[Any]":
    """Return a DataLoader whose processes print nothing when the command is stopped.

    Args:
        data: A dataset of torch.
        workers: Number of loading processes; 0 loads in this process.
        **how: Other arguments of DataLoader.
    """
    if not can_share():
        workers = 0
    return DataLoader(data, num_workers=workers, worker_init_fn=quiet, **how)


@cache
def can_share() -> bool:
    """Return True if processes can share memory and locks.

    Some containers have no /dev/shm; one process does all the work there.
    """
    try:
        get_context("spawn").Event()
    except (OSError, ImportError):
        return False
    return True


def quiet(worker: int) -> None:
    """End a loading process with the command, without a message.

    It ignores Ctrl-C, because the command ends it. Its thread that hands over tensors prints a
    traceback if the command stops at that moment, which is suppressed here. Errors while reading an
    image are raised by the command itself.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.excepthook = _print_unless_disconnected


def _print_unless_disconnected(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not issubclass(kind, OSError | EOFError):
        sys.__excepthook__(kind, error, trace)
