"""One HTML page that needs no other file: its frame, sortable tables, and pictures as data URIs."""

from __future__ import annotations

import base64
import html
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from PIL import Image

from tagmask.show.page_style import SCRIPT, STYLE
from tagmask.show.sheet import Picture, check_picture, resize

# The browser itself then refuses to load anything that is not on the page.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


@dataclass(frozen=True)
class Cell:
    """A cell of a table: what is shown, what it is sorted by, and a class of the style sheet."""

    shown: str  # HTML
    key: float | str | None = None  # None sorts last
    kind: str = ""


def escape(text: object) -> str:
    """Any text as HTML; file names that are not valid UTF-8 show a question mark."""
    return html.escape(str(text).encode("utf-8", "replace").decode("utf-8"))


def page(title: str, body: str) -> str:
    """A whole page; light or dark as the reader's system is."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def section(name: str, title: str, *parts: str) -> str:
    """A headed part of the page that links can point to by ``name``."""
    return f'<section id="{escape(name)}">\n<h2>{escape(title)}</h2>\n' + "\n".join(parts) + "\n</section>"


def paragraph(text: str, kind: str = "") -> str:
    """A sentence of plain text; what stands between backticks is shown as code."""
    shown = re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))
    return f'<p class="{kind}">{shown}</p>' if kind else f"<p>{shown}</p>"


def details(title: str, *parts: str, opened: bool = False) -> str:
    """Parts behind a line that opens them."""
    return f"<details{' open' if opened else ''}><summary>{escape(title)}</summary>\n" + "\n".join(parts) + "</details>"


def table(heads: Sequence[str], rows: Iterable[Sequence[Cell]], sortable: bool = True, kind: str = "") -> str:
    """A table that scrolls sideways where it is too wide; a click on a head sorts by that column."""
    button = '<button type="button">{}</button>' if sortable else "{}"
    top = "".join(f'<th scope="col">{button.format(escape(head))}</th>' for head in heads)
    lines = ["<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows]
    names = " ".join(filter(None, ("sortable" if sortable else "", kind)))
    return (
        f'<div class="wide"><table class="{names}"><thead><tr>{top}</tr></thead>\n<tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def text_cell(text: object, kind: str = "") -> Cell:
    return Cell(escape(text), str(text).lower(), kind)


def number_cell(value: float | None, digits: int = 0) -> Cell:
    """A plain number; a dash where there is none."""
    if value is None or math.isnan(value):
        return Cell("–", None, "number")
    return Cell(f"{value:.{digits}f}", value, "number")


def percent_cell(value: float | None, bar: bool = False) -> Cell:
    """A fraction in per cent with one decimal, on request with a bar behind it."""
    if value is None or math.isnan(value):
        return Cell("–", None, "number")
    shown = f"{100 * value:.1f}"
    if bar:
        shown = f'<span class="bar" style="--part:{min(max(100 * value, 0), 100):.1f}%">{shown}</span>'
    return Cell(shown, round(value, 6), "number")


def percent(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{100 * value:.1f}"


def data_uri(picture: Picture, longest: int, quality: int) -> str:
    """A picture (H, W, 3) as JPEG inside the page, its longer side at most ``longest`` pixels."""
    image = check_picture(picture)
    scale = min(1.0, longest / max(image.shape[:2]))
    if scale < 1:
        image = resize(image, (max(1, round(image.shape[0] * scale)), max(1, round(image.shape[1] * scale))))
    file = io.BytesIO()
    # Full colour resolution, since the outlines of masks are a pixel wide.
    Image.fromarray(image).save(file, format="JPEG", quality=quality, subsampling=0)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def _cell(cell: Cell) -> str:
    key = "" if cell.key is None else f' data-key="{escape(cell.key)}"'
    kind = f' class="{cell.kind}"' if cell.kind else ""
    return f"<td{kind}{key}>{cell.shown}</td>"
