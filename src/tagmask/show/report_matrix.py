"""A confusion matrix as SVG: shares of each true class, hits in one colour and mistakes in another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tagmask.show.html import Cell, escape, percent_cell, table, text_cell

NUMBERED = 26  # up to this many classes the shares are written into the cells
FAINT = 0.005, 0.01  # smaller shares are not drawn, with and without numbers
_HEAD = 96  # pixels for the names of the classes


def matrix_chart(confusion: npt.NDArray[np.int64], names: Sequence[str]) -> str:
    """confusion (K, K+1), rows = truth, last column = unsure; names (K,)."""
    shares = row_shares(confusion)  # (K, K+1)
    drop = not confusion[:, -1].any()  # no pixel is unsure
    columns = [*names] if drop else [*names, "unsure"]
    side, faint = (34, FAINT[0]) if len(names) <= NUMBERED else (13, FAINT[1])
    width, height = _HEAD + side * len(columns) + 8, _HEAD + side * len(names) + 8
    parts = [_names(names, columns, side)]
    for row in range(len(names)):
        for column in range(len(columns)):
            if shares[row, column] >= faint:
                told = f"{names[row]} labelled {columns[column]}: {100 * shares[row, column]:.1f} %"
                parts.append(_square(row, column, float(shares[row, column]), side, told))
    return (
        f'<div class="wide"><svg viewBox="0 0 {width} {height}" style="width:{width}px;max-width:none" role="img" '
        f'aria-label="confusion matrix">{"".join(parts)}</svg></div>'
    )


def row_shares(confusion: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Each row divided by its sum; a class without a pixel stays 0."""
    counts = confusion.astype(np.float64)
    shares: npt.NDArray[np.float64] = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return shares


def worst_confusions(confusion: npt.NDArray[np.int64], names: Sequence[str], most: int = 10) -> str:
    """A table of the most frequent mistakes, by their share of the true class."""
    shares = row_shares(confusion)
    np.fill_diagonal(shares, 0)
    columns = [*names, "unsure"]
    order = np.argsort(-shares, axis=None, kind="stable")[:most]
    rows: list[list[Cell]] = []
    for place in order.tolist():
        row, column = divmod(place, shares.shape[1])
        if shares[row, column] > 0:
            share: Any = shares[row, column]
            rows.append([text_cell(names[row]), text_cell(columns[column]), percent_cell(float(share), bar=True)])
    return table(["truth", "labelled as", "% of the true pixels"], rows)


def _names(rows: Sequence[str], columns: Sequence[str], side: int) -> str:
    size = 11.5 if side > 20 else 9
    parts = []
    for number, name in enumerate(rows):
        y = _HEAD + side * (number + 0.5) + size / 3
        parts.append(
            f'<text x="{_HEAD - 6}" y="{y:.1f}" text-anchor="end" style="font-size:{size}px">{_cut(name)}</text>'
        )
    for number, name in enumerate(columns):
        x = _HEAD + side * (number + 0.5) + size / 3
        turned = f"translate({x:.1f} {_HEAD - 6}) rotate(-90)"
        parts.append(f'<text transform="{turned}" style="font-size:{size}px">{_cut(name)}</text>')
    return "".join(parts)


def _square(row: int, column: int, share: float, side: int, told: str) -> str:
    x, y = _HEAD + side * column, _HEAD + side * row
    colour = "good" if row == column else "bad"
    drawn = (
        f'<rect x="{x + 0.5}" y="{y + 0.5}" width="{side - 1}" height="{side - 1}" rx="2" '
        f'style="fill:var(--{colour});fill-opacity:{0.08 + 0.87 * share:.2f}"/>'
    )
    if side > 20:
        kind = "strong" if share > 0.55 else "dark"
        drawn += (
            f'<text class="{kind}" x="{x + side / 2}" y="{y + side / 2 + 4}" text-anchor="middle">'
            f"{100 * share:.0f}</text>"
        )
    return f"<g>{drawn}<title>{escape(told)}</title></g>"


def _cut(name: str, most: int = 14) -> str:
    return escape(name if len(name) <= most else name[: most - 1] + "…")
