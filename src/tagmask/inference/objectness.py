"""Where an object is: objectness of a set of photos, without masks and without training.

Objects stand in the middle of a photo more often than at its border. So the direction in token
space that leads from border cells to cells of the centre points at objects, and not at the middle:
the cells of all photos vote, and backgrounds differ from photo to photo. Two groups along this
direction (Otsu's threshold) then give a better direction, twice. To this linear score comes what
kind of cell it is: cells are sorted into some dozens of kinds by their looks (k-means on the
sphere), and a kind that is seen in the centre more often than at the border counts for an object.

Methods have one signature, ``(cells, grids) -> Where``, and one registry, ``METHODS``:

    border      centre against border, as above: the best on photos (docs/research/few-photos.md)
    component   the first principal component, with the sign that is lower at the border

Caution: tags such as "grass" or "sky" are no objects. ``evidence`` is told them,
and finds them in the rest of a photo.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tagmask.errors import TagmaskError
from tagmask.scoring.threshold import Chooser, otsu

BORDER = 0.9  # cells farther out than this share of the way from the centre to the edge
CENTRE = 0.45  # cells nearer than this
ROUNDS = 2  # of finding two groups and the direction between them
_BINS = 250  # of the histogram in which Otsu's threshold is looked for
# quantiles between which the histogram lies: a few odd cells do not stretch it
_TAILS = (0.001, 0.999)
_AT_ONCE = 16_384  # tokens that are compared with all kinds
_SAMPLE = 1_000_000  # values from which quantiles are taken
Grid = tuple[int, int]  # (h, w)
KINDS = 64  # of cells, at most
CELLS_PER_KIND = 100  # at least, on average
KIND_ROUNDS = 12  # of k-means
KIND_WEIGHT = 0.3  # of the kind's score beside the linear one, both with deviation 1
RARE = 3e-4  # added to shares of cells, so that a kind never seen at the border has a finite score


@dataclass(frozen=True)
class Where:
    """How likely a cell with standardised token x shows an object.

    The probability is σ(weight·x + score of the kind whose centre is nearest to x + bias).
    """

    weight: Tensor  # (F,)
    bias: float
    kinds: Tensor  # (k, F) centres of length 1; none for a purely linear score
    scores: Tensor  # (k,)

    def score(self, tokens: Tensor) -> Tensor:
        """Return the logit of an object for tokens (n, F), shape (n,)."""
        values = tokens @ self.weight + self.bias
        if len(self.kinds):
            values = values + self.scores[nearest_kind(tokens, self.kinds)]
        return values

    def probability(self, tokens: Tensor) -> Tensor:
        """Return how likely each token (n, F) belongs to an object, shape (n,)."""
        return torch.sigmoid(self.score(tokens))


Method = Callable[[Sequence[Tensor], Sequence[Grid]], Where]


def distance_from_centre(grid: Grid) -> Tensor:
    """Return max(|y|, |x|) of every cell (n,), row by row, where the edges are at 1."""
    height, width = grid
    y = ((torch.arange(height) + 0.5) / height * 2 - 1).abs()  # (h,)
    x = ((torch.arange(width) + 0.5) / width * 2 - 1).abs()  # (w,)
    return torch.maximum(y[:, None], x[None, :]).flatten()


def by_border(cells: Sequence[Tensor], grids: Sequence[Grid]) -> Where:
    """Score cells by the direction from border to centre, and by the kind of cell they are.

    Args:
        cells: standardised tokens (n, F) of each photo.
        grids: the grid of each photo.
    """
    everything = torch.cat(list(cells))
    centre, border = _zones(grids, everything.device)
    direction = everything[centre].mean(0) - everything[border].mean(0)
    for _ in range(ROUNDS):
        values = everything @ direction
        above = values > two_groups(values)
        if above.all() or not above.any():
            break
        direction = everything[above].mean(0) - everything[~above].mean(0)
    spread = (everything @ direction).std().clamp(min=1e-6)
    kinds, kind_of = sort_into_kinds(everything, min(KINDS, len(everything) // CELLS_PER_KIND))
    if not len(kinds):
        return linear(direction / spread)
    at_centre = torch.bincount(kind_of[centre], minlength=len(kinds)) / centre.sum()
    at_border = torch.bincount(kind_of[border], minlength=len(kinds)) / border.sum()
    scores = torch.log((at_centre + RARE) / (at_border + RARE))  # (k,)
    of_cells = scores[kind_of]
    scores = KIND_WEIGHT * (scores - of_cells.mean()) / of_cells.std().clamp(min=1e-6)
    return Where(direction / spread, 0.0, kinds, scores)


def by_component(cells: Sequence[Tensor], grids: Sequence[Grid]) -> Where:
    """Score cells by the first principal component of the tokens, lower at the border.

    Args:
        cells: standardised tokens (n, F) of each photo.
        grids: the grid of each photo.
    """
    everything = torch.cat(list(cells))
    centred = everything - everything.mean(0)
    _, vectors = torch.linalg.eigh(centred.T @ centred)  # eigenvalues ascend
    direction: Tensor = vectors[:, -1]
    _, border = _zones(grids, everything.device)
    values = everything @ direction
    if values[border].mean() > values[~border].mean():
        direction = -direction
    return linear(direction)


def linear(direction: Tensor) -> Where:
    """Return a score along a direction (F,) alone."""
    nothing = direction.new_zeros(0)
    return Where(direction, 0.0, direction.new_zeros(0, len(direction)), nothing)


def _zones(grids: Sequence[Grid], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return which cells of all photos lie in the centre and which at the border, (n,) each."""
    centre, border = [], []
    for grid in grids:
        distance = distance_from_centre(grid)
        # a grid of one or two cells has nothing beyond 0.9: its outermost cells count
        border.append(distance >= min(BORDER, float(distance.max())))
        centre.append(distance <= max(CENTRE, float(distance.min())))
    return torch.cat(centre).to(device), torch.cat(border).to(device)


def sort_into_kinds(tokens: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Sort tokens into kinds by k-means on the sphere; the same tokens give the same kinds.

    Args:
        tokens: (n, F).
        count: how many kinds; below 2 there are none.

    Returns:
        Their centres (k, F), each of length 1, and the kind of each token (n,).
    """
    if count < 2:
        return tokens.new_zeros(0, tokens.shape[1]), torch.zeros(len(tokens), dtype=torch.long)
    directions = F.normalize(tokens, dim=-1)
    generator = torch.Generator().manual_seed(0)
    first = torch.randperm(len(tokens), generator=generator)[:count]
    centres = directions[first.to(tokens.device)]
    kind_of = nearest_kind(directions, centres)
    for _ in range(KIND_ROUNDS):
        sums = torch.zeros_like(centres).index_add_(0, kind_of, directions)
        is_used = sums.abs().sum(1, keepdim=True) > 0
        centres = torch.where(is_used, F.normalize(sums, dim=-1), centres)
        kind_of = nearest_kind(directions, centres)
    return centres, kind_of


def nearest_kind(tokens: Tensor, kinds: Tensor) -> Tensor:
    """Return the kind of each token (n,), by the angle.

    Args:
        tokens: (n, F).
        kinds: centres (k, F) of length 1.
    """
    parts = [(part @ kinds.T).argmax(1) for part in tokens.split(_AT_ONCE)]
    return torch.cat(parts)


METHODS: dict[str, Method] = {"border": by_border, "component": by_component}


def fit_where(cells: Sequence[Tensor], grids: Sequence[Grid], method: str = "border") -> Where:
    """Learn from a set of photos where objects are.

    Args:
        cells: standardised tokens (n, F) of each photo, row by row.
        grids: (h, w) of each photo.
        method: a name of ``METHODS``.

    Returns:
        A model of one cell. Its probability is ½ at Otsu's threshold and the steeper,
        the narrower the two groups are.

    Raises:
        TagmaskError: if there is no such method, or all cells are alike.
    """
    if method not in METHODS:
        raise TagmaskError(f"there is no objectness {method!r}; choose from {', '.join(METHODS)}.")
    where = METHODS[method](cells, grids)
    values = torch.cat([where.score(tokens) for tokens in cells])
    threshold = two_groups(values)
    above = values > threshold
    if above.all() or not above.any():
        raise TagmaskError("all photos look the same in every cell; give photos of something.")
    spread_above = values[above].std(unbiased=False)
    spread_below = values[~above].std(unbiased=False)
    spread = (spread_above + spread_below) / 2
    steepness = 2 / float(spread.clamp(min=1e-6))
    return Where(
        where.weight * steepness,
        (where.bias - threshold) * steepness,
        where.kinds,
        where.scores * steepness,
    )


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
