"""The two losses against numbers worked out by hand, and their gradients."""

import pytest
import torch

from tagmask.acr.consistency import activation_loss, affinity_loss, consistency_losses, strength
from tagmask.acr.views import HorizontalFlip

ONE = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.6, 0.3], [0.4, 0.4, 0.2]], dtype=torch.float64)
TWO = torch.tensor([[0.2, 0.1, 0.7], [0.9, 0.0, 0.1], [0.3, 0.1, 0.6]], dtype=torch.float64)


def test_losses_by_hand() -> None:
    # class rows differ by 0.4 and 0.4; patch parts by 0.6, 0.2, 0.3, 0.4; the column of the class token is left out
    assert activation_loss(ONE, TWO).item() == pytest.approx(0.4)
    assert affinity_loss(ONE, TWO).item() == pytest.approx((0.6 + 0.2 + 0.3 + 0.4) / 4)
    assert activation_loss(ONE, TWO, "l2").item() == pytest.approx(0.16)
    assert affinity_loss(ONE, TWO, "l2").item() == pytest.approx((0.36 + 0.04 + 0.09 + 0.16) / 4)
    assert affinity_loss(ONE, TWO, "smooth_l1").item() == pytest.approx((0.36 + 0.04 + 0.09 + 0.16) / 8)


def test_losses_average_over_batch_and_blocks() -> None:
    stack = torch.stack([ONE, ONE, TWO, ONE]).view(2, 2, 3, 3)
    other = torch.stack([TWO, ONE, TWO, ONE]).view(2, 2, 3, 3)  # one of four pairs differs
    assert activation_loss(stack, other).item() == pytest.approx(0.1)
    assert affinity_loss(stack, other).item() == pytest.approx(1.5 / 16)


@pytest.mark.parametrize("distance", ["l1", "l2", "smooth_l1"])
@pytest.mark.parametrize("loss", [activation_loss, affinity_loss])
def test_gradients(loss: object, distance: str) -> None:
    torch.manual_seed(0)
    attention = torch.rand(2, 7, 7, dtype=torch.float64, requires_grad=True)
    other = torch.rand(2, 7, 7, dtype=torch.float64, requires_grad=True)

    def value(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return loss(a, HorizontalFlip().restore(b, (2, 3)), distance)  # type: ignore[operator, no-any-return]

    assert torch.autograd.gradcheck(value, (attention, other))


def test_both_views_receive_gradient() -> None:
    attention, other = ONE.clone().requires_grad_(), TWO.clone().requires_grad_()
    (activation_loss(attention, other) + affinity_loss(attention, other)).backward()
    assert attention.grad is not None
    assert other.grad is not None
    torch.testing.assert_close(attention.grad, -other.grad)
    assert attention.grad[1:, 0].tolist() == [0, 0]


def test_strength_keeps_its_effect_on_another_grid() -> None:
    assert strength(100, 576) == 100
    assert strength(100, 144) == 25
    assert strength(100, 144, absolute=True) == 100
    # the same two rows, each key split into four: the mean L1 shrinks fourfold, the weighted loss stays
    coarse, fine = (
        0.01 * torch.arange(4.0).view(1, 4).softmax(-1),
        0.01 * torch.arange(4.0).view(1, 4).softmax(-1).repeat_interleave(4, -1) / 4,
    )
    assert strength(1, 4) * coarse.mean().item() == pytest.approx(strength(1, 16) * fine.mean().item())


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="no distance 'l3'"):
        activation_loss(ONE, TWO, "l3")
    with pytest.raises(ValueError, match="restore one first"):
        affinity_loss(ONE, torch.rand(4, 4))


@pytest.mark.parametrize("distance", ["l1", "l2", "smooth_l1"])
def test_both_losses_at_once_equal_each_alone(distance: str) -> None:
    torch.manual_seed(0)
    one, other = torch.rand(2, 3, 8, 8), torch.rand(2, 3, 8, 8)
    activation, affinity = consistency_losses(one, other, distance)
    torch.testing.assert_close(activation, activation_loss(one, other, distance))
    torch.testing.assert_close(affinity, affinity_loss(one, other, distance))
