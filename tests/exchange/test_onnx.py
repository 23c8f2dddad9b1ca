"""The network as ONNX: the same probabilities, at sizes that were not traced."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from tagmask.data.scenes.catalog import Scenes
from tagmask.errors import TagmaskError
from tagmask.exchange import onnx as ours
from tagmask.models.deeplab import DeepLabV2
from tagmask.models.head import HeadSegmenter
from tests.helpers import tiny_classifier

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def network(backbone: str = "test_resnet", **options: Any) -> DeepLabV2:
    """Weights large enough that the probabilities are far from even."""
    torch.manual_seed(0)
    model = DeepLabV2(backbone, 4, classes=("cat", "dog", "größer"), **options).eval()
    for parameter in model.aspp.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def answer(path: Path, image: torch.Tensor) -> Any:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (probabilities,) = session.run(["probabilities"], {"image": image.numpy()})
    return probabilities


@pytest.mark.parametrize(
    ("backbone", "options"),
    [
        ("test_resnet", {}),
        ("test_resnet", {"multi_scale": True, "freeze_norm": True}),
        ("test_convnext", {}),
    ],
)
@pytest.mark.parametrize("size", [(40, 56), (101, 63), (33, 130)])
def test_same_probabilities_at_any_size(
    backbone: str, options: dict[str, Any], size: tuple[int, int], tmp_path: Path
) -> None:
    model = network(backbone, **options)
    ours.write_onnx(model, tmp_path / "net.onnx")
    image = torch.rand(3, 3, *size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits = model((image - model.mean) / model.std)
        expected = model.upsample(logits, size).softmax(1)
    actual = answer(tmp_path / "net.onnx", image)
    np.testing.assert_allclose(actual, expected, atol=1e-4)
    assert float(expected.max()) > 0.4  # even would be 0.25
    assert [file.name for file in tmp_path.iterdir()] == ["net.onnx"]


def test_the_file_tells_its_classes(tmp_path: Path) -> None:
    ours.write_onnx(network(), tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(
        str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"]
    )
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["classes"]) == ["cat", "dog", "größer"]
    assert json.loads(metadata["size"]) is None
    assert json.loads(metadata["input"])["colours"] == "RGB"
    assert json.loads(metadata["output"])["background"] == 0
    assert "other classes to 0" in json.loads(metadata["tags"])
    assert session.get_inputs()[0].shape == ["images", 3, "height", "width"]


def test_a_file_that_computes_something_else_is_not_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "largest_difference", lambda *_: 0.25)
    with pytest.raises(
        TagmaskError, match=r"test_resnet differs from the network by 0\.25, more than 0\.0001"
    ):
        ours.write_onnx(network(), tmp_path / "net.onnx")
    assert list(tmp_path.iterdir()) == []


def test_differences_are_seen(tmp_path: Path) -> None:
    model = network()
    ours.write_onnx(model, tmp_path / "net.onnx")
    whole = ours.WholeNetwork(model)
    assert ours.largest_difference(whole, onnxruntime, tmp_path / "net.onnx") < 1e-4
    with torch.no_grad():
        model.aspp.convolutions[0].bias[1] += 0.5
    assert ours.largest_difference(whole, onnxruntime, tmp_path / "net.onnx") > 1e-2


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        TagmaskError, match=rf"needs the package {package}; install it with: .*tagmask\[onnx\]"
    ):
        ours.write_onnx(network(), tmp_path / "net.onnx")


def test_a_head_on_tokens(tmp_path: Path) -> None:
    """An image of any size, seen as a square; against the network and a second size."""
    model = HeadSegmenter(tiny_classifier(), (1, 3), 40).eval()
    with torch.no_grad():
        model.linear.weight.normal_(std=0.1)
    ours.write_onnx(model, tmp_path / "head.onnx")
    session = onnxruntime.InferenceSession(
        str(tmp_path / "head.onnx"), providers=["CPUExecutionProvider"]
    )
    image = torch.rand(1, 3, 30, 50)
    (probabilities,) = session.run(None, {"image": image.numpy()})
    square = torch.nn.functional.interpolate(image, (40, 40), mode="bilinear")
    with torch.no_grad():
        cells = model(model.normalize(square))
    expected = torch.nn.functional.interpolate(cells, (30, 50), mode="bilinear").softmax(1)
    np.testing.assert_allclose(probabilities, expected, atol=1e-4)


def test_the_example_of_the_docs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It uses onnxruntime, numpy and Pillow alone, and draws what the network itself does."""
    page = (Path(__file__).parents[2] / "docs/how-to/exchange.md").read_text(encoding="utf-8")
    (code,) = [block for block in page.split("```py\n") if "onnxruntime" in block[:200]]
    code = code.split("```")[0]
    names = ("dog", "cat", "tree")
    model = HeadSegmenter(tiny_classifier(classes=3), (1, 3), 64).eval()
    model.classes = names
    with torch.no_grad():
        model.linear.weight.normal_(std=0.3)
    ours.write_onnx(model, tmp_path / "segmenter.onnx")
    scenes = Scenes(1, seed=2)
    Image.fromarray(scenes.load_image(0)).save(tmp_path / "photo.jpg", quality=95)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/how-to/exchange.md", "exec"), {})
    mask = np.array(Image.open("mask.png"))
    photo = Image.open("photo.jpg")
    small = photo.copy()
    small.thumbnail((64, 64))
    image = torch.from_numpy(np.array(small)).permute(2, 0, 1)[None] / 255
    with torch.no_grad():
        probabilities = ours.WholeNetwork(model)(image)[0]  # (4, h, w)
    is_dog = probabilities[1] > probabilities[0]  # the only tag, against the background
    expected = Image.fromarray(is_dog.numpy().astype(np.uint8)).resize(photo.size, 0)
    assert mask.shape == (photo.height, photo.width)
    assert (mask == np.array(expected)).mean() > 0.999
    assert 0.05 < mask.mean() < 0.95
    assert "dog" in capsys.readouterr().out
