"""DeepLabV2 (Chen et al. 2017) on any convolutional timm encoder.

It is the network that learns from pseudo labels. The encoder runs at output stride 8, dilated
where it would shrink further; four dilated 3×3 convolutions (rates 6, 12, 18, 24) read its last
stage and are added up. Deviation: the Caffe original doubles the learning rate of the biases of
new layers; here all new weights have the same.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tagmask.config import MaskSettings
from tagmask.errors import TagmaskError
from tagmask.models.backbones import Normalized, check_start, fetching, freeze_norms, move_strides
from tagmask.models.weights import fit_weights

STRIDE = 8
RATES = (6, 12, 18, 24)
SCALES = (1.0, 0.75, 0.5)  # of the multi-scale input branch
_PROBE = 65  # pixels: one more than a multiple of every stride
_ADVICE = "use a convolutional encoder such as resnet101, resnet50 or convnext_tiny"
_HEADS = ("fc.", "head.", "classifier.", "pre_logits.")
_SEGMENTERS = (
    "aspp",
    "decode_head",
    "auxiliary_head",
    "aux_classifier",
    "conv2d_list",
    "segmentation_head",
)


class ASPP(nn.Module):
    """Sum of 3×3 convolutions with biases, one per dilation rate: (B, d, h, w) -> (B, K, h, w)."""

    def __init__(self, features: int, num_classes: int, rates: Sequence[int] = RATES) -> None:
        super().__init__()
        self.convolutions: Any = nn.ModuleList(
            nn.Conv2d(features, num_classes, 3, padding=rate, dilation=rate) for rate in rates
        )
        for name, parameter in self.named_parameters():
            if name.endswith("weight"):
                nn.init.normal_(parameter, std=0.01)
            else:
                nn.init.zeros_(parameter)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits (B, K, h, w) of features (B, d, h, w)."""
        return torch.stack([convolution(features) for convolution in self.convolutions]).sum(0)


class DeepLabV2(Normalized):
    """A segmentation network with logits per grid cell, background (label 0) included.

    ``notes`` are sentences for the user.

    Args:
        backbone: the name of a convolutional timm model.
        num_classes: the number of logits, K.
        pretrained: take timm's published encoder weights.
        weights: a local file with weights of an image classifier, instead.
        classes: the names of the labels 1 …, so one fewer than ``num_classes``
            (default: "class 0" …).
        multi_scale: see the image also at ¾ and ½ of its size and take the largest logit.
        freeze_norm: keep statistics and affine part of the encoder's BatchNorm fixed, also in
            training.
        caffe: for weights whose bottleneck blocks stride in their first 1×1 convolution.
    """

    kind = "segmenter"
    saved = ("backbone", "multi_scale", "freeze_norm", "caffe", "crop_size", "classes")
    what = "a segmenter"
    remedy = "; give the folder that `tagmask segment` wrote."
    use_settings = MaskSettings

    def __init__(
        self,
        backbone: str = "resnet101",
        num_classes: int = 21,
        *,
        pretrained: bool = False,
        weights: Path | str | None = None,
        classes: Sequence[str] | None = None,
        multi_scale: bool = False,
        freeze_norm: bool = False,
        caffe: bool = False,
    ) -> None:
        super().__init__()
        _check_classes(num_classes, classes)
        check_start(backbone, pretrained, weights, _ADVICE)
        if pretrained and caffe:
            raise TagmaskError(
                "timm's published weights do not stride as Caffe's do; "
                "leave out caffe or pretrained."
            )
        if classes is None:
            classes = [f"class {c}" for c in range(num_classes - 1)]
        self.backbone = backbone
        self.multi_scale = multi_scale
        self.freeze_norm = freeze_norm
        self.caffe = caffe
        self.classes = tuple(classes)
        self.encoder: Any = _create(backbone, pretrained)
        if caffe:
            move_strides(self.encoder, backbone)
        if weights is not None:
            file = Path(weights)
            adapt = partial(_check_tags_only, file)
            fit_weights(self.encoder, backbone, file, adapt, optional=_HEADS)
        self.stride, self.aligned = _probe(self.encoder, backbone)
        self.notes = _notes(backbone, self.stride, pretrained or weights is not None)
        self.aspp = ASPP(self.encoder.num_features, num_classes)
        self.crop_size = 321  # side of the crops it was trained on; the training sets it
        if freeze_norm and not freeze_norms(self.encoder):
            raise TagmaskError(
                f"freeze_norm was asked for, but {backbone} has no BatchNorm; leave it out."
            )
        self.use_statistics(self.encoder)

    @property
    def num_classes(self) -> int:
        """Return the number of labels, background included."""
        return len(self.classes) + 1

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, K, h, w) at the network's stride of normalised images (B, 3, H, W)."""
        return self.all_logits(images)[-1]

    def all_logits(self, images: Tensor) -> list[Tensor]:
        """Return logits (B, K, h, w) of every scale and, last, their maximum.

        Without ``multi_scale`` there is one entry. The original trains each of them, so that the
        smaller scales learn too.
        """
        scaled = [self._one_scale(images)]
        if not self.multi_scale:
            return scaled
        grid = scaled[0].shape[-2:]
        for scale in SCALES[1:]:
            # whole numbers, so that ONNX can follow
            eighths = round(8 * scale)
            size = [(side * eighths + 4) // 8 for side in images.shape[-2:]]
            small = self._interpolate(images, size)  # (B, 3, H', W')
            logits = self._one_scale(small)  # (B, K, h', w')
            scaled.append(self._interpolate(logits, grid))  # (B, K, h, w)
        return [*scaled, torch.stack(scaled).amax(0)]

    def _one_scale(self, images: Tensor) -> Tensor:
        """Return logits (B, K, h, w) of images (B, 3, H, W) at the size they have."""
        logits: Tensor = self.aspp(self.encoder.forward_features(images))
        return logits

    def _interpolate(self, values: Tensor, size: Sequence[int]) -> Tensor:
        """Resize values (B, C, h, w) bilinearly, with cells where the encoder puts them."""
        return F.interpolate(values, size, mode="bilinear", align_corners=self.aligned)

    def upsample(self, logits: Tensor, size: tuple[int, int]) -> Tensor:
        """Return logits of pixels (B, K, H, W), bilinearly.

        Cell i of an encoder of odd kernels lies on pixel stride · i, whatever the size of the
        image: cells are put there, and the few pixels beyond the last one repeat it. Cells of
        patchifying encoders lie in mid-patch.

        Args:
            logits: (B, K, h, w) at the network's stride.
            size: height and width (H, W) of the images.
        """
        rows, columns = logits.shape[-2:]
        more = 1 if self.aligned else self.stride
        whole = (rows * self.stride + more, columns * self.stride + more)
        # one more cell covers what lies beyond the last one
        further = F.pad(logits, (0, 1, 0, 1), mode="replicate")  # (B, K, h+1, w+1)
        pixels = self._interpolate(further, whole)
        return pixels[..., : size[0], : size[1]]

    @classmethod
    def build(cls, config: Mapping[str, Any]) -> Self:
        """Build the network of a config.json, its weights not yet loaded."""
        names = config["classes"]
        model = cls(
            config["backbone"],
            len(names) + 1,
            classes=names,
            multi_scale=config["multi_scale"],
            freeze_norm=config["freeze_norm"],
            caffe=config["caffe"],
        )
        model.notes = ()  # they are about a training
        return model


def _check_classes(num_classes: int, classes: Sequence[str] | None) -> None:
    """Refuse a number of classes that masks cannot hold, or another number of names."""
    if not 2 <= num_classes <= 255:
        raise TagmaskError(
            f"num_classes is {num_classes}; it counts the background too: give 2 to 255."
        )
    if classes is not None and len(classes) != num_classes - 1:
        raise TagmaskError(
            f"{len(classes)} class names were given for {num_classes} classes; "
            f"give {num_classes - 1}, all but the background."
        )


def _create(name: str, pretrained: bool) -> Any:
    """Create the timm encoder at stride 8, or at its own stride if it cannot be dilated."""
    options = {"pretrained": pretrained, "num_classes": 0}
    with fetching(name, pretrained):
        try:
            return timm.create_model(name, output_stride=STRIDE, **options)
        # each family of networks refuses in its own way
        except (TypeError, AssertionError, ValueError, NotImplementedError):
            return timm.create_model(name, **options)


def _probe(encoder: Any, name: str) -> tuple[int, bool]:
    """Return the stride of an encoder, and True if its cell 0 lies on pixel 0.

    Weights that the last stage does not use are frozen.
    """
    encoder.eval()
    parameters = [parameter for parameter in encoder.parameters() if parameter.requires_grad]
    try:
        features = encoder.forward_features(torch.zeros(1, 3, _PROBE, _PROBE))  # (1, d, h, w)
        is_map = (
            features.ndim == 4
            and features.shape[1] == encoder.num_features
            and features.shape[2] > 1
        )
    except (AssertionError, RuntimeError, AttributeError):
        is_map = False
    if not is_map:
        raise TagmaskError(f"{name} gives no feature map for images of any size; {_ADVICE}.")
    gradients = torch.autograd.grad(features.sum(), parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.requires_grad_(gradient is not None)
    cells = int(features.shape[2])
    is_aligned = cells % 2 == 1  # 64 / stride + 1
    steps = cells - 1 if is_aligned else cells
    return (_PROBE - 1) // steps, is_aligned


def _notes(name: str, stride: int, has_weights: bool) -> tuple[str, ...]:
    """Return what the user should know before a training."""
    notes = []
    if stride != STRIDE:
        notes.append(
            f"{name} cannot run at output stride {STRIDE}; it runs at {stride}, "
            "so outlines are coarser."
        )
    # timm's networks for tests have no weights worth having
    if not has_weights and not name.startswith("test_"):
        notes.append(
            f"{name} starts from random weights; --pretrained or --weights gives far better masks."
        )
    return tuple(notes)


def _check_tags_only(path: Path, tensors: dict[str, Tensor], _: nn.Module) -> dict[str, Tensor]:
    """Refuse weights trained on masks."""
    for name, value in tensors.items():
        is_head = name.startswith(("classifier.", "head."))
        is_dense = is_head and value.ndim == 4 and value.shape[-1] > 1
        if is_dense or any(part in name for part in _SEGMENTERS):
            raise TagmaskError(
                f"weights file {path} is a segmentation network's (it holds {name}), "
                "trained on masks; give the weights of an image classifier, or results are no "
                "longer from tags alone."
            )
    return tensors
