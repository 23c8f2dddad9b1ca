"""Reading a big JSON object piece by piece.

``json.load`` turns COCO's 300 MB into gigabytes of Python objects before the first one is looked at; here
only one entry of a list and a few megabytes of text exist at a time.
"""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from tagmask.errors import TagmaskError

_CHUNK = 1 << 22  # characters read at a time
_BLANKS = " \t\r\n"
_NUMBER_GOES_ON = ("", ".", "e", "E")


def stream_lists(path: Path, keys: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Yield (key, entry) for each entry of the lists that stand under ``keys`` in the object in ``path``.

    Lists come in the order of the file; the other members of the object are skipped.
    """
    stream = _Stream(path)
    try:
        for key in stream.members():
            if key in keys:
                for entry in stream.entries():
                    yield key, entry
            else:
                stream.value()
    finally:
        stream.close()


class _Stream:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._decode = json.JSONDecoder().raw_decode
        self._text, self._at, self._read = "", 0, 0
        try:
            self._file = path.open(encoding="utf-8-sig")
        except OSError as error:
            raise TagmaskError(f"{path} cannot be read ({error.strerror}); check the path.") from None

    def close(self) -> None:
        self._file.close()

    def members(self) -> Iterator[str]:
        """The keys of an object; the caller reads each value before it asks for the next key."""
        self._expect("{")
        if self._next() == "}":
            return
        while True:
            key = self.value()
            self._expect(":")
            yield str(key)
            if self._expect(",}") == "}":
                return

    def entries(self) -> Iterator[Any]:
        """The entries of a list."""
        self._expect("[")
        if self._next() == "]":
            self._at += 1
            return
        while True:
            yield self.value()
            if self._expect(",]") == "]":
                return

    def value(self) -> Any:
        """Decode the value that begins here."""
        self._next()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._fill():
                    self._fail(error.msg, error.pos)
                continue
            except RecursionError:
                self._fail("lists within lists, too deep to read", self._at)
            # A number at the end of the text may go on in the next piece, also "1" that is followed by "." or "e".
            if self._text[end : end + 1] not in _NUMBER_GOES_ON or not self._fill():
                self._at = end
                return value

    def _expect(self, marks: str) -> str:
        mark = self._next()
        if mark not in marks:
            self._fail(f"expected {' or '.join(marks)}, found {mark}", self._at)
        self._at += 1
        return mark

    def _next(self) -> str:
        """Skip blanks; the character that follows."""
        while True:
            mark = self._text[self._at : self._at + 1]
            if mark and mark not in _BLANKS:
                return mark
            if mark:
                self._at += 1
            elif not self._fill():
                self._fail("the file ends too early", self._at)

    def _fill(self) -> bool:
        """Drop the text already used and read on, the more the longer the unfinished value is."""
        rest = self._text[self._at :]
        try:
            piece = self._file.read(max(_CHUNK, len(rest)))
        except UnicodeDecodeError:
            self._fail("it is not UTF-8 text", self._at)
        if not piece:
            return False
        self._read += self._at
        self._text, self._at = rest + piece, 0
        return True

    def _fail(self, what: str, position: int) -> Any:
        place = self._read + position
        raise TagmaskError(f"{self._path} is not valid JSON at character {place:,} ({what}); download it again.")
