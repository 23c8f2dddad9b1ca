"""AffinityNet (PSA, Ahn & Kwak 2018): features whose differences tell what belongs together.

Any timm CNN that can be dilated to output stride 8 serves as the backbone; PSA's own, a ResNet-38,
is not in timm. The layers on top are PSA's: the last three stages through 1×1 convolutions to 64,
128 and 256 channels, joined by another to 448, all with ELU. The affinity of two positions is
exp(−mean|f_i − f_j|): ``tagmask.masks.walk``.
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

    Args:
        backbone: the name of a timm CNN that can be dilated.
        pretrained: take timm's published weights of the backbone.
        weights: a local file with weights of the backbone, instead.
        caffe: move the stride of ResNet bottlenecks from their 3×3 to their first 1×1
            convolution, for weights trained that way.
        freeze_norm: keep batch norms as they are, as PSA does on pretrained weights.
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
        self.backbone = backbone
        self.caffe = caffe
        self.freeze_norm = freeze_norm
        self.cnn = _create(backbone, pretrained)
        if weights is not None:
            _load_backbone(self.cnn, backbone, Path(weights))
        if caffe:
            move_strides(self.cnn, backbone)
        channels = self.cnn.feature_info.channels()
        narrow = []
        for wide, width in zip(channels, WIDTHS, strict=True):
            narrow.append(nn.Conv2d(wide, width, 1, bias=False))
        for layer in narrow:
            nn.init.kaiming_normal_(layer.weight)
        self.narrow = nn.ModuleList(narrow)
        joined = sum(WIDTHS)
        self.join = nn.Conv2d(joined, joined, 1, bias=False)
        nn.init.xavier_uniform_(self.join.weight, gain=4)
        self.use_statistics(self.cnn)
        self.train()

    def forward(self, images: Tensor) -> Tensor:
        """Return features (B, 448, h, w) of normalised images, one per cell of 8×8 pixels.

        Cells that a border cuts count.
        """
        height, width = images.shape[-2:]
        if min(height, width) < STRIDE:
            raise TagmaskError(f"images are {height}×{width} pixels; give at least 8×8.")
        right = -width % STRIDE
        below = -height % STRIDE
        # backbones may drop cells that are not full
        whole = F.pad(images, (0, right, 0, below), mode="replicate")  # (B, 3, 8h, 8w)
        stages = self.cnn(whole)  # three of (B, c, h, w)
        narrow = []
        for layer, stage in zip(self.narrow, stages, strict=True):
            narrow.append(F.elu(layer(stage)))  # (B, 64 or 128 or 256, h, w)
        return F.elu(self.join(torch.cat(narrow, dim=1)))  # (B, 448, h, w)


def _create(name: str, pretrained: bool) -> Any:
    """Create the backbone, which gives its last three stages at stride 8."""
    last = (-3, -2, -1)
    try:
        with fetching(name, pretrained):
            cnn = timm.create_model(
                name, pretrained, features_only=True, output_stride=STRIDE, out_indices=last
            )
    # each family of networks refuses in its own way
    except (TypeError, AssertionError, NotImplementedError, AttributeError):
        raise TagmaskError(
            f"{name} cannot be brought to output stride {STRIDE}; {_ADVICE}."
        ) from None
    except (OSError, RuntimeError) as error:
        first_line = str(error).splitlines()[0]
        raise TagmaskError(f"{name} gives no features ({first_line}); {_ADVICE}.") from None
    reductions = cnn.feature_info.reduction()
    if reductions != [STRIDE] * len(WIDTHS):
        strides = ", ".join(map(str, reductions))
        raise TagmaskError(
            f"the last stages of {name} have strides {strides} instead of {STRIDE}; {_ADVICE}."
        )
    return cnn


def _load_backbone(cnn: nn.Module, name: str, path: Path) -> None:
    """Load weights of the whole classifier into the part of it that gives features."""
    parameters = cnn.state_dict()
    whole = set(timm.create_model(name).state_dict())

    def adapt(tensors: dict[str, Tensor], _: nn.Module) -> dict[str, Tensor]:
        """Rename the classifier's tensors as the extractor names them.

        Args:
            tensors: Weights by name.
            _: The module, which is not needed.
        """
        adapted = {}
        for key, value in tensors.items():
            # timm's extractor says stages_0 for stages.0
            flat = key.replace(".", "_", 1)
            if key in parameters:
                adapted[key] = value
            elif flat in parameters:
                adapted[flat] = value
            elif key not in whole:
                adapted[key] = value  # ``fit_weights`` says that it does not fit
        return adapted

    fit_weights(cnn, name, path, adapt, optional=_HEADS)
