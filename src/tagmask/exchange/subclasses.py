"""Sub-classes of a tag: its regions sorted into kinds, names from a table, new tags to learn from.

kinds/kinds.png     the most typical regions of each kind, with their numbers
      kinds.csv     kind, name, regions, photos: a person fills in names
      regions.csv   region, kind, name, photo, …: a name here counts more than that of the kind
      regions.npz   vectors of the regions, for those that get no name
      made_by.json  the tag, and the photo and kind of each region

A region is a connected piece of the tag in the mask of a photo; small pieces beside larger ones are
left out. What a person leaves without a name is named by a regression on what has one. The new
table has the names of a photo's regions in place of the tag.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import ndimage

from tagmask import layout
from tagmask.config import SubclassSettings, check
from tagmask.data.catalog import Catalog
from tagmask.data.images import Picture, read_mask
from tagmask.data.open import open_catalog
from tagmask.data.report import Mistakes
from tagmask.data.table import clean_tag
from tagmask.errors import ImageError, TagmaskError, first_of, typed
from tagmask.exchange.items import Region
from tagmask.exchange.numbers import harmless
from tagmask.features.cache import TokenStore
from tagmask.files import (
    is_a,
    read_arrays,
    read_object,
    read_text,
    reading,
    write_arrays,
    write_json,
    write_text,
)
from tagmask.inference.subclasses import learn_names, region_vector, sort_regions, typicality
from tagmask.models.device import on_device
from tagmask.models.head import HeadSegmenter
from tagmask.models.kinds import load_segmenter
from tagmask.progress import track
from tagmask.runs.images import list_skipped
from tagmask.runs.record import check_classes
from tagmask.show.sheet import LOWEST, Cell, resize, save_picture, sheet

KINDS = "kinds.csv"
REGIONS = "regions.csv"
PICTURE = "kinds.png"
VECTORS = "regions.npz"
SMALL = 0.1  # pieces with a smaller share of the tag's pixels in their photo are left out
SHOWN = 8  # regions of a kind in the picture
_AROUND = 0.15  # of the box, shown on each side of a region
_DIMMED = 0.45  # brightness outside the region
_LIMITED = 0.2  # gigabytes of tokens that may be added to those of the run


@dataclass(frozen=True)
class _Piece:
    """A region of the tag."""

    index: int  # of the photo
    pixels: int
    box: tuple[slice, slice]  # rows and columns


@dataclass
class _Found:
    """All regions of a tag."""

    pieces: list[_Piece] = field(default_factory=list)
    vectors: list[torch.Tensor] = field(default_factory=list)  # (F,) each
    empty: list[str] = field(default_factory=list)  # photos with the tag, but without a region
    damaged: dict[str, str] = field(default_factory=dict)


def subclasses(settings: SubclassSettings) -> str:
    """Sort the regions of a tag, or write the tags that follow from their names.

    Args:
        settings: those of the command.

    Returns:
        A summary for the user.

    Raises:
        TagmaskError: the run or the tables cannot be used.
    """
    check(settings)
    assert settings.to is not None
    with reading(settings.out):
        catalog = open_catalog(settings, settings.out)
        if settings.names is not None:
            return write_tags(catalog, settings.names, settings.to)
        return write_kinds(settings, catalog, settings.to)


def write_kinds(settings: SubclassSettings, catalog: Catalog, to: Path) -> str:
    """Sort the regions of a tag and write tables and a picture of them.

    Args:
        settings: those of the command.
        catalog: the photos and their tags.
        to: the folder.

    Returns:
        A summary for the user.
    """
    tag = settings.tag or ""
    if tag not in catalog.classes:
        raise TagmaskError(
            f"--tag {tag!r} is no tag of these photos; they have {first_of(catalog.classes, 8)}."
        )
    labels = settings.labels or settings.out / layout.PREDICTIONS
    check_classes(labels, catalog.classes, "masks")
    found = _find_regions(settings.out, catalog, labels, catalog.classes.index(tag))
    if len(found.pieces) < settings.into:
        raise TagmaskError(
            f"there are {len(found.pieces)} regions of {tag!r} in {labels}; "
            f"that is too few for --into {settings.into}."
        )
    vectors = torch.stack(found.vectors)  # (R, F)
    kinds = sort_regions(vectors, settings.into)
    typical = typicality(vectors, kinds)
    save_picture(to / PICTURE, _picture(catalog, labels, tag, found.pieces, kinds, typical))
    write_arrays(to / VECTORS, vectors=vectors.half().cpu().numpy())
    regions = []
    for piece, kind in zip(found.pieces, kinds, strict=True):
        regions.append([catalog.name(piece.index), kind])
    write_json(to / layout.MADE_BY, {"subclasses": tag, "regions": regions})
    _write_csv(to / REGIONS, _region_rows(catalog, found.pieces, kinds, typical))
    _write_csv(to / KINDS, _kind_rows(found.pieces, kinds))
    lines = [*list_skipped(found.damaged)]
    if found.empty:
        lines.append(
            f"{len(found.empty)} photos tagged {tag!r} show none of it in their masks: "
            f"{first_of(found.empty, 5)}."
        )
    lines.append(f"{len(kinds)} regions of {tag!r} in {len(set(kinds))} kinds: {to / PICTURE}")
    lines.append(
        f"Name the kinds in {to / KINDS}, or some regions in {to / REGIONS}; then: "
        f"`tagmask subclasses --out {typed(settings.out)} --names {typed(to)} --to tags.csv`"
    )
    return "\n".join(lines)


def _find_regions(out: Path, catalog: Catalog, labels: Path, tag: int) -> _Found:
    """Return the regions of a tag with their vectors."""
    model = load_segmenter(out / layout.SEGMENTER)
    if not isinstance(model, HeadSegmenter):
        raise TagmaskError(
            f"{out / layout.SEGMENTER} does not work on tokens, which regions are compared by; "
            "make a run with --preset own-photos."
        )
    model = on_device(model)
    store = TokenStore.features_of(model.classifier, model.blocks, model.size, out, _LIMITED)
    tagged = [i for i in range(len(catalog)) if tag in catalog.tags(i)]
    found = _Found()
    for i in track(tagged, "regions", len(tagged)):
        name = catalog.name(i)
        try:
            mask = read_mask(layout.label_file(labels, name), len(catalog.classes))
            tokens = store.get(catalog, i)
        except ImageError as error:
            found.damaged[name] = str(error)
            continue
        cells = model.standardise(tokens.values[0])  # (n, F)
        is_empty = True
        for region, box in pieces_of(mask == tag + 1):
            vector = region_vector(cells, tokens.grid, region)
            if vector is None:
                continue
            is_empty = False
            found.vectors.append(vector)
            found.pieces.append(_Piece(i, int(region.sum()), box))
        if is_empty:
            found.empty.append(name)
    return found


def pieces_of(region: Region) -> Iterator[tuple[Region, tuple[slice, slice]]]:
    """Yield the connected pieces of a region and their boxes, small ones beside larger ones apart.

    Args:
        region: (H, W).
    """
    numbers, _ = ndimage.label(region)  # (H, W), 0 outside
    sizes = np.bincount(numbers.ravel())[1:]  # without the outside
    total = int(sizes.sum())
    for number, box in enumerate(ndimage.find_objects(numbers), start=1):
        size = int(sizes[number - 1])
        # the largest piece counts even if there are many
        if size >= SMALL * total or size == sizes.max():
            down, across = box
            yield numbers == number, (down, across)


def _region_rows(
    catalog: Catalog, pieces: Sequence[_Piece], kinds: Sequence[int], typical: Sequence[float]
) -> list[list[Any]]:
    """Return header and rows of the table of regions."""
    header = ["region", "kind", "name", "photo", "left", "top", "right", "bottom", "pixels"]
    rows: list[list[Any]] = [[*header, "typical"]]
    for number, piece in enumerate(pieces, start=1):
        down, across = piece.box
        box = [across.start, down.start, across.stop - 1, down.stop - 1]
        photo = harmless(_file_of(catalog, piece.index))
        closeness = f"{typical[number - 1]:.3f}"
        rows.append([number, kinds[number - 1], "", photo, *box, piece.pixels, closeness])
    return rows


def _kind_rows(pieces: Sequence[_Piece], kinds: Sequence[int]) -> list[list[Any]]:
    """Return header and rows of the table of kinds."""
    rows: list[list[Any]] = [["kind", "name", "regions", "photos"]]
    for kind in sorted(set(kinds)):
        own = [piece.index for piece, other in zip(pieces, kinds, strict=True) if other == kind]
        rows.append([kind, "", len(own), len(set(own))])
    return rows


def _picture(
    catalog: Catalog,
    labels: Path,
    tag: str,
    pieces: Sequence[_Piece],
    kinds: Sequence[int],
    typical: Sequence[float],
) -> Picture:
    """Return a sheet with a row for each kind: its most typical regions, each photo once."""
    label = catalog.classes.index(tag) + 1
    rows = []
    for kind in sorted(set(kinds)):
        own = [i for i, other in enumerate(kinds) if other == kind]
        own.sort(key=lambda i: -typical[i])
        cells: list[Cell] = []
        seen: set[int] = set()
        for i in own:
            piece = pieces[i]
            if piece.index in seen or len(cells) == SHOWN:
                continue
            seen.add(piece.index)
            mask = read_mask(
                layout.label_file(labels, catalog.name(piece.index)), len(catalog.classes)
            )
            caption = f"kind {kind}\nregion {i + 1}" if not cells else f"region {i + 1}"
            cells.append((caption, _cut_out(catalog.load_image(piece.index), mask == label, piece)))
        rows.append(cells)
    return sheet(rows)


def _cut_out(photo: Picture, region: Region, piece: _Piece) -> Picture:
    """Return the part of a photo around a region, darker outside it."""
    if photo.shape[:2] != region.shape:
        raise ImageError("a photo has another size than its mask; run the stages again.")
    shown = []
    for side, length in zip(piece.box, region.shape, strict=True):
        margin = max(2, round(_AROUND * (side.stop - side.start)))
        shown.append(slice(max(0, side.start - margin), min(length, side.stop + margin)))
    part = photo[shown[0], shown[1]].astype(np.float32)
    inside = region[shown[0], shown[1]][..., None]  # (h, w, 1)
    brightness = np.where(inside, 1.0, _DIMMED)  # (h, w, 1)
    picture: Picture = (part * brightness).round().astype(np.uint8)
    height, width = picture.shape[:2]
    scale = LOWEST / height
    return resize(picture, (LOWEST, max(1, round(width * scale))))


def write_tags(catalog: Catalog, folder: Path, to: Path) -> str:
    """Write a table of tags in which names of regions stand in place of the tag.

    Args:
        catalog: the photos and their tags.
        folder: what ``write_kinds`` has written, with names.
        to: the table.

    Returns:
        A summary for the user.

    Raises:
        TagmaskError: the tables have mistakes, or too few names.
    """
    note = read_object(folder / layout.MADE_BY, subclasses=str, regions=list)
    tag = note["subclasses"]
    photos = _photos_of(note["regions"], folder / layout.MADE_BY)
    names = _given_names(folder, len(photos))
    if not any(names):
        raise TagmaskError(
            f"{folder / KINDS} and {folder / REGIONS} have no name yet; "
            "write some into their column name."
        )
    lines: list[str] = []
    if None in names:
        whole, lines = _learned(folder, names)
    else:
        whole = [str(name) for name in names]
    by_photo: dict[str, set[str]] = {}
    for photo, name in zip(photos, whole, strict=True):
        by_photo.setdefault(photo, set()).add(name)
    rows, left_out = _new_rows(catalog, tag, by_photo)
    _write_csv(to, rows)
    counts = ", ".join(
        f"{name} {sum(name in own for own in by_photo.values())}" for name in sorted(set(whole))
    )
    lines.append(f"photos with each name: {counts}")
    if left_out:
        lines.append(
            f"{len(left_out)} photos tagged {tag!r} have no region and are left out: "
            f"{first_of(left_out, 5)}. Add them to {to} by hand if you know what they show."
        )
    lines.append(f"{len(rows) - 1} photos in {to}; learn from it in a new --out.")
    return "\n".join(lines)


def _photos_of(regions: list[Any], file: Path) -> list[str]:
    """Return the photo of each region."""
    photos = []
    for row in regions:
        is_whole = isinstance(row, list) and len(row) == 2 and is_a(row[0], str)
        if not is_whole:
            raise TagmaskError(f"{file} is damaged; write the folder again with --tag.")
        photos.append(row[0])
    return photos


def _given_names(folder: Path, count: int) -> list[str | None]:
    """Return the name of each region: its own, or that of its kind; None where it has none."""
    mistakes = Mistakes(folder / KINDS)
    of_kind = {}
    for place, row in _read_csv(folder / KINDS, ("kind", "name")):
        of_kind[row["kind"]] = _clean(row["name"], place, mistakes)
    mistakes.raise_if_any()
    mistakes = Mistakes(folder / REGIONS)
    names: dict[int, str | None] = {}
    for place, row in _read_csv(folder / REGIONS, ("region", "kind", "name")):
        number = row["region"]
        if not number.isdecimal() or not 1 <= int(number) <= count:
            mistakes.add("region", place, f'there is no region "{number}"')
        elif row["kind"] not in of_kind:
            mistakes.add("kind", place, f'"{row["kind"]}" is no kind of {KINDS}')
        else:
            own = _clean(row["name"], place, mistakes)
            names[int(number)] = own or of_kind[row["kind"]]
    mistakes.raise_if_any()
    return [names.get(number) for number in range(1, count + 1)]


def _clean(name: str, place: str, mistakes: Mistakes) -> str | None:
    """Return a name as tags are kept; None if there is none."""
    if not name.strip():
        return None
    try:
        return clean_tag(name)
    except TagmaskError as error:
        mistakes.add("name", place, str(error))
        return None


def _learned(folder: Path, names: Sequence[str | None]) -> tuple[list[str], list[str]]:
    """Return the name of every region, and how well those that were left open could be named."""
    open_ones = sum(name is None for name in names)
    if len(set(names) - {None}) < 2:
        raise TagmaskError(
            f"{open_ones} regions have no name, and there is only one name to choose from; "
            "give at least two, or a name to every kind."
        )
    arrays = read_arrays(folder / VECTORS, ["vectors"], "tagmask subclasses --tag")
    vectors = torch.from_numpy(arrays["vectors"]).float()
    if vectors.ndim != 2 or len(vectors) != len(names):
        raise TagmaskError(f"{folder / VECTORS} is damaged; write the folder again with --tag.")
    whole, checked = learn_names(vectors, names)
    shares = ", ".join(f"{name} {right} of {total}" for name, (right, total) in checked.items())
    return whole, [
        f"{open_ones} regions without a name were named by the others; of those with a name, "
        f"models that had not seen them name rightly: {shares}."
    ]


def _new_rows(
    catalog: Catalog, tag: str, by_photo: Mapping[str, set[str]]
) -> tuple[list[list[str]], list[str]]:
    """Return header and rows of the new table, and the photos that cannot be in it."""
    rows = [["file", "tags"]]
    left_out = []
    for i in range(len(catalog)):
        name = catalog.name(i)
        tags = {catalog.classes[c] for c in catalog.tags(i)}
        if tag in tags:
            if name not in by_photo:
                left_out.append(name)
                continue
            tags = (tags - {tag}) | by_photo[name]
        rows.append([_file_of(catalog, i), ";".join(sorted(tags))])
    return rows, left_out


def _file_of(catalog: Catalog, i: int) -> str:
    """Return the path of a photo as a table of tags lists it."""
    image = catalog.item(i).image
    return catalog.name(i) + ("" if image is None else image.suffix)


def _write_csv(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    """Write a table."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_text(path, text.getvalue())


def _read_csv(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield place and cells of each row, also as a spreadsheet has saved them.

    Args:
        path: the file.
        columns: those that are needed.

    Raises:
        TagmaskError: one of them is missing.
    """
    text = read_text(path)
    first_line = text.split("\n", 1)[0]
    delimiter = next((mark for mark in (",", ";", "\t") if mark in first_line), ",")
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    missing = [name for name in columns if name not in (reader.fieldnames or ())]
    if missing:
        raise TagmaskError(
            f'{path} has no column "{missing[0]}"; write the folder again with --tag.'
        )
    for row in reader:
        yield f"line {reader.line_num}", {name: (row[name] or "").strip() for name in columns}
