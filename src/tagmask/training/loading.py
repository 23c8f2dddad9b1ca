"""Batches loaded by processes that ignore Ctrl-C."""

import signal
import sys
from types import TracebackType
from typing import Any

from torch.utils.data import DataLoader


def loader(data: Any, workers: int, **how: Any) -> "DataLoader[Any]":
    """A DataLoader whose processes print nothing when the command is stopped."""
    return DataLoader(data, num_workers=workers, worker_init_fn=quiet, **how)


def quiet(worker: int) -> None:
    """End a loading process with the command, without a message.

    It ignores Ctrl-C, because the command ends it. Its thread that hands over tensors prints a traceback if the command
    stops at that moment, which is suppressed here. Errors while reading an image are raised by the command itself.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.excepthook = _print_unless_disconnected


def _print_unless_disconnected(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not issubclass(kind, OSError | EOFError):
        sys.__excepthook__(kind, error, trace)
