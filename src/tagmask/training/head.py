"""Training of a linear head on cached features: soft labels per cell, then self-training.

The soft label of a cell is the share of each label among its pixels; cells that are mostly unsure
are left out. In a round of self-training the head is asked again for every photo, with its tags,
and learns from those probabilities.
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

from tagmask import layout
from tagmask.config import HeadSettings
from tagmask.data.catalog import Catalog
from tagmask.data.corrections import fix
from tagmask.data.datasets import read_label
from tagmask.data.images import check_same_size
from tagmask.errors import ImageError, TagmaskError
from tagmask.features.photo import Tokens
from tagmask.files import write_text
from tagmask.labels import UNSURE, Mask
from tagmask.models.head import HeadSegmenter
from tagmask.progress import Bar, track

# bytes of features held in memory; of more photos a random part of the cells is taken
MOST_BYTES = 3e9
# cells of which a person has labelled so much are taken as labelled by them
TOUCHED = 0.25
# cells of which a smaller share of the pixels is labelled are left out
UNKNOWN = 0.5
# share of the cells drawn in a step that are corrected ones, as far as there are enough
PART = 0.25
# a corrected cell is drawn at most so many times as often as another
OFTEN = 30.0
_BATCH = 65_536  # cells that go through the head at once
Odds = np.ndarray[Any, np.dtype[np.float64]]


@dataclass
class Cells:
    """Cells that the head learns from."""

    features: Tensor  # (M, F) float16
    labels: Tensor  # (M, K) float16, soft
    allowed: Tensor  # (M, K) bool: background and the tags of the cell's photo
    corrected: Tensor  # (M,) bool: a person has labelled a part of the cell

    def odds(self) -> "Odds | None":
        """Return how often each cell is drawn, added up (M,); None if no cell is corrected.

        Corrected cells are drawn more often than others.
        """
        total = len(self.corrected)
        count = int(self.corrected.sum())
        if not count:
            return None
        wanted = PART / (1 - PART) * (total - count) / count
        often = min(OFTEN, max(1.0, wanted))
        return np.cumsum(np.where(self.corrected.numpy(), often, 1.0))


def soft_labels(mask: Mask, grid: tuple[int, int], classes: int) -> tuple[Tensor, Tensor]:
    """Return the share of each label among the labelled pixels of every cell.

    Args:
        mask: Labels (H, W) uint8, 255 = unsure.
        grid: Cells from top to bottom and from left to right, with h · w = n.
        classes: Number K of labels, with the background.

    Returns:
        Shares (n, K), and how much of each cell is labelled (n,) in [0, 1].
    """
    is_known = mask != UNSURE
    shares = torch.zeros(classes, *grid)  # (K, h, w)
    known = _share(is_known, grid)  # (h, w)
    for label in np.unique(mask[is_known]).tolist():
        shares[label] = _share(mask == label, grid)
    shares = shares / known.clamp(min=1e-6)
    return shares.flatten(1).T, known.flatten()


def person_labels(person: Mask, grid: tuple[int, int], classes: int) -> tuple[Tensor, Tensor]:
    """Return soft labels of the pixels that a person has labelled.

    Args:
        person: Labels (H, W) uint8; pixels that the person has not labelled are 255.
        grid: Cells from top to bottom and from left to right, with h · w = n.
        classes: Number K of labels, with the background.

    Returns:
        Shares (n, K), and which cells count as labelled by the person (n,) bool.
    """
    labels, share = soft_labels(person, grid, classes)  # (n, K), (n,)
    # a small stroke fills no cell: then those that it fills best count
    enough = min(TOUCHED, float(share.max()) / 2)
    return labels, (share > 0) & (share >= enough)


def _share(pixels: np.ndarray[Any, Any], grid: tuple[int, int]) -> Tensor:
    """Return the share of true pixels (H, W) in every cell of a grid (h, w)."""
    values = torch.from_numpy(pixels.astype(np.float32))[None, None]  # (1, 1, H, W)
    return F.interpolate(values, grid, mode="area")[0, 0]  # (h, w)


def gather_cells(
    tokens_of: Callable[[int], Tokens],
    catalog: Catalog,
    labels: Path,
    model: HeadSegmenter,
    seed: int,
) -> tuple[Cells, dict[str, str]]:
    """Collect features and soft labels of every photo.

    Args:
        tokens_of: Returns the frozen features of a photo, by its index in the catalog.
        catalog: Photos, tags and corrections.
        labels: Folder of the pseudo labels, named as the photos.
        model: Head that is to be trained.
        seed: Random seed of the choice of cells, if there are too many.

    Returns:
        The cells, and the photos that cannot be used with the reason.

    Raises:
        TagmaskError: If no photo can be used.
    """
    parts: list[tuple[Tensor, ...]] = []  # features, labels, allowed, corrected
    broken: dict[str, str] = {}
    classes = model.num_classes
    bytes_of_cell = 2 * len(model.shift)
    most = max(16, int(MOST_BYTES / (bytes_of_cell * max(1, len(catalog)))))
    for i in track(range(len(catalog)), "tokens", len(catalog)):
        name = catalog.name(i)
        try:
            mask = read_label(catalog, i, labels)
            tokens = tokens_of(i)
            check_same_size(tokens.shape, mask, name)
            person = fix(np.full_like(mask, UNSURE), catalog.load_correction(i), name)
        except ImageError as error:
            broken[name] = str(error)
            continue
        shares, known = soft_labels(mask, tokens.grid, classes)  # (n, K), (n,)
        corrections, touched = person_labels(person, tokens.grid, classes)  # (n, K), (n,)
        shares = torch.where(touched[:, None], corrections, shares)
        known = torch.where(touched, 1.0, known)
        chosen = _choose_cells(known, touched, most, [seed, i])  # (m,)
        # label 0 is the background, the label of a tag is one more than its number
        labels_of_photo = [0, *(tag + 1 for tag in catalog.tags(i))]
        allowed = torch.zeros(classes, dtype=torch.bool)
        allowed[labels_of_photo] = True
        part = (
            tokens.values[0, chosen].half().cpu(),  # (m, F)
            shares[chosen].half(),  # (m, K)
            allowed.expand(len(chosen), -1),  # (m, K)
            touched[chosen],  # (m,)
        )
        parts.append(part)
    if not parts:
        why = next(iter(broken.values()), "none")
        raise TagmaskError(f"no photo can be learnt from; the first because: {why}")
    return Cells(*map(torch.cat, zip(*parts, strict=True))), broken


def memory_of_cells(cells: int, model: HeadSegmenter, photos: int) -> float:
    """Return about how many bytes the cells take that a head learns from.

    Args:
        cells: How many a photo has.
        model: Head that is to be trained.
        photos: How many there are.
    """
    features = 2 * len(model.shift)
    taken = min(cells, max(16, int(MOST_BYTES / (features * max(1, photos)))))
    # once by photo and once in one piece
    return 2.0 * photos * taken * (features + 3 * model.num_classes)


def _choose_cells(known: Tensor, touched: Tensor, most: int, seed: list[int]) -> Tensor:
    """Return the indices of cells that are labelled well enough.

    Of more than ``most`` a random part is taken, and all that a person has touched.
    """
    cells = torch.nonzero(known >= UNKNOWN).flatten()
    if len(cells) <= most:
        return cells
    order = np.random.default_rng(seed).permutation(len(cells))[:most]
    drawn = cells[torch.from_numpy(order)]
    by_person = torch.nonzero(touched).flatten()
    chosen: Tensor = torch.cat([drawn, by_person]).unique()
    return chosen


def train_head(
    model: HeadSegmenter, cells: Cells, settings: HeadSettings, folder: Path
) -> dict[str, float]:
    """Fit the head to the cells, with rounds of self-training.

    Args:
        model: Head to train, in place.
        cells: Features and soft labels.
        settings: Learning rate, steps, rounds and seed.
        folder: Folder that the log is written to.

    Returns:
        The last ``loss``: cross entropy per cell.

    Raises:
        TagmaskError: If the loss is not finite.
    """
    count = len(cells.features)
    drawn = _draw(settings, -1, count, _BATCH)
    sample = cells.features[drawn].float()  # (m, F)
    model.shift.copy_(sample.mean(0))
    model.scale.copy_(sample.std(0).clamp(min=1e-6))
    began = time.monotonic()
    steps = settings.steps or 1
    turns = settings.rounds + 1
    bar = Bar(steps * turns, "segment", "step")
    labels = cells.labels
    rows: list[str] = []
    loss = 0.0
    for turn in range(turns):
        if turn:
            # what a person has labelled stays as it is
            own = answers(model, cells)  # (M, K)
            labels = torch.where(cells.corrected[:, None], cells.labels, own)
        for step, loss in fit(model, cells, labels, settings, steps, turn):
            bar.update()
            if step % settings.log_every == 0 or step == steps:
                seconds = round(time.monotonic() - began, 2)
                row = {"step": turn * steps + step, "loss": loss, "seconds": seconds}
                rows.append(json.dumps(row))
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
    settings: HeadSettings,
    steps: int,
    turn: int,
) -> Iterator[tuple[int, float]]:
    """Train the head once, from where it is.

    Args:
        model: Head to train, in place.
        cells: Features, and which cells are corrected.
        labels: Soft labels (M, K) to learn.
        settings: Learning rate, weight decay, cells per step and seed.
        steps: Number of steps; the learning rate falls linearly to zero.
        turn: Round of self-training, 0 for the first; every round draws other cells.

    Yields:
        The step, from 1, and its loss.
    """
    optimizer = torch.optim.AdamW(
        model.linear.parameters(), lr=settings.lr, weight_decay=settings.weight_decay
    )
    features = cells.features
    device = model.shift.device
    odds = cells.odds()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * (1 - step / steps)
        chosen = _draw(settings, turn * steps + step, len(features), settings.cells, odds)
        batch = features[chosen].to(device).float()  # (B, F)
        scores = model.logits_of(batch).log_softmax(-1)  # (B, K)
        wanted = labels[chosen].to(scores)  # (B, K)
        loss = -(wanted * scores).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield step + 1, float(loss.detach())


@torch.no_grad()
def answers(model: HeadSegmenter, cells: Cells) -> Tensor:
    """Return soft labels by the head itself, with the tags of each photo.

    Args:
        model: Trained head.
        cells: Features, and the labels that each cell may have.

    Returns:
        Probabilities (M, K) float16, zero for labels that are not allowed.
    """
    device = model.shift.device
    parts = []
    batches = zip(cells.features.split(_BATCH), cells.allowed.split(_BATCH), strict=True)
    for features, allowed in batches:
        batch = features.to(device).float()  # (b, F)
        forbidden = ~allowed.to(device)  # (b, K)
        logits = model.logits_of(batch).masked_fill(forbidden, -torch.inf)  # (b, K)
        parts.append(logits.softmax(-1).half().cpu())
    return torch.cat(parts)


def _draw(
    settings: HeadSettings, step: int, total: int, count: int, odds: Odds | None = None
) -> Tensor:
    """Draw random cells of a step, a function of the seed, the step and the odds alone."""
    generator = np.random.default_rng([settings.seed, step + 1, 7])
    size = min(count, total)
    if odds is None:
        return torch.from_numpy(generator.integers(0, total, size))
    indices = np.searchsorted(odds, generator.random(size) * odds[-1], side="right")
    # rounding may carry the last one beyond the end
    return torch.from_numpy(indices.clip(max=total - 1))
