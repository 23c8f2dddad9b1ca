"""DeepLabV2 by numbers that can be checked by hand, on any size, from disk and from foreign files."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tagmask.errors import TagmaskError
from tagmask.models.deeplab import ASPP, DeepLabV2
from tests.helpers import SHARED

RESNET50 = SHARED / "weights/resnet50.imagenet1k.safetensors"


def tiny(labels: int = 4, **options: Any) -> DeepLabV2:
    torch.manual_seed(0)
    return DeepLabV2("test_resnet", labels, **options)


class Stub(nn.Module):
    """An encoder whose features are a chosen function of the image."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.forward_features = function


def test_aspp_of_one_bright_cell_is_four_grids_of_ones() -> None:
    head = ASPP(1, 1)
    for convolution in head.convolutions:
        nn.init.ones_(convolution.weight)
        nn.init.constant_(convolution.bias, 0.25)
    image = torch.zeros(1, 1, 60, 70)
    image[0, 0, 30, 35] = 1
    expected = torch.full((60, 70), 1.0)  # four biases of a quarter
    for rate in (6, 12, 18, 24):
        for dy in (-rate, 0, rate):
            for dx in (-rate, 0, rate):
                expected[30 + dy, 35 + dx] += 1
    assert torch.equal(head(image)[0, 0], expected)
    assert expected[30, 35] == 5  # all four meet in the middle
    assert expected[30 - 24, 35 + 24] == 2


def test_aspp_by_hand_at_the_border() -> None:
    head = ASPP(2, 3, rates=(1, 2))
    for number, convolution in enumerate(head.convolutions):
        nn.init.zeros_(convolution.weight)
        nn.init.zeros_(convolution.bias)
        with torch.no_grad():
            convolution.weight[2, 1, 1, 0] = (
                10.0**number
            )  # class 2 looks at channel 1, `rate` cells to the left
    features = torch.zeros(1, 2, 1, 4)
    features[0, 1, 0] = torch.tensor([1.0, 2, 3, 4])
    assert head(features)[0, 2, 0].tolist() == [0, 1, 2 + 10, 3 + 20]
    assert head(features)[0, :2].abs().max() == 0


@pytest.mark.parametrize(
    ("size", "grid"), [((64, 96), (8, 12)), ((65, 97), (9, 13)), ((33, 120), (5, 15))]
)
def test_logits_have_stride_eight(size: tuple[int, int], grid: tuple[int, int]) -> None:
    model = tiny().eval()
    assert model.stride == 8
    logits = model(torch.rand(2, 3, *size))
    assert logits.shape == (2, 4, *grid)
    assert model.upsample(logits, size).shape == (2, 4, *size)


def test_a_moved_image_gives_moved_logits() -> None:
    model = tiny().eval()
    model.aspp = ASPP(96, 4, rates=(1,))
    image = torch.zeros(1, 3, 257, 257)
    image[..., 120:136, 120:136] = 1
    moved = image.roll((8, -16), (-2, -1))
    one, other = model(image), model(moved)
    torch.testing.assert_close(one[..., 13:20, 13:20], other[..., 14:21, 11:18])


def test_upsampling_puts_cell_i_on_pixel_eight_i() -> None:
    model = tiny()
    logits = torch.tensor([[0.0, 8.0, 16.0]]).repeat(2, 1)[None, None]  # (1, 1, 2, 3)
    pixels = model.upsample(logits, (12, 20))[0, 0]
    assert pixels[3].tolist() == pytest.approx([*range(17), 16, 16, 16])
    assert torch.equal(pixels[0], pixels[11])


def test_patchifying_encoders_lie_in_mid_patch() -> None:
    torch.manual_seed(0)
    model = DeepLabV2("test_convnext", 3)
    assert (model.stride, model.aligned) == (8, False)
    logits = torch.tensor([[[[0.0, 8.0]]]])
    pixels = model.upsample(logits, (8, 16))[0, 0, 0]
    assert pixels.tolist() == pytest.approx(
        [0, 0, 0, 0, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8, 8, 8, 8]
    )
    assert model(torch.zeros(1, 3, 40, 64)).shape == (1, 3, 5, 8)


@pytest.mark.parametrize(("sign", "expected"), [(1, 64.0), (-1, -32.0)])
def test_multi_scale_takes_the_largest_logit(sign: int, expected: float) -> None:
    model = tiny(2, multi_scale=True)

    def width(images: Tensor) -> Tensor:  # a feature that says how wide the image is
        rows, columns = (-(-side // 8) for side in images.shape[-2:])
        return torch.full((len(images), 96, rows, columns), float(sign * images.shape[-1]))

    model.encoder = Stub(width)
    for convolution in model.aspp.convolutions:
        nn.init.zeros_(convolution.weight)
    with torch.no_grad():
        model.aspp.convolutions[0].weight[:, 0, 1, 1] = 1
    every = model.all_logits(torch.zeros(1, 3, 40, 64))
    assert [one.unique().tolist() for one in every] == [
        [sign * 64.0],
        [sign * 48.0],
        [sign * 32.0],
        [expected],
    ]
    assert {one.shape for one in every} == {(1, 2, 5, 8)}
    assert torch.equal(model(torch.zeros(1, 3, 40, 64)), every[-1])


def one_step(model: DeepLabV2) -> dict[str, Tensor]:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    optimizer = torch.optim.SGD(
        [p for p in model.parameters() if p.requires_grad], lr=0.1, weight_decay=0.1
    )
    model(torch.rand(2, 3, 48, 48)).square().sum().backward()
    optimizer.step()
    return before


def test_frozen_norm_is_left_alone_by_training() -> None:
    model = tiny(freeze_norm=True)
    before = one_step(model)
    norms = {
        f"encoder.{name}"
        for name, module in model.encoder.named_modules()
        if isinstance(module, nn.BatchNorm2d)
    }
    fixed = {name for name in before if name.rpartition(".")[0] in norms}
    moved = {
        name for name, value in model.state_dict().items() if not torch.equal(value, before[name])
    }
    assert moved == before.keys() - fixed
    assert len(fixed) == 5 * len(norms) > 0


def test_norm_learns_otherwise() -> None:
    model = tiny()
    before = one_step(model)
    statistics = [name for name in before if name.endswith(("running_mean", "running_var"))]
    assert statistics
    assert all(not torch.equal(model.state_dict()[name], before[name]) for name in statistics)


def test_save_and_load(tmp_path: Path) -> None:
    model = tiny(3, classes=["dog", "sofa"], multi_scale=True, freeze_norm=True).eval()
    one_step(model)
    model.crop_size = 97
    model.save(tmp_path)
    again = DeepLabV2.load(tmp_path)
    images = torch.rand(1, 3, 50, 70)
    assert torch.equal(model.eval()(images), again(images))
    assert (again.classes, again.num_classes, again.crop_size) == (("dog", "sofa"), 3, 97)
    assert again.multi_scale
    assert again.freeze_norm
    assert not again.training
    assert {file.name for file in tmp_path.iterdir()} == {"model.safetensors", "config.json"}


def test_folders_that_hold_something_else(tmp_path: Path) -> None:
    with pytest.raises(TagmaskError, match=r"config\.json does not exist"):
        DeepLabV2.load(tmp_path)
    (tmp_path / "config.json").write_text('{"kind": "classifier"}')
    with pytest.raises(TagmaskError, match="does not hold a segmenter"):
        DeepLabV2.load(tmp_path)
    tiny().save(tmp_path)
    save_file(tiny(9).state_dict(), tmp_path / "model.safetensors")
    with pytest.raises(TagmaskError, match=r"does not hold the model of config\.json"):
        DeepLabV2.load(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(TagmaskError, match=r"model\.safetensors does not exist"):
        DeepLabV2.load(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backbone": "resnett101"}, r"no backbone named 'resnett101'; did you mean .*resnet101"),
        ({"backbone": "test_vit"}, "test_vit gives no feature map.*resnet101"),
        ({"num_classes": 1}, "num_classes is 1; it counts the background too"),
        ({"classes": ["a", "b"]}, "2 class names were given for 4 classes; give 3"),
        ({"pretrained": True, "weights": "x.safetensors"}, "choose one"),
        ({"pretrained": True, "caffe": True}, "leave out caffe or pretrained"),
        ({"caffe": True}, "test_resnet has no bottlenecks with a stride"),
        ({"backbone": "test_convnext", "freeze_norm": True}, "test_convnext has no BatchNorm"),
    ],
)
def test_arguments_that_cannot_be_used(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TagmaskError, match=message):
        DeepLabV2(**{"backbone": "test_resnet", "num_classes": 4, **arguments})


def test_encoders_that_cannot_be_dilated_say_so() -> None:
    model = DeepLabV2("mobilenetv3_small_050", 3)
    assert model.stride == 32
    assert "cannot run at output stride 8; it runs at 32" in model.notes[0]
    assert model.eval()(torch.rand(1, 3, 96, 64)).shape == (1, 3, 3, 2)
    unused = {
        name for name, parameter in model.encoder.named_parameters() if not parameter.requires_grad
    }
    assert unused == {"conv_head.weight", "conv_head.bias"}  # behind the last feature map


def test_local_weights_reach_the_encoder(tmp_path: Path) -> None:
    source = tiny()
    assert "random weights" in DeepLabV2("resnet18", 3).notes[0]
    file = tmp_path / "net.safetensors"
    tensors = {
        **source.encoder.state_dict(),
        "fc.weight": torch.zeros(10, 96),
        "fc.bias": torch.zeros(10),
    }
    save_file(tensors, file)
    torch.manual_seed(5)
    model = DeepLabV2("test_resnet", 3, weights=file)
    assert model.notes == ()
    for name, value in source.encoder.state_dict().items():
        assert torch.equal(model.encoder.state_dict()[name], value)
    save_file({name: value for name, value in tensors.items() if name != "conv1.0.weight"}, file)
    with pytest.raises(TagmaskError, match=r"1 are missing.*conv1\.0\.weight"):
        DeepLabV2("test_resnet", 3, weights=file)


@pytest.mark.parametrize(
    "name", ["classifier.0.convs.1.0.weight", "layer5.conv2d_list.0.weight", "aspp.c0.weight"]
)
def test_weights_that_learned_from_masks_are_refused(name: str, tmp_path: Path) -> None:
    file = tmp_path / "net.safetensors"
    save_file({**tiny().encoder.state_dict(), name: torch.zeros(4, 96, 3, 3)}, file)
    with pytest.raises(TagmaskError, match=r"segmentation network's.*trained on masks"):
        DeepLabV2("test_resnet", 3, weights=file)


def test_caffe_moves_the_stride_to_the_first_convolution() -> None:
    model = DeepLabV2("resnet26", 3, caffe=True)
    block = model.encoder.layer2[0]
    assert (block.conv1.stride, block.conv2.stride, block.downsample[0].stride) == (
        (2, 2),
        (1, 1),
        (2, 2),
    )
    assert model.eval()(torch.rand(1, 3, 33, 49)).shape == (1, 3, 5, 7)


@pytest.mark.skipif(not RESNET50.exists(), reason="no local weights")
def test_real_caffe_weights_load() -> None:
    model = DeepLabV2("resnet50", 21, weights=RESNET50, caffe=True, freeze_norm=True).eval()
    assert model.encoder.layer2[0].conv1.stride == (2, 2)
    with torch.inference_mode():
        features = model.encoder.forward_features(torch.zeros(1, 3, 65, 65))
    assert torch.isfinite(features).all()
    assert features.mean() > 0.01
