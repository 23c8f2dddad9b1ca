"""A picture of confident regions: what is surely which class, surely background, and left open."""

from pathlib import Path

from tagmask.data.catalog import Catalog
from tagmask.data.images import read_mask
from tagmask.errors import TagmaskError
from tagmask.show.overlay import mask_overlay
from tagmask.show.sheet import Picture, save_picture, sheet


def show_regions(catalog: Catalog, folder: Path, path: Path, count: int = 8) -> None:
    """The first ``count`` images that have regions, each beside them; nothing where there are none."""
    rows: list[list[tuple[str, Picture]]] = []
    for i in range(len(catalog)):
        try:
            image = catalog.load_image(i)
            labels = read_mask(folder / f"{catalog.name(i)}.png", len(catalog.classes))
        except TagmaskError:
            continue
        names = ", ".join(catalog.classes[c] for c in catalog.tags(i))
        rows.append([(names, image), ("surely", mask_overlay(image, labels))])
        if len(rows) == count:
            break
    if rows:
        pairs = [[cell for row in rows[start : start + 2] for cell in row] for start in range(0, len(rows), 2)]
        save_picture(path, sheet(pairs))
