"""The classifier with a class token per class: its tokens, its two branches, from disk and from foreign files."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from tagmask.errors import TagmaskError
from tagmask.models.affinity_net import AffinityNet
from tagmask.models.classifier import Classifier
from tagmask.models.deeplab import DeepLabV2
from tagmask.models.kinds import KINDS, load, load_classifier
from tagmask.models.mct import MctClassifier
from tests.helpers import SHARED, tiny_classifier

BACKBONES = [  # name, extra prefix tokens
    ("tagmask_tiny", 0),
    ("deit_small_patch16_224", 0),
    ("deit_tiny_distilled_patch16_224", 1),
    ("vit_small_patch14_reg4_dinov2", 4),  # positions are added to the patches only
    ("vit_small_patch16_dinov3", 4),  # rotary positions: each block counts its prefix tokens
]


def mct(name: str = "tagmask_tiny", classes: int = 3, **options: Any) -> MctClassifier:
    torch.manual_seed(0)
    return MctClassifier(name, classes, **options).eval()


def wide(model: Classifier, count: int = 1) -> Tensor:
    """Images of 2 × 3 patches."""
    torch.manual_seed(1)
    return torch.rand(count, 3, 2 * model.patch_size, 3 * model.patch_size)


def final_tokens(model: Classifier, images: Tensor) -> Tensor:
    tokens: Tensor = model.vit.forward_features(images)
    return tokens


@pytest.mark.parametrize(("name", "extra"), BACKBONES)
def test_backbones(name: str, extra: int) -> None:
    model = mct(name)
    images = wide(model)
    with torch.no_grad():
        branches = model.branches(images)
        logits, attention = model(images, return_attention=True)
        tokens = final_tokens(model, images)
    assert tokens.shape[1] == 3 + extra + 6
    assert attention.shape == (1, len(model.blocks), 9, 9)
    torch.testing.assert_close(logits, branches.sum(1) / 2, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        branches[0, 0], tokens[0, :3].sum(-1) / tokens.shape[-1], rtol=1e-3, atol=1e-4
    )
    # the mean of a padded 3×3 convolution, one patch after the other
    weight, bias = model.patch_head.weight, model.patch_head.bias
    total = torch.zeros(3)
    for row in range(2):
        for column in range(3):
            for i in range(3):
                for j in range(3):
                    y, x = row + i - 1, column + j - 1
                    if 0 <= y < 2 and 0 <= x < 3:
                        total += weight[:, :, i, j] @ tokens[0, 3 + extra + 3 * y + x]
    assert bias is not None
    torch.testing.assert_close(
        branches[0, 1], total.detach() / 6 + bias.detach(), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize(
    "name", ["tagmask_tiny", "deit_tiny_distilled_patch16_224", "vit_small_patch14_reg4_dinov2"]
)
def test_what_enters_the_first_block(name: str) -> None:
    patch = 8 if name == "tagmask_tiny" else 14 if "14" in name else 16
    model = mct(
        name, img_size=(2 * patch, 3 * patch)
    )  # the positions' own grid: nothing is resampled
    vit, entered = model.vit, list[Tensor]()
    images = wide(model)
    hook = model.blocks[0].register_forward_pre_hook(
        lambda _block, inputs: entered.append(inputs[0])
    )
    with torch.no_grad():
        model(images)
        patches = vit.patch_embed(images).reshape(1, 6, -1)
    hook.remove()
    extra = {
        "deit_tiny_distilled_patch16_224": "dist_token",
        "vit_small_patch14_reg4_dinov2": "reg_token",
    }.get(name)
    others = getattr(vit, extra) if extra else vit.cls_token[:, :0]
    prefix = torch.cat([vit.cls_token, others], dim=1)
    count = prefix.shape[1]
    if name == "vit_small_patch14_reg4_dinov2":
        assert vit.pos_embed.shape[1] == 6
        expected = [prefix, patches + vit.pos_embed]
    else:
        assert vit.pos_embed.shape[1] == count + 6
        expected = [prefix + vit.pos_embed[:, :count], patches + vit.pos_embed[:, count:]]
    torch.testing.assert_close(entered[0], torch.cat(expected, dim=1))


def test_tokens_from_scratch_differ() -> None:
    for name in ("tagmask_tiny", "deit_tiny_patch16_224"):
        tokens = mct(name).vit.cls_token[0]
        assert torch.pdist(tokens).min() > 0.1, name
    assert torch.equal(mct().vit.cls_token, mct().vit.cls_token)  # drawn by the seed


@pytest.mark.parametrize("name", ["tagmask_tiny", "deit_tiny_distilled_patch16_224"])
def test_one_class_on_given_weights_is_the_plain_network(name: str, tmp_path: Path) -> None:
    torch.manual_seed(2)
    source = Classifier(name, 5).eval()
    with torch.no_grad():
        source.vit.norm.weight.normal_()
    save_file(source.vit.state_dict(), tmp_path / "w.safetensors")
    model = mct(name, classes=1, weights=tmp_path / "w.safetensors")
    images = wide(model, 2)
    with torch.no_grad():
        torch.testing.assert_close(
            final_tokens(model, images), final_tokens(source, images), rtol=1e-4, atol=1e-5
        )
        expected = source.attend(images)[1]
        for one, other in zip(model.attend(images)[1], expected, strict=True):
            torch.testing.assert_close(one, other)


def test_tokens_repeat_those_of_the_weights(tmp_path: Path) -> None:
    source = Classifier("tagmask_tiny", 2).eval()
    with torch.no_grad():
        source.vit.norm.weight.normal_()
    save_file(source.vit.state_dict(), tmp_path / "w.safetensors")
    model = mct(weights=tmp_path / "w.safetensors")
    for c in range(3):
        assert torch.equal(model.vit.cls_token[0, c], source.vit.cls_token[0, 0])
        assert torch.equal(model.vit.pos_embed[0, c], source.vit.pos_embed[0, 0])
    assert torch.equal(model.vit.pos_embed[0, 3:], source.vit.pos_embed[0, 1:])
    with torch.no_grad():
        rows = model.attend(wide(model))[1][-1][0, :3]
    torch.testing.assert_close(rows[0], rows[2])  # alike until they learn


def test_the_small_backbone_brings_its_weights() -> None:
    shipped, model = (
        Classifier("tagmask_tiny", 2, pretrained=True).vit.state_dict(),
        mct(pretrained=True).vit.state_dict(),
    )
    changed = {
        name
        for name in model
        if model[name].shape != shipped[name].shape or not model[name].equal(shipped[name])
    }
    assert changed == {"cls_token", "pos_embed", "norm.weight"}
    assert torch.equal(model["pos_embed"][:, 3:], shipped["pos_embed"][:, 1:])
    assert torch.pdist(model["cls_token"][0]).min() > 1  # nothing had read it: drawn apart


def test_each_token_is_the_class_of_its_place() -> None:
    """Exchanging two tokens, and nothing else, exchanges their logits and their rows of attention."""
    model = mct()
    images = wide(model)
    with torch.no_grad():
        before, attention = model.branches(images), model.attend(images)[1][-1]
        for values in (model.vit.cls_token, model.vit.pos_embed):
            values[:, [0, 2]] = values[:, [2, 0]]
        after, changed = model.branches(images), model.attend(images)[1][-1]
    torch.testing.assert_close(after[:, 0], before[:, 0, [2, 1, 0]], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        changed[:, :3, 3:], attention[:, [2, 1, 0], 3:], rtol=1e-4, atol=1e-6
    )
    assert (attention[0, 0, 3:] - attention[0, 2, 3:]).abs().max() > 1e-3


def test_a_norm_whose_weights_are_alike_is_drawn_anew() -> None:
    """With equal weights w the mean feature is 0 whatever the token; else it is at most their deviation."""
    model = mct(pretrained=True)
    tokens = torch.randn(5, 96)
    with torch.no_grad():
        assert model.vit.norm(tokens).mean(-1).abs().max() > 0.1
        token = model.vit.norm.weight - model.vit.norm.weight.mean()  # the token that says most
        most = model.vit.norm(token).mean() - model.vit.norm.bias.mean()
    assert most.item() == pytest.approx(token.std(correction=0).item(), rel=1e-3)
    assert most.item() > 3
    shipped = Classifier("tagmask_tiny", 3, pretrained=True).vit.norm
    with torch.no_grad():
        assert (shipped(tokens).mean(-1) - shipped.bias.mean()).abs().max() < 0.01


def test_every_parameter_learns() -> None:
    """A parameter without a gradient would stop a training on several GPUs."""
    model = mct("deit_tiny_distilled_patch16_224").train()
    targets = torch.tensor([[1.0, 0, 1]])
    sum(
        F.multilabel_soft_margin_loss(one, targets) for one in model.branches(wide(model)).unbind(1)
    ).backward()  # type: ignore[union-attr]
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_save_and_load(tmp_path: Path) -> None:
    model = mct(classes=2, img_size=40)
    model.classes, model.crop_size = ("dog", "sofa"), 48
    model.save(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    again = load_classifier(tmp_path)
    assert type(again) is MctClassifier
    assert (again.classes, again.crop_size, again.training) == (("dog", "sofa"), 48, False)
    images = torch.rand(1, 3, 48, 32)
    with torch.no_grad():
        assert torch.equal(again(images), model(images))
    with pytest.raises(
        TagmaskError,
        match=r"does not hold a classifier that Classifier can read; tagmask\.load reads",
    ):
        Classifier.load(tmp_path)


def test_the_kind_is_read_from_the_folder(tmp_path: Path) -> None:
    tiny_classifier().save(tmp_path)
    assert type(load_classifier(tmp_path)) is Classifier
    with pytest.raises(TagmaskError, match="does not hold a classifier"):
        MctClassifier.load(tmp_path)
    for text in ("[1]", '{"kind": "oracle"}', '{"kind": ["mct"]}'):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(
            TagmaskError, match="does not hold a network of tagmask; give a folder such as"
        ):
            load_classifier(tmp_path)
    with pytest.raises(TagmaskError, match=r"config\.json does not exist"):
        load_classifier(tmp_path / "nowhere")
    assert {kind.kind for kind in KINDS.values()} == {"classifier", "mct"}


@pytest.mark.parametrize(
    "network",
    [tiny_classifier(), mct(), AffinityNet("test_resnet"), DeepLabV2("test_resnet", 3)],
    ids=lambda network: type(network).__name__,
)
def test_any_network_of_a_run_is_loaded(network: Any, tmp_path: Path) -> None:
    network.eval().save(tmp_path)
    again = load(tmp_path)
    assert type(again) is type(network)
    assert not again.training
    images = torch.rand(1, 3, 64, 48)
    with torch.no_grad():
        assert torch.equal(again(again.normalize(images)), network(network.normalize(images)))
    if not isinstance(network, Classifier):
        with pytest.raises(TagmaskError, match="does not hold a classifier; give the folder"):
            load_classifier(tmp_path)


@pytest.mark.skipif(
    not (SHARED / "weights").is_dir(), reason="the real weights are not on this machine"
)
def test_real_weights_are_kept() -> None:
    file = SHARED / "weights" / "vit_small_patch14_dinov2.saliency.safetensors"
    model = mct("vit_small_patch14_dinov2", classes=20, weights=file)
    tensors = load_file(file)
    assert torch.equal(model.vit.norm.weight, tensors["norm.weight"].float())
    assert torch.equal(model.vit.cls_token[0, 19], tensors["cls_token"].float()[0, 0])
    assert model.vit.pos_embed.shape == (1, 20 + 37 * 37, 384)
