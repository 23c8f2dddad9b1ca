"""A linear head on the tokens of a tag classifier: a segmentation network that is trained in seconds.

The patch tokens that leave some blocks, each after the final norm, are concatenated and standardised by mean and
deviation over the training tokens; one linear layer gives the logits of a cell. All but the head stays as the
classifier left it, so the tokens of a photo are computed once and kept. (Two layers overfit: see docs/own-photos.md.)
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tagmask.errors import TagmaskError
from tagmask.models.backbones import Normalized
from tagmask.models.classifier import Classifier


class HeadSegmenter(Normalized):
    """A segmentation network with logits per patch of a classifier's grid, background (label 0) included.

    ``blocks`` are the blocks, counted from 0, whose tokens are read; ``size`` is the long side in pixels at which
    photos are seen.
    """

    kind = "head"
    saved = ("backbone", "img_size", "size", "blocks", "classes")
    what = "a segmenter"
    remedy = "; give the folder that `tagmask segment` wrote."
    shift: Tensor
    scale: Tensor

    def __init__(self, classifier: Classifier, blocks: Sequence[int], size: int) -> None:
        super().__init__()
        depth = len(classifier.blocks)
        wrong = [i for i in blocks if not 0 <= i < depth]
        if wrong or not blocks:
            raise TagmaskError(
                f"--head-blocks {' '.join(map(str, blocks)) or '(none)'} do not exist; {classifier.backbone} has "
                f"blocks 0 to {depth - 1}."
            )
        self.classifier = classifier.requires_grad_(False).eval()
        self.backbone, self.img_size, self.stride = (
            classifier.backbone,
            classifier.img_size,
            classifier.patch_size,
        )
        self.classes, self.num_classes = classifier.classes, len(classifier.classes) + 1
        self.blocks, self.size = tuple(blocks), size
        width = len(self.blocks) * int(classifier.vit.embed_dim)
        self.register_buffer("shift", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))
        self.linear = nn.Linear(width, self.num_classes)
        nn.init.normal_(self.linear.weight, std=0.01)
        nn.init.zeros_(self.linear.bias)
        self.use_statistics(classifier.vit)

    @torch.no_grad()
    def features(self, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Tokens (B, n, F) of normalised images (B, 3, H, W), padded to whole patches, and their grid."""
        patch, wanted = self.stride, sorted(set(self.blocks))
        height, width = (int(side) for side in images.shape[-2:])
        images = F.pad(images, (0, -width % patch, 0, -height % patch))
        how = {"norm": True, "stop_early": True, "output_fmt": "NLC", "intermediates_only": True}
        tokens = self.classifier.vit.forward_intermediates(
            images, wanted, **how
        )  # of each block (B, n, D)
        grid = (-(-height // patch), -(-width // patch))
        return torch.cat([tokens[wanted.index(i)] for i in self.blocks], dim=-1), grid

    def logits_of(self, features: Tensor) -> Tensor:
        """Logits (…, K) of tokens (…, F)."""
        logits: Tensor = self.linear((features - self.shift) / self.scale)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images (B, 3, H, W) to logits (B, K, h, w) at the patches."""
        features, grid = self.features(images)
        return self.logits_of(features).transpose(1, 2).reshape(features.shape[0], -1, *grid)

    def upsample(self, logits: Tensor, size: tuple[int, int]) -> Tensor:
        """Logits (B, K, h, w) to pixels (B, K, H, W), bilinearly; what was padded is cut off."""
        whole = (logits.shape[-2] * self.stride, logits.shape[-1] * self.stride)
        return F.interpolate(logits, whole, mode="bilinear", align_corners=False)[
            ..., : size[0], : size[1]
        ]

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.classifier.eval()
        return self

    @classmethod
    def build(cls, config: Mapping[str, Any]) -> Self:
        return cls(Classifier.build(config), config["blocks"], config["size"])
