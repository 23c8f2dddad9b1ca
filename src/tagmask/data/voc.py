"""PASCAL VOC 2012 and everything in its layout.

    root/JPEGImages/ID.jpg
         SegmentationClassAug/ID.png or SegmentationClass/ID.png
         Annotations/ID.xml
         ImageSets/Segmentation/SPLIT.txt

Tags come from the XML annotations (all objects, also "difficult" ones), or from the mask of an image without one.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tagmask.data.catalog import Catalog
from tagmask.data.images import read_mask, walk
from tagmask.data.report import Mistakes, broken_note, left_out_notes
from tagmask.errors import ImageError, TagmaskError
from tagmask.files import parse_xml, read_text

CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *(
        "diningtable",
        "dog",
        "horse",
        "motorbike",
        "person",
        "pottedplant",
        "sheep",
        "sofa",
        "train",
        "tvmonitor",
    ),
)
_MASK_FOLDERS = ("SegmentationClassAug", "SegmentationClass")
_LABEL_FOLDERS = (*_MASK_FOLDERS, "Annotations")
_Entry = tuple[str, Path | None, Path | None]  # name, and mask and annotation, if any


def read_voc(root: Path, split: str | Path = "train_aug") -> Catalog:
    """Read one split: a list in ``ImageSets/Segmentation`` by its name, or any list file by its path.

    Its lines hold an id, or the paths of image and mask ("/JPEGImages/ID.jpg /SegmentationClassAug/ID.png").
    """
    if not (root / "JPEGImages").is_dir():
        raise TagmaskError(f"{root} holds no folder JPEGImages; give the folder VOC2012 itself.")
    source = _list_file(root, split)
    listed = _read_list(source)
    odd: list[str] = []
    present = set(walk(root / "JPEGImages", odd))
    missing = [f"{name}.jpg" for name in listed if f"{name}.jpg" not in present]
    entries = _find_labels(
        root, {name: mask for name, mask in listed.items() if f"{name}.jpg" in present}
    )
    if not entries:
        what = (
            f"none of the {len(missing):,} images of {source} exists"
            if missing
            else f"{source} lists no image"
        )
        raise TagmaskError(f"{what}; the images belong in {root / 'JPEGImages'}, as ID.jpg.")
    if unlabelled := [name for name, mask, xml in entries if mask is None and xml is None]:
        raise TagmaskError(
            f"{len(unlabelled):,} images of {source} have neither mask nor annotation, for example {unlabelled[0]}; "
            f"put them into one of {', '.join(_LABEL_FOLDERS)} of {root}, or read JPEGImages as a folder with a table "
            "of tags."
        )
    tags, broken = _read_tags(entries, source)
    kept = [(name, mask) for name, mask, _ in entries if tags.get(name)]
    if not kept:
        raise TagmaskError(
            f"no image of {source} has a label; check Annotations and masks in {root}."
        )
    return Catalog(
        CLASSES,
        [name for name, _ in kept],
        [tags[name] for name, _ in kept],
        images=[root / "JPEGImages" / f"{name}.jpg" for name, _ in kept],
        masks=[mask for _, mask in kept],
        notes=[
            *left_out_notes(missing, odd, len(entries) - len(kept) - len(broken)),
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
    raise TagmaskError(
        f'there is no split "{split}": {folder} has {known}; name one of these or give a list file.'
    )


def _read_list(source: Path) -> dict[str, str]:
    """The ids of a list file, each with the path of its mask or ""."""
    mistakes = Mistakes(source)
    listed: dict[str, str] = {}
    for number, line in enumerate(read_text(source).splitlines(), 1):
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
    files = {folder: set(walk(root / folder)) for folder in _LABEL_FOLDERS}
    entries: list[_Entry] = []
    for name, given in listed.items():
        masks = [
            root / folder / f"{name}.png"
            for folder in _MASK_FOLDERS
            if f"{name}.png" in files[folder]
        ]
        if given and (root / given).is_file():
            masks.insert(0, root / given)
        xml = (
            root / "Annotations" / f"{name}.xml" if f"{name}.xml" in files["Annotations"] else None
        )
        entries.append((name, masks[0] if masks else None, xml))
    return entries


def _read_tags(entries: list[_Entry], source: Path) -> tuple[dict[str, list[int]], list[str]]:
    """Tags by name, and a sentence for each image whose label file is broken."""
    mistakes = Mistakes(source)
    tags: dict[str, list[int]] = {}
    broken: list[str] = []
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for (name, _, xml), result in zip(entries, pool.map(_tags_of, entries), strict=True):
            if isinstance(result, ImageError):
                broken.append(str(result))
                continue
            for unknown in result.difference(CLASSES):
                mistakes.add(
                    "class", str(xml), f'unknown class "{unknown}"; VOC has {", ".join(CLASSES)}'
                )
            tags[name] = [CLASSES.index(known) for known in result.intersection(CLASSES)]
    mistakes.raise_if_any()
    return tags, broken


def _tags_of(entry: _Entry) -> set[str] | ImageError:
    """The classes of one image; an error is returned, so that it does not end the work of the pool."""
    _, mask, xml = entry
    try:
        if xml is None:
            assert mask is not None
            labels = read_mask(mask, len(CLASSES))  # (H, W)
            return {name for label, name in enumerate(CLASSES, 1) if (labels == label).any()}
        objects = parse_xml(read_text(xml, "replace"), xml).iterfind(
            "object/name"
        )  # names of classes are ASCII
        return {(name.text or "").strip() for name in objects}
    except TagmaskError as error:
        return ImageError(str(error))
