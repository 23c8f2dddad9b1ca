"""AffinityNet (PSA, Ahn & Kwak 2018): features of a CNN at stride 8 whose differences tell what belongs together.

Any timm CNN that can be dilated to output stride 8 serves as the backbone; PSA's own, a ResNet-38, is not in timm. The
layers on top are PSA's: the last three stages through 1×1 convolutions to 64, 128 and 256 channels,
joined by another to 448, all with ELU. The affinity of two positions is exp(−mean|f_i − f_j|): ``tagmask.masks.walk``.
"""

from pathlib import Path
from typing import Any

import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tagmask.errors import TagmaskError
from tagmask.models.backbones import Normalized, check_start, fetching, move_strides
from tagmask.models.weights import fit_weights

STRIDE = 8
WIDTHS = (64, 128, 256)
_HEADS = ("fc.", "head.", "classifier.")  # what a weights file may hold beside the backbone
_ADVICE = (
    "use a CNN that can be dilated, such as resnet50, resnet18, test_resnet or efficientnet_b0"
)


class AffinityNet(Normalized):
    """Normalised images (B, 3, H, W) to features (B, 448, ⌈H/8⌉, ⌈W/8⌉).

    ``pretrained`` takes timm's published weights of the backbone, ``weights`` a local file. ``caffe`` moves the stride
    of ResNet bottlenecks from their 3×3 to their first 1×1 convolution, for weights trained that way.
    ``freeze_norm`` keeps batch norms as they are, as PSA does on pretrained weights.
    """

    kind = "affinity"
    saved = ("backbone", "caffe", "freeze_norm")
    what = "an affinity network"
    remedy = "; give the folder that its training wrote."

    def __init__(
        self,
        backbone: str = "resnet50",
        *,
        pretrained: bool = False,
        weights: Path | str | None = None,
        caffe: bool = False,
        freeze_norm: bool = False,
    ) -> None:
        super().__init__()
        check_start(backbone, pretrained, weights, _ADVICE)
        self.backbone, self.caffe, self.freeze_norm = backbone, caffe, freeze_norm
        self.cnn = _create(backbone, pretrained)
        if weights is not None:
            _load_backbone(self.cnn, backbone, Path(weights))
        if caffe:
            move_strides(self.cnn, backbone)
        narrow = [
            nn.Conv2d(wide, width, 1, bias=False)
            for wide, width in zip(self.cnn.feature_info.channels(), WIDTHS, strict=True)
        ]
        for layer in narrow:
            nn.init.kaiming_normal_(layer.weight)
        self.narrow = nn.ModuleList(narrow)
        self.join = nn.Conv2d(sum(WIDTHS), sum(WIDTHS), 1, bias=False)
        nn.init.xavier_uniform_(self.join.weight, gain=4)
        self.use_statistics(self.cnn)
        self.train()

    def forward(self, images: Tensor) -> Tensor:
        """Features (B, 448, h, w) of normalised images, one per cell of 8×8 pixels; cells cut by a border count."""
        if min(images.shape[-2:]) < STRIDE:
            raise TagmaskError(
                f"images are {images.shape[-2]}×{images.shape[-1]} pixels; give at least 8×8."
            )
        right, below = (-side % STRIDE for side in (images.shape[-1], images.shape[-2]))
        whole = F.pad(
            images, (0, right, 0, below), mode="replicate"
        )  # backbones may drop cells that are not full
        stages = self.cnn(whole)  # three of (B, c, h, w)
        narrow = [F.elu(layer(stage)) for layer, stage in zip(self.narrow, stages, strict=True)]
        return F.elu(self.join(torch.cat(narrow, dim=1)))  # (B, 448, h, w)


def _create(name: str, pretrained: bool) -> Any:
    """The backbone's last three stages at stride 8."""
    last = (-3, -2, -1)
    try:
        with fetching(name, pretrained):
            cnn = timm.create_model(
                name, pretrained, features_only=True, output_stride=STRIDE, out_indices=last
            )
    except (
        TypeError,
        AssertionError,
        NotImplementedError,
        AttributeError,
    ):  # each family refuses in its own way
        raise TagmaskError(
            f"{name} cannot be brought to output stride {STRIDE}; {_ADVICE}."
        ) from None
    except (OSError, RuntimeError) as error:
        raise TagmaskError(
            f"{name} gives no features ({str(error).splitlines()[0]}); {_ADVICE}."
        ) from None
    if cnn.feature_info.reduction() != [STRIDE] * len(WIDTHS):
        strides = ", ".join(map(str, cnn.feature_info.reduction()))
        raise TagmaskError(
            f"the last stages of {name} have strides {strides} instead of {STRIDE}; {_ADVICE}."
        )
    return cnn


def _load_backbone(cnn: nn.Module, name: str, path: Path) -> None:
    """Weights of the whole classifier into the part of it that gives features."""
    parameters = cnn.state_dict()
    whole = set(timm.create_model(name).state_dict())

    def adapt(tensors: dict[str, Tensor], _: nn.Module) -> dict[str, Tensor]:
        adapted = {}
        for key, value in tensors.items():
            flat = (
                key if key in parameters else key.replace(".", "_", 1)
            )  # timm's extractor says stages_0 for stages.0
            if flat in parameters or key not in whole:
                adapted[flat if flat in parameters else key] = value
        return adapted

    fit_weights(cnn, path, adapt, optional=_HEADS)
