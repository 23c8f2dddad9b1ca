"""Where objects are: numbers by hand, independent answers, and toys in which the truth is known."""

import numpy as np
import pytest
import torch
from torch import Tensor

from tagmask.errors import TagmaskError
from tagmask.inference.objectness import (
    METHODS,
    Grid,
    Where,
    by_component,
    distance_from_centre,
    fit_where,
    linear,
    nearest_kind,
    sort_into_kinds,
    two_groups,
)

WIDTH = 8
GRIDS = [(6, 9), (8, 6), (7, 7), (5, 10)]


def toy(photos: int = 40, at_the_edge: int = 8, seed: int = 0) -> tuple[list[Tensor], ...]:
    """Return standardised tokens, grids and the truth of photos with an object each.

    Objects are alike, backgrounds differ from photo to photo. Objects stand in the middle, but in
    the last photos in a corner, where they touch the border.
    """
    random = np.random.default_rng(seed)
    cells, grids, truths = [], [], []
    for i in range(photos):
        height, width = GRIDS[i % len(GRIDS)]
        truth = np.zeros((height, width), dtype=bool)
        if i < photos - at_the_edge:
            truth[height // 4 : -(height // 4), width // 4 : -(width // 4)] = True
        else:
            truth[: height // 2, : width // 2] = True
        tokens = random.normal(scale=0.3, size=(height * width, WIDTH))
        tokens[truth.ravel(), 0] += 2
        tokens[~truth.ravel(), 1:] += random.normal(size=WIDTH - 1)
        cells.append(torch.tensor(tokens, dtype=torch.float32))
        grids.append(torch.tensor([height, width]))
        truths.append(torch.from_numpy(truth.ravel()))
    everything = torch.cat(cells)
    cells = [(tokens - everything.mean(0)) / everything.std(0) for tokens in cells]
    return cells, grids, truths


def pairs(grids: list[Tensor]) -> list[Grid]:
    return [(int(height), int(width)) for height, width in grids]


def test_distance_from_the_centre_by_hand() -> None:
    """The middle of each cell, where the edges are at 1."""
    assert distance_from_centre((2, 3)).tolist() == pytest.approx([2 / 3, 1 / 2, 2 / 3] * 2)
    sides = [0.8, 2 / 3, 2 / 3, 2 / 3, 0.8]
    middle = [0.8, 0.4, 0.0, 0.4, 0.8]
    assert distance_from_centre((3, 5)).tolist() == pytest.approx([*sides, *middle, *sides])
    assert distance_from_centre((1, 1)).tolist() == [0]


def test_objects_are_found_also_where_they_touch_the_border() -> None:
    """Cells vote over all photos, so an object in a corner is found by its looks."""
    cells, grids, truths = toy()
    where = fit_where(cells, pairs(grids))
    for tokens, truth in zip(cells, truths, strict=True):
        found = where.probability(tokens) > 0.5
        assert (found == truth).float().mean() >= 0.95


def test_what_the_middle_shows_counts_and_not_the_middle() -> None:
    """A photo of nothing but background has no object, though it has a middle."""
    cells, grids, truths = toy()
    where = fit_where(cells, pairs(grids))
    background = torch.cat(cells)[~torch.cat(truths)]
    empty = background[torch.randperm(len(background), generator=torch.Generator().manual_seed(0))]
    assert (where.probability(empty[:54]) > 0.5).float().mean() <= 0.05


@pytest.mark.parametrize("method", METHODS)
def test_half_is_at_the_threshold(method: str) -> None:
    cells, grids, _ = toy(12, 2)
    raw = METHODS[method](cells, pairs(grids))
    values = torch.cat([raw.score(tokens) for tokens in cells])
    threshold = two_groups(values)
    where = fit_where(cells, pairs(grids), method)
    chances = where.probability(torch.cat(cells))
    assert torch.equal(chances > 0.5, values > threshold)
    order = values.argsort()
    assert (chances[order].diff() >= -1e-6).all()
    if not len(raw.kinds):  # a token whose score is the threshold
        token = raw.weight * threshold / raw.weight.square().sum()
        assert where.probability(token[None]).item() == pytest.approx(0.5, abs=1e-4)


def test_a_score_by_hand() -> None:
    """Along the weight, plus the score of the nearest kind, plus the bias."""
    kinds = torch.tensor([[1.0, 0], [0, 1]])
    where = Where(torch.tensor([2.0, -1.0]), 0.5, kinds, torch.tensor([10.0, 20.0]))
    tokens = torch.tensor([[3.0, 1.0], [1.0, 3.0], [0.0, 0.1]])
    assert where.score(tokens).tolist() == pytest.approx([15.5, 19.5, 20.4])
    straight = linear(torch.tensor([2.0, -1.0]))
    assert straight.score(tokens).tolist() == pytest.approx([5, -1, -0.1])
    assert straight.probability(torch.zeros(1, 2)).item() == 0.5


def tightest(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Return the least sum of squares within two groups, over every possible cut."""
    ordered = np.sort(values)
    return min(
        float(ordered[:k].var() * k + ordered[k:].var() * (len(ordered) - k))
        for k in range(1, len(ordered))
    )


@pytest.mark.parametrize("shares", [(500, 500), (900, 100), (150, 850)])
@pytest.mark.parametrize("gap", [1.5, 6.0])
def test_two_groups_are_the_tightest(shares: tuple[int, int], gap: float) -> None:
    """Against every possible cut, for groups that overlap and groups that do not."""
    random = np.random.default_rng(1)
    low = random.uniform(-1, 1, shares[0])
    high = random.uniform(-1, 1, shares[1]) + gap
    values = np.concatenate([low, high])
    threshold = two_groups(torch.tensor(values, dtype=torch.float32))
    above = values > threshold
    within = values[above].var() * above.sum() + values[~above].var() * (~above).sum()
    assert within <= tightest(values) * 1.002
    if gap > 2:
        assert above.sum() == shares[1]


def test_two_groups_do_not_mind_where_zero_is() -> None:
    values = torch.cat([torch.linspace(0, 1, 300), torch.linspace(4, 5, 200)])
    threshold = two_groups(values)
    assert 1 < threshold < 4
    assert two_groups(100 * values - 700) == pytest.approx(100 * threshold - 700, abs=1)


def test_two_groups_of_equal_values() -> None:
    assert two_groups(torch.full((50,), 3.0)) == 3.0


def test_the_first_component_is_scikit_learns() -> None:
    from sklearn.decomposition import PCA

    cells, grids, _ = toy(12, 2)
    everything = torch.cat(cells)
    direction = by_component(cells, pairs(grids)).weight
    expected = PCA(1).fit(everything.double().numpy()).components_[0]
    expected *= np.sign(expected @ direction.numpy())
    np.testing.assert_allclose(direction, expected, atol=1e-4)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_first_component_is_lower_at_the_border(sign: float) -> None:
    """One photo of 4×5 cells with 3 in the middle and 0 around, or the opposite."""
    values = torch.zeros(4, 5, 1)
    values[1:3, 1:4] = 3 * sign
    where = by_component([values.reshape(20, 1)], [(4, 5)])
    assert where.weight.tolist() == pytest.approx([sign])


def test_kinds_have_unit_centres_and_every_token_the_nearest() -> None:
    tokens = torch.randn(300, 5, generator=torch.Generator().manual_seed(0)) + 0.5
    centres, kind_of = sort_into_kinds(tokens, 7)
    torch.testing.assert_close(centres.norm(dim=1), torch.ones(7))
    directions = tokens / tokens.norm(dim=1, keepdim=True)
    distances = (directions[:, None] - centres).square().sum(-1)  # (300, 7), one by one
    assert torch.equal(kind_of, distances.argmin(1))
    again, kind_of_again = sort_into_kinds(tokens.clone(), 7)
    assert torch.equal(centres, again)
    assert torch.equal(kind_of, kind_of_again)


def test_kinds_that_are_far_apart_are_found() -> None:
    """Three bundles of directions; lengths make no difference."""
    random = torch.Generator().manual_seed(0)
    truth = torch.arange(90) % 3
    tokens = torch.eye(3)[truth] * 5 + 0.2 * torch.randn(90, 3, generator=random)
    tokens = tokens * torch.rand(90, 1, generator=random).add(0.1)
    for count in (3, 12):
        centres, kind_of = sort_into_kinds(tokens, count)
        nearest_axis = centres.argmax(1)
        assert torch.equal(nearest_axis[kind_of], truth) or count == 3
        assert len(centres) == count


@pytest.mark.parametrize("count", [0, 1])
def test_below_two_kinds_there_are_none(count: int) -> None:
    centres, kind_of = sort_into_kinds(torch.rand(5, 4), count)
    assert centres.shape == (0, 4)
    assert kind_of.tolist() == [0] * 5


def test_many_tokens_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    random = torch.Generator().manual_seed(0)
    tokens = torch.randn(50, 4, generator=random)
    kinds = torch.nn.functional.normalize(torch.randn(6, 4, generator=random), dim=1)
    whole = nearest_kind(tokens, kinds)
    monkeypatch.setattr("tagmask.inference.objectness._AT_ONCE", 7)
    assert torch.equal(nearest_kind(tokens, kinds), whole)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("grid", [(4, 6), (30, 20)])
def test_photos_of_nothing_are_refused(method: str, grid: Grid) -> None:
    cells = [torch.full((grid[0] * grid[1], 3), 0.7)] * 2
    with pytest.raises(TagmaskError, match="all photos look the same in every cell"):
        fit_where(cells, [grid] * 2, method)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(TagmaskError, match="'magic'; choose from border, component"):
        fit_where([torch.rand(4, 2)], [(2, 2)], "magic")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("grid", [(1, 1), (1, 2), (2, 2), (1, 5), (5, 1)])
@pytest.mark.parametrize("photos", [1, 6, 300])
def test_very_small_grids_work_or_are_refused(method: str, grid: Grid, photos: int) -> None:
    random = torch.Generator().manual_seed(3)
    cells = [torch.randn(grid[0] * grid[1], 3, generator=random) for _ in range(photos)]
    refusal = ""
    try:
        where = fit_where(cells, [grid] * photos, method)
    except TagmaskError as error:
        refusal = str(error)
    if refusal:
        assert "look the same" in refusal
        return
    chances = where.probability(torch.cat(cells))
    assert chances.isfinite().all()
    assert chances.min() < 0.5 < chances.max()


def test_a_row_of_five_cells_by_hand() -> None:
    """The object in the three cells of the middle: those nearer than 0.45."""
    values = torch.tensor([0.0, 3, 3.2, 3.1, 0.1, 0.2, 2.9, 3, 3.1, 0])
    cells = [values[:5, None], values[5:, None]]
    where = fit_where(cells, [(1, 5)] * 2)
    assert (where.probability(values[:, None]) > 0.5).tolist() == [False, *[True] * 3, False] * 2


def test_the_same_photos_give_the_same_answer() -> None:
    cells, grids, _ = toy()
    first, second = (fit_where(cells, pairs(grids)) for _ in range(2))
    assert torch.equal(first.weight, second.weight)
    assert torch.equal(first.scores, second.scores)
    assert first.bias == second.bias


def test_a_kind_of_the_border_counts_against_an_object() -> None:
    """Scores of kinds rise with how much more often they are seen in the centre."""
    cells, grids, truths = toy()
    where = METHODS["border"](cells, pairs(grids))
    assert len(where.kinds) >= 2
    everything, truth = torch.cat(cells), torch.cat(truths)
    kind_of = nearest_kind(everything, where.kinds)
    shares = []  # of object cells, of each kind by rising score
    for kind in where.scores.argsort().tolist():
        if (kind_of == kind).any():
            shares.append(float(truth[kind_of == kind].float().mean()))
    assert shares[0] < 0.1
    assert shares[-1] > 0.9
