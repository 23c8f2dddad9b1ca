"""Which pairs of positions belong together, learnt from confident regions.

Ahn & Kwak (PSA, CVPR 2018), Eq. 3 to 5: of all pairs nearer than ``radius``, those of equal
confident labels have affinity 1, those of different ones 0, and pairs that touch an unsure position
are ignored; loss = ¼ background pairs + ¼ foreground pairs + ½ negative pairs, each a mean cross
entropy over the batch.

Deviation: pairs are kept on the grid of their first position, with those that leave it masked, so
that border positions are used too; distances are recomputed in the backward pass, which saves E × C
numbers per position.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tagmask.errors import TagmaskError
from tagmask.labels import UNSURE
from tagmask.masks.walk import RADIUS, half_offsets, overlap

EPSILON = 1e-5  # PSA's; keeps the logarithms finite


class Pairs(NamedTuple):
    """Hold boolean (…, E, h, w): entry (e, y, x) is of (y, x) and (y, x) + half offset e."""

    background: Tensor  # both are background
    foreground: Tensor  # both are the same class
    negative: Tensor  # they differ


class PairLosses(NamedTuple):
    """Hold the three mean cross entropies; a group without pairs has 0."""

    background: Tensor
    foreground: Tensor
    negative: Tensor

    @property
    def total(self) -> Tensor:
        """Return ¼ background + ¼ foreground + ½ negative pairs."""
        return self.background / 4 + self.foreground / 4 + self.negative / 2


def pair_labels(labels: Tensor, radius: float = RADIUS) -> Pairs:
    """Return which pairs are of one kind, and of which.

    Args:
        labels: Whole numbers (…, h, w): 0 = background, 1.. = classes, 255 = unsure.
        radius: Positions nearer than this are pairs.

    Returns:
        The pairs of each kind.

    Raises:
        TagmaskError: If the labels are not whole numbers on a grid.
    """
    if labels.ndim < 2 or labels.is_floating_point():
        raise TagmaskError(
            f"labels are {labels.dtype} of shape {tuple(labels.shape)}; "
            "give whole numbers (…, h, w)."
        )
    height, width = labels.shape[-2:]
    offsets = half_offsets(radius)
    reach = max(dy for dy, _ in offsets)
    padded = F.pad(labels, (reach, reach, 0, reach), value=UNSURE)  # (…, h+r, w+2r)
    partners = [
        padded[..., dy : dy + height, reach + dx : reach + dx + width] for dy, dx in offsets
    ]
    label, partner = (
        labels.unsqueeze(-3),
        torch.stack(partners, dim=-3),
    )  # (…, 1, h, w), (…, E, h, w)
    known = (label != UNSURE) & (partner != UNSURE)
    same = known & (label == partner)
    return Pairs(same & (label == 0), same & (label > 0), known & (label != partner))


def pair_distances(features: Tensor, radius: float = RADIUS) -> Tensor:
    """Return mean|f_i − f_j| of all pairs, 0 where the partner lies outside.

    Args:
        features: (B, C, h, w).
        radius: Positions nearer than this are pairs.

    Returns:
        (B, E, h, w).

    Raises:
        TagmaskError: If the features are of another shape.
    """
    if features.ndim != 4:
        raise TagmaskError(
            f"features are of shape {tuple(features.shape)}; give (batch, channels, height, width)."
        )
    distances: Tensor = _Distances.apply(features, radius)  # type: ignore[no-untyped-call]
    return distances


def affinity_losses(features: Tensor, labels: Tensor, radius: float = RADIUS) -> PairLosses:
    """Return the three cross entropies of the affinity a = exp(−distance).

    Args:
        features: (B, C, h, w).
        labels: Whole numbers (B, h, w); see ``pair_labels``.
        radius: Positions nearer than this are pairs.

    Returns:
        The mean cross entropy of background, foreground and negative pairs.

    Raises:
        TagmaskError: If the labels do not lie on the features.
    """
    if features.shape[:1] + features.shape[2:] != labels.shape:
        raise TagmaskError(
            f"labels of shape {tuple(labels.shape)} do not lie on features of shape "
            f"{tuple(features.shape)}; bring them to the grid of the features."
        )
    exact = (
        features if features.dtype == torch.float64 else features.float()
    )  # half precision is too coarse here
    distances = pair_distances(exact, radius)  # (B, E, h, w)
    alike = -torch.log(torch.exp(-distances) + EPSILON)  # −log a
    unlike = -torch.log(EPSILON - torch.expm1(-distances))  # −log(1 − a)
    pairs = pair_labels(labels, radius)
    return PairLosses(
        _mean(alike, pairs.background),
        _mean(alike, pairs.foreground),
        _mean(unlike, pairs.negative),
    )


def affinity_loss(features: Tensor, labels: Tensor, radius: float = RADIUS) -> Tensor:
    """Return ¼ background + ¼ foreground + ½ negative pairs (PSA Eq. 5).

    Args:
        features: (B, C, h, w).
        labels: Whole numbers (B, h, w); see ``pair_labels``.
        radius: Positions nearer than this are pairs.
    """
    return affinity_losses(features, labels, radius).total


def _mean(values: Tensor, chosen: Tensor) -> Tensor:
    """Return the mean of the chosen values, 0 where there is none."""
    return (values * chosen).sum() / chosen.sum().clamp(min=1)


class _Distances(torch.autograd.Function):
    """Keep the features only: differences of all pairs would need gigabytes at a crop of 448."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, radius: float) -> Tensor:
        """Return the distances (B, E, h, w).

        Args:
            ctx: Receives the features and the radius.
            features: (B, C, h, w).
            radius: Positions nearer than this are pairs.
        """
        ctx.save_for_backward(features)
        ctx.radius = radius
        batch, _, height, width = features.shape
        offsets = half_offsets(radius)
        distances = features.new_zeros(batch, len(offsets), height, width)  # (B, E, h, w)
        for e, (dy, dx) in enumerate(offsets):
            (rows, other_rows), (columns, other_columns) = overlap(height, dy), overlap(width, dx)
            difference = features[..., rows, columns] - features[..., other_rows, other_columns]
            distances[:, e, rows, columns] = difference.abs_().mean(dim=1)
        return distances

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the features (B, C, h, w), from differences computed again.

        Args:
            ctx: What ``forward`` saved.
            gradient: That of the distances, (B, E, h, w).
        """
        (features,) = ctx.saved_tensors
        _, channels, height, width = features.shape
        result = torch.zeros_like(features)  # (B, C, h, w)
        for e, (dy, dx) in enumerate(half_offsets(ctx.radius)):
            (rows, other_rows), (columns, other_columns) = overlap(height, dy), overlap(width, dx)
            sign = (features[..., rows, columns] - features[..., other_rows, other_columns]).sign_()
            part = sign.mul_(gradient[:, e : e + 1, rows, columns] / channels)
            result[..., rows, columns] += part
            result[..., other_rows, other_columns] -= part
        return result, None
