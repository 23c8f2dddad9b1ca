"""Progress of long work: told to a callback, and shown as bars by the command line.

The library itself prints nothing. ``show_bars`` is what the command line asks for; ``listening``
is what a run does with the callback that it was given.
"""

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, Self, TypeVar

Item = TypeVar("Item")
logger = logging.getLogger("tagmask")
BETWEEN_LINES = 10.0  # seconds between two bars in the log of a batch job
INTERVAL = "TQDM_MININTERVAL"  # the variable by which tqdm is told seconds between two bars


@dataclass(frozen=True)
class Progress:
    """How far some work has come."""

    title: str  # e.g. "seeds"
    done: int
    total: int
    unit: str  # "image" or "step"


Listener = Callable[[Progress], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)
_shows_bars = False


def show_bars(shown: bool = True) -> None:
    """Show a bar on the terminal for all work from now on, or no more."""
    global _shows_bars
    _shows_bars = shown


@cache
def terminal_bars() -> Any:
    """Return tqdm's class of bars, with a lock that no other process can hold.

    Its own lock is shared with all processes that are forked from this one. A worker that is killed
    while it prints would leave this process waiting for ever.
    """
    from tqdm import tqdm

    tqdm.set_lock(threading.RLock())
    return tqdm


def _how_often() -> dict[str, float]:
    """Return tqdm's setting of how often a bar is drawn.

    In a file, such as the log of a batch job, every drawing adds a line, so they are rare there,
    unless ``TQDM_MININTERVAL`` says otherwise, which tqdm reads itself.
    """
    if sys.stderr.isatty() or INTERVAL in os.environ:
        return {}
    return {"mininterval": BETWEEN_LINES}


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Tell the progress of the work inside to a callback.

    Args:
        listener: Called after each image or step; None changes nothing.
    """
    if listener is None:
        yield
        return
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


class Bar:
    """Count the items of some work.

    Args:
        total: How many there are.
        title: What is done.
        unit: What is counted.
        initial: How many were done before.
        quiet: Show and tell nothing; for all but the first of several processes.
    """

    def __init__(
        self, total: int, title: str, unit: str = "image", initial: int = 0, quiet: bool = False
    ) -> None:
        self._quiet = quiet
        self._title = title
        self._unit = unit
        self._total = total
        self._done = initial
        self._shown: Any = None
        if _shows_bars and not quiet:
            self._shown = terminal_bars()(
                total=total, initial=initial, desc=title, unit=unit, **_how_often()
            )

    def update(self, count: int = 1) -> None:
        """Count items that are done."""
        self._done += count
        if self._shown is not None:
            self._shown.update(count)
        listener = _listener.get()
        if count and listener is not None and not self._quiet:
            listener(Progress(self._title, self._done, self._total, self._unit))

    def set_postfix_str(self, text: str) -> None:
        """Show a text at the end of the bar."""
        if self._shown is not None:
            self._shown.set_postfix_str(text, refresh=False)

    def close(self) -> None:
        """End the bar."""
        if self._shown is not None:
            self._shown.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def track(
    items: Iterable[Item], title: str, total: int, unit: str = "image", quiet: bool = False
) -> Iterator[Item]:
    """Yield items and count each when the next one is asked for.

    Args:
        items: The work.
        title: What is done.
        total: How many items there are.
        unit: What is counted.
        quiet: Show and tell nothing.
    """
    with Bar(total, title, unit, quiet=quiet) as bar:
        for item in items:
            yield item
            bar.update()
