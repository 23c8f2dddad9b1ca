"""Settings of the classifier's training."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tagmask.config.base import DataSettings, LoopSettings, below, check_weights


@dataclass(frozen=True, kw_only=True)
class TrainSettings(LoopSettings, DataSettings):
    """Train a tag classifier with all-pairs consistency. The defaults are the paper's recipe."""

    out: Path
    """Folder of the run; the classifier goes into its 1_classifier."""
    model: Literal["acr", "mct"] = "acr"
    """acr: one class token, as in the paper; mct: a class token for each class and a patch branch (MCTformer)."""
    backbone: str = "deit_small_patch16_224"
    """Any timm ViT with a class token; the paper's are vit_base_r50_s16_384 and deit_small_patch16_224."""
    pretrained: bool = False
    """Start from published weights (downloaded by timm once; those of tagmask_tiny come with the package)."""
    weights: Path | None = None
    """Start from a local .safetensors or .pth file."""
    freeze: int = 0
    """Keep the stem and this many first blocks as they are."""
    size: int | None = None
    """Side of the square training crops in pixels; default: the backbone's own."""
    crop_scale: float = 0.6
    """Smallest share of the image's area in a training crop."""
    drop_path: float = 0.0
    alpha: float = 100.0
    """Weight of region activation consistency, at the paper's 24×24 grid. 0 = off."""
    beta: float = 100.0
    """Weight of region affinity consistency, at the paper's 24×24 grid. 0 = off."""
    alpha_absolute: bool = False
    """Use alpha and beta as they are, not scaled to the grid."""
    view: str = "hflip"
    """Second view: none, hflip, vflip, rotate90/180/270, rotate, resize0.5, hide, gray; joined by +."""
    distance: Literal["l1", "l2", "smooth_l1"] = "l1"
    consistency_blocks: tuple[int, int] | None = None
    """First and last block (from 0) that the consistency looks at; default: all."""
    checkpoint_attention: bool = False
    """Recompute each block in the backward pass: less memory, more time."""
    val_fraction: float = 0.1
    """Share of the images kept for validation when there is no --val-split."""
    val_split: str | None = None
    """voc: the list to validate on."""

    def mistakes(self) -> list[str]:
        from tagmask.acr.views import parse_view

        found = DataSettings.mistakes(self) + LoopSettings.mistakes(self)
        found += below(self, alpha=0, beta=0, freeze=0, size=1)
        try:
            parse_view(self.view, 16)
        except ValueError as error:
            found.append(f"--view {self.view}: {error}.")
        if not 0 <= self.drop_path < 1:
            found.append(f"--drop-path {self.drop_path} must be at least 0 and below 1.")
        if not 0 < self.crop_scale <= 1:
            found.append(f"--crop-scale {self.crop_scale} must be above 0 and at most 1.")
        if not 0 <= self.val_fraction < 1:
            found.append(f"--val-fraction {self.val_fraction} must be at least 0 and below 1.")
        found += check_weights(self.weights, self.pretrained)
        if self.val_split is not None and self.data != "voc":
            found.append(f"--val-split belongs to --data voc; with --data {self.data} use --val-fraction.")
        return found
