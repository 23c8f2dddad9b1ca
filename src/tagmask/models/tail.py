"""What frozen blocks make of an image is always the same: a classifier cut in two at the first block that is trained.

``enter`` runs the frozen part and gives the tokens that enter block ``first``. ``tail`` is the rest as a classifier of
its own that takes those tokens in the place of images: it shares its parameters with the whole, so that training it
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
    """The blocks of a classifier from ``first`` on, for images of one token grid; made by ``tail``."""

    _grid: tuple[int, int]

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """The token grid; ``height`` and ``width`` are the number of tokens and their width, and not needed."""
        del height, width
        return self._grid


def check_cut(model: Classifier) -> None:
    """Refuse a backbone whose blocks take more than tokens, such as rotary positions."""
    from timm.models.deit import VisionTransformerDistilled
    from timm.models.vision_transformer import VisionTransformer

    if type(model.vit) not in (VisionTransformer, VisionTransformerDistilled) or not model.has_head:
        raise TagmaskError(
            f"{model.backbone} cannot be cut behind its frozen blocks; leave out --tokens, or use a plain ViT such as "
            "vit_small_patch14_dinov2 or deit_small_patch16_224 with --kind acr."
        )


@torch.no_grad()
def enter(model: Classifier, images: Tensor, first: int) -> Tensor:
    """Tokens (B, N, D) that enter block ``first`` for normalised images (B, 3, H, W)."""
    vit = model.vit
    tokens: Tensor = vit.norm_pre(vit.patch_drop(vit._pos_embed(vit.patch_embed(images))))
    for block in list(vit.blocks)[:first]:
        tokens = block(tokens)
    return tokens


def tail(model: Classifier, first: int, grid: tuple[int, int]) -> Tail:
    """The rest of a classifier from block ``first`` on, for tokens (B, N, D) of images with this grid."""
    vit = _shallow(model.vit)
    for name in ("patch_embed", "patch_drop", "norm_pre"):
        vit._modules[name] = nn.Identity()
    vit.__dict__["_pos_embed"] = (
        nn.Identity()
    )  # a method of the class: parts of that name would not be seen
    vit.blocks = nn.Sequential(*list(model.vit.blocks)[first:])
    rest = _shallow(model)
    rest.__class__ = Tail
    rest.vit, rest._grid = vit, grid
    return rest  # type: ignore[no-any-return]


def frozen_digest(model: Classifier, first: int, norm: bool = False) -> str:
    """A short hash of the weights before block ``first``, and of the final norm on request."""
    digest = hashlib.sha256(model.backbone.encode())
    kept = ("patch_embed.", "norm_pre.", "pos_embed", *(f"blocks.{i}." for i in range(first)))
    kept += ("norm.",) if norm else ()
    for name, value in model.vit.state_dict().items():
        if name.startswith(kept) or "token" in name:
            digest.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def _shallow(module: Any) -> Any:
    """A copy that shares all parameters and parts, but whose parts can be replaced."""
    twin = copy.copy(module)
    twin.__dict__ = {**module.__dict__, "_modules": dict(module._modules)}
    return twin
