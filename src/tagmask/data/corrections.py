"""What a person has corrected: labels of pixels, and tags. Files of their own, which every stage honours.

    corrections/NAME.png    at the size of the photo: 0 background, c + 1 for class c, 254 unsure, 255 not corrected
    corrections/tags.json   the classes, and for each photo the names of the tags that were added and removed

A label made by a program keeps the corrected pixels (``fix``); where the person is unsure, it is not learnt from. The
mask that a stage writes carries the digest of the correction it was made with, so that a later change is noticed.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tagmask.data.images import read_mask, write_mask
from tagmask.errors import ImageError, TagmaskError
from tagmask.files import read_object, write_json
from tagmask.labels import UNSURE, Mask
from tagmask.pipeline.layout import CORRECTED_TAGS, label_file

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
        """The corrected tags; names that are not classes are ignored."""
        names = {classes[tag] for tag in tags}.union(self.added).difference(self.removed)
        return {number for number, name in enumerate(classes) if name in names}


def read_tags(
    folder: Path, classes: Sequence[str], identity: Mapping[str, int]
) -> dict[str, TagChange] | None:
    """The corrected tags by photo; None if the corrections are those of other generated pictures."""
    file = folder / CORRECTED_TAGS
    if not file.exists():
        return {}
    note = read_object(file, classes=list, photos=dict, identity=dict)
    if note["classes"] != list(classes):
        raise TagmaskError(
            f"the corrections in {folder} were made for {len(note['classes'])} classes, but the images have "
            f"{len(classes)}, or others; give the data they were made with, or move the folder away."
        )
    try:
        photos = note["photos"].items()
        changes = {
            name: TagChange(_names(both["added"]), _names(both["removed"])) for name, both in photos
        }
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
    """Write tags.json; photos without a change are left out."""
    photos = {
        name: {"added": sorted(change.added), "removed": sorted(change.removed)}
        for name, change in sorted(changes.items())
        if change != TagChange()
    }
    write_json(
        folder / CORRECTED_TAGS,
        {"classes": list(classes), "identity": dict(identity), "photos": photos},
    )


def read_labels(folder: Path, name: str, num_classes: int) -> Mask | None:
    """The corrected labels of a photo (H, W); None if none are."""
    file = label_file(folder, name)
    if not file.exists():
        return None
    labels = read_mask(file, PERSON_UNSURE)
    wrong = labels[(labels > num_classes) & (labels < PERSON_UNSURE)]
    if wrong.size:
        raise ImageError(
            f"{file} holds the label {wrong[0]}; with {num_classes} classes they are 0 to {num_classes}."
        )
    return labels


def write_labels(folder: Path, name: str, labels: Mask) -> None:
    """Write the corrected labels of a photo (H, W); without any, its file is removed."""
    file = label_file(folder, name)
    if (labels == NOT_CORRECTED).all():
        file.unlink(missing_ok=True)
        return
    write_mask(file, labels)


def fix(labels: Mask, correction: Mask | None, name: str, unsure: bool = True) -> Mask:
    """Labels (H, W) with the corrected pixels; where the person is unsure, 255 or, without ``unsure``, as they were."""
    if correction is None:
        return labels
    if correction.shape != labels.shape:
        raise ImageError(
            f'the correction of "{name}" is {correction.shape[1]}×{correction.shape[0]} pixels but the photo is '
            f"{labels.shape[1]}×{labels.shape[0]}; delete the correction, or restore the photo."
        )
    fixed = np.where(correction <= MOST_CLASSES, correction, labels)
    return (
        np.where(correction == PERSON_UNSURE, UNSURE, fixed).astype(np.uint8)
        if unsure
        else fixed.astype(np.uint8)
    )


def digest(folder: Path | None, name: str) -> str:
    """A short hash of the corrected labels of a photo; empty if there are none."""
    with suppress(OSError):
        if folder is not None and (content := label_file(folder, name).read_bytes()):
            return hashlib.blake2b(content, digest_size=8).hexdigest()
    return ""


def digest_in(mask: Path) -> str:
    """The digest of the correction that a mask was made with."""
    with (
        suppress(Exception),
        Image.open(mask, formats=("PNG",)) as image,
    ):  # images.read_mask says what is wrong
        return str(image.info.get(_KEY, ""))
    return ""


def _names(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError
    return tuple(values)
