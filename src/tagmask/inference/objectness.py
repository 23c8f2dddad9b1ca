"""Where an object is: objectness of a set of photos, without masks and without training.

Objects stand in the middle of a photo more often than at its border. So the direction in token
space that leads from border cells to cells of the centre points at objects, and not at the middle:
the cells of all photos vote, and backgrounds differ from photo to photo. Two groups along this
direction (Otsu's threshold) then give a better direction, twice.

Methods have one signature, ``(cells, grids) -> direction (F,)``, and one registry, ``METHODS``:

    border      centre minus border, refined: the best on photos (docs/research/few-photos.md)
    component   the first principal component, with the sign that is lower at the border

Caution: tags such as "grass" or "sky" are no objects. They are named to ``evidence``, and found in
the rest of a photo.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tagmask.errors import TagmaskError
from tagmask.scoring.threshold import Chooser, otsu

BORDER = 0.9  # cells farther out than this share of the way from the centre to the edge
CENTRE = 0.45  # cells nearer than this
ROUNDS = 2  # of finding two groups and the direction between them
_BINS = 250  # of the histogram in which Otsu's threshold is looked for
_TAILS = (
    0.001,
    0.999,
)  # quantiles between which the histogram lies: a few odd cells do not stretch it
_SAMPLE = 1_000_000  # values from which quantiles are taken
Grid = tuple[int, int]  # (h, w)
Method = Callable[[Sequence[Tensor], Sequence[Grid]], Tensor]


@dataclass(frozen=True)
class Where:
    """A cell with standardised token x shows an object with probability σ(weight·x + bias)."""

    weight: Tensor  # (F,)
    bias: float

    def probability(self, tokens: Tensor) -> Tensor:
        """Return how likely each token (…, F) belongs to an object, shape (…)."""
        return torch.sigmoid(tokens @ self.weight + self.bias)


def distance_from_centre(grid: Grid) -> Tensor:
    """Return max(|y|, |x|) of every cell (n,), row by row, where the edges are at 1."""
    height, width = grid
    y = ((torch.arange(height) + 0.5) / height * 2 - 1).abs()  # (h,)
    x = ((torch.arange(width) + 0.5) / width * 2 - 1).abs()  # (w,)
    return torch.maximum(y[:, None], x[None, :]).flatten()


def border_direction(cells: Sequence[Tensor], grids: Sequence[Grid]) -> Tensor:
    """Return the direction (F,) from border cells to centre cells, refined between two groups.

    Args:
        cells: standardised tokens (n, F) of each photo.
        grids: the grid of each photo.
    """
    centre, border = [], []
    for tokens, grid in zip(cells, grids, strict=True):
        distance = distance_from_centre(grid).to(tokens.device)
        # a grid of one or two cells has no border at 0.9: its outermost cells count
        limit = min(BORDER, float(distance.max()))
        border.append(tokens[distance >= limit])
        nearest = max(CENTRE, float(distance.min()))
        centre.append(tokens[distance <= nearest])
    direction = torch.cat(centre).mean(0) - torch.cat(border).mean(0)
    everything = torch.cat(list(cells))
    for _ in range(ROUNDS):
        values = everything @ direction
        above = values > two_groups(values)
        if above.all() or not above.any():
            break
        direction = everything[above].mean(0) - everything[~above].mean(0)
    return direction


def component_direction(cells: Sequence[Tensor], grids: Sequence[Grid]) -> Tensor:
    """Return the first principal component (F,) of the tokens, lower at the border than inside.

    Args:
        cells: standardised tokens (n, F) of each photo.
        grids: the grid of each photo.
    """
    everything = torch.cat(list(cells))
    centred = everything - everything.mean(0)
    _, vectors = torch.linalg.eigh(centred.T @ centred)  # eigenvalues ascend
    direction: Tensor = vectors[:, -1]
    distance = torch.cat([distance_from_centre(grid) for grid in grids]).to(everything.device)
    values = everything @ direction
    outside = distance > BORDER
    if outside.any() and values[outside].mean() > values[~outside].mean():
        return -direction
    return direction


METHODS: dict[str, Method] = {"border": border_direction, "component": component_direction}


def fit_where(cells: Sequence[Tensor], grids: Sequence[Grid], method: str = "border") -> Where:
    """Learn from a set of photos where objects are.

    Args:
        cells: standardised tokens (n, F) of each photo, row by row.
        grids: (h, w) of each photo.
        method: a name of ``METHODS``.

    Returns:
        A linear model of one cell. Its probability is ½ at Otsu's threshold and changes as fast
        as the two groups are narrow.

    Raises:
        TagmaskError: if all cells are alike.
    """
    if method not in METHODS:
        raise TagmaskError(f"there is no objectness {method!r}; choose from {', '.join(METHODS)}.")
    direction = METHODS[method](cells, grids)
    values = torch.cat([tokens @ direction for tokens in cells])
    threshold = two_groups(values)
    above = values > threshold
    if above.all() or not above.any():
        raise TagmaskError("all photos look the same in every cell; give photos of something.")
    spread = (values[above].std(unbiased=False) + values[~above].std(unbiased=False)) / 2
    steepness = 2 / float(spread.clamp(min=1e-6))
    return Where(direction * steepness, -threshold * steepness)


def two_groups(values: Tensor) -> float:
    """Return Otsu's threshold between two groups of values (n,)."""
    thinned = values[:: max(1, len(values) // _SAMPLE)]
    low, high = torch.quantile(thinned, torch.tensor(_TAILS, device=values.device)).tolist()
    if not high > low:
        return float(low)
    scaled = ((values - low) / (high - low)).clamp(0, 1)
    chooser = Chooser(otsu, _BINS)
    chooser.add(scaled[None, None].cpu().numpy())
    return float(low + chooser.result() * (high - low))
