"""The classifier on the backbones it must know, on any size, from disk and from foreign files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

from tagmask.data.datasets import to_tensor
from tagmask.data.scenes.catalog import Scenes
from tagmask.errors import TagmaskError
from tagmask.models import tiny
from tagmask.models.backbones import check_published
from tagmask.models.classifier import Classifier
from tests.helpers import SHARED, tiny_classifier

BACKBONES = [  # name, prefix tokens, patch size, mean of the red channel
    ("vit_base_r50_s16_384", 1, 16, 0.5),
    ("deit_small_patch16_224", 1, 16, 0.485),
    ("deit_tiny_distilled_patch16_224", 2, 16, 0.485),
    ("vit_small_patch14_reg4_dinov2", 5, 14, 0.485),
    ("tagmask_tiny", 1, 8, 0.5),
    ("vit_small_patch16_dinov3", 5, 16, 0.485),
]


@pytest.mark.parametrize(("name", "prefix", "patch", "mean"), BACKBONES)
def test_backbones(name: str, prefix: int, patch: int, mean: float) -> None:
    torch.manual_seed(0)
    model = Classifier(name, 4).eval()
    assert (model.prefix, model.patch_size) == (prefix, patch)
    assert model.mean.flatten()[0].item() == pytest.approx(mean)
    images = torch.rand(1, 3, 2 * patch, 3 * patch)
    assert model.grid(2 * patch, 3 * patch) == (2, 3)
    with torch.no_grad():
        logits, attention = model(images, return_attention=True)
        torch.testing.assert_close(logits, model(images), rtol=1e-4, atol=1e-5)
    assert attention.shape == (1, len(model.blocks), 7, 7)
    sums = attention.sum(-1)
    if prefix == 1:
        torch.testing.assert_close(sums, torch.ones_like(sums))
    else:  # what goes to the extra tokens is missing from the rows
        assert (sums < 1).all()


def test_extra_tokens_are_cut_out_at_the_right_place() -> None:
    model = Classifier("deit_tiny_distilled_patch16_224", 2)
    attention = torch.arange(36.0).view(1, 6, 6)  # class, distillation, four patches
    kept = model.without_extra_tokens(attention)
    assert kept[0, 0].tolist() == [0, 2, 3, 4, 5]
    assert kept[0, :, 0].tolist() == [0, 12, 18, 24, 30]


def test_attention_of_chosen_blocks_only() -> None:
    model = tiny_classifier().eval()
    images = torch.rand(1, 3, 32, 40)
    with torch.no_grad():
        everything = model(images, return_attention=True)[1]
        _, chosen = model.attend(images, blocks=range(2, 4))
    assert len(chosen) == 2
    torch.testing.assert_close(torch.stack(chosen, 1), everything[:, 2:])


def test_normalize_by_hand() -> None:
    model = tiny_classifier()
    assert model.normalize(torch.full((1, 3, 1, 1), 0.75)).flatten().tolist() == [0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("swin_tiny_patch4_window7_224", "use a ViT with a class token, such as deit_small"),
        ("resnet18", "use a ViT with a class token"),
        ("vit_medium_patch16_gap_256", "use a ViT with a class token"),
        ("deit_smal", "did you mean deit_small"),
        ("no such thing", "timm knows no backbone named 'no such thing'"),
    ],
)
def test_unusable_backbones_are_refused(name: str, message: str) -> None:
    with pytest.raises(TagmaskError, match=message):
        Classifier(name, 3)


@pytest.mark.parametrize(
    ("size", "message"),
    [((4, 40), "4×40 pixels, smaller than one 8-pixel patch"), ((33, 40), "multiples of 8.*32×40")],
)
def test_sizes_that_do_not_fit(size: tuple[int, int], message: str) -> None:
    with pytest.raises(TagmaskError, match=message):
        tiny_classifier()(torch.rand(1, 3, *size))


def test_save_and_load(tmp_path: Path) -> None:
    model = tiny_classifier(classes=2, size=40).eval()
    model.classes = ("dog", "sofa")
    model.save(tmp_path)
    again = Classifier.load(tmp_path)
    assert again.classes == ("dog", "sofa")
    images = torch.rand(1, 3, 48, 32)
    with torch.no_grad():
        torch.testing.assert_close(again(images), model(images), rtol=0, atol=0)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_loading_from_a_wrong_place(tmp_path: Path) -> None:
    with pytest.raises(TagmaskError, match=r"config\.json does not exist"):
        Classifier.load(tmp_path)
    (tmp_path / "config.json").write_text('{"kind": "segmenter"}')
    with pytest.raises(TagmaskError, match="does not hold a classifier"):
        Classifier.load(tmp_path)
    tiny_classifier().save(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"half a file")
    with pytest.raises(TagmaskError, match="does not hold the model"):
        Classifier.load(tmp_path)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_local_weights_fit_all_but_the_head(tmp_path: Path, suffix: str) -> None:
    source = tiny_classifier(classes=5)
    file = tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        torch.save(
            {"state_dict": {f"module.{k}": v.half() for k, v in source.vit.state_dict().items()}},
            file,
        )
    else:
        save_file({k: v.half() for k, v in source.vit.state_dict().items()}, file)
    model = Classifier("tagmask_tiny", 3, img_size=32, weights=file)
    expected = source.vit.blocks[2].attn.qkv.weight.half().float()
    torch.testing.assert_close(model.vit.blocks[2].attn.qkv.weight, expected, rtol=0, atol=0)
    assert model.vit.head.weight.shape == (3, 96)


def test_the_small_backbone_brings_its_weights() -> None:
    torch.manual_seed(0)
    shipped = load_file(Path(tiny.__file__).with_name("tagmask_tiny.safetensors"))
    model = Classifier("tagmask_tiny", 3, pretrained=True)
    assert {name for name in model.vit.state_dict() if name not in shipped} == {
        "head.weight",
        "head.bias",
    }
    for name, value in shipped.items():
        torch.testing.assert_close(model.vit.state_dict()[name], value.float(), rtol=0, atol=0)
    assert model.vit.head.weight.std() > 0.04  # not timm's 0.02
    scenes = Scenes(12, seed=1000)
    information = []  # nats between the patch that looks and the one it looks at: 0 where all rows are alike
    for i in range(len(scenes)):
        square = torch.nn.functional.interpolate(
            to_tensor(scenes.load_image(i))[None] / 255, (64, 64)
        )
        rows = model(model.normalize(square), return_attention=True)[1][0, :, 1:, 1:]  # (L, n, n)
        rows = rows / rows.sum(-1, keepdim=True)
        information.append((rows * (rows / rows.mean(-2, keepdim=True)).log()).sum(-1).mean(-1))
    assert (
        torch.stack(information).mean(0)[:2].min() > 0.3
    )  # the first two blocks look at what a patch belongs to


def test_local_weights_at_another_size_resample_positions(tmp_path: Path) -> None:
    weights = tiny_classifier(size=32).vit.state_dict()
    columns = torch.arange(4.0).repeat(4)  # of a grid of 4 × 4 patches
    weights["pos_embed"] = torch.cat([torch.tensor([9.0]), columns])[None, :, None].repeat(1, 1, 96)
    save_file(weights, tmp_path / "w.safetensors")
    model = Classifier("tagmask_tiny", 3, img_size=64, weights=tmp_path / "w.safetensors")
    token, grid = model.vit.pos_embed[0, 0], model.vit.pos_embed[0, 1:].unflatten(0, (8, 8))
    assert (token == 9).all()
    torch.testing.assert_close(grid, grid[:1, :, :1].expand(8, 8, 96))  # the same in all rows
    middle = (torch.arange(8.0) - 0.5) / 2  # centres of the finer cells
    torch.testing.assert_close(grid[0, 2:6, 0], middle[2:6], rtol=0, atol=0.05)


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    tensors = tiny_classifier().vit.state_dict()
    del tensors["blocks.3.mlp.fc1.weight"]
    save_file(tensors, tmp_path / "w.safetensors")
    with pytest.raises(TagmaskError, match=r"1 are missing.*blocks\.3\.mlp\.fc1\.weight"):
        Classifier("tagmask_tiny", 3, weights=tmp_path / "w.safetensors")
    save_file(
        {**tiny_classifier().vit.state_dict(), "surplus": torch.zeros(1)},
        tmp_path / "v.safetensors",
    )
    with pytest.raises(TagmaskError, match="1 of the file have no place"):
        Classifier("tagmask_tiny", 3, weights=tmp_path / "v.safetensors")
    with pytest.raises(TagmaskError, match="does not exist"):
        Classifier("tagmask_tiny", 3, weights=tmp_path / "nowhere.pth")
    (tmp_path / "text.pth").write_text("not tensors")
    with pytest.raises(TagmaskError, match=r"text\.pth"):
        Classifier("tagmask_tiny", 3, weights=tmp_path / "text.pth")


@pytest.mark.parametrize(
    ("made_for", "remedy"),
    [
        ("deit_tiny_patch16_224", "--backbone deit_tiny_patch16_224 or vit_tiny_patch16_224,"),
        ("vit_tiny_patch16_224", "--backbone deit_tiny_patch16_224 or vit_tiny_patch16_224,"),
        ("vit_small_patch14_dinov2", "--backbone vit_small_patch14_dinov2,"),
        ("vit_small_patch14_reg4_dinov2", "--backbone vit_small_patch14_reg4_dinov2,"),
        ("resnet50", "is of resnet50, a network of another kind: give a file of tagmask_tiny"),
        ("resnet18", "choose the backbone the file was made for with --backbone."),
        ("deit_tiny_distilled_patch16_224", "the file was made for with --backbone."),
    ],
)
def test_the_shapes_of_a_file_tell_its_backbone(made_for: str, remedy: str, tmp_path: Path) -> None:
    """The message names the file, the backbone that was asked for, and the one to ask for."""
    with torch.device("meta"):
        shapes = timm.create_model(made_for).state_dict()
    tensors = {name: torch.zeros(value.shape, dtype=value.dtype) for name, value in shapes.items()}
    save_file(tensors, tmp_path / "w.safetensors")
    with pytest.raises(TagmaskError) as refused:
        Classifier("tagmask_tiny", 3, weights=tmp_path / "w.safetensors")
    message = str(refused.value)
    assert f"weights file {tmp_path / 'w.safetensors'} does not fit the backbone " in message
    assert "backbone tagmask_tiny" in message
    assert remedy in message


def test_published_weights_without_network_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(TagmaskError, match=r"could not be fetched.*--weights"):
        Classifier("deit_tiny_patch16_224", 3, pretrained=True)


def test_published_weights_are_missed_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.file_download.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(TagmaskError, match=r"no connection.*--weights: model\.safetensors of"):
        check_published("deit_tiny_patch16_224")
    # as the library lays out what it has fetched
    repository = tmp_path / "models--timm--deit_tiny_patch16_224.fb_in1k"
    (repository / "snapshots/abc").mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text("abc")
    (repository / "snapshots/abc/model.safetensors").touch()
    check_published("deit_tiny_patch16_224")
    check_published("tagmask_tiny")


def test_contradictions_are_refused() -> None:
    with pytest.raises(TagmaskError, match="2 class names were given for 3"):
        Classifier("tagmask_tiny", 3, classes=["a", "b"])
    with pytest.raises(TagmaskError, match="choose one"):
        Classifier("tagmask_tiny", 3, pretrained=True, weights="w.pth")
    with pytest.raises(TagmaskError, match="at least one class"):
        Classifier("tagmask_tiny", 0)


@pytest.mark.skipif(
    not (SHARED / "weights").is_dir(), reason="the real weights are not on this machine"
)
def test_real_weights_load() -> None:
    file = SHARED / "weights" / "vit_small_patch14_dinov2.saliency.safetensors"
    model = Classifier("vit_small_patch14_dinov2", 20, weights=file)
    assert model.vit.pos_embed.shape == (1, 1 + 37 * 37, 384)
    assert model.native_size == 518
    with pytest.raises(TagmaskError, match="does not fit the backbone deit_small_patch16_224"):
        Classifier("deit_small_patch16_224", 20, weights=file)


@pytest.mark.parametrize(
    ("name", "value"), [("classes", 3), ("crop_size", "64"), ("backbone", None)]
)
def test_a_config_of_another_form_is_told(tmp_path: Path, name: str, value: object) -> None:
    tiny_classifier().save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, name: value}))
    with pytest.raises(
        TagmaskError, match=rf"config\.json is not as tagmask writes it \({name} is "
    ):
        Classifier.load(tmp_path)


def test_the_weights_of_the_small_backbone_can_be_made_again(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "scripts/pretrain_tiny.py"
    small = [
        "--steps",
        "2",
        "--warmup",
        "1",
        "--batch",
        "2",
        "--count",
        "4",
        "--size",
        "32",
        "--workers",
        "0",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, str(script), "--out", str(tmp_path), *small], check=True, env=environment
    )
    made, shipped = (load_file(file) for file in (tmp_path / tiny_file().name, tiny_file()))
    assert {name: (v.dtype, v.shape) for name, v in made.items()} == {
        n: (v.dtype, v.shape) for n, v in shipped.items()
    }
    assert Classifier("tagmask_tiny", 3, weights=tmp_path / tiny_file().name).num_classes == 3


def tiny_file() -> Path:
    return Path(tiny.__file__).with_name("tagmask_tiny.safetensors")
