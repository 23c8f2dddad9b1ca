"""PASCAL VOC 2012 and everything in its layout.

    root/JPEGImages/ID.jpg
         SegmentationClassAug/ID.png or SegmentationClass/ID.png
         Annotations/ID.xml
         ImageSets/Segmentation/SPLIT.txt

Tags come from the XML annotations (all objects, also "difficult" ones), or from the mask of an
image without one.
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
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
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
)
_MASK_FOLDERS = ("SegmentationClassAug", "SegmentationClass")
_LABEL_FOLDERS = (*_MASK_FOLDERS, "Annotations")
_Entry = tuple[str, Path | None, Path | None]  # name, and mask and annotation, if any


def read_voc(root: Path, split: str | Path = "train_aug") -> Catalog:
    """Read one split.

    Args:
        root: the folder VOC2012.
        split: a list in ``ImageSets/Segmentation`` by its name, or any list file by its path. Its
            lines hold an id, or the paths of image and mask
            ("/JPEGImages/ID.jpg /SegmentationClassAug/ID.png").

    Raises:
        TagmaskError: if the images or their labels are not there.
    """
    images = root / "JPEGImages"
    if not images.is_dir():
        raise TagmaskError(f"{root} holds no folder JPEGImages; give the folder VOC2012 itself.")
    source = _list_file(root, split)
    odd: list[str] = []
    listed = _read_list(source)
    present = set(walk(images, odd))
    found = {}
    missing = []
    for name, mask_path in listed.items():
        if f"{name}.jpg" in present:
            found[name] = mask_path
        else:
            missing.append(f"{name}.jpg")
    entries = _find_labels(root, found)
    _check_entries(entries, len(missing), source, root)
    tags, broken = _read_tags(entries, source)
    names = []
    masks = []
    for name, mask, _ in entries:
        if tags.get(name):
            names.append(name)
            masks.append(mask)
    if not names:
        raise TagmaskError(
            f"no image of {source} has a label; check Annotations and masks in {root}."
        )
    untagged = len(entries) - len(names) - len(broken)
    notes = [*left_out_notes(missing, odd, untagged), *broken_note(broken)]
    kept_tags = [tags[name] for name in names]
    files = [images / f"{name}.jpg" for name in names]
    return Catalog(CLASSES, names, kept_tags, images=files, masks=masks, notes=notes)


def _list_file(root: Path, split: str | Path) -> Path:
    """Return the list file of a split."""
    folder = root / "ImageSets" / "Segmentation"
    named = folder / f"{split}.txt"
    if named.is_file():
        return named
    if Path(split).is_file():
        return Path(split)
    names = sorted(path.stem for path in folder.glob("*.txt"))
    known = ", ".join(names) or "none"
    raise TagmaskError(
        f'there is no split "{split}": {folder} has {known}; name one of these or give a list file.'
    )


def _read_list(source: Path) -> dict[str, str]:
    """Return the ids of a list file, each with the path of its mask or ""."""
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
        mask = None
        if given and (root / given).is_file():
            mask = root / given
        for folder in _MASK_FOLDERS:
            if mask is None and f"{name}.png" in files[folder]:
                mask = root / folder / f"{name}.png"
        xml = None
        if f"{name}.xml" in files["Annotations"]:
            xml = root / "Annotations" / f"{name}.xml"
        entries.append((name, mask, xml))
    return entries


def _check_entries(entries: list[_Entry], missing: int, source: Path, root: Path) -> None:
    """Refuse a list none of whose images exists, and images without a mask or annotation."""
    if not entries:
        what = f"{source} lists no image"
        if missing:
            what = f"none of the {missing:,} images of {source} exists"
        raise TagmaskError(f"{what}; the images belong in {root / 'JPEGImages'}, as ID.jpg.")
    unlabelled = [name for name, mask, xml in entries if mask is None and xml is None]
    if unlabelled:
        raise TagmaskError(
            f"{len(unlabelled):,} images of {source} have neither mask nor annotation, for example "
            f"{unlabelled[0]}; put them into one of {', '.join(_LABEL_FOLDERS)} of {root}, or read "
            "JPEGImages as a folder with a table of tags."
        )


def _read_tags(entries: list[_Entry], source: Path) -> tuple[dict[str, list[int]], list[str]]:
    """Return the tags by name, and a sentence for each image whose label file is broken."""
    mistakes = Mistakes(source)
    tags: dict[str, list[int]] = {}
    broken: list[str] = []
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        results = pool.map(_tags_of, entries)
        for (name, _, xml), result in zip(entries, results, strict=True):
            if isinstance(result, ImageError):
                broken.append(str(result))
                continue
            for unknown in result.difference(CLASSES):
                fault = f'unknown class "{unknown}"; VOC has {", ".join(CLASSES)}'
                mistakes.add("class", str(xml), fault)
            tags[name] = [CLASSES.index(known) for known in result.intersection(CLASSES)]
    mistakes.raise_if_any()
    return tags, broken


def _tags_of(entry: _Entry) -> set[str] | ImageError:
    """Return the classes of one image.

    An error is returned, so that it does not end the work of the pool.
    """
    _, mask, xml = entry
    try:
        if xml is None:
            assert mask is not None
            labels = read_mask(mask, len(CLASSES))  # (H, W)
            return {name for label, name in enumerate(CLASSES, 1) if (labels == label).any()}
        text = read_text(xml, "replace")  # names of classes are ASCII
        objects = parse_xml(text, xml).iterfind("object/name")
        return {(name.text or "").strip() for name in objects}
    except TagmaskError as error:
        return ImageError(str(error))
