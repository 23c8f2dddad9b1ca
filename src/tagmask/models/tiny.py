"""``tagmask_tiny``: a small hybrid ViT for the built-in scenes, created by name as any timm model.

A convolution stem of stride 8 before four narrow blocks: the shape of the paper's ViT-hybrid, at a
size that learns in minutes on a laptop. Group norm in the stem, so that a batch split over
processes gives the same gradients as the joint batch.

``pretrained`` takes the weights beside this file: trained by ``scripts/pretrain_tiny.py`` to fill
in hidden parts of generated scenes, without any tag or mask. Its first two blocks attend to the
rest of the same object.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from timm.layers import HybridEmbed
from timm.models import register_model
from timm.models._builder import build_model_with_cfg
from timm.models._registry import generate_default_cfgs
from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn
from torch import Tensor, nn

__all__ = ["ConvolutionStem"]

default_cfgs = generate_default_cfgs(
    {
        "tagmask_tiny.masked_scenes": {
            "file": str(Path(__file__).with_name("tagmask_tiny.safetensors")),
            "num_classes": 0,
            "input_size": (3, 96, 96),
            "mean": (0.5, 0.5, 0.5),
            "std": (0.5, 0.5, 0.5),
            "first_conv": "patch_embed.backbone.0",
            "classifier": "head",
            "license": "apache-2.0",
        }
    }
)


class Residual(nn.Module):
    """Two 3×3 convolutions added to their input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.GroupNorm(8, width),
            nn.GELU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.GroupNorm(8, width),
            nn.GELU(),
            nn.Conv2d(width, width, 3, padding=1),
        )

    def forward(self, features: Tensor) -> Tensor:
        """Return features (B, width, h, w) of the same shape."""
        changed: Tensor = self.body(features)  # (B, width, h, w)
        return features + changed


class ConvolutionStem(nn.Sequential):
    """Image (B, 3, H, W) to features (B, width, H/8, W/8)."""

    def __init__(self, in_chans: int = 3, width: int = 96) -> None:
        quarter = width // 4
        half = width // 2
        super().__init__(
            nn.Conv2d(in_chans, quarter, 3, stride=2, padding=1),
            nn.GroupNorm(8, quarter),
            nn.GELU(),
            nn.Conv2d(quarter, half, 3, stride=2, padding=1),
            Residual(half),
            nn.Conv2d(half, width, 3, stride=2, padding=1),
            Residual(width),
            Residual(width),
            nn.GroupNorm(1, width),  # tokens of the scale of the class token, whatever the picture
        )


@register_model
def tagmask_tiny(pretrained: bool = False, **kwargs: Any) -> VisionTransformer:
    """Create four blocks of width 96, with four heads, on a convolution stem of stride 8.

    Args:
        pretrained: take the weights beside this file.
        **kwargs: what timm's ``VisionTransformer`` takes.
    """
    stem = ConvolutionStem(kwargs.get("in_chans", 3))
    options: dict[str, Any] = {
        "img_size": 96,
        "patch_size": 1,
        "embed_dim": 96,
        "depth": 4,
        "num_heads": 4,
        "embed_layer": partial(HybridEmbed, backbone=stem),
    }
    options.update(kwargs)
    model: VisionTransformer = build_model_with_cfg(
        VisionTransformer,
        "tagmask_tiny",
        pretrained,
        pretrained_filter_fn=checkpoint_filter_fn,
        **options,
    )
    if isinstance(model.head, nn.Linear):
        # timm's small head keeps the class token from learning for hundreds of steps
        model.head.reset_parameters()
    if not pretrained:
        _balance(model)
    return model


def _balance(model: VisionTransformer) -> None:
    """Start with blocks and class token on the scale of the patch tokens.

    timm's deviations (0.02 for weights, 1e-6 for the class token) suit widths of 384 and more. At
    width 96 the blocks would hardly contribute.
    """
    with torch.no_grad():
        model.cls_token.normal_()
        for block in model.blocks:
            for layer in (block.attn.qkv, block.attn.proj, block.mlp.fc1, block.mlp.fc2):
                layer.weight.mul_(3)
