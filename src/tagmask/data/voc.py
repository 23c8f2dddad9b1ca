"""PASCAL VOC 2012 and everything in its layout.

    root/JPEGImages/ID.jpg
         SegmentationClassAug/ID.png or SegmentationClass/ID.png
         Annotations/ID.xml
         ImageSets/Segmentation/SPLIT.txt

Tags come from the XML annotations (all objects, also "difficult" ones), or from the mask of an image without one.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tagmask.data.catalog import Catalog
from tagmask.data.images import read_mask, walk
from tagmask.data.report import Mistakes, broken_note, missing_note, odd_note, untagged_note
from tagmask.errors import ImageError, TagmaskError
from tagmask.files import read_text

CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
_MASK_FOLDERS = ("SegmentationClassAug", "SegmentationClass")


@dataclass(frozen=True)
class _Entry:
    """One line of a list: the image with its mask and annotation, if any."""

    name: str
    mask: Path | None
    xml: Path | None


def read_voc(root: Path, split: str | Path = "train_aug") -> Catalog:
    """Read one split.

    Args:
        root: the folder that holds ``JPEGImages``.
        split: a list in ``ImageSets/Segmentation`` by its name, or the path of any list file. Its lines hold
            an id, or the paths of image and mask ("/JPEGImages/ID.jpg /SegmentationClassAug/ID.png").
    """
    if not (root / "JPEGImages").is_dir():
        raise TagmaskError(f"{root} holds no folder JPEGImages; give the folder VOC2012 itself.")
    source = _list_file(root, split)
    listed = _read_list(source)
    odd: list[str] = []
    present = set(walk(root / "JPEGImages", odd))
    missing = [f"{name}.jpg" for name in listed if f"{name}.jpg" not in present]
    entries = _find_labels(root, {name: mask for name, mask in listed.items() if f"{name}.jpg" in present})
    if not entries:
        what = f"none of the {len(missing):,} images of {source} exists" if missing else f"{source} lists no image"
        raise TagmaskError(f"{what}; the images belong in {root / 'JPEGImages'}, as ID.jpg.")
    _refuse_unlabelled(entries, root, source)
    tags, broken = _read_tags(entries, source)
    kept = [(entry, tags[entry.name]) for entry in entries if tags.get(entry.name)]
    untagged = len(entries) - len(kept) - len(broken)
    if not kept:
        raise TagmaskError(f"no image of {source} has a label; check Annotations and masks in {root}.")
    return Catalog(
        CLASSES,
        [entry.name for entry, _ in kept],
        [classes for _, classes in kept],
        images=[root / "JPEGImages" / f"{entry.name}.jpg" for entry, _ in kept],
        masks=[entry.mask for entry, _ in kept],
        notes=[
            *missing_note([file for file in missing if file not in odd]),
            *odd_note(odd),
            *untagged_note(untagged),
            *broken_note(broken),
        ],
    )


def _list_file(root: Path, split: str | Path) -> Path:
    folder = root / "ImageSets" / "Segmentation"
    named = folder / f"{split}.txt"
    if named.is_file():
        return named
    if Path(split).is_file():
        return Path(split)
    known = ", ".join(sorted(path.stem for path in folder.glob("*.txt"))) or "none"
    raise TagmaskError(f'there is no split "{split}": {folder} has {known}; name one of these or give a list file.')


def _read_list(source: Path) -> dict[str, str]:
    """The ids of a list file, each with the path of its mask or ""."""
    mistakes = Mistakes(source)
    listed: dict[str, str] = {}
    lines = read_text(source).splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        image, *rest = line.split()
        name = Path(image).name.removesuffix(".jpg")
        if name in listed:
            mistakes.add("duplicate", f"line {number}", f'"{name}" is listed twice; keep one')
        listed[name] = rest[0].lstrip("/") if rest else ""
    mistakes.raise_if_any()
    return listed


def _find_labels(root: Path, listed: dict[str, str]) -> list[_Entry]:
    """Find masks and annotations; each folder is listed once."""
    folders = {name: root / name for name in (*_MASK_FOLDERS, "Annotations")}
    files = {name: set(walk(folder)) for name, folder in folders.items()}
    entries = []
    for name, given in listed.items():
        masks = [root / folder / f"{name}.png" for folder in _MASK_FOLDERS if f"{name}.png" in files[folder]]
        if given and (root / given).is_file():
            masks.insert(0, root / given)
        xml = root / "Annotations" / f"{name}.xml" if f"{name}.xml" in files["Annotations"] else None
        entries.append(_Entry(name, masks[0] if masks else None, xml))
    return entries


def _refuse_unlabelled(entries: list[_Entry], root: Path, source: Path) -> None:
    unlabelled = [entry.name for entry in entries if entry.mask is None and entry.xml is None]
    if unlabelled:
        folders = ", ".join((*_MASK_FOLDERS, "Annotations"))
        raise TagmaskError(
            f"{len(unlabelled):,} images of {source} have neither mask nor annotation, for example {unlabelled[0]}; "
            f"put them into one of {folders} of {root}, or read JPEGImages as a folder with a table of tags."
        )


def _read_tags(entries: list[_Entry], source: Path) -> tuple[dict[str, list[int]], list[str]]:
    """Tags by name, and a sentence for each image whose label file is broken."""
    mistakes = Mistakes(source)
    tags: dict[str, list[int]] = {}
    broken: list[str] = []
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for entry, result in zip(entries, pool.map(_tags_of, entries), strict=True):
            if isinstance(result, ImageError):
                broken.append(str(result))
                continue
            for name in result:
                if name not in CLASSES:
                    mistakes.add("class", str(entry.xml), f'unknown class "{name}"; VOC has {", ".join(CLASSES)}')
            tags[entry.name] = [CLASSES.index(name) for name in result if name in CLASSES]
    mistakes.raise_if_any()
    return tags, broken


def _tags_of(entry: _Entry) -> set[str] | ImageError:
    """The classes of one image; an error is returned, so that it does not end the work of the pool."""
    try:
        if entry.xml is None:
            assert entry.mask is not None
            labels = read_mask(entry.mask, len(CLASSES))  # (H, W)
            return {name for label, name in enumerate(CLASSES, 1) if (labels == label).any()}
        objects = ElementTree.parse(entry.xml).getroot().iterfind("object/name")
        return {(name.text or "").strip() for name in objects}
    except ImageError as error:
        return error
    except (ElementTree.ParseError, OSError, LookupError, ValueError, RecursionError) as error:  # also odd encodings
        return ImageError(f"{entry.xml} is damaged ({error}); copy it again or remove it.")
