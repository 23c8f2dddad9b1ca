"""Draw the picture at the top of the README: photos with tags, where the tags are, and masks.

    tagmask run --preset own-photos --images photos --tags tags.csv --out run
    python scripts/hero.py --run run --images photos --to docs/pictures/hero.jpg \\
        chelsea.png=cat astronaut.png=person coffee.png=cup grace_hopper.jpg=person

The photos come with scikit-image (chelsea, astronaut, coffee) and matplotlib (grace_hopper) and may be
shown. They are among the photos of the run, one tag each; docs/gallery.md says which others are.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from scipy import ndimage

from tagmask.data.images import read_image, read_mask
from tagmask.files import replacing
from tagmask.layout import PREDICTIONS, SEEDS, label_file, seed_file
from tagmask.show.overlay import heat_overlay
from tagmask.show.sheet import INK, PAPER, font_for
from tagmask.stages.seeds import as_float, read_seeds

# twice the width at which a README is shown
WIDTH = 1760
GAP = 16
RATIO = 0.8
TEXT = 34
BORDER = (208, 65, 88)
TITLES = (
    "You have photos, and know what is in them",
    "tagmask finds where each tag is",
    "and trains a network that makes masks",
)
Picture = NDArray[np.uint8]


def mask_picture(photo: Picture, mask: NDArray[Any]) -> Picture:
    """Return a photo cut out by its mask: the rest is pale, and the border has a colour."""
    inside = mask > 0
    pale = photo.mean(axis=2, keepdims=True) * 0.15 + 255 * 0.82  # (H, W, 1)
    cut = np.where(inside[..., None], photo, pale)
    thickness = max(2, len(photo) // 120)
    border = ndimage.binary_dilation(inside, iterations=thickness) & ~inside
    cut[border] = BORDER
    return cut.clip(0, 255).astype(np.uint8)


def cell(picture: Picture, width: int) -> Image.Image:
    """Return the middle of a picture, cut to the form of a cell and resized to its width."""
    height = round(width * RATIO)
    scale = max(width / picture.shape[1], height / picture.shape[0])
    size = (round(picture.shape[1] * scale), round(picture.shape[0] * scale))
    large = Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS)
    left = (large.width - width) // 2
    # faces are above the middle
    top = (large.height - height) // 4
    return large.crop((left, top, left + width, top + height))


def column(run: Path, images: Path, file: str, width: int) -> list[Image.Image]:
    """Return photo, map and mask of one photo of a run."""
    photo = read_image(images / file)
    name = Path(file).with_suffix("").as_posix()
    maps = read_seeds(seed_file(run / SEEDS, name))
    heat = heat_overlay(photo, as_float(maps["refined"][0]))
    mask = read_mask(label_file(run / PREDICTIONS, name), 255)
    return [cell(picture, width) for picture in (photo, heat, mask_picture(photo, mask))]


def main() -> None:
    """Draw the columns, titles and tags."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", nargs="+", help="FILE=TAG")
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True)
    options = parser.parse_args()
    width = (WIDTH - GAP * (len(options.photos) - 1)) // len(options.photos)
    line = round(TEXT * 1.9)
    step = round(width * RATIO) + line
    paper = Image.new("RGB", (WIDTH, step * len(TITLES)), PAPER)
    draw = ImageDraw.Draw(paper)
    font = font_for("a", TEXT)
    for row, title in enumerate(TITLES):
        draw.text((2, row * step + line // 2), title, INK, font, anchor="lm")
    for index, argument in enumerate(options.photos):
        file, _, tag = argument.partition("=")
        left = index * (width + GAP)
        for row, picture in enumerate(column(options.run, options.images, file, width)):
            paper.paste(picture, (left, row * step + line))
        box = draw.textbbox((left + 16, line + 16), tag, font)
        draw.rectangle((box[0] - 12, box[1] - 10, box[2] + 12, box[3] + 10), PAPER)
        draw.text((left + 16, line + 16), tag, INK, font)
    with replacing(options.to) as partial:
        paper.save(partial, format="JPEG", quality=82, optimize=True)


if __name__ == "__main__":
    main()
