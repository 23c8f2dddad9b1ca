"""Make a folder of photos that may be shown, and its table of tags, for pictures of the studio.

    python scripts/show_photos.py --to photos --tags tags.csv chelsea.png=cat coffee.png=cup \\
        grace_hopper.jpg=person rocket.jpg=rocket

Each photo is cut out in several ways, so that a run has something to learn from; scripts/studio_way.py
takes it from there. The photos come with scikit-image and matplotlib.
"""

import argparse
import csv
from pathlib import Path

from PIL import Image, ImageOps

# left, top, right and bottom as shares of the photo
CUTS = (
    (0.0, 0.0, 1.0, 1.0),
    (0.0, 0.0, 0.85, 0.9),
    (0.12, 0.0, 1.0, 0.95),
    (0.05, 0.08, 0.95, 1.0),
    (0.1, 0.0, 0.9, 0.8),
    (0.0, 0.1, 0.9, 0.95),
)


def main() -> None:
    """Cut the photos, every second time mirrored."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", nargs="+", help="FILE=TAG")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--tags", type=Path, required=True)
    args = parser.parse_args()
    args.to.mkdir(parents=True, exist_ok=True)
    rows = []
    for word in args.photos:
        file, _, tag = word.rpartition("=")
        with Image.open(file) as opened:
            photo = opened.convert("RGB")
        width, height = photo.size
        for number, (left, top, right, bottom) in enumerate(CUTS):
            box = (left * width, top * height, right * width, bottom * height)
            part = photo.crop(box)
            if number % 2:
                part = ImageOps.mirror(part)
            name = f"{Path(file).stem}_{number}.jpg"
            part.save(args.to / name, quality=92)
            rows.append((name, tag))
    with args.tags.open("w", newline="") as table:
        lines = csv.writer(table)
        lines.writerow(["file", "tags"])
        lines.writerows(sorted(rows))


if __name__ == "__main__":
    main()
