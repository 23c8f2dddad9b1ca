"""The trace is what hooks and one backward pass per class give, and nothing is left behind."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tagmask.methods.trace import class_trace
from tagmask.models.classifier import Classifier
from tests.acr.independent import by_hooks, distance, lively
from tests.helpers import tiny_classifier

BACKBONES = ["tagmask_tiny", "deit_tiny_distilled_patch16_224", "vit_small_patch16_dinov3"]
CLASSES = torch.tensor([[0, 3], [2, -1]])


def token_gradients(model: Classifier, images: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens (B, N, D) entering the last block and their gradients (B, K, N, D), one backward pass per class."""
    kept: list[Tensor] = []

    def keep(_block: Any, inputs: tuple[Tensor, ...]) -> None:
        inputs[0].retain_grad()
        kept.append(inputs[0])

    actual = []
    for column in CLASSES.T:
        hook = model.blocks[-1].register_forward_pre_hook(keep)
        logits = model(images)
        hook.remove()
        sum(logits[image, c] for image, c in enumerate(column) if c >= 0).backward()
        actual.append(kept[-1].grad)
    model.zero_grad()
    return kept[-1].detach(), torch.stack([one for one in actual if one is not None], dim=1)


@pytest.mark.parametrize("name", BACKBONES)
def test_everything_is_there(name: str) -> None:
    torch.manual_seed(0)
    model = lively(Classifier(name, 4))
    images = torch.rand(2, 3, 2 * model.patch_size, 3 * model.patch_size, dtype=torch.float64)
    trace = class_trace(model, images, CLASSES)
    matrices, gradients = by_hooks(model, images, CLASSES)
    for actual, expected in ((trace.attention, matrices), (trace.gradients, gradients)):
        assert len(actual) == len(model.blocks)
        assert (
            max(distance(one, other) for one, other in zip(actual, expected, strict=True)) < 1e-10
        )
    tokens, of_tokens = token_gradients(model, images)
    assert distance(trace.tokens, tokens) < 1e-10
    assert distance(trace.token_gradients, of_tokens) < 1e-10
    for mean, matrix in zip(trace.means(model, range(1, 3)), matrices[1:3], strict=True):
        assert distance(mean, model.without_extra_tokens(matrix.mean(1))) < 1e-10
    with torch.no_grad():
        torch.testing.assert_close(trace.logits, model(images))
        torch.testing.assert_close(
            trace.features, model.vit.forward_features(images)[:, model.prefix :]
        )
    alone = [trace.logits, trace.tokens, trace.token_gradients, trace.features, trace.weight]
    assert not any(tensor.requires_grad for tensor in [*alone, *trace.attention, *trace.gradients])
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_weight_of_two_heads_is_their_mean() -> None:
    model = lively(Classifier("deit_tiny_distilled_patch16_224", 4))
    weight = class_trace(model, torch.rand(1, 3, 16, 16, dtype=torch.float64), CLASSES[:1]).weight
    torch.testing.assert_close(
        weight, (model.vit.head.weight + model.vit.head_dist.weight).detach() / 2
    )


def test_without_gradients() -> None:
    model = tiny_classifier(classes=4).eval()
    images = torch.rand(2, 3, 32, 40)
    less, more = (
        class_trace(model, images, CLASSES, gradients=False),
        class_trace(model, images, CLASSES),
    )
    torch.testing.assert_close(less.attention, more.attention)
    torch.testing.assert_close(less.features, more.features)
    assert less.gradients[0].shape == (2, 0, 4, 21, 21)
    assert less.token_gradients.shape == (2, 0, 21, 96)
    with torch.inference_mode():
        torch.testing.assert_close(
            class_trace(model, images.clone(), CLASSES).gradients, more.gradients
        )


class Failing(nn.Module):
    def forward(self, tokens: Tensor) -> Tensor:
        raise RuntimeError("on purpose")


def test_the_model_is_as_before_after_an_exception() -> None:
    model = tiny_classifier(classes=4).train()
    model.vit.norm = Failing()
    with pytest.raises(RuntimeError, match="on purpose"):
        class_trace(model, torch.rand(2, 3, 32, 40), CLASSES)
    assert all(module.training for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(
        "forward" in block.__dict__ or block._forward_pre_hooks for block in model.blocks
    )
