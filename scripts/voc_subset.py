"""Make the photos that the research pages call "the VOC subset", from your copy of PASCAL VOC 2012.

    python scripts/voc_subset.py --root VOCdevkit/VOC2012 --to VOC

The names are in docs/results/voc-subset-train.txt (1,600 of train_aug) and voc-subset-val.txt (300 of
val). Photos are reduced to a long side of 400 pixels (smaller ones stay) and stored as JPEG of
quality 87; masks of SegmentationClassAug (or SegmentationClass) by nearest neighbour. The photos
that were measured were made in the same way; which filter reduced them was not recorded, so expect
differences in the last digit.
"""

import argparse
import sys
from pathlib import Path

from PIL import Image

LISTS = Path(__file__).parents[1] / "docs/results"
SIDE = 400
QUALITY = 87


def reduced(image: Image.Image, filter: Image.Resampling) -> Image.Image:
    """Return an image with a long side of at most 400 pixels, its proportions kept."""
    scale = SIDE / max(image.size)
    if scale >= 1:
        return image
    width, height = (max(1, round(side * scale)) for side in image.size)
    return image.resize((width, height), filter)


def convert(root: Path, to: Path, name: str) -> None:
    """Write one photo and its mask.

    Args:
        root: Folder of VOC 2012.
        to: Folder of the subset.
        name: Name of the photo, e.g. "2008_000008".
    """
    folders = [root / folder for folder in ("SegmentationClassAug", "SegmentationClass")]
    masks = [folder / f"{name}.png" for folder in folders]
    mask = next((file for file in masks if file.is_file()), None)
    photo = root / f"JPEGImages/{name}.jpg"
    if mask is None or not photo.is_file():
        sys.exit(
            f"{name}: the photo or its mask is not in {root}; the masks of SBD are needed too."
        )
    with Image.open(photo) as image:
        small = reduced(image.convert("RGB"), Image.Resampling.BICUBIC)
    small.save(to / f"JPEGImages/{name}.jpg", quality=QUALITY)
    with Image.open(mask) as labels:
        labels.resize(small.size, Image.Resampling.NEAREST).save(
            to / f"SegmentationClassAug/{name}.png"
        )


def main() -> None:
    """Write photos, masks and lists."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--lists", type=Path, default=LISTS)
    options = parser.parse_args()
    for folder in ("JPEGImages", "SegmentationClassAug", "ImageSets/Segmentation"):
        (options.to / folder).mkdir(parents=True, exist_ok=True)
    for split in ("train", "val"):
        text = (options.lists / f"voc-subset-{split}.txt").read_text(encoding="utf-8")
        for name in text.split():
            convert(options.root, options.to, name)
        (options.to / f"ImageSets/Segmentation/{split}.txt").write_text(text, encoding="utf-8")
        print(f"{split}: {len(text.split())} photos in {options.to}.")


if __name__ == "__main__":
    main()
