"""Ctrl-C, noted: some libraries swallow it and raise an error of their own instead."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def noted_interrupts() -> Iterator[list[int]]:
    """Give a list that gets an entry whenever Ctrl-C is pressed; it interrupts as before.

    In other threads than the main one, and where Ctrl-C already has a meaning of its own, the list
    stays empty.
    """
    interrupts: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield interrupts
        return

    def _note(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, _note)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
