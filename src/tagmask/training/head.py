"""Training a linear head on kept tokens: soft labels per cell, then rounds of learning from its own answers.

The soft label of a cell is the share of each label among its pixels; cells that are mostly unsure are left out. In a
round of self-training the head is asked again for every photo, told its tags, and learns from those probabilities.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from tagmask import layout
from tagmask.config import SegmentSettings
from tagmask.data.catalog import Catalog
from tagmask.data.corrections import fix
from tagmask.data.datasets import read_pair
from tagmask.errors import ImageError, TagmaskError
from tagmask.features.photo import Tokens
from tagmask.files import write_text
from tagmask.labels import UNSURE, Mask
from tagmask.models.head import HeadSegmenter
from tagmask.training.loop import total_steps

MOST_BYTES = 3e9  # of tokens held in memory; of more photos a random part of the cells is taken
TOUCHED = 0.25  # cells of which a person has labelled so much are taken as labelled by them
UNKNOWN = 0.5  # cells with a larger share of unsure pixels are left out
PART = 0.25  # of the cells drawn in a step that are corrected ones, as far as there are enough
OFTEN = 100.0  # times that a corrected cell is drawn as often as another, at most
Odds = np.ndarray[Any, np.dtype[np.float64]]


@dataclass
class Cells:
    """What the head learns from."""

    features: Tensor  # (M, F) float16
    labels: Tensor  # (M, K) float16, soft
    allowed: Tensor  # (M, K) bool: background and the tags of the cell's photo
    corrected: Tensor  # (M,) bool: a person has labelled a part of the cell

    def odds(self) -> "Odds | None":
        """How often each cell is drawn, added up (M,): corrected ones more often; None if there are none."""
        count, total = int(self.corrected.sum()), len(self.corrected)
        if not count:
            return None
        often = min(OFTEN, max(1.0, PART / (1 - PART) * (total - count) / count))
        return np.cumsum(np.where(self.corrected.numpy(), often, 1.0))


def soft_labels(mask: Mask, grid: tuple[int, int], classes: int) -> tuple[Tensor, Tensor]:
    """The share of each label (n, K) among the labelled pixels of every cell, and how much of it is labelled (n,)."""
    shares = torch.zeros(classes, *grid)
    known = _share(mask != UNSURE, grid)
    for label in np.unique(mask[mask != UNSURE]).tolist():
        shares[label] = _share(mask == label, grid)
    return (shares / known.clamp(min=1e-6)).flatten(1).T, known.flatten()


def person_labels(person: Mask, grid: tuple[int, int], classes: int) -> tuple[Tensor, Tensor]:
    """Soft labels (n, K) of the pixels that a person has labelled (others are 255), and which cells have them (n,)."""
    labels, share = soft_labels(person, grid, classes)
    return labels, (share > 0) & (
        share >= min(TOUCHED, float(share.max()) / 2)
    )  # of a small stroke its heart


def _share(pixels: np.ndarray[Any, Any], grid: tuple[int, int]) -> Tensor:
    """The share of true pixels (H, W) in every cell of a grid (h, w)."""
    return F.interpolate(
        torch.from_numpy(pixels.astype(np.float32))[None, None], grid, mode="area"
    )[0, 0]


def gather_cells(
    tokens_of: Callable[[int], Tokens],
    catalog: Catalog,
    labels: Path,
    model: HeadSegmenter,
    seed: int,
) -> tuple[Cells, dict[str, str]]:
    """Tokens and soft labels of every photo; photos that cannot be used are returned with the reason."""
    parts, broken = (
        list[tuple[Tensor, ...]](),
        dict[str, str](),
    )  # features, labels, allowed, corrected
    most = max(16, int(MOST_BYTES / (2 * len(model.shift) * max(1, len(catalog)))))
    for i in tqdm(range(len(catalog)), desc="tokens", unit="image"):
        try:
            _, mask = read_pair(catalog, i, labels)
            tokens, correction = tokens_of(i), catalog.load_correction(i)
            person = fix(np.full_like(mask, UNSURE), correction, catalog.name(i))
        except ImageError as error:
            broken[catalog.name(i)] = str(error)
            continue
        shares, known = soft_labels(mask, tokens.grid, model.num_classes)
        told, touched = person_labels(person, tokens.grid, model.num_classes)
        shares, known = (
            torch.where(touched[:, None], told, shares),
            torch.where(touched, 1.0, known),
        )
        cells = torch.nonzero(known >= UNKNOWN).flatten()
        if len(cells) > most:
            order = torch.from_numpy(
                np.random.default_rng([seed, i]).permutation(len(cells))[:most]
            )
            cells = torch.cat([cells[order], torch.nonzero(touched).flatten()]).unique()
        tags = torch.zeros(model.num_classes, dtype=torch.bool)
        tags[[0, *(tag + 1 for tag in catalog.tags(i))]] = True
        features = tokens.values[0, cells].half().cpu()
        parts.append((features, shares[cells].half(), tags.expand(len(cells), -1), touched[cells]))
    if not parts:
        raise TagmaskError(
            f"no photo can be learnt from; the first because: {next(iter(broken.values()), 'none')}"
        )
    return Cells(*map(torch.cat, zip(*parts, strict=True))), broken


def train_head(
    model: HeadSegmenter, cells: Cells, settings: SegmentSettings, folder: Path
) -> dict[str, float]:
    """Fit the head to the cells, with rounds of self-training; the log goes into ``folder``."""
    sample = cells.features[_draw(settings, -1, len(cells.features), 65_536)].float()
    model.shift.copy_(sample.mean(0))
    model.scale.copy_(sample.std(0).clamp(min=1e-6))
    labels, rows, began = cells.labels, list[str](), time.monotonic()
    steps = total_steps(settings, len(cells.features))
    bar = tqdm(total=steps * (settings.rounds + 1), desc="segment", unit="step")
    loss = 0.0
    for turn in range(settings.rounds + 1):
        if turn:
            labels = torch.where(cells.corrected[:, None], cells.labels, answers(model, cells))
        for step, loss in fit(model, cells, labels, settings, steps, turn):
            bar.update()
            if step % settings.log_every == 0 or step == steps:
                seconds = round(time.monotonic() - began, 2)
                rows.append(
                    json.dumps({"step": turn * steps + step, "loss": loss, "seconds": seconds})
                )
                bar.set_postfix_str(f"loss {loss:.4g}")
    bar.close()
    if not np.isfinite(loss):
        raise TagmaskError(f"the loss is {loss}; lower --lr (now {settings.lr}).")
    write_text(folder / layout.LOG, "".join(f"{row}\n" for row in rows))
    return {"loss": loss}


def fit(
    model: HeadSegmenter,
    cells: Cells,
    labels: Tensor,
    settings: SegmentSettings,
    steps: int,
    turn: int,
) -> Iterator[tuple[int, float]]:
    """One training of the head, from where it is; yields the step and its loss."""
    optimizer = torch.optim.AdamW(
        model.linear.parameters(), lr=settings.lr, weight_decay=settings.weight_decay
    )
    features, odds = cells.features, cells.odds()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * (1 - step / steps)
        chosen = _draw(settings, turn * steps + step, len(features), settings.cells, odds)
        scores = model.logits_of(features[chosen].to(model.shift.device).float()).log_softmax(
            -1
        )  # (B, K)
        loss = -(labels[chosen].to(scores) * scores).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield step + 1, float(loss.detach())


@torch.no_grad()
def answers(model: HeadSegmenter, cells: Cells) -> Tensor:
    """Soft labels (M, K) of the head itself, told the tags of each photo."""
    parts = []
    for features, allowed in zip(
        cells.features.split(65_536), cells.allowed.split(65_536), strict=True
    ):
        logits = model.logits_of(features.to(model.shift.device).float())
        parts.append(
            logits.masked_fill(~allowed.to(logits.device), -torch.inf).softmax(-1).half().cpu()
        )
    return torch.cat(parts)


def _draw(
    settings: SegmentSettings, step: int, total: int, count: int, odds: Odds | None = None
) -> Tensor:
    """Random cells of a step, a function of the seed, the step and the odds alone."""
    generator = np.random.default_rng([settings.seed, step + 1, 7])
    if odds is not None:
        places = np.searchsorted(odds, generator.random(min(count, total)) * odds[-1], side="right")
        return torch.from_numpy(places.clip(max=total - 1))
    return torch.from_numpy(generator.integers(0, total, min(count, total)))
