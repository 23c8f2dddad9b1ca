"""Batches read by processes that leave Ctrl-C to the command."""

import signal
import sys
from types import TracebackType
from typing import Any

from torch.utils.data import DataLoader


def loader(data: Any, workers: int, **how: Any) -> "DataLoader[Any]":
    """A DataLoader whose processes say nothing when the command is stopped."""
    return DataLoader(data, num_workers=workers, worker_init_fn=quiet, **how)


def quiet(worker: int) -> None:
    """Make a reading process end with the command, silently.

    It does not hear Ctrl-C: the command ends it. A thread of it hands tensors over, and would print a traceback where
    the command stops amid that. An error in reading takes another way: the command raises it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.excepthook = _tell


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, OSError | EOFError):  # the other side of the connection has gone
        sys.__excepthook__(kind, error, trace)
