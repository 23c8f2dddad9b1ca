"""Settings of AffinityNet's training."""

from dataclasses import dataclass
from pathlib import Path

from tagmask.config.base import LoopSettings, check_weights

STRIDE = 8  # of AffinityNet, in pixels


@dataclass(frozen=True, kw_only=True)
class AffinitySettings(LoopSettings):
    """Train AffinityNet on confident regions."""

    epochs: float = 5
    batch: int = 8
    head_lr: float = 10.0
    backbone: str = "resnet50"
    """Any timm CNN that can be dilated to stride 8."""
    pretrained: bool = False
    """Start from timm's published weights (downloaded by timm once)."""
    weights: Path | None = None
    """Start from a local .safetensors or .pth file."""
    caffe: bool = False
    """The weights have the stride of ResNet bottlenecks on the first 1×1 convolution, as Caffe's."""
    freeze_norm: bool | None = None
    """Keep batch norms as they are; default: where the backbone starts from weights."""
    size: int = 448
    """Side of the square training crops in pixels, a multiple of 8."""
    scales: tuple[float, float] = (1.0, 1.0)
    """Images are resized by a random factor between these before cropping; PSA does not resize."""
    jitter: float = 0.3
    """Largest change of brightness, contrast and saturation (of hue: a third); 0 = off."""
    radius: float = 5.0
    """Pairs of positions nearer than this, in cells of 8 pixels."""

    def mistakes(self) -> list[str]:
        """One sentence for every setting that cannot be used."""
        found = LoopSettings.mistakes(self)
        if self.size < STRIDE or self.size % STRIDE:
            found.append(f"--size {self.size} must be a multiple of {STRIDE}, for example 448.")
        if not 0 < self.scales[0] <= self.scales[1] <= 4:
            found.append(f"--scales {self.scales[0]} {self.scales[1]} must rise, be above 0 and at most 4.")
        if not 0 <= self.jitter <= 1:
            found.append(f"--jitter {self.jitter} must be at least 0 and at most 1.")
        if not self.radius > 1:
            found.append(f"--radius {self.radius} must be above 1.")
        return found + check_weights(self.weights, self.pretrained)
