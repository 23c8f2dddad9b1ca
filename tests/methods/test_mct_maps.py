"""Maps of a model with a class token per class against hooks on timm's unfused attention; its views and losses."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tagmask.acr.consistency import consistency_losses
from tagmask.acr.localize import localize, localize_both
from tagmask.acr.views import HorizontalFlip, Resize, parse_view
from tagmask.errors import TagmaskError
from tagmask.methods.mctformer import fuse
from tagmask.methods.mctformer import mct as mct_maps
from tagmask.models.mct import MctClassifier
from tests.acr.independent import distance, lively

BACKBONES = [  # name, prefix tokens of four classes
    ("tagmask_tiny", 4),
    ("deit_tiny_distilled_patch16_224", 5),
    ("vit_small_patch14_reg4_dinov2", 8),
    ("vit_small_patch16_dinov3", 8),
]
CLASSES = [[3, 0], [2]]


def mct(name: str = "tagmask_tiny", classes: int = 4) -> MctClassifier:
    torch.manual_seed(0)
    model = MctClassifier(name, classes)
    lively(model)
    assert model.patch_head.bias is not None
    with torch.no_grad():
        model.patch_head.weight.mul_(0.02)
        model.patch_head.bias.add_(1)  # so that every class has a CAM above zero somewhere
    return model


def batch(model: MctClassifier, count: int = 2) -> Tensor:
    """Images of 2 × 3 patches."""
    torch.manual_seed(1)
    return torch.rand(count, 3, 2 * model.patch_size, 3 * model.patch_size, dtype=torch.float64)


def by_hooks(model: MctClassifier, images: Tensor, prefix: int) -> tuple[list[Tensor], Tensor]:
    """Attention, L × (B, N, N), and CAM (B, C, n), by timm's unfused code and a convolution written as a product."""
    kept, last = list[Tensor](), list[Tensor]()
    hooks = [
        b.attn.attn_drop.register_forward_hook(lambda _m, _i, matrix: kept.append(matrix))
        for b in model.blocks
    ]
    hooks.append(model.vit.norm.register_forward_hook(lambda _m, _i, tokens: last.append(tokens)))
    for block in model.blocks:
        block.attn.fused_attn = False
    with torch.no_grad():
        model(images)
        patches = last[0][:, prefix:].transpose(1, 2).reshape(len(images), -1, 2, 3)
        around = F.unfold(patches, 3, padding=1)  # (B, 9·D, n)
        assert model.patch_head.bias is not None
        cam = model.patch_head.weight.flatten(1) @ around + model.patch_head.bias[:, None]
    for hook in hooks:
        hook.remove()
    for block in model.blocks:
        block.attn.fused_attn = True
    return [matrix.sum(1) / matrix.shape[1] for matrix in kept], cam


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("name", "prefix"), BACKBONES)
def test_maps_are_the_formula(name: str, prefix: int, transpose: bool) -> None:
    model = mct(name)
    assert model.prefix == prefix
    images = batch(model)
    matrices, cam = by_hooks(model, images, prefix)
    plain, refined = localize_both(model, images, CLASSES, mct_maps, transpose=transpose)
    for b, classes in enumerate(CLASSES):
        for k, c in enumerate(classes):
            row = sum(matrix[b, c, prefix:] for matrix in matrices[-3:]) / 3
            star = row * cam[b, c].clamp(min=0)
            pairs = torch.stack(matrices)[:, b, prefix:, prefix:].sum(0)
            expected = torch.mv(pairs.T if transpose else pairs, star)
            assert star.max() > 0
            assert distance(plain[b][k].flatten(), star) < 1e-10
            assert distance(refined[b][k].flatten(), expected) < 1e-10


@pytest.mark.parametrize("layers", [1, 4])
def test_chosen_blocks(layers: int) -> None:
    model = mct()
    images = batch(model)
    matrices, cam = by_hooks(model, images, 4)
    plain, refined = localize_both(
        model, images, CLASSES, mct_maps, layers=layers, affinity_blocks=range(1, 3)
    )
    star = torch.stack(matrices[-layers:]).mean(0)[1, 2, 4:] * cam[1, 2].relu()
    assert distance(plain[1][0].flatten(), star) < 1e-10
    assert distance(refined[1][0].flatten(), (matrices[1] + matrices[2])[1, 4:, 4:] @ star) < 1e-10
    alone = localize(model, images, CLASSES, mct_maps, layers=layers, affinity=False)
    assert distance(alone[1], plain[1]) < 1e-10


def test_there_are_no_gradients_to_centre() -> None:
    model = mct()
    with pytest.raises(
        TagmaskError, match="centre is not an option of the map method mct; leave it out"
    ):
        localize(model, batch(model), CLASSES, mct_maps, centre=True)


def test_one_class_and_padding() -> None:
    model = mct(classes=1)
    images = batch(model, 3)
    matrices, cam = by_hooks(model, images, 1)
    found = localize(model, images, [[0], [], [0]], mct_maps, affinity=False)
    assert [one.shape for one in found] == [(1, 2, 3), (0, 2, 3), (1, 2, 3)]
    star = torch.stack(matrices[-3:]).mean(0)[2, 0, 1:] * cam[2, 0].relu()
    assert distance(found[2].flatten(), star) < 1e-10


def test_product_by_hand() -> None:
    """Two blocks, two patches: mean attention (0.3, 0.5), CAM (2, −1)."""
    found = fuse(
        [torch.tensor([[0.2, 0.4]]), torch.tensor([[0.4, 0.6]])], torch.tensor([[2.0, -1.0]])
    )
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.0]]))


def test_the_model_is_as_before() -> None:
    model = mct().train()
    model.blocks[2].eval()
    before = [part.training for part in model.modules()]
    assert not localize(model, batch(model), CLASSES, mct_maps)[0].requires_grad
    assert [part.training for part in model.modules()] == before
    assert all("forward" not in block.__dict__ for block in model.blocks)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 7}, "layers is 7; tagmask_tiny has 4 blocks, choose 1 to 4"),
        ({"affinity_blocks": range(7)}, r"blocks range\(0, 7\) do not exist"),
        ({"images": torch.rand(1, 3, 33, 40)}, "multiples of 8"),
        ({"classes": [[4]]}, "class 4 does not exist; this model knows classes 0 to 3"),
        ({"classes": [[0], [1]]}, "classes were given for 2 images, but there are 1"),
    ],
)
def test_bad_input(changes: dict[str, Any], message: str) -> None:
    asked: dict[str, Any] = {
        "images": torch.rand(1, 3, 32, 40).double(),
        "classes": [[0]],
        **changes,
    }
    with pytest.raises(TagmaskError, match=message):
        localize(mct(), **asked, method=mct_maps)


@pytest.mark.parametrize(
    "view", ["hflip", "vflip", "rotate90", "rotate180", "rotate270", "hflip+rotate90"]
)
def test_restoring_with_three_class_tokens(view: str) -> None:
    """Attention of a view, made of the positions each token had in the original, names these positions again."""
    chosen, grid = parse_view(view, 8), (2, 3)
    home = (
        chosen.apply(torch.arange(6.0).view(1, 1, *grid)).flatten().long().tolist()
    )  # token of the view: its home
    names = ["a", "b", "c", *home]
    table = {name: i for i, name in enumerate(["a", "b", "c", *range(6)])}
    of_view = torch.tensor([[10.0 * table[q] + table[k] for k in names] for q in names])
    expected = 10.0 * torch.arange(9.0)[:, None] + torch.arange(9.0)
    assert torch.equal(chosen.restore(of_view, grid, class_tokens=3), expected)


def test_resizing_with_two_class_tokens_is_exact_on_linear_rows() -> None:
    view, grid = Resize(2.0, patch=8), (2, 3)

    def rows(height: int, width: int) -> Tensor:
        """What tokens a, b and a patch give to the patches, linear in the position of the key."""
        y = (torch.arange(height) + 0.5)[:, None] / height
        x = (torch.arange(width) + 0.5)[None] / width
        return torch.stack(
            [(1 + y + 0 * x).flatten(), (3 - x + y).flatten(), (2 + x - y).flatten()]
        )

    def attention(height: int, width: int) -> Tensor:
        patches = rows(height, width)
        patches = patches / patches.sum(-1, keepdim=True) * 0.9
        to_classes = torch.tensor([[0.08, 0.02], [0.03, 0.07], [0.05, 0.05]])
        whole = torch.cat([to_classes, patches], dim=1)  # (3, 2 + n)
        return torch.cat([whole[:2], whole[2:].expand(height * width, -1)])

    torch.testing.assert_close(view.restore(attention(4, 6), grid, class_tokens=2), attention(2, 3))


def test_wrong_number_of_class_tokens_is_told() -> None:
    with pytest.raises(ValueError, match=r"2×3 patches and 3 class tokens: \(9, 9\) was expected"):
        HorizontalFlip().restore(torch.rand(7, 7), (2, 3), class_tokens=3)


@pytest.mark.parametrize("distance_name", ["l1", "l2"])
def test_losses_with_class_tokens_one_entry_after_the_other(distance_name: str) -> None:
    torch.manual_seed(0)
    one, other = torch.rand(2, 8, 8), torch.rand(2, 8, 8)  # 2 images, 2 class tokens, 6 patches
    power = 1 if distance_name == "l1" else 2
    activation = affinity = 0.0
    for b in range(2):
        for key in range(2, 8):
            activation += sum(abs((one - other)[b, q, key].item()) ** power for q in range(2)) / (
                2 * 2 * 6
            )
            affinity += sum(abs((one - other)[b, q, key].item()) ** power for q in range(2, 8)) / (
                2 * 6 * 6
            )
    both = consistency_losses(one, other, distance_name, class_tokens=2)
    assert [value.item() for value in both] == pytest.approx([activation, affinity], rel=1e-5)
