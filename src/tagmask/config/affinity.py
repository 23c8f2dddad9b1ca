"""Settings of AffinityNet's training."""

from dataclasses import dataclass
from typing import Annotated

from tagmask.config.base import Count, Limit, LoopSettings, NonNegative, Positive

STRIDE = 8  # of AffinityNet, in pixels


@dataclass(frozen=True, kw_only=True)
class AffinitySettings(LoopSettings):
    """Train AffinityNet on confident regions."""

    epochs: Positive = 5
    batch: Count = 8
    head_lr: NonNegative = 10.0
    backbone: str = "resnet50"
    """Any timm CNN that can be dilated to stride 8."""
    caffe: bool = False
    """The weights have the stride of ResNet bottlenecks on the first 1×1 convolution, as Caffe's do."""
    freeze_norm: bool | None = None
    """Do not train batch norms; default: freeze them where the backbone starts from weights."""
    size: Annotated[int, Limit(above=0, multiple=STRIDE, example="448")] = 448
    """Side of the square training crops in pixels, a multiple of 8."""
    scales: Annotated[tuple[float, float], Limit(above=0, most=4, rising=True)] = (1.0, 1.0)
    """Images are resized by a random factor between these before cropping; PSA does not resize."""
    jitter: Annotated[float, Limit(least=0, most=1)] = 0.3
    """Largest change of brightness, contrast and saturation (of hue: a third); 0 = off."""
    radius: Annotated[float, Limit(above=1)] = 5.0
    """Pairs of positions nearer than this, in cells of 8 pixels."""
