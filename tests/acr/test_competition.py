"""Competition by hand, and the walk with restart against its closed form."""

import math
from typing import Any

import pytest
import torch

from tagmask.acr.localize import acr, localize, localize_both, pad_classes, propagate, share
from tagmask.errors import TagmaskError
from tests.helpers import tiny_classifier


def test_share_by_hand() -> None:
    maps = torch.tensor([[0.0, 4.0, 2.0], [1.0, 1.0, 3.0]])  # stretched: (0, 1, ½) and (0, 0, 1)
    first, second = share(maps, temperature=0.5, background=0.0)
    e1, e2 = math.exp(1), math.exp(2)  # of ½/½ and 1/½
    assert first.tolist() == pytest.approx([0, e2 / (2 + e2), 0.5 * e1 / (1 + e1 + e2)])
    assert second.tolist() == pytest.approx([0, 0, e2 / (1 + e1 + e2)])


def test_a_constant_map_has_no_say() -> None:
    assert share(torch.ones(1, 4)).tolist() == [[0, 0, 0, 0]]


@pytest.mark.parametrize("transpose", [False, True])
def test_many_steps_reach_the_closed_form(transpose: bool) -> None:
    torch.manual_seed(0)
    maps, affinity = (
        torch.rand(2, 3, 7, dtype=torch.float64),
        torch.rand(2, 7, 7, dtype=torch.float64),
    )
    pairs = affinity.mT if transpose else affinity
    pairs = pairs / pairs.sum(-1, keepdim=True)
    closed = 0.3 * torch.linalg.solve(torch.eye(7, dtype=torch.float64) - 0.7 * pairs, maps.mT).mT
    torch.testing.assert_close(propagate(maps, affinity, 0.7, 200, transpose), closed)
    torch.testing.assert_close(propagate(maps, affinity, 0.7, 0), maps)


def test_localize_competes_per_image_whatever_the_batch_holds() -> None:
    model, images = tiny_classifier(), torch.rand(2, 3, 32, 48)
    options: dict[str, Any] = {"compete": True, "propagation": 0.8}
    both = localize(model, images, [[0, 2], [1]], **options)
    alone = localize(model, images[1:], [[1]], **options)
    torch.testing.assert_close(both[1], alone[0])
    maps = acr(model, images[:1], pad_classes([[0, 2]]), range(4))
    plain = localize_both(model, images[:1], [[0, 2]])[0][0].flatten(1)  # (2, n)
    pairs = torch.stack(maps.attention).sum(0)[0, 1:, 1:]
    expected = propagate(share(plain), pairs, 0.8)
    torch.testing.assert_close(both[0].flatten(1), expected)


def test_bad_strength() -> None:
    with pytest.raises(TagmaskError, match=r"is 1\.5; it must lie between 0 and 1"):
        propagate(torch.rand(1, 4), torch.rand(4, 4), 1.5)
