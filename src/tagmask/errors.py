"""The exceptions whose messages a user is meant to read."""

import shlex
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# torch has no exception of its own for memory on a CPU, so its error is known by these words
_OUT_OF_MEMORY = ("allocate memory", "out of memory", "bad allocation", "bad_alloc")

# kinds of characters that end lines or command terminals: control characters, halves of characters,
# line and paragraph separators
CONTROLS = ("Cc", "Cs", "Zl", "Zp")
# they turn the direction of what follows, so that a name reads as another
_TURNS = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
MOST_SHOWN = 4000  # characters of a message


class TagmaskError(Exception):
    """A mistake that the user can correct; the message names the file or value and the remedy."""


class ImageError(TagmaskError):
    """One image or mask cannot be used; the others can."""


class Told(TagmaskError):
    """An error of a launch over several processes, which another one of them tells the user."""


class OutputError(TagmaskError):
    """What is at the place of an output must not be replaced, so the command ends."""


def first_of(names: Sequence[str], most: int = 5) -> str:
    """Join the first names for a sentence, with "…" at the end if there are more.

    Args:
        names: what is listed.
        most: how many names are shown.
    """
    shown = list(names[:most])
    if len(names) > most:
        shown.append("…")
    return ", ".join(shown)


def typed(*words: str | Path) -> str:
    """Return words as they are typed in a command line: those with blanks are quoted.

    Args:
        *words: Paths, flags and values.
    """
    return " ".join(shlex.quote(str(word)) for word in words)


def printable(text: str, keep: str = "") -> str:
    r"""Return a text in which characters are escaped that a terminal would obey, as "\x1b".

    Args:
        text: what is shown; it may quote names of files and tags.
        keep: control characters that stay as they are.
    """
    if text.isascii() and text.isprintable():
        return text
    shown = ""
    for mark in text:
        is_obeyed = unicodedata.category(mark) in CONTROLS or mark in _TURNS
        if is_obeyed and mark not in keep:
            shown += mark.encode("unicode_escape", "surrogatepass").decode()
        else:
            shown += mark
    return shown


def message_of(error: BaseException) -> str:
    """Return the sentence of an error, cut where it quotes whole files."""
    return shortened(str(error))


def shortened(message: str) -> str:
    """Return a message, cut where it quotes whole files."""
    if len(message) <= MOST_SHOWN:
        return message
    return f"{message[:MOST_SHOWN]} … ({len(message) - MOST_SHOWN:,} more characters)"


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if memory ran out, in Python, NumPy or torch."""
    if isinstance(error, MemoryError):
        return True
    if not isinstance(error, RuntimeError):
        return False
    message = str(error)
    return any(words in message for words in _OUT_OF_MEMORY)


@contextmanager
def enough_memory(name: str, remedy: str) -> Iterator[None]:
    """Name the image that does not fit into memory, and what to do.

    Args:
        name: the name of the image that is worked on within.
        remedy: the end of the error's sentence: what the user can do.

    Raises:
        ImageError: if memory runs out within; other errors pass.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise ImageError(f'"{name}" needs more memory than there is; {remedy}') from None
