"""A classifier cut in two at the first block that is trained.

What frozen blocks make of an image is always the same. ``enter`` runs the frozen part and gives
the tokens that enter block ``first``. ``tail`` is the rest as a classifier of its own that takes
those tokens in the place of images: it shares its parameters with the whole, so that training it
trains the whole, and attention, gradients and maps come from the same code.
"""

import copy
import hashlib
from typing import Any

import torch
from torch import Tensor, nn

from tagmask.errors import TagmaskError
from tagmask.models.classifier import Classifier


class Tail(Classifier):
    """The last blocks of a classifier, for images of one token grid; made by ``tail``."""

    _grid: tuple[int, int]

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Return the token grid (h, w) that the tail was made for.

        Args:
            height: the number of tokens; not needed.
            width: the width D of the tokens; not needed.
        """
        del height, width
        return self._grid


def check_cut(model: Classifier) -> None:
    """Refuse a backbone whose blocks take more than tokens, such as rotary positions."""
    from timm.models.deit import VisionTransformerDistilled
    from timm.models.vision_transformer import VisionTransformer

    is_plain = type(model.vit) in (VisionTransformer, VisionTransformerDistilled)
    if not is_plain or not model.has_head:
        raise TagmaskError(
            f"{model.backbone} cannot be cut behind its frozen blocks; leave out --tokens, or use "
            "a plain ViT such as vit_small_patch14_dinov2 or deit_small_patch16_224 with "
            "--kind acr."
        )


@torch.no_grad()
def enter(model: Classifier, images: Tensor, first: int) -> Tensor:
    """Return the tokens (B, N, D) that enter a block.

    Args:
        model: the classifier.
        images: (B, 3, H, W), normalised.
        first: the block's index; the blocks before it are run.
    """
    vit = model.vit
    tokens: Tensor = vit._pos_embed(vit.patch_embed(images))  # (B, N, D)
    tokens = vit.norm_pre(vit.patch_drop(tokens))
    for block in list(vit.blocks)[:first]:
        tokens = block(tokens)
    return tokens


def tail(model: Classifier, first: int, grid: tuple[int, int]) -> Tail:
    """Return the rest of a classifier as a classifier of tokens (B, N, D).

    Args:
        model: the classifier, with which the tail shares its parameters.
        first: index of the first block of the tail.
        grid: token grid (h, w) of the images.
    """
    vit = _shallow(model.vit)
    for name in ("patch_embed", "patch_drop", "norm_pre"):
        vit._modules[name] = nn.Identity()
    # a method of the class, so a part of that name would not be seen
    vit.__dict__["_pos_embed"] = nn.Identity()
    blocks = list(model.vit.blocks)
    vit.blocks = nn.Sequential(*blocks[first:])
    rest = _shallow(model)
    rest.__class__ = Tail
    rest.vit = vit
    rest._grid = grid
    return rest  # type: ignore[no-any-return]


def frozen_digest(model: Classifier, first: int, norm: bool = False) -> str:
    """Return a short hash of the weights before a block.

    Args:
        model: the classifier.
        first: the block's index.
        norm: include the final norm.
    """
    digest = hashlib.sha256(model.backbone.encode())
    blocks = [f"blocks.{i}." for i in range(first)]
    prefixes = ("patch_embed.", "norm_pre.", "pos_embed", *blocks)
    if norm:
        prefixes += ("norm.",)
    for name, value in model.vit.state_dict().items():
        if name.startswith(prefixes) or "token" in name:
            values = value.detach().cpu().contiguous().numpy()
            digest.update(name.encode() + values.tobytes())
    return digest.hexdigest()[:16]


def _shallow(module: Any) -> Any:
    """Return a copy that shares all parameters and parts, but whose parts can be replaced."""
    twin = copy.copy(module)
    twin.__dict__ = {**module.__dict__, "_modules": dict(module._modules)}
    return twin
