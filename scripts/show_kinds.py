"""Draw the picture of docs/how-to/subclasses.md: kinds of one tag, on drawn pictures.

    python scripts/show_kinds.py --work work --to docs/pictures/subclasses.jpg

Cows, crabs and fish of the built-in scenes are all tagged "animal"; their true masks are sorted by
the small built-in network. It takes a minute and downloads nothing.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from tagmask.data.images import write_mask
from tagmask.data.scenes.catalog import CLASSES, Scenes

ANIMALS = ("cow", "crab", "fish")
PHOTOS = 120
WIDTH = 1760  # pixels: twice the width of a page
# a small network and few steps: the masks of the run are not used
SMALL = (
    *("--train.backbone", "tagmask_tiny", "--train.freeze", "2", "--train.size", "64"),
    *("--train.object-blocks", "1", "3", "--train.object-size", "64"),
    *("--seeds.affinity-blocks", "2", "3", "--segment.head-blocks", "1", "3"),
    *("--segment.size", "64", "--segment.steps", "50", "--no-estimate", "--rows", "0"),
)


def write_set(folder: Path) -> None:
    """Write photos, tags, and masks with the labels of a run.

    Args:
        folder: where to.
    """
    (folder / "photos").mkdir(parents=True, exist_ok=True)
    names = ["animal" if name in ANIMALS else name for name in CLASSES]
    classes = sorted(set(names))
    lookup = np.zeros(256, np.uint8)
    for label, name in enumerate(names, start=1):
        lookup[label] = classes.index(name) + 1
    scenes = Scenes(PHOTOS)
    rows = ["file,tags"]
    for i in range(PHOTOS):
        name = scenes.name(i)
        Image.fromarray(scenes.load_image(i)).save(folder / f"photos/{name}.png")
        write_mask(folder / f"masks/{name}.png", lookup[scenes.load_mask(i)])
        tags = sorted({names[c] for c in scenes.tags(i)})
        rows.append(f"{name}.png,{';'.join(tags)}")
    (folder / "tags.csv").write_text("\n".join(rows) + "\n")


def tagmask(*words: str) -> None:
    """Run a command of tagmask."""
    subprocess.run([sys.executable, "-m", "tagmask", *words], check=True)


def main() -> None:
    """Make the set, a run and the kinds, and write the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True)
    options = parser.parse_args()
    work = options.work
    write_set(work)
    run = str(work / "run")
    tagmask("run", str(work / "photos"), str(work / "tags.csv"), "--out", run, *SMALL)
    # names that somebody has written are never overwritten, so an earlier picture goes first
    shutil.rmtree(work / "kinds", ignore_errors=True)
    kinds = ("--tag", "animal", "--into", "6", "--labels", str(work / "masks"))
    tagmask("subclasses", run, *kinds, "--to", str(work / "kinds"))
    with Image.open(work / "kinds/kinds.png") as picture:
        height = round(picture.height * WIDTH / picture.width)
        small = picture.convert("RGB").resize((WIDTH, height), Image.Resampling.LANCZOS)
        small.save(options.to, quality=88)


if __name__ == "__main__":
    main()
