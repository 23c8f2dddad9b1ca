"""The exceptions whose messages a user is meant to read."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class TagmaskError(Exception):
    """A mistake that the user can correct; the message names the file or value and the remedy."""


class ImageError(TagmaskError):
    """One image or mask cannot be used; the others can."""


def first_of(names: Sequence[str], most: int = 5) -> str:
    """The first names for a sentence, and "…" if there are more."""
    return ", ".join([*names[:most], *(["…"] if len(names) > most else [])])


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: Python's and NumPy's error, or torch's, which is known by its words."""
    words = ("allocate memory", "out of memory", "bad allocation", "bad_alloc")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(w in str(error) for w in words)
    )


@contextmanager
def enough_memory(name: str, remedy: str) -> Iterator[None]:
    """Name the image that does not fit into memory, and what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise ImageError(f'"{name}" needs more memory than there is; {remedy}') from None
