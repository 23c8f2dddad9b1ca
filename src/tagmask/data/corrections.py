"""What a person has corrected: labels of pixels, and tags.

These are files of their own, which every stage honours:

    corrections/NAME.png    at the size of the photo: 0 background, c + 1 for class c, 254 unsure,
                            255 not corrected
    corrections/tags.json   the classes, and for each photo the names of the tags that were added
                            and removed

A label made by a program keeps the corrected pixels (``fix``); where the person is unsure, it is
not learned from. The mask that a stage writes carries the digest of the correction it was made
with, so that a later change is noticed.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tagmask.data.images import read_mask, write_awaited_mask
from tagmask.errors import ImageError, TagmaskError
from tagmask.files import content_digest, file_size, read_object, write_json
from tagmask.labels import UNSURE, Mask
from tagmask.layout import CORRECTED_TAGS, label_file

NOT_CORRECTED = 255
PERSON_UNSURE = 254
MOST_CLASSES = PERSON_UNSURE - 1
_KEY = "correction"  # of the digest in a mask


@dataclass(frozen=True)
class TagChange:
    """How the tags of a photo differ from the table."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def apply(self, tags: Iterable[int], classes: Sequence[str]) -> set[int]:
        """Return the corrected tags.

        Args:
            tags: those of the table, 0-based.
            classes: the names of all classes; other names in the change are ignored.
        """
        names = {classes[tag] for tag in tags}
        names = names.union(self.added).difference(self.removed)
        return {number for number, name in enumerate(classes) if name in names}


def read_tags(
    folder: Path, classes: Sequence[str], identity: Mapping[str, int]
) -> dict[str, TagChange] | None:
    """Read the corrected tags by photo.

    Args:
        folder: the folder of the corrections.
        classes: the names of the classes that the images have.
        identity: what distinguishes generated pictures of the same names; see ``Catalog``.

    Returns:
        The changes by the names of the photos, none if there is no file; or None if the
        corrections are those of other generated pictures.

    Raises:
        TagmaskError: if the corrections were made for other classes, or the file is damaged.
    """
    file = folder / CORRECTED_TAGS
    if not file.exists():
        return {}
    note = read_object(file, classes=list, photos=dict, identity=dict)
    if note["classes"] != list(classes):
        raise TagmaskError(
            f"the corrections in {folder} were made for {len(note['classes'])} classes, "
            f"but the images have {len(classes)}, or others; give the data they were made with, "
            "or move the folder away."
        )
    changes = {}
    try:
        for name, both in note["photos"].items():
            added = _names(both["added"])
            removed = _names(both["removed"])
            changes[name] = TagChange(added, removed)
    except (KeyError, TypeError):
        raise TagmaskError(
            f"{file} does not list added and removed tags; repair it or delete it."
        ) from None
    return changes if note["identity"] == dict(identity) else None


def write_tags(
    folder: Path,
    changes: Mapping[str, TagChange],
    classes: Sequence[str],
    identity: Mapping[str, int],
) -> None:
    """Write tags.json.

    Args:
        folder: the folder of the corrections; it is made if it is missing.
        changes: the changes by the names of the photos; photos without a change are left out.
        classes: the names of the classes that the images have.
        identity: what distinguishes generated pictures of the same names; see ``Catalog``.
    """
    photos = {}
    for name, change in sorted(changes.items()):
        if change != TagChange():
            photos[name] = {"added": sorted(change.added), "removed": sorted(change.removed)}
    note = {"classes": list(classes), "identity": dict(identity), "photos": photos}
    write_json(folder / CORRECTED_TAGS, note)


def read_labels(folder: Path, name: str, num_classes: int) -> Mask | None:
    """Read the corrected labels of a photo, shape (H, W); None if there are none.

    Args:
        folder: the folder of the corrections.
        name: the name of the photo.
        num_classes: the largest label of a class.

    Raises:
        ImageError: if the file cannot be read or holds other labels.
    """
    file = label_file(folder, name)
    if not file.exists():
        return None
    labels = read_mask(file, PERSON_UNSURE)  # (H, W)
    wrong = labels[(labels > num_classes) & (labels < PERSON_UNSURE)]
    if wrong.size:
        raise ImageError(
            f"{file} holds the label {wrong[0]}; with {num_classes} classes they are "
            f"0 to {num_classes}."
        )
    return labels


def write_labels(folder: Path, name: str, labels: Mask) -> None:
    """Write the corrected labels of a photo; without any, its file is removed.

    Args:
        folder: the folder of the corrections; it is made if it is missing.
        name: the name of the photo.
        labels: (H, W); 255 = not corrected.
    """
    file = label_file(folder, name)
    if (labels == NOT_CORRECTED).all():
        file.unlink(missing_ok=True)
        return
    write_awaited_mask(file, labels)


def fix(labels: Mask, correction: Mask | None, name: str, unsure: bool = True) -> Mask:
    """Return labels (H, W) with the corrected pixels.

    Args:
        labels: (H, W), as a program made them.
        correction: (H, W), what a person has corrected; None if nothing.
        name: what an error calls the photo.
        unsure: where the person is unsure, put 255; if False, labels stay as they are there.

    Raises:
        ImageError: if the sizes differ.
    """
    if correction is None:
        return labels
    if correction.shape != labels.shape:
        height, width = labels.shape
        raise ImageError(
            f'the correction of "{name}" is {correction.shape[1]}×{correction.shape[0]} pixels '
            f"but the photo is {width}×{height}; delete the correction, or restore the photo."
        )
    fixed: Mask = labels.astype(np.uint8)  # (H, W), a copy
    np.copyto(fixed, correction, where=correction <= MOST_CLASSES)
    if unsure:
        fixed[correction == PERSON_UNSURE] = UNSURE
    return fixed


def digest(folder: Path | None, name: str) -> str:
    """Return a short hash of the corrected labels of a photo; empty if there are none.

    Args:
        folder: the folder of the corrections, if there is one.
        name: the name of the photo.
    """
    if folder is None:
        return ""
    file = label_file(folder, name)
    return content_digest(file) if file_size(file) > 0 else ""


def digest_in(mask: Path) -> str:
    """Return the digest of the correction that a mask was made with; empty if there is none."""
    # images.read_mask says what is wrong with a file
    with suppress(Exception), Image.open(mask, formats=("PNG",)) as image:
        return str(image.info.get(_KEY, ""))
    return ""


def _names(values: Any) -> tuple[str, ...]:
    """Return a list of texts as a tuple; TypeError if it is anything else."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError
    return tuple(values)
