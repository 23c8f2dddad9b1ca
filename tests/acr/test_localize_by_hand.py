"""Localisation maps of two-block ViTs small enough to check with a pencil, or to write again in NumPy."""

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from tagmask.acr.gradients import class_rows
from tagmask.acr.localize import localize, pad_classes
from tagmask.models.classifier import Classifier
from tests.acr.independent import around

Array = npt.NDArray[np.float64]


def two_blocks(height: int, width: int, dim: int, heads: int, classes: int) -> Classifier:
    """One pixel is one patch."""
    size = {
        "img_size": (height, width),
        "patch_size": 1,
        "embed_dim": dim,
        "dynamic_img_size": True,
    }
    return around(
        VisionTransformer(**size, depth=2, num_heads=heads, mlp_ratio=2, num_classes=classes)
    )


def pencil_model() -> Classifier:
    """Tokens are (red, green); no norms, no MLP, queries and keys 0, so that each token attends to all three alike."""
    model = two_blocks(1, 2, dim=2, heads=1, classes=2).double()
    for parameter in model.parameters():
        parameter.requires_grad_(False).zero_()
    vit, eye = model.vit, torch.eye(2)
    vit.patch_embed.proj.weight.copy_(torch.eye(2, 3)[..., None, None])
    vit.cls_token[0, 0, 0] = 1
    for block, value in zip(vit.blocks, ([[0, 1], [1, 0]], [[3, 0], [0, -3]]), strict=True):
        block.attn.qkv.weight[4:] = torch.tensor(value)
        block.attn.proj.weight.copy_(eye)
        block.norm1 = block.norm2 = nn.Identity()
    vit.norm = nn.Identity()
    vit.head.weight.copy_(torch.tensor([[1, 1], [-1, -1]]))
    return model


def test_gradients_by_pencil() -> None:
    """Tokens: class (1, 0), patches (2, 1) and (0, 3). The score of class 0 is the sum of the class token, of class 1
    its negative.

    Block 1 swaps, so its values are (0, 1), (1, 2), (3, 0); their mean (4/3, 1) is added to every token: the patches
    become (10/3, 2), (4/3, 4). Block 2's values (3a, −3b) are then (10, −6), (4, −12).
    Block 2: more A[0, j] adds patch j's value to the class token: ∂y⁰ = 10 − 6 = 4 and 4 − 12 = −8.
    Block 1: it adds (a, b) = (1, 2) or (3, 0), and a third of (3a, −3b) again in block 2: (2a, 0) in all, so 2 and 6.
    """
    model = pencil_model()
    image = torch.tensor([[[[2, 0]], [[1, 3]], [[9, 9]]]], dtype=torch.float64)  # blue is not seen
    found = class_rows(model, image, pad_classes([[0, 1]]), 2, range(2))
    first, second = (
        gradient[0, :, 0] for gradient in found.gradients
    )  # (2 classes, 2 patches), one head
    torch.testing.assert_close(first, torch.tensor([[2, 6], [-2, -6]], dtype=torch.float64))
    torch.testing.assert_close(second, torch.tensor([[4, -8], [-4, 8]], dtype=torch.float64))
    star = localize(model, image, [[0, 1]], affinity=False)[
        0
    ]  # class 0: 2 + 4, 6 + 0; class 1: 0, 8
    torch.testing.assert_close(star, torch.tensor([[[6, 6]], [[0, 8]]], dtype=torch.float64))
    refined = localize(model, image, [[0, 1]])[0]  # twice a third of the sum
    torch.testing.assert_close(
        refined, torch.tensor([[[8, 8]], [[16 / 3, 16 / 3]]], dtype=torch.float64)
    )


def norm(tokens: Array, weights: dict[str, Array], name: str) -> Array:
    centred = tokens - tokens.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
    return np.asarray(scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"])


def linear(tokens: Array, weights: dict[str, Array], name: str) -> Array:
    return tokens @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def gelu(x: Array) -> Array:
    return np.asarray(x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))))


def numpy_logits(
    weights: dict[str, Array], image: Array, heads: int, bump: tuple[int, int, int, float]
) -> Array:
    """Logits (C,) of the two-block ViT where ``bump`` (block, head, key, ε) adds ε to one A[0, key]."""
    weights = {**weights, "patch.weight": weights["patch_embed.proj.weight"][:, :, 0, 0]}
    patches = image.reshape(3, -1).T @ weights["patch.weight"].T + weights["patch_embed.proj.bias"]
    tokens = np.concatenate([weights["cls_token"][0], patches]) + weights["pos_embed"][0]  # (N, D)
    for block in range(2):
        name = f"blocks.{block}"
        qkv = linear(norm(tokens, weights, f"{name}.norm1"), weights, f"{name}.attn.qkv")
        query, key, value = (
            np.split(part, heads, axis=1) for part in np.split(qkv, 3, axis=1)
        )  # heads × (N, d)
        mixed = []
        for head in range(heads):
            scores = np.exp(query[head] @ key[head].T / math.sqrt(query[head].shape[1]))
            attention = scores / scores.sum(1, keepdims=True)  # (N, N)
            if (block, head) == bump[:2]:
                attention[0, bump[2]] += bump[3]
            mixed.append(attention @ value[head])
        tokens = tokens + linear(np.concatenate(mixed, axis=1), weights, f"{name}.attn.proj")
        hidden = gelu(linear(norm(tokens, weights, f"{name}.norm2"), weights, f"{name}.mlp.fc1"))
        tokens = tokens + linear(hidden, weights, f"{name}.mlp.fc2")
    return linear(norm(tokens, weights, "norm")[0], weights, "head")


def large(model: Classifier) -> Classifier:
    """In float64, with weights so large that every part of the network matters."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.6 * torch.randn_like(parameter))
    return model.double()


@pytest.mark.parametrize("exact_graph", [False, True])
def test_gradients_by_finite_differences(exact_graph: bool) -> None:
    heads = 2
    model = large(two_blocks(2, 3, dim=4, heads=heads, classes=3))
    weights = {name: value.numpy() for name, value in model.vit.state_dict().items()}
    images = torch.rand(2, 3, 2, 3, dtype=torch.float64)
    classes = [[2, 0], [1]]
    plain = numpy_logits(weights, images[0].numpy(), heads, (0, 0, 0, 0.0))
    np.testing.assert_allclose(plain, model(images)[0].detach().numpy(), rtol=1e-10)
    found = class_rows(model, images, pad_classes(classes), 2, range(0), exact_graph=exact_graph)
    for block, head, patch, image in np.ndindex(2, heads, 6, 2):
        logits = [
            numpy_logits(weights, images[image].numpy(), heads, (block, head, patch + 1, step))
            for step in (1e-5, -1e-5)
        ]
        slope = (logits[0] - logits[1]) / 2e-5  # (C,)
        gradient: Tensor = found.gradients[block][image, : len(classes[image]), head, patch]
        np.testing.assert_allclose(gradient.numpy(), slope[classes[image]], rtol=1e-6, atol=1e-8)
    assert min(gradient.abs().max() for gradient in found.gradients) > 0.1
