"""MCTformer: a tag classifier with one class token per class and a second branch on the patches.

Xu et al. 2022, Multi-class Token Transformer for Weakly Supervised Semantic Segmentation, second
version:

- The class token of a timm ViT, and its position embedding, are repeated C times. timm's own code
  then runs unchanged: only the parameters have more rows.
- Class branch: the logit of class c is the mean over the features of token c; there is no head.
- Patch branch: a 3×3 convolution on the patch tokens gives a class activation map (CAM), its mean
  the logit.
- Both are trained on the tags; the prediction is their mean.

Tokens are [C class tokens, distillation or register tokens, patches].

Deviation: tokens are read after the ViT's final norm, as in every other classifier here;
MCTformer's code reads them before it (``mct_read="before_norm"``).

Not in the paper: a layer norm's output has mean 0 before its weights are applied, so a token's
logit is at most as large as the deviation of these weights. If they are all alike, nothing has
been trained on a class token yet (from scratch; ``tagmask_tiny``, which learned to fill in
pictures), and tokens that start alike would carry no information and stay alike for hundreds of
steps. Then the norm's weights and the class tokens are drawn at random.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import timm
import torch
from torch import Tensor, nn

from tagmask.errors import TagmaskError
from tagmask.models.classifier import Classifier
from tagmask.models.position_bias import has_position_bias

MAP_LAYERS = 3
# deviation of the final norm's weights below which nothing was trained on the class token
_ALIKE = 0.1
# their deviation when drawn at random, and so the largest logit of a class token at the start
_SPREAD = 4.0
# deviation added to the class tokens is their own, but at least this
_LEAST = 0.02


class MctClassifier(Classifier):
    """A timm ViT by name with a class token for each class.

    Args:
        backbone: the name of a timm ViT without a position bias.
        num_classes: the number of class tokens, C.
        mct_read: "before_norm" to read tokens before the final norm; None means after it.
        **options: what ``Classifier`` takes besides.
    """

    kind = "mct"
    remedy = " that MctClassifier can read; tagmask.load reads networks of any kind."
    has_head: ClassVar[bool] = False

    def __init__(
        self, backbone: str, num_classes: int, *, mct_read: str | None = None, **options: Any
    ) -> None:
        if timm.is_model(backbone) and has_position_bias(backbone):
            raise TagmaskError(
                f"{backbone} has a position bias for one class token only; "
                "use --kind acr, or another backbone."
            )
        super().__init__(backbone, num_classes, **options)
        self.class_tokens = num_classes
        self.map_layers = min(MAP_LAYERS, len(self.blocks))
        _repeat_class_token(self.vit, num_classes)
        _separate(self.vit)
        self.mct_read = mct_read
        if mct_read == "before_norm":
            self.vit.norm = nn.Identity()
            self.vit.fc_norm = nn.Identity()
        elif mct_read is not None:
            raise TagmaskError(f"mct_read is {mct_read!r}; give before_norm, or leave it out.")
        self.patch_head = nn.Conv2d(self.vit.embed_dim, num_classes, 3, padding=1)

    def branches(self, images: Tensor) -> Tensor:
        """Return logits (B, 2, C): of the class tokens, of the patches."""
        return self.branches_and_cam(images)[0]

    def branches_and_cam(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (B, 2, C) and the patch branch's CAM (B, C, h, w)."""
        grid = self.grid(*images.shape[-2:])
        tokens = self.vit.fc_norm(self.vit.forward_features(images))  # (B, N, D)
        patches = tokens[:, self.prefix :].transpose(1, 2)  # (B, D, n)
        cam: Tensor = self.patch_head(patches.unflatten(-1, grid))  # (B, C, h, w)
        class_logits = tokens[:, : self.class_tokens].mean(dim=-1)  # (B, C)
        patch_logits = cam.mean((-2, -1)).to(class_logits.dtype)  # (B, C)
        return torch.stack([class_logits, patch_logits], dim=1), cam

    def more_config(self) -> dict[str, Any]:
        """Return what config.json holds besides: where tokens are read, if not after the norm."""
        more = super().more_config()
        return more if self.mct_read is None else {**more, "mct_read": self.mct_read}

    @classmethod
    def build(cls, config: Mapping[str, Any]) -> Self:
        """Build the network of a config.json, its weights not yet loaded."""
        names = config["classes"]
        return cls(
            config["backbone"],
            len(names),
            mct_read=config.get("mct_read"),
            img_size=config["img_size"],
            classes=names,
        )

    def stored(self) -> nn.Module:
        """Return the whole network: the patch branch is stored with the ViT."""
        return self


@torch.no_grad()
def _repeat_class_token(vit: Any, count: int) -> None:
    """Repeat the class token and its position embedding, and correct counts of prefix tokens."""
    vit.cls_token = nn.Parameter(vit.cls_token.repeat(1, count, 1))  # (1, C, D)
    if vit.pos_embed is not None and not vit.no_embed_class:
        repeated = vit.pos_embed[:, :1].repeat(1, count, 1)  # (1, C, D)
        others = vit.pos_embed[:, 1:]
        vit.pos_embed = nn.Parameter(torch.cat([repeated, others], dim=1))
    for module in vit.modules():
        # the ViT itself and, with rotary embeddings, its attention
        if hasattr(module, "num_prefix_tokens"):
            module.num_prefix_tokens += count - 1


@torch.no_grad()
def _separate(vit: Any) -> None:
    """Make untrained class tokens differ, and their mean features depend on them."""
    weights = []
    for norm in (vit.norm, vit.fc_norm):
        if getattr(norm, "weight", None) is not None:
            weights.append(norm.weight)  # (D,)
    if any(weight.std() >= _ALIKE for weight in weights):
        return
    for weight in weights:
        weight.normal_(std=_SPREAD)
    noise = torch.randn_like(vit.cls_token)  # (1, C, D)
    deviation = vit.cls_token.std().clamp(min=_LEAST)
    vit.cls_token.add_(noise * deviation)
