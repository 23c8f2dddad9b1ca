"""Pairs and their loss, by hand and by double loops."""

import math
from collections import Counter

import pytest
import torch
from torch import Tensor

from tagmask.errors import TagmaskError
from tagmask.masks.pairs import affinity_loss, affinity_losses, pair_distances, pair_labels
from tagmask.masks.walk import half_offsets

LABELS = torch.tensor([[0, 0, 1, 255], [0, 1, 1, 2], [255, 0, 2, 2], [3, 255, 0, 0]])


def loop_pairs(labels: Tensor, radius: float) -> Counter[tuple[str, int, int, int, int]]:
    """Every unordered pair once, by its kind and two positions."""
    height, width = labels.shape
    places = [(y, x) for y in range(height) for x in range(width)]
    pairs: Counter[tuple[str, int, int, int, int]] = Counter()
    for i, (y, x) in enumerate(places):
        for v, u in places[i + 1 :]:
            label, partner = int(labels[y, x]), int(labels[v, u])
            if (y - v) ** 2 + (x - u) ** 2 < radius**2 and 255 not in (label, partner):
                kind = "negative" if label != partner else "foreground" if label else "background"
                pairs[kind, y, x, v, u] += 1
    return pairs


def listed(labels: Tensor, radius: float) -> Counter[tuple[str, int, int, int, int]]:
    pairs: Counter[tuple[str, int, int, int, int]] = Counter()
    for kind, mask in pair_labels(labels, radius)._asdict().items():
        for e, y, x in mask.nonzero().tolist():
            dy, dx = half_offsets(radius)[e]
            pairs[kind, y, x, y + dy, x + dx] += 1
    return pairs


@pytest.mark.parametrize("radius", [1.2, 2, 3, 5])
def test_pairs_on_a_small_grid(radius: float) -> None:
    assert listed(LABELS, radius) == loop_pairs(LABELS, radius)


@pytest.mark.parametrize("grid", [(1, 9), (9, 1), (7, 5), (1, 1)])
def test_pairs_on_other_grids(grid: tuple[int, int]) -> None:
    labels = torch.randint(
        0, 3, grid, generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )
    assert listed(labels, 5) == loop_pairs(labels, 5)


def test_neighbours_by_hand() -> None:
    pairs = pair_labels(
        torch.tensor([[0, 0, 4], [255, 4, 4]]), 1.2
    )  # right and lower neighbours only
    assert [mask.nonzero().tolist() for mask in pairs] == [
        [[0, 0, 0]],  # top left and its right neighbour
        [[0, 1, 1], [1, 0, 2]],
        [[0, 0, 1], [1, 0, 1]],
    ]


def test_batches_are_labelled_one_by_one() -> None:
    batch = torch.stack([LABELS, LABELS.flip(0), LABELS.T])
    for mask, singles in zip(
        pair_labels(batch), zip(*map(pair_labels, batch), strict=True), strict=True
    ):
        assert torch.equal(mask, torch.stack(singles))


def test_loss_by_hand() -> None:
    features = torch.tensor([[[[0.0, 0.2, 1.2, 1.5]]], [[[0.0, 0.0, 0.0, 9.0]]]])  # (2, 1, 1, 4)
    labels = torch.tensor([[[0, 0, 1, 1]], [[2, 2, 2, 255]]])
    losses = affinity_losses(features, labels, 2)  # pairs of direct neighbours
    assert losses.background.item() == pytest.approx(0.2, abs=1e-4)
    assert losses.foreground.item() == pytest.approx((0.3 + 0 + 0) / 3, abs=1e-4)
    assert losses.negative.item() == pytest.approx(-math.log(1 - math.exp(-1.0)), abs=1e-4)
    expected = 0.25 * 0.2 + 0.25 * 0.1 + 0.5 * -math.log(1 - math.exp(-1.0))
    assert affinity_loss(features, labels, 2).item() == pytest.approx(expected, abs=1e-4)


def test_loss_by_a_double_loop() -> None:
    features = torch.randn(
        1, 6, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    sums: dict[str, list[float]] = {}
    for kind, y, x, v, u in loop_pairs(LABELS, 5):
        affinity = math.exp(-float((features[0, :, y, x] - features[0, :, v, u]).abs().mean()))
        sums.setdefault(kind, []).append(
            -math.log((1 - affinity if kind == "negative" else affinity) + 1e-5)
        )
    losses = affinity_losses(features, LABELS[None])
    for kind, values in sums.items():
        assert getattr(losses, kind).item() == pytest.approx(sum(values) / len(values), rel=1e-9)


def test_gradients() -> None:
    torch.manual_seed(0)
    features = torch.randn(2, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    labels = torch.stack([LABELS, LABELS.T.contiguous()])
    assert torch.autograd.gradcheck(lambda f: affinity_loss(f, labels), (features,))
    plain = torch.stack(
        [(features[..., :, :-1] - features[..., :, 1:]).abs().mean(1)]
    )  # offset (0, 1)
    torch.testing.assert_close(pair_distances(features)[:, 0, :, :-1], plain[0])


@pytest.mark.parametrize(
    ("label", "empty"),
    [(0, ("foreground", "negative")), (7, ("background", "negative")), (255, "all")],
)
def test_groups_without_pairs_count_nothing(label: int, empty: tuple[str, ...] | str) -> None:
    features = torch.rand(2, 4, 5, 5, requires_grad=True)
    losses = affinity_losses(features, torch.full((2, 5, 5), label))
    for name, value in losses._asdict().items():
        assert (value.item() == 0) == (empty == "all" or name in empty)
    losses.total.backward()
    assert features.grad is not None
    assert torch.isfinite(features.grad).all()


def test_equal_features_of_different_labels_stay_finite() -> None:
    features = torch.zeros(1, 2, 4, 4, requires_grad=True)
    loss = affinity_loss(features, LABELS[None])
    loss.backward()
    assert loss.item() == pytest.approx(-0.5 * math.log(1e-5), rel=1e-3)
    assert features.grad is not None
    assert torch.isfinite(features.grad).all()


def test_half_precision_features_are_compared_in_full() -> None:
    features = torch.randn(1, 8, 4, 4).bfloat16()
    torch.testing.assert_close(
        affinity_loss(features, LABELS[None]), affinity_loss(features.float(), LABELS[None])
    )


def test_bad_input_is_refused() -> None:
    with pytest.raises(TagmaskError, match=r"labels of shape \(1, 4, 4\) do not lie on features"):
        affinity_loss(torch.zeros(1, 2, 4, 5), LABELS[None])
    with pytest.raises(TagmaskError, match="whole numbers"):
        pair_labels(torch.zeros(4, 4))
    with pytest.raises(TagmaskError, match=r"give \(batch, channels"):
        pair_distances(torch.zeros(2, 4, 4))
