"""The gallery of a report: which images to show, their pictures, and the rows on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

from tagmask.labels import UNSURE, Mask, voc_palette
from tagmask.show.html import data_uri, escape
from tagmask.show.overlay import heat_overlay, mask_overlay
from tagmask.show.report_data import Case
from tagmask.show.seeds import resize_map
from tagmask.show.sheet import Picture, resize

LONGEST = 288  # pixels of the longer side of a picture
BUDGET = 2_200_000  # characters that all pictures of a page may take
STEPS = ((LONGEST, 85), (240, 75), (176, 60), (112, 50))  # longer side and JPEG quality, until the budget is kept


def pick(count: int, rows: int) -> tuple[range, range, range]:
    """Of ``count`` ranked images the places of the first, the middle and the last; at most ``rows``, none twice."""
    rows = min(rows, count)
    first, middle = -(-rows // 3), (rows + 1) // 3
    last = rows - first - middle
    start = first + (count - first - last - middle) // 2
    return range(first), range(start, start + middle), range(count - last, count)


def fitted(height: int, width: int) -> tuple[int, int]:
    """(height, width) on the page: large pictures reduced, small ones enlarged by a whole number."""
    longest = max(height, width)
    if longest > LONGEST:
        return max(1, round(height * LONGEST / longest)), max(1, round(width * LONGEST / longest))
    times = LONGEST // longest
    return height * times, width * times


def heat_picture(image: Picture, map: npt.NDArray[np.float64]) -> Picture:
    """The map (H, W) over its image, at the size of the page."""
    size = fitted(*image.shape[:2])
    return heat_overlay(resize(image, size), resize_map(map, size))


def mask_picture(image: Picture, mask: Mask) -> Picture:
    """The mask (H, W) over its image, at the size of the page, so that outlines stay thin."""
    size = fitted(*image.shape[:2])
    labels = Image.fromarray(mask).resize(size[::-1], Image.Resampling.NEAREST)
    return mask_overlay(resize(image, size), np.asarray(labels))


def plain_picture(image: Picture) -> Picture:
    return resize(image, fitted(*image.shape[:2]))


def gallery(cases: Sequence[Case], groups: Mapping[str, str], classes: Sequence[str]) -> str:
    """The rows under the heads of their groups ({group: head}), with the colours of the classes first."""
    uris = _encoded(cases)
    parts = [_colours(frozenset().union(*(case.labels for case in cases)), classes)]
    for group, head in groups.items():
        rows = [_row(case, uris) for case in cases if case.group == group]
        parts += [f"<h3>{escape(head)}</h3>", *rows] if rows else []
    return "\n".join(parts)


def _encoded(cases: Sequence[Case]) -> dict[int, str]:
    """Data URIs by the identity of the picture, as good as the budget allows."""
    pictures = [picture for case in cases for _, picture in case.pictures if picture is not None]
    uris: dict[int, str] = {}
    for longest, quality in STEPS:
        uris = {id(picture): data_uri(picture, longest, quality) for picture in pictures}
        if sum(map(len, uris.values())) <= BUDGET:
            break
    return uris


def _row(case: Case, uris: Mapping[int, str]) -> str:
    cells = []
    for caption, picture in case.pictures:
        shown = "–"
        if picture is not None:
            height, width = picture.shape[:2]
            shown = (
                f'<img src="{uris[id(picture)]}" width="{width}" height="{height}" '
                f'alt="{escape(case.name)}: {escape(caption)}">'
            )
        cells.append(f"<figure>{shown}<figcaption>{escape(caption)}</figcaption></figure>")
    return (
        f'<div class="case"><header><b>{escape(case.name)}</b><span class="muted">{escape(case.told)}</span></header>'
        f'<div class="strip" style="--columns:{len(cells)}">{"".join(cells)}</div></div>'
    )


def _colours(labels: frozenset[int], classes: Sequence[str]) -> str:
    entries = []
    for label in sorted(labels - {0}):
        if label == UNSURE:
            entries.append('<span><i class="swatch hatched"></i>unsure</span>')
        else:
            colour = "#{:02x}{:02x}{:02x}".format(*voc_palette()[label].tolist())
            name = escape(classes[label - 1])
            entries.append(f'<span><i class="swatch" style="background:{colour}"></i>{name}</span>')
    return f'<div class="legend">{"".join(entries)}</div>'
