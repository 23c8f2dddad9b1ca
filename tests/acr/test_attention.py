"""Recorded attention: the same output, the same gradients, and nothing left behind."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tagmask.acr.attention as module
from tagmask.acr.attention import attend, attend_per_head, record_attention
from tagmask.errors import TagmaskError
from tests.helpers import tiny_classifier


def random_qkv(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(3, 2, 5, 4, dtype=dtype, requires_grad=True) for _ in range(3)]


def test_output_equals_the_fused_function() -> None:
    query, key, value = random_qkv()
    output, mean = attend(query, key, value)
    torch.testing.assert_close(output, F.scaled_dot_product_attention(query, key, value))
    expected = (torch.einsum("bhid,bhjd->bhij", query, key) / 2).softmax(-1).mean(1)  # √d = 2
    torch.testing.assert_close(mean, expected)


@pytest.mark.slow
@pytest.mark.parametrize("matrices_at_once", [1, 2, 4, 6])
def test_gradients_by_finite_differences(
    matrices_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module._WORKING_ELEMENTS, "cpu", matrices_at_once * 5 * 5)
    assert torch.autograd.gradcheck(lambda *qkv: attend(*qkv), random_qkv())
    assert torch.autograd.gradcheck(lambda *qkv: attend(*qkv)[1], random_qkv())


def test_additive_mask_is_learned() -> None:
    query, key, value = random_qkv()
    mask = torch.randn(1, 2, 5, 5, dtype=torch.float64, requires_grad=True)
    output, mean = attend(query, key, value, attn_mask=mask)
    torch.testing.assert_close(
        output, F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    )
    gradient = torch.autograd.grad(mean.square().sum(), mask)[0]
    assert gradient.abs().max() > 0


def test_half_precision_keeps_the_mean_in_single() -> None:
    query, key, value = random_qkv(torch.bfloat16)
    output, mean = attend(query, key, value)
    assert (output.dtype, mean.dtype) == (torch.bfloat16, torch.float32)
    (output.float().sum() + mean.square().sum()).backward()
    assert query.grad is not None
    assert query.grad.dtype == torch.bfloat16


def test_autocast_does_not_reach_inside() -> None:
    query, key, value = random_qkv(torch.float32)
    expected = attend(query, key, value)
    with torch.autocast("cpu", torch.bfloat16):
        assert (query @ key.mT).dtype == torch.bfloat16
        answers = attend(query, key, value)
        gradients = torch.autograd.grad(
            answers[0].sum() + answers[1].square().sum(), (query, key, value)
        )
    torch.testing.assert_close(answers, expected, rtol=0, atol=0)
    again = torch.autograd.grad(expected[0].sum() + expected[1].square().sum(), (query, key, value))
    torch.testing.assert_close(gradients, again, rtol=1e-5, atol=1e-6)


def test_shapes_without_numbers() -> None:
    """On torch's device meta, which tells the cost of a network without computing it."""
    query, key, value = (t.detach().to("meta").requires_grad_() for t in random_qkv())
    output, mean = attend(query, key, value)
    (output.sum() + mean.sum()).backward()
    assert (output.device.type, output.shape, mean.shape) == ("meta", (3, 2, 5, 4), (3, 5, 5))


def plain_gradients(checkpoint: bool) -> list[Tensor]:
    model = tiny_classifier()
    images = torch.rand(2, 3, 32, 48)
    with record_attention(model.blocks, checkpoint=checkpoint) as found:
        loss = model.vit(images).square().sum()
    loss = loss + sum((a.square().sum() for a in found), torch.zeros(()))
    return list(torch.autograd.grad(loss, list(model.parameters())))


def test_normed_query_and_key_in_mixed_precision() -> None:
    query, key, value = torch.rand(3, 2, 4, 5, 8).unbind(0)
    output, mean = attend(query, key, value.bfloat16())
    expected, expected_mean = attend(query, key, value)
    assert output.dtype == torch.bfloat16
    assert mean.dtype == torch.float32
    torch.testing.assert_close(output.float(), expected, rtol=0.02, atol=0.02)
    torch.testing.assert_close(mean, expected_mean, rtol=0.02, atol=0.02)


def test_recomputed_blocks_give_the_same_gradients() -> None:
    for kept, recomputed in zip(plain_gradients(False), plain_gradients(True), strict=True):
        torch.testing.assert_close(kept, recomputed, rtol=0, atol=0)


def test_per_head_attention_averages_to_the_head_mean() -> None:
    model = tiny_classifier().eval()
    images = torch.rand(2, 3, 32, 48)
    with torch.no_grad():
        with record_attention(model.blocks) as means:
            first = model.vit(images)
        with record_attention(model.blocks, attend_per_head) as heads:
            second = model.vit(images)
    torch.testing.assert_close(first, second)
    for mean, head in zip(means, heads, strict=True):
        assert head.shape[1] == 4
        torch.testing.assert_close(head.mean(1), mean)


class Failing(nn.Module):
    def forward(self, tokens: Tensor) -> Tensor:
        raise RuntimeError("on purpose")


def test_blocks_are_as_before_after_an_exception() -> None:
    blocks = [nn.Identity(), Failing()]
    with pytest.raises(RuntimeError, match="on purpose"), record_attention(blocks):
        blocks[1](torch.zeros(1))
    assert all("forward" not in block.__dict__ for block in blocks)


def test_a_block_without_attention_is_refused() -> None:
    block = nn.Linear(2, 2)
    with (
        pytest.raises(TagmaskError, match="a Linear of this backbone makes 0 attention matrices"),
        record_attention([block]),
    ):
        block(torch.zeros(1, 2))


def test_dropout_is_refused() -> None:
    query, key, value = random_qkv()
    with pytest.raises(TagmaskError, match="dropout"):
        attend(query, key, value, dropout_p=0.1)
