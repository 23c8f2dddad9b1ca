"""AffinityNet on the backbones it must know, by hand on its own layers, from disk and from foreign files."""

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tagmask.errors import TagmaskError
from tagmask.models.affinity_net import AffinityNet


def tiny_net(seed: int = 0, **options: Any) -> AffinityNet:
    torch.manual_seed(seed)
    return AffinityNet("test_resnet", **options)


@pytest.mark.parametrize(
    ("name", "mean"), [("test_resnet", 0.5), ("resnet10t", 0.485), ("mobilenetv3_small_050", 0.485)]
)
def test_backbones_at_stride_8(name: str, mean: float) -> None:
    model = AffinityNet(name).eval()
    with torch.no_grad():
        assert model(torch.rand(1, 3, 40, 51)).shape == (1, 448, 5, 7)
    assert model.mean[0].item() == pytest.approx(mean)
    first = 1 / model.std.flatten()[0].item()
    assert model.normalize(torch.ones(1, 3, 1, 1))[0, 0].item() == pytest.approx((1 - mean) * first)


def test_layers_on_top_by_hand() -> None:
    model = tiny_net().eval()
    images = torch.rand(2, 3, 24, 32)
    with torch.no_grad():
        stages = model.cnn(images)
        parts = []
        for layer, stage, width in zip(model.narrow, stages, (64, 128, 256), strict=True):
            assert isinstance(layer, nn.Conv2d)
            part = torch.einsum("oc,bchw->bohw", layer.weight[:, :, 0, 0], stage)
            assert part.shape == (2, width, 3, 4)
            parts.append(torch.where(part > 0, part, part.exp() - 1))
        joined = torch.einsum("oc,bchw->bohw", model.join.weight[:, :, 0, 0], torch.cat(parts, 1))
        expected = torch.where(joined > 0, joined, joined.exp() - 1)
        torch.testing.assert_close(model(images), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "vgg11",
            "vgg11 cannot be brought to output stride 8; use a CNN that can be dilated, such as resnet50",
        ),
        ("vit_tiny_patch16_224", "cannot be brought to output stride 8"),
        ("ghostnet_050", "cannot be brought to output stride 8"),
        ("swin_tiny_patch4_window7_224", "strides 8, 16, 32 instead of 8"),
        ("resnet5", "did you mean"),
        ("no such thing", "timm knows no backbone named 'no such thing'"),
    ],
)
def test_unusable_backbones_are_refused(name: str, message: str) -> None:
    with pytest.raises(TagmaskError, match=message):
        AffinityNet(name)


def test_other_bad_input() -> None:
    with pytest.raises(TagmaskError, match="6×40 pixels; give at least 8×8"):
        tiny_net()(torch.rand(1, 3, 6, 40))
    with pytest.raises(TagmaskError, match="choose one"):
        tiny_net(pretrained=True, weights="x.pth")
    with pytest.raises(TagmaskError, match="test_convnext has no bottlenecks"):
        AffinityNet("test_convnext", caffe=True)


def test_save_and_load(tmp_path: Path) -> None:
    model = tiny_net(freeze_norm=True).eval()
    model.save(tmp_path)
    again = AffinityNet.load(tmp_path)
    images = torch.rand(1, 3, 48, 32)
    with torch.no_grad():
        torch.testing.assert_close(again(images), model(images), rtol=0, atol=0)
    assert again.freeze_norm
    assert sorted(file.name for file in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_loading_from_a_wrong_place(tmp_path: Path) -> None:
    with pytest.raises(TagmaskError, match=r"config\.json does not exist"):
        AffinityNet.load(tmp_path)
    (tmp_path / "config.json").write_text('{"kind": "classifier"}')
    with pytest.raises(TagmaskError, match="does not hold an affinity network"):
        AffinityNet.load(tmp_path)
    tiny_net().save(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"half a file")
    with pytest.raises(TagmaskError, match="does not hold the model"):
        AffinityNet.load(tmp_path)


@pytest.mark.parametrize("name", ["test_resnet", "test_convnext", "mobilenetv3_small_050"])
def test_weights_of_a_classifier_are_taken_whole(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    whole = timm.create_model(name)
    kept = {
        key: value
        for key, value in whole.state_dict().items()
        if not key.endswith("num_batches_tracked")
    }
    save_file(kept, tmp_path / "w.safetensors")
    loaded = AffinityNet(name, weights=tmp_path / "w.safetensors").cnn.state_dict()
    for key, value in loaded.items():
        if not key.endswith("num_batches_tracked"):
            plain = key if key in kept else key.replace("_", ".", 1)
            torch.testing.assert_close(value, kept[plain], rtol=0, atol=0)


def test_weights_of_another_backbone_are_refused(tmp_path: Path) -> None:
    weights = timm.create_model("test_resnet").state_dict()
    weights["layer3.7.conv1.weight"] = torch.zeros(1)
    save_file(weights, tmp_path / "w.safetensors")
    with pytest.raises(TagmaskError, match=r"1 of the file have no place \(first: layer3\.7"):
        tiny_net(weights=tmp_path / "w.safetensors")


@pytest.mark.parametrize("name", ["test_resnet", "test_convnext"])
def test_cells_cut_by_a_border_count(name: str) -> None:
    with torch.no_grad():
        assert AffinityNet(name).eval()(torch.rand(1, 3, 75, 97)).shape == (1, 448, 10, 13)


def test_caffe_strides() -> None:
    plain, moved = AffinityNet("resnet14t"), AffinityNet("resnet14t", caffe=True)
    strides = [[(b.conv1.stride, b.conv2.stride) for b in net.cnn.layer2] for net in (plain, moved)]
    assert strides == [[((1, 1), (2, 2))], [((2, 2), (1, 1))]]
    assert [
        b.conv2.stride for net in (plain, moved) for b in (net.cnn.layer3[0], net.cnn.layer4[0])
    ] == [(1, 1)] * 4
    with torch.no_grad():
        assert moved.eval()(torch.rand(1, 3, 32, 32)).shape == (1, 448, 4, 4)


def test_frozen_norms_stay() -> None:
    model = tiny_net(freeze_norm=True)
    before = {
        name: value.clone() for name, value in model.cnn.state_dict().items() if "running" in name
    }
    model.train()(torch.rand(2, 3, 32, 32)).mean().backward()
    assert all(torch.equal(model.cnn.state_dict()[name], value) for name, value in before.items())
    norms = [m for m in model.cnn.modules() if isinstance(m, nn.BatchNorm2d)]
    assert norms
    assert not any(parameter.requires_grad for norm in norms for parameter in norm.parameters())
    assert model.cnn.conv1[0].weight.grad is not None
    free = tiny_net()
    free(torch.rand(2, 3, 32, 32))
    assert not torch.equal(free.cnn.bn1.running_mean, torch.zeros(32))


def test_saved_names_are_those_of_the_state(tmp_path: Path) -> None:
    tiny_net().save(tmp_path)
    names = load_file(tmp_path / "model.safetensors").keys()
    assert {
        "narrow.0.weight",
        "narrow.2.weight",
        "join.weight",
        "cnn.layer1.0.conv1.weight",
    } <= names
    assert not names & {"mean", "std"}
