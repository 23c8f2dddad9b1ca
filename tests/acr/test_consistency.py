"""The two losses against numbers worked out by hand, and their gradients."""

from typing import Any

import pytest
import torch

from tagmask.acr.consistency import consistency_losses, strength
from tagmask.acr.views import HorizontalFlip

ONE = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.6, 0.3], [0.4, 0.4, 0.2]], dtype=torch.float64)
TWO = torch.tensor([[0.2, 0.1, 0.7], [0.9, 0.0, 0.1], [0.3, 0.1, 0.6]], dtype=torch.float64)


def losses(*arguments: Any) -> list[float]:
    return [loss.item() for loss in consistency_losses(*arguments)]


def test_losses_by_hand() -> None:
    # class rows differ by 0.4 and 0.4; patch parts by 0.6, 0.2, 0.3, 0.4; the column of the class token is left out
    assert losses(ONE, TWO) == pytest.approx([0.4, (0.6 + 0.2 + 0.3 + 0.4) / 4])
    assert losses(ONE, TWO, "l2") == pytest.approx([0.16, (0.36 + 0.04 + 0.09 + 0.16) / 4])
    assert losses(ONE, TWO, "smooth_l1") == pytest.approx([0.08, (0.36 + 0.04 + 0.09 + 0.16) / 8])


def test_losses_average_over_batch_and_blocks() -> None:
    stack = torch.stack([ONE, ONE, TWO, ONE]).view(2, 2, 3, 3)
    other = torch.stack([TWO, ONE, TWO, ONE]).view(2, 2, 3, 3)  # one of four pairs differs
    assert losses(stack, other) == pytest.approx([0.1, 1.5 / 16])


@pytest.mark.parametrize("distance", ["l1", "l2", "smooth_l1"])
@pytest.mark.parametrize("part", [0, 1])
def test_gradients(part: int, distance: str) -> None:
    torch.manual_seed(0)
    attention = torch.rand(2, 7, 7, dtype=torch.float64, requires_grad=True)
    other = torch.rand(2, 7, 7, dtype=torch.float64, requires_grad=True)

    def value(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return consistency_losses(a, HorizontalFlip().restore(b, (2, 3)), distance)[part]

    assert torch.autograd.gradcheck(value, (attention, other))


def test_both_views_receive_gradient() -> None:
    attention, other = ONE.clone().requires_grad_(), TWO.clone().requires_grad_()
    sum(consistency_losses(attention, other)).backward()  # type: ignore[union-attr]
    assert attention.grad is not None
    assert other.grad is not None
    torch.testing.assert_close(attention.grad, -other.grad)
    assert attention.grad[1:, 0].tolist() == [0, 0]


def test_strength_keeps_its_effect_on_another_grid() -> None:
    assert strength(100, 576) == 100
    assert strength(100, 144) == 25
    assert strength(100, 144, absolute=True) == 100
    assert strength(100, 144, distance="l2") == strength(100, 144, distance="smooth_l1") == 100 / 16
    assert strength(100, 144, absolute=True, distance="l2") == 100
    # the same two rows, each key split into four: the mean L1 shrinks fourfold, the weighted loss stays
    coarse, fine = (
        0.01 * torch.arange(4.0).view(1, 4).softmax(-1),
        0.01 * torch.arange(4.0).view(1, 4).softmax(-1).repeat_interleave(4, -1) / 4,
    )
    assert strength(1, 4) * coarse.mean().item() == pytest.approx(
        strength(1, 16) * fine.mean().item()
    )


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="no distance 'l3'"):
        consistency_losses(ONE, TWO, "l3")
    with pytest.raises(ValueError, match="restore one first"):
        consistency_losses(ONE, torch.rand(4, 4))
