"""What reaches the terminal: closed streams, characters that a terminal would obey, warnings."""

import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tagmask.errors import printable

_UP = "\x1b[A"  # progress bars go up a line with it


class PrintableStream:
    """A stream that shows control characters in names instead of sending them to the terminal.

    Args:
        stream: where everything else goes unchanged.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text; what is left of it without line ends and bars going up is shown."""
        if text.replace(_UP, "").strip("\r\n"):
            text = printable(text, keep="\r\n\t")
        self._stream.write(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Open closed streams, show control characters within, and keep Python's warnings quiet.

    Warnings are for developers: they are shown if Python was started with -W.
    """
    _open_streams()
    before = sys.stdout, sys.stderr
    sys.stdout = PrintableStream(sys.stdout)
    sys.stderr = PrintableStream(sys.stderr)
    try:
        with warnings.catch_warnings():
            if not sys.warnoptions:
                warnings.simplefilter("ignore")
                # processes that load images are started anew
                os.environ.setdefault("PYTHONWARNINGS", "ignore")
            yield
    finally:
        sys.stdout, sys.stderr = before


def _open_streams() -> None:
    """Open closed streams on the null device.

    The next file that is opened would get the number of a closed one, and messages with it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # takes the lowest free number, this one
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
        stream = getattr(sys, name)
        if number and isinstance(stream, io.TextIOWrapper):
            # the terminal may lack characters of a file name
            stream.reconfigure(errors="backslashreplace")
