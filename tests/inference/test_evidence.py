"""Which tag a cell has: pooling and shares by hand, the fit against scikit-learn."""

import numpy as np
import pytest
import torch
from torch import Tensor

from tagmask.inference.evidence import STRENGTH, Which, fit_which, pool, shares_of_objects
from tagmask.inference.objectness import linear

FIRST_NUMBER = linear(torch.tensor([1.0, 0, 0]))  # an object where a token's first number is high


def logit(chance: float) -> float:
    return float(np.log(chance / (1 - chance)))


def test_pooling_by_hand() -> None:
    """The foreground by the cells above one half alone, the rest by how little they are object."""
    tokens = torch.tensor([[1.0, 10], [2, 20], [4, 40]])
    inside, outside = pool(tokens, torch.tensor([0.9, 0.6, 0.1])).tolist()
    assert inside == pytest.approx([2.1 / 1.5, 21 / 1.5])
    assert outside == pytest.approx([4.5 / 1.4, 45 / 1.4])


def test_a_photo_without_a_sure_cell_counts_as_a_whole() -> None:
    tokens = torch.tensor([[1.0], [5.0]])
    inside, _ = pool(tokens, torch.tensor([0.1, 0.3])).flatten().tolist()
    assert inside == pytest.approx(1.6 / 0.4)


@pytest.mark.parametrize("foreground", [0.0, 1.0])
def test_a_photo_of_nothing_or_of_one_thing_stays_finite(foreground: float) -> None:
    pooled = pool(torch.rand(6, 3), torch.full((6,), foreground))
    assert pooled.shape == (2, 3)
    assert pooled.isfinite().all()


def vectors() -> tuple[Tensor, Tensor]:
    """Return pooled vectors (40, 2, 5) and three tags; the last shows only outside of objects."""
    random = np.random.default_rng(0)
    targets = random.random((40, 3)) < (0.5, 0.2, 0.4)
    pooled = random.normal(size=(40, 2, 5))
    pooled[:, 0, 0] += 2 * targets[:, 0]
    pooled[:, 0, 1] += 2 * targets[:, 1]
    pooled[:, 1, 2] += 2 * targets[:, 2]
    return torch.tensor(pooled, dtype=torch.float32), torch.tensor(targets, dtype=torch.float32)


@pytest.mark.parametrize("stuff", [(), (2,), (0, 2)])
def test_the_fit_is_scikit_learns(stuff: tuple[int, ...]) -> None:
    """Objects on the foreground's vectors, stuff on those of the rest."""
    from sklearn.linear_model import LogisticRegression

    pooled, targets = vectors()
    which = fit_which(pooled, targets, stuff)
    assert which.stuff == stuff
    for k in range(3):
        side = 1 if k in stuff else 0
        model = LogisticRegression(C=STRENGTH, class_weight="balanced", tol=1e-9, max_iter=5000)
        model.fit(pooled[:, side].double().numpy(), targets[:, k].numpy())
        np.testing.assert_allclose(which.weight[k], model.coef_[0], atol=1e-3)
        np.testing.assert_allclose(which.bias[k], model.intercept_[0], atol=1e-3)


def test_evidence_by_hand() -> None:
    which = Which(torch.tensor([[1.0, 2], [0, -1]]), torch.tensor([0.5, 0]))
    assert which.logits(torch.tensor([[3.0, 4]])).tolist() == [[11.5, -4]]


def two_tags(stuff: tuple[int, ...] = ()) -> Which:
    """Return evidence: tag 0 by the second number of a token, tag 1 by the third."""
    return Which(torch.tensor([[0.0, 1, 0], [0, 0, 1]]), torch.zeros(2), stuff)


def test_shares_by_hand() -> None:
    """Three cells: surely tag 0, an object of which tag 1 has a third of tag 0's, no object."""
    tokens = torch.tensor(
        [[logit(0.9), 20, 0], [logit(0.6), np.log(3), 0], [logit(0.2), 5, 5]], dtype=torch.float32
    )
    shares = shares_of_objects(FIRST_NUMBER, two_tags(), tokens, [0, 1])
    torch.testing.assert_close(shares, torch.tensor([[0.9, 0.6, 0.2], [0, 0.2, 0.2]]))


def test_the_largest_share_is_the_chance_of_an_object() -> None:
    """So a cell is claimed by a tag where an object is likelier than none, and nowhere else."""
    tokens = 3 * torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    chances = FIRST_NUMBER.probability(tokens)
    for tags in ([0, 1], [1], [1, 0]):
        shares = shares_of_objects(FIRST_NUMBER, two_tags(), tokens, tags)
        torch.testing.assert_close(shares.amax(0), chances)
        assert ((shares > 0.5).any(0) == (chances > 0.5)).all()
    best = shares_of_objects(FIRST_NUMBER, two_tags(), tokens, [0, 1]).argmax(0)
    assert torch.equal(best == 1, tokens[:, 2] > tokens[:, 1])


def test_maps_come_in_the_order_of_the_tags() -> None:
    tokens = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    there = shares_of_objects(FIRST_NUMBER, two_tags(), tokens, [0, 1])
    back = shares_of_objects(FIRST_NUMBER, two_tags(), tokens, [1, 0])
    torch.testing.assert_close(there, back.flip(0))


def test_stuff_is_found_outside_of_objects() -> None:
    """By its own probability where no object is; it takes nothing from the object's tag."""
    tokens = torch.tensor([[logit(0.9), 0, logit(0.8)], [logit(0.1), 0, logit(0.8)]])
    shares = shares_of_objects(FIRST_NUMBER, two_tags(stuff=(1,)), tokens, [0, 1])
    torch.testing.assert_close(shares, torch.tensor([[0.9, 0.1], [0.1 * 0.8, 0.9 * 0.8]]))
    alone = shares_of_objects(FIRST_NUMBER, two_tags(stuff=(1,)), tokens, [1])
    torch.testing.assert_close(alone[0], shares[1])


def test_a_photo_without_tags_has_no_maps() -> None:
    assert shares_of_objects(FIRST_NUMBER, two_tags(), torch.rand(7, 3), []).shape == (0, 7)
