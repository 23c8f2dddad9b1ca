"""A linear head on the tokens of a tag classifier: a segmenter that is trained in seconds.

The patch tokens that leave some blocks, each after the final norm, are concatenated and
standardised by mean and deviation over the training tokens; one linear layer gives the logits of a
cell. All but the head stays as the classifier left it, so the tokens of a photo are computed once
and kept. (Two layers overfit: see docs/tutorials/own-photos.md.)
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tagmask.config import MaskSettings
from tagmask.errors import TagmaskError
from tagmask.models.backbones import Normalized
from tagmask.models.classifier import Classifier


class HeadSegmenter(Normalized):
    """A segmentation network with logits per patch, background (label 0) included.

    Args:
        classifier: the network whose tokens are read; it is frozen.
        blocks: the blocks, counted from 0, whose tokens are read.
        size: the long side in pixels at which photos are seen.
    """

    kind = "head"
    saved = ("backbone", "img_size", "size", "blocks", "classes")
    what = "a segmenter"
    remedy = "; give the folder that `tagmask segment` wrote."
    use_settings = MaskSettings
    shift: Tensor  # (F,)
    scale: Tensor  # (F,)

    def __init__(self, classifier: Classifier, blocks: Sequence[int], size: int) -> None:
        super().__init__()
        depth = len(classifier.blocks)
        wrong = [i for i in blocks if not 0 <= i < depth]
        if wrong or not blocks:
            given = " ".join(map(str, blocks)) or "(none)"
            raise TagmaskError(
                f"--head-blocks {given} do not exist; {classifier.backbone} has "
                f"blocks 0 to {depth - 1}."
            )
        self.classifier = classifier.requires_grad_(False).eval()
        self.classifier.finder = None  # the head answers both questions itself
        self.backbone = classifier.backbone
        self.img_size = classifier.img_size
        self.stride = classifier.patch_size
        self.classes = classifier.classes
        self.num_classes = len(classifier.classes) + 1
        self.blocks = tuple(blocks)
        self.size = size
        width = len(self.blocks) * int(classifier.vit.embed_dim)
        self.register_buffer("shift", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))
        self.linear = nn.Linear(width, self.num_classes)
        nn.init.normal_(self.linear.weight, std=0.01)
        nn.init.zeros_(self.linear.bias)
        self.use_statistics(classifier.vit)

    @torch.no_grad()
    def features(self, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Return the tokens (B, n, F) of normalised images (B, 3, H, W), and their grid (h, w).

        Images are padded to whole patches.
        """
        patch = self.stride
        height, width = (int(side) for side in images.shape[-2:])
        right = -width % patch
        below = -height % patch
        images = F.pad(images, (0, right, 0, below))
        tokens, _ = self.classifier.block_tokens(images, self.blocks)
        grid = ((height + below) // patch, (width + right) // patch)
        return tokens, grid

    def logits_of(self, features: Tensor) -> Tensor:
        """Return the logits (…, K) of tokens (…, F)."""
        logits: Tensor = self.linear(self.standardise(features))
        return logits

    def standardise(self, features: Tensor) -> Tensor:
        """Return tokens (…, F) with the mean and deviation of the training tokens."""
        return (features - self.shift) / self.scale

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, K, h, w) at the patches of normalised images (B, 3, H, W)."""
        features, grid = self.features(images)
        logits = self.logits_of(features).transpose(1, 2)  # (B, K, n)
        return logits.reshape(features.shape[0], -1, *grid)

    def upsample(self, logits: Tensor, size: tuple[int, int]) -> Tensor:
        """Return logits of pixels (B, K, H, W), bilinearly; what was padded is cut off.

        Args:
            logits: (B, K, h, w) at the patches.
            size: height and width (H, W) of the images.
        """
        rows, columns = logits.shape[-2:]
        whole = (rows * self.stride, columns * self.stride)
        pixels = F.interpolate(logits, whole, mode="bilinear", align_corners=False)
        return pixels[..., : size[0], : size[1]]

    def train(self, mode: bool = True) -> Self:
        """Switch training on or off; the classifier stays in eval mode."""
        super().train(mode)
        self.classifier.eval()
        return self

    @classmethod
    def build(cls, config: Mapping[str, Any]) -> Self:
        """Build the network of a config.json, its weights not yet loaded."""
        return cls(Classifier.build(config), config["blocks"], config["size"])
