"""Localisation maps: the shortcut is exact, the formulas are the paper's, and nothing is left behind."""

import warnings
from typing import Any

import pytest
import timm
import torch
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from tagmask.acr.gradients import ClassRows, class_rows, why_no_shortcut
from tagmask.acr.localize import (
    affinity,
    gradient_map,
    localize,
    localize_both,
    pad_classes,
    refine,
)
from tagmask.errors import TagmaskError
from tagmask.models.classifier import Classifier
from tests.acr.independent import around, by_hooks, distance, lively
from tests.helpers import tiny_classifier

BACKBONES = [
    "tagmask_tiny",  # convolution stem
    "deit_tiny_patch16_224",
    "deit_tiny_distilled_patch16_224",  # two tokens are read by two heads
    "vit_small_patch14_reg4_dinov2",  # LayerScale and registers
    "vit_xsmall_patch16_clip_224",  # a norm before the first block
    "qk_norm",
    "scale_norm",
]
CLASSES = [[0, 3], [2]]


def backbone(name: str) -> Classifier:
    torch.manual_seed(0)
    if name.endswith("_norm"):
        options = (
            {"qk_norm": True}
            if name == "qk_norm"
            else {"scale_attn_norm": True, "scale_mlp_norm": True}
        )
        return lively(
            around(
                timm.create_model(
                    "vit_tiny_patch16_224", num_classes=4, dynamic_img_size=True, **options
                )
            )
        )
    return lively(Classifier(name, 4))


def batch(model: Classifier, count: int = 2) -> Tensor:
    """Images of 2 × 3 patches."""
    torch.manual_seed(1)
    return torch.rand(count, 3, 2 * model.patch_size, 3 * model.patch_size, dtype=torch.float64)


def patch_rows(model: Classifier, gradients: list[Tensor], layers: int) -> list[Tensor]:
    """Of whole matrices the part that localisation takes."""
    return [gradient[..., 0, model.prefix :] for gradient in gradients[-layers:]]


def assert_same(actual: ClassRows, gradients: list[Tensor], attention: list[Tensor]) -> None:
    for one, other in zip(actual.gradients, gradients, strict=True):
        assert distance(one, other) < 1e-10
    for one, other in zip(actual.attention, attention, strict=True):
        assert distance(one, other) < 1e-10


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("name", BACKBONES)
def test_shortcut_is_plain_autograd_is_one_backward_per_class(name: str, layers: int) -> None:
    model = backbone(name)
    assert why_no_shortcut(model) == ""
    images, classes, everything = batch(model), pad_classes(CLASSES), range(len(model.blocks))
    short = class_rows(model, images, classes, layers, everything)
    exact = class_rows(model, images, classes, layers, everything, exact_graph=True)
    assert_same(short, exact.gradients, exact.attention)
    matrices, gradients = by_hooks(model, images, classes)
    means = [model.without_extra_tokens(matrix.mean(1)) for matrix in matrices]
    assert_same(short, patch_rows(model, gradients, layers), means)
    for actual in (short, exact):
        for row, expected in zip(actual.rows, patch_rows(model, matrices, layers), strict=True):
            assert distance(row, expected) < 1e-10
    assert all(gradient[1, 1].abs().max() == 0 for gradient in short.gradients)  # padding
    torch.testing.assert_close(short.logits, model(images))


@pytest.mark.slow
def test_the_backbones_have_what_they_are_chosen_for() -> None:
    assert backbone("vit_small_patch14_reg4_dinov2").vit.num_reg_tokens == 4
    assert backbone("vit_small_patch14_reg4_dinov2").blocks[-1].ls1.gamma.std() > 0.1
    assert isinstance(backbone("vit_xsmall_patch16_clip_224").vit.norm_pre, nn.LayerNorm)
    assert isinstance(backbone("qk_norm").blocks[-1].attn.q_norm, nn.LayerNorm)
    assert isinstance(backbone("scale_norm").blocks[-1].attn.norm, nn.LayerNorm)


@pytest.mark.parametrize("layers", [3, 4])
@pytest.mark.parametrize("name", ["tagmask_tiny", "deit_tiny_distilled_patch16_224"])
def test_more_blocks_than_the_shortcut_knows(name: str, layers: int) -> None:
    model = backbone(name)
    images, classes = batch(model), pad_classes(CLASSES)
    matrices, gradients = by_hooks(model, images, classes)
    chosen = range(4)  # some before the graph starts, some after
    means = [model.without_extra_tokens(matrices[i].mean(1)) for i in chosen]
    assert_same(
        class_rows(model, images, classes, layers, chosen),
        patch_rows(model, gradients, layers),
        means,
    )


@pytest.mark.parametrize("blocks", [range(0), range(2), range(2, 3), range(3, 4), range(1, 4, 2)])
def test_affinity_of_chosen_blocks(blocks: range) -> None:
    model = backbone("tagmask_tiny")
    images, classes = batch(model), pad_classes(CLASSES)
    matrices, gradients = by_hooks(model, images, classes)
    actual = class_rows(model, images, classes, 2, blocks)
    assert_same(actual, patch_rows(model, gradients, 2), [matrices[i].mean(1) for i in blocks])


def test_a_single_block() -> None:
    model = lively(
        around(
            timm.create_model("vit_tiny_patch16_224", depth=1, num_classes=4, dynamic_img_size=True)
        )
    )
    images, classes = batch(model), pad_classes(CLASSES)
    matrices, gradients = by_hooks(model, images, classes)
    actual = class_rows(model, images, classes, 1, range(1))
    assert_same(actual, patch_rows(model, gradients, 1), [matrices[0].mean(1)])


def test_unknown_blocks_fall_back_with_one_warning() -> None:
    model = backbone("tagmask_tiny")
    model.blocks[1].__class__ = type("OddBlock", (Block,), {})
    images, classes = batch(model), pad_classes(CLASSES)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            actual = class_rows(model, images, classes, 2, range(4))
    assert [str(one.message) for one in caught] == [
        "tagmask_tiny: the shortcut does not know OddBlock with Attention; plain autograd is used, exact but slower."
    ]
    matrices, gradients = by_hooks(model, images, classes)
    means = [model.without_extra_tokens(matrix.mean(1)) for matrix in matrices]
    assert_same(actual, patch_rows(model, gradients, 2), means)


def test_relu_comes_before_the_head_mean() -> None:
    gradient = torch.tensor([[[3.0, -1.0], [-5.0, 1.0]]])  # (1 class, 2 heads, 2 patches)
    assert gradient_map([gradient]).tolist() == [[1.5, 0.5]]  # after the mean it would be 0, 0
    assert gradient_map([2 * gradient, gradient]).tolist() == [[4.5, 1.5]]


def test_product_by_hand() -> None:
    """Patch 0 attends to patch 1, patch 1 to itself, patch 2 half to each of the first two."""
    attends = torch.tensor([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    maps = torch.tensor([[4.0, 2.0, 8.0]])
    assert refine(maps, attends).tolist() == [
        [2.0, 2.0, 3.0]
    ]  # A·g: collects from what it attends to
    assert refine(maps, attends, transpose=True).tolist() == [
        [4.0, 10.0, 0.0]
    ]  # Aᵀg: from what attends to it


def test_steps_by_hand() -> None:
    """Rows sum to 2 and 4. One step is the plain product; from two on it is that of (½, ½) and (¼, ¾)."""
    attends, maps = torch.tensor([[1.0, 1.0], [1.0, 3.0]]), torch.tensor([[8.0, 0.0]])
    assert refine(maps, attends).tolist() == [[8.0, 8.0]]
    assert refine(maps, attends, steps=2).tolist() == [[3.0, 2.5]]  # after the first (4, 2)
    assert refine(maps, attends, steps=3).tolist() == [[2.75, 2.625]]
    lopsided = torch.tensor(
        [[0.0, 1.0], [0.0, 1.0]]
    )  # transposed: nothing attends to patch 0, both to patch 1
    assert refine(maps, lopsided + 1, True, 2).tolist() == [
        [4.0, 4.0]
    ]  # columns (1, 1) and (2, 2): (½, ½) each


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_steps_of_every_map(steps: int) -> None:
    model = backbone("vit_small_patch14_reg4_dinov2")
    images = batch(model)
    plain, refined = localize_both(
        model, images, CLASSES, affinity_steps=steps, affinity_blocks=range(2, 9)
    )
    matrices, _ = by_hooks(model, images, pad_classes(CLASSES))
    for i in range(2):
        pairs = (
            torch.stack(matrices[2:9])[:, i, :, model.prefix :, model.prefix :].mean(1).sum(0)
        )  # (n, n)
        pairs = pairs if steps == 1 else pairs / pairs.sum(1, keepdim=True)
        expected = plain[i].flatten(1) @ torch.linalg.matrix_power(pairs, steps).T
        assert distance(refined[i].flatten(1), expected) < 1e-10


def test_affinity_by_hand() -> None:
    attention = torch.arange(9.0).view(3, 3)  # class token first
    assert affinity([attention, 10 * attention]).tolist() == [[44.0, 55.0], [77.0, 88.0]]


def test_images_with_different_classes() -> None:
    model = backbone("tagmask_tiny")
    images = batch(model, 3)
    together = localize(model, images, [[1], [], [0, 3, 2]])
    assert [one.shape for one in together] == [(1, 2, 3), (0, 2, 3), (3, 2, 3)]
    assert distance(together[0], localize(model, images[:1], [[1]])[0]) < 1e-10
    assert distance(together[2][1:2], localize(model, images[2:], [[3]])[0]) < 1e-10


@pytest.mark.parametrize("transpose", [False, True])
def test_maps_are_the_formula(transpose: bool) -> None:
    model = backbone("deit_tiny_distilled_patch16_224")
    images = batch(model)
    matrices, gradients = by_hooks(model, images, pad_classes(CLASSES))
    star = sum(g[..., 0, 2:].clamp(min=0).sum(2) / 3 for g in gradients[-2:]) + torch.zeros(
        1
    )  # three heads
    weight = torch.stack(matrices[4:]).sum((0, 2))[:, 2:, 2:] / 3
    refined = torch.einsum("bji,bkj->bki" if transpose else "bij,bkj->bki", weight, star)
    options: dict[str, Any] = {"affinity_blocks": range(4, 12), "transpose": transpose}
    plain, both = localize_both(model, images, CLASSES, **options)
    alone = localize(model, images, CLASSES, **options)
    without = localize(model, images, CLASSES, affinity=False)
    for i, classes in enumerate(CLASSES):
        for actual in (plain[i], without[i]):
            assert distance(actual.flatten(1), star[i, : len(classes)]) < 1e-10
        for actual in (both[i], alone[i]):
            assert distance(actual.flatten(1), refined[i, : len(classes)]) < 1e-10


@pytest.mark.parametrize("name", ["tagmask_tiny", "vit_small_patch14_reg4_dinov2"])
def test_centred_gradients_by_hand(name: str) -> None:
    model = backbone(name)
    images = batch(model)
    plain, refined = localize_both(model, images, CLASSES, centre=True)
    attention, gradients = by_hooks(model, images, pad_classes(CLASSES))
    star = torch.zeros(6, dtype=torch.float64)  # image 0, its second class
    for matrix in gradients[-2:]:
        for row in matrix[0, 1, :, 0, model.prefix :]:  # of one head
            average = sum(row.tolist()) / 6
            above = [max(value - average, 0.0) for value in row.tolist()]
            star += torch.tensor(above, dtype=torch.float64) / matrix.shape[2]
    assert distance(plain[0][1].flatten(), star) < 1e-10
    pairs = torch.stack(attention)[:, 0, :, model.prefix :, model.prefix :].mean(1).sum(0)  # (n, n)
    assert distance(refined[0][1].flatten(), pairs @ star) < 1e-10
    assert (
        distance(localize(model, images, CLASSES, affinity=False, centre=True)[0], plain[0]) < 1e-10
    )


def test_centred_maps_do_not_change_with_what_all_patches_share() -> None:
    gradients = [torch.randn(2, 4, 6), torch.randn(2, 4, 6)]
    shifted = [gradient + torch.randn(2, 4, 1) for gradient in gradients]
    torch.testing.assert_close(
        gradient_map(shifted, centre=True), gradient_map(gradients, centre=True)
    )
    assert distance(gradient_map(shifted), gradient_map(gradients)) > 0.1


@pytest.mark.parametrize("layers", [2, 3])
def test_no_graph_is_left_and_none_is_needed(layers: int) -> None:
    model = tiny_classifier().eval()
    images = torch.rand(1, 3, 32, 40)
    actual = class_rows(model, images, pad_classes([[0, 1]]), layers, range(4))
    for tensor in (actual.logits, *actual.rows, *actual.gradients, *actual.attention):
        assert not tensor.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())
    with torch.inference_mode():
        again = class_rows(model, images.clone(), pad_classes([[0, 1]]), layers, range(4))
    torch.testing.assert_close(again.gradients, actual.gradients)


@pytest.mark.parametrize("layers", [2, 3])
def test_half_precision_is_added_up_in_single(layers: int) -> None:
    model, images = tiny_classifier().eval(), torch.rand(1, 3, 32, 40)
    for block in model.blocks:
        block.attn.qkv.weight.data /= 8  # sharp attention would magnify the rounding
    expected = localize(model, images, [[2]], layers=layers)[0]
    actual = localize(model.bfloat16(), images.bfloat16(), [[2]], layers=layers)[0]
    assert actual.dtype == torch.float32
    assert distance(actual, expected) < 0.05


class Failing(nn.Module):
    def forward(self, tokens: Tensor) -> Tensor:
        raise RuntimeError("on purpose")


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("place", ["", "blocks.1.mlp", "blocks.3.mlp", "norm"])
def test_the_model_is_as_before(place: str, layers: int) -> None:
    model = tiny_classifier().train()
    model.blocks[2].eval()
    model.blocks[3].requires_grad_(False)
    if place:
        parent, _, name = place.rpartition(".")
        setattr(model.vit.get_submodule(parent), name, Failing())
    before = (
        [part.training for part in model.modules()],
        [p.requires_grad for p in model.parameters()],
    )
    try:
        class_rows(model, torch.rand(1, 3, 32, 40), pad_classes([[0]]), layers, range(4))
        assert not place
    except RuntimeError as error:
        assert str(error) == "on purpose"  # noqa: PT017
    assert (
        [part.training for part in model.modules()],
        [p.requires_grad for p in model.parameters()],
    ) == before
    assert all("forward" not in block.__dict__ for block in model.blocks)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 0}, "layers is 0; tagmask_tiny has 4 blocks, choose 1 to 4"),
        ({"layers": 7}, "layers is 7; tagmask_tiny has 4 blocks, choose 1 to 4"),
        (
            {"affinity_blocks": range(7)},
            r"blocks range\(0, 7\) do not exist; tagmask_tiny has blocks 0 to 3",
        ),
        ({"affinity_blocks": range(-1, 3)}, r"blocks range\(-1, 3\) do not exist"),
        (
            {"images": torch.rand(1, 3, 33, 40)},
            "33×40 pixels, but tagmask_tiny needs multiples of 8",
        ),
        ({"affinity_blocks": range(0)}, "affinity_blocks is empty; name at least one block"),
        ({"classes": [[-1]]}, "class -1 does not exist; classes are counted from 0"),
        ({"classes": [[0, 3]]}, "class 3 does not exist; this model knows classes 0 to 2"),
        ({"classes": [[0], [1]]}, "classes were given for 2 images, but there are 1"),
        ({"affinity_steps": 0}, "affinity_steps is 0; give 1 or more"),
        ({"colour": "red"}, "colour is not an option of the map method acr; leave it out"),
    ],
)
def test_bad_input(changes: dict[str, Any], message: str) -> None:
    asked: dict[str, Any] = {"images": torch.rand(1, 3, 32, 40), "classes": [[0]], **changes}
    with pytest.raises(TagmaskError, match=message):
        localize(tiny_classifier(), **asked)
