"""What a folder of maps or masks tells of itself: who made it, for which classes."""

from collections.abc import Sequence
from pathlib import Path

from tagmask.errors import TagmaskError
from tagmask.files import read_object

IDENTITY = "made_by.json"


def check_classes(folder: Path, classes: Sequence[str], what: str) -> None:
    """Refuse ``what`` (in the plural) of ``folder`` that were made for other classes: their numbers mean others."""
    file = folder / IDENTITY
    made_for = read_object(file).get("classes") if file.is_file() else None
    if made_for is not None and list(made_for) != list(classes):
        raise TagmaskError(
            f"the {what} in {folder} were made for {len(made_for)} classes ({_some(made_for)}), but the images have "
            f"{len(classes)} ({_some(classes)}); give the data they were made with, or make them anew with --restart."
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
