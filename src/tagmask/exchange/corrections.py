"""Corrected masks of other tools become corrections of a run, fixed labels for the next learning.

Label Studio    JSON export: see ``label_studio_back``
CVAT            "CVAT for images 1.1": see ``cvat_back``
COCO            instances, the smaller object on top
LabelMe         a file or a folder of NAME.json, of X-AnyLabeling too: see ``labelme``
mask PNGs       a folder of NAME.png with class numbers: see ``index``

What a person has left out of every region is background. A photo without any region counts as not
corrected; so does one from a folder whose mask is still that of the run. Everything is read and
checked before anything is written.
"""

import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tagmask import layout
from tagmask.config import CorrectionSettings, check
from tagmask.data import corrections
from tagmask.data.catalog import Catalog
from tagmask.data.coco import read_coco
from tagmask.data.folder import Tails, normal_path
from tagmask.data.images import read_mask, strip_suffix
from tagmask.data.open import read_catalog
from tagmask.data.report import Mistakes, missing_note
from tagmask.data.tools import ZIP_FAULTS
from tagmask.errors import ImageError, TagmaskError
from tagmask.exchange.cvat_back import drawn_in_cvat
from tagmask.exchange.drawn import BACKGROUND, NOT_TOUCHED, Drawn
from tagmask.exchange.index import drawn_in_masks
from tagmask.exchange.items import Region
from tagmask.exchange.label_studio_back import drawn_in_tasks
from tagmask.exchange.labelme import drawn_in_labelme, is_labelme, labelme_files
from tagmask.files import check_readable, only_one, read_json
from tagmask.labels import Mask
from tagmask.runs.images import list_skipped

_CANNOT_DRAW = (KeyError, TypeError, ValueError, OverflowError, IndexError, MemoryError)


@dataclass(frozen=True)
class _Packed:
    """Labels in little memory, so that all photos can be checked before one is written."""

    shape: tuple[int, int]
    content: bytes

    @classmethod
    def of(cls, labels: Mask) -> "_Packed":
        """Pack labels (H, W)."""
        height, width = labels.shape
        return cls((height, width), zlib.compress(labels.tobytes(), 1))

    def labels(self) -> Mask:
        """Return the labels (H, W)."""
        return np.frombuffer(zlib.decompress(self.content), np.uint8).reshape(self.shape)


@dataclass
class _Read:
    """What was found in a file."""

    photos: dict[str, _Packed] = field(default_factory=dict)  # by name
    missing: list[str] = field(default_factory=list)  # not found among the images
    damaged: dict[str, str] = field(default_factory=dict)  # name: why it cannot be used
    left_out: Counter[str] = field(default_factory=Counter)  # kinds of regions
    unchanged: int = 0  # photos whose mask is still that of the run
    told: list[str] = field(default_factory=list)  # what a reader has to say itself

    def notes(self) -> list[str]:
        """Return sentences on what was not taken over."""
        lines = [*missing_note(self.missing), *self.told, *list_skipped(self.damaged)]
        if self.unchanged:
            lines.append(
                f"{self.unchanged} masks are still those of the run and were left as they are."
            )
        if self.left_out:
            kinds = ", ".join(f"{count} {kind}" for kind, count in self.left_out.most_common())
            lines.append(f"regions that cannot be read as areas were left out: {kinds}.")
        return lines


def import_corrections(settings: CorrectionSettings) -> str:
    """Write the corrections of every photo that has some in the file.

    Args:
        settings: those of the command.

    Returns:
        A summary for the user.

    Raises:
        TagmaskError: the file cannot be used, or holds no correction of these images.
    """
    check(settings)
    with only_one(settings.out):
        return _import(settings)


def _import(settings: CorrectionSettings) -> str:
    """Do what ``import_corrections`` says, once the run is held."""
    catalog = read_catalog(settings)
    folder = settings.out / layout.CORRECTIONS
    changes = dict(corrections.read_tags(folder, catalog.classes, catalog.identity) or {})
    found = _read_all(settings, catalog)
    if not found.photos:
        raise TagmaskError(
            f"{settings.source} holds no corrected mask of these images; {_why(found)}."
        )
    numbers = {item.name: item.index for item in catalog}
    for name, packed in found.photos.items():
        labels = packed.labels()
        corrections.write_labels(folder, name, labels)
        changes[name] = _tag_change(labels, catalog, numbers[name])
    corrections.write_tags(folder, changes, catalog.classes, catalog.identity)
    lines = [*found.notes(), f"{len(found.photos)} photos corrected in {folder}"]
    return "\n".join([*lines, "`tagmask run` learns from them."])


def _read_all(settings: CorrectionSettings, catalog: Catalog) -> _Read:
    """Read and check everything in the file; nothing is written."""
    images = settings.images or Path()
    names = Tails(item.name for item in catalog)
    numbers = {item.name: item.index for item in catalog}
    found = _Read()
    for drawn in _read(settings, catalog, found.told):
        found.left_out += drawn.left_out
        if not drawn.regions and not drawn.refused:
            continue
        matches = names.find(strip_suffix(normal_path(drawn.file, images)))
        if len(matches) != 1:
            found.missing.append(drawn.file)
            continue
        name = matches[0]
        if drawn.refused:
            found.damaged[name] = drawn.refused
            continue
        try:
            labels = _labels(drawn.regions, catalog, numbers[name])
        except ImageError as error:
            found.damaged[name] = str(error)
            continue
        if settings.source.is_dir() and _is_prediction(labels, settings.out, name, catalog):
            found.unchanged += 1
            continue
        found.photos[name] = _Packed.of(labels)
    return found


def _why(found: _Read) -> str:
    """Return the end of a sentence: why there is nothing to take over."""
    if found.damaged:
        return next(iter(found.damaged.values())).rstrip(".")
    if found.missing:
        return f"the first was looked for as {found.missing[0]!r}"
    if found.left_out:
        kinds = ", ".join(found.left_out)
        return f"it has only regions of kinds that are not read ({kinds}); draw brushes or polygons"
    if found.unchanged:
        return f"all {found.unchanged} masks are those of the run; correct some first"
    return "annotate some and export again"


def _is_prediction(labels: Mask, out: Path, name: str, catalog: Catalog) -> bool:
    """Return True if a mask is the one that the run made."""
    file = layout.label_file(out / layout.PREDICTIONS, name)
    if not file.is_file():
        return False
    try:
        return np.array_equal(labels, read_mask(file, len(catalog.classes)))
    except ImageError:
        return False


def _labels(painted: Sequence[tuple[str, Region]], catalog: Catalog, i: int) -> Mask:
    """Return the labels (H, W) of a photo, later regions on top."""
    height, width = catalog.load_image(i).shape[:2]
    labels = np.zeros((height, width), np.uint8)
    for name, region in painted:
        if region.shape != (height, width):
            raise ImageError(
                f'a region of "{catalog.name(i)}" is for {region.shape[1]}×{region.shape[0]} '
                f"pixels, the photo has {width}×{height}; annotate the photo itself."
            )
        if name == NOT_TOUCHED:
            labels[region] = corrections.NOT_CORRECTED
        elif name == BACKGROUND:
            labels[region] = 0
        else:
            labels[region] = catalog.classes.index(name) + 1
    return labels


def _tag_change(labels: Mask, catalog: Catalog, i: int) -> corrections.TagChange:
    """Return how the tags of a photo change: they follow the corrected mask."""
    seen = set()
    for label in np.unique(labels).tolist():
        if 0 < label <= len(catalog.classes):
            seen.add(catalog.classes[label - 1])
    tags = {catalog.classes[tag] for tag in catalog.tags(i)}
    removed = tags - seen if seen else set()
    return corrections.TagChange(tuple(sorted(seen - tags)), tuple(sorted(removed)))


def _read(settings: CorrectionSettings, catalog: Catalog, told: list[str]) -> Iterator[Drawn]:
    """Yield the photos of a file that have regions, all of known classes.

    Args:
        settings: those of the command.
        catalog: the photos of the run.
        told: gets sentences for the user.
    """
    source = settings.source
    mistakes = Mistakes(source)
    number = 0
    entries = _entries(settings, catalog, told)
    try:
        for number, drawn in enumerate(entries, start=1):
            _check_names([name for name, _ in drawn.regions], catalog, f"image {number}", mistakes)
            yield drawn
    except _CANNOT_DRAW as error:
        fault = f"a region cannot be drawn ({error})"
        raise TagmaskError(
            f"{source}, image {number + 1}: {fault}; correct it and export again."
        ) from None


def _entries(settings: CorrectionSettings, catalog: Catalog, told: list[str]) -> Iterator[Drawn]:
    """Read a file or folder by the tool that wrote it, which its content shows."""
    source = settings.source
    if source.is_dir():
        files = labelme_files(source)
        return drawn_in_labelme(source, files) if files else drawn_in_masks(source, catalog.classes)
    if source.suffix.lower() == ".zip":
        _refuse_other_zip(source)
    if source.suffix.lower() in (".xml", ".zip"):
        return drawn_in_cvat(source)
    value = read_json(source)
    if isinstance(value, list):
        _refuse_short_form(source, value)
        return drawn_in_tasks(value)
    if is_labelme(value):
        return drawn_in_labelme(source.parent, [source])
    if settings.images is None:
        raise TagmaskError(
            f"{source} is read as COCO, which needs --images; give the folder of the photos."
        )
    return _coco(settings.images, source, catalog, told)


def _refuse_short_form(source: Path, value: list[object]) -> None:
    """Refuse Label Studio's JSON-MIN, which has no kinds of regions."""
    tasks = [task for task in value if isinstance(task, dict)]
    if tasks and not any("data" in task for task in tasks):
        raise TagmaskError(
            f"{source} is no JSON export of Label Studio (perhaps JSON-MIN, its short form); "
            "export the project as JSON."
        )


def _refuse_other_zip(source: Path) -> None:
    """Refuse the zip of another export than CVAT's, and say what to do with it."""
    check_readable(source)
    if not zipfile.is_zipfile(source):
        return
    try:
        with zipfile.ZipFile(source) as archive:
            names = archive.namelist()
    except ZIP_FAULTS:  # reading it says what is wrong
        return
    if "annotations.xml" in names:
        return
    if "classes.txt" in names:
        raise TagmaskError(
            f"{source} is an export to YOLO, which has no background and rounds its outlines; "
            "export Label Studio's JSON, or COCO."
        )
    found = [name for name in names if name.endswith(".json")]
    if found:
        raise TagmaskError(
            f"{source} holds {found[0]}, as an export to COCO does. Label Studio leaves brushes "
            "out of it: export its JSON instead; of other tools unpack it and give that file."
        )


def _check_names(names: Sequence[str], catalog: Catalog, place: str, mistakes: Mistakes) -> None:
    """Refuse classes that the images do not have."""
    for name in names:
        if name not in (BACKGROUND, NOT_TOUCHED, *catalog.classes):
            known = ", ".join(catalog.classes[:8])
            mistakes.add("class", place, f'"{name}" is no class of these images: {known}')
    mistakes.raise_if_any()


def _coco(images: Path, source: Path, catalog: Catalog, told: list[str]) -> Iterator[Drawn]:
    """Yield the photos of COCO's instances; what is left out of them is told."""
    annotated = read_coco(images, source, loose=True)
    told += annotated.notes
    if not annotated.has_masks:
        raise TagmaskError(f"{source} has boxes only; export outlines or masks.")
    used = [annotated.classes[c] for c in np.flatnonzero(annotated.class_counts()).tolist()]
    _check_names(used, catalog, "categories", Mistakes(source))
    names = {corrections.NOT_CORRECTED: NOT_TOUCHED}
    names |= dict(enumerate(annotated.classes, start=1))
    for item in annotated:
        mask = annotated.load_mask(item.index)
        assert mask is not None
        labels = [label for label in np.unique(mask).tolist() if label]
        file = os.path.abspath(item.image or item.name)
        yield Drawn(file, [(names[label], mask == label) for label in labels])
