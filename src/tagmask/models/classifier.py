"""The tag classifier: any timm vision transformer with a class token, with its attention exposed."""

import inspect
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Self

import timm
import torch
from timm.data import resolve_model_data_config
from timm.models.vision_transformer import checkpoint_filter_fn
from torch import Tensor, nn

import tagmask.models.tiny  # noqa: F401  registers tagmask_tiny
from tagmask.acr.attention import record_attention, replaced_forwards
from tagmask.acr.gradients import check_blocks, only_first, why_no_shortcut
from tagmask.errors import TagmaskError
from tagmask.models.backbones import Normalized, check_start, fetching
from tagmask.models.position_bias import has_position_bias, take_any_size
from tagmask.models.weights import fit_weights

_ADVICE = "use a ViT with a class token, such as deit_small_patch16_224, vit_base_r50_s16_384 or tagmask_tiny"
_HEADS = ("head.", "head_dist.", "fc_norm.")


class Classifier(Normalized):
    """A timm ViT by name, with ``num_classes`` logits read from the class token.

    ``img_size`` only sets the size at which position embeddings are stored (default: the backbone's own); any
    size that the patch size divides can be put in, square or not. ``pretrained`` takes timm's published weights,
    ``weights`` a local file. ``classes`` are the names of the logits, kept with the saved model.
    """

    kind = "classifier"
    saved = ("backbone", "img_size", "crop_size", "fixed_views", "classes")
    what = "a classifier"
    remedy = " that Classifier can read; tagmask.load reads networks of any kind."
    has_head: ClassVar[bool] = True  # timm's linear head gives the logits
    class_tokens = 1  # how many come first
    map_layers = 2  # how many last blocks make a map by default

    def __init__(
        self,
        backbone: str,
        num_classes: int,
        *,
        img_size: int | tuple[int, int] | None = None,
        pretrained: bool = False,
        weights: Path | str | None = None,
        classes: Sequence[str] | None = None,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        if num_classes < 1:
            raise TagmaskError(
                f"num_classes is {num_classes}; a classifier needs at least one class."
            )
        if classes is not None and len(classes) != num_classes:
            raise TagmaskError(
                f"{len(classes)} class names were given for {num_classes} classes; they must agree."
            )
        check_start(backbone, pretrained, weights, _ADVICE)
        self.backbone = backbone
        self.classes = (
            tuple(classes)
            if classes is not None
            else tuple(f"class {c}" for c in range(num_classes))
        )
        self.img_size = img_size
        self.vit: Any = _create(
            backbone, num_classes if self.has_head else 0, img_size, pretrained, drop_path
        )
        if weights is not None:
            fit_weights(self.vit, Path(weights), _adapt, optional=_HEADS)
        self.use_statistics(self.vit)
        self.native_size: int = resolve_model_data_config(self.vit)["input_size"][-1]
        self.crop_size = (
            self.native_size
        )  # side of the crops it was trained on; the training sets it
        self.fixed_views: tuple[int, int] | None = (
            None  # trained on whole photos: their long side, its frozen blocks
        )

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def patch_size(self) -> int:
        """Pixels per token, the stem included."""
        return int(self.vit.patch_embed.feat_ratio())

    @property
    def prefix(self) -> int:
        """Tokens before the patches: class tokens, then distillation or register tokens."""
        return int(self.vit.num_prefix_tokens)

    @property
    def blocks(self) -> Any:
        """The transformer blocks, a module list."""
        return self.vit.blocks

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Token grid (h, w) of an image, or a sentence on why the size does not fit."""
        patch = self.patch_size
        if height < patch or width < patch:
            raise TagmaskError(
                f"the image is {height}×{width} pixels, smaller than one {patch}-pixel patch of {self.backbone}; "
                f"enlarge it to at least {patch}×{patch}."
            )
        if height % patch or width % patch:
            near = tuple(round(side / patch) * patch for side in (height, width))
            raise TagmaskError(
                f"the image is {height}×{width} pixels, but {self.backbone} needs multiples of {patch}; "
                f"resize it, for example to {near[0]}×{near[1]}."
            )
        return height // patch, width // patch

    def forward(
        self, images: Tensor, return_attention: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Logits (B, C) of normalised images; with ``return_attention`` also Ā (B, L, T+n, T+n) of all blocks."""
        if return_attention:
            logits, attention = self.attend(images)
            return logits, torch.stack(attention, dim=1)
        self.grid(*images.shape[-2:])
        return self.branches(images).mean(dim=1)

    def branches(self, images: Tensor) -> Tensor:
        """Logits (B, S, C) of the S branches that are each trained on the tags; here one, the class token's."""
        with self._lean_end():
            logits: Tensor = self.vit(images)
        return logits.unsqueeze(1)

    def _lean_end(self) -> AbstractContextManager[None]:
        """In training only the tokens that the head reads leave the last block: nothing reads the others."""
        last, places = self.blocks[-1], 1 if getattr(self.vit, "head_dist", None) is None else 2
        is_covered = "forward" in last.__dict__  # attention is recorded: see ``attend_branches``
        if not (self.training and self.has_head) or is_covered or why_no_shortcut(self):
            return nullcontext()
        return replaced_forwards({last: only_first(last, places)})

    def attend(self, images: Tensor, blocks: range | None = None) -> tuple[Tensor, list[Tensor]]:
        """Logits (B, C) and Ā (B, T+n, T+n) of the chosen blocks (default: all), in order.

        First come the T class tokens (here one), then the patches in row-major order; distillation and register tokens
        are left out.
        """
        logits, attention = self.attend_branches(images, blocks)
        return logits.mean(dim=1), attention

    def attend_branches(
        self, images: Tensor, blocks: range | None = None, checkpoint: bool = False
    ) -> tuple[Tensor, list[Tensor]]:
        """As ``attend``, with logits (B, S, C) of all branches; ``checkpoint`` saves memory for a third more time."""
        height, width = self.grid(*images.shape[-2:])
        check_blocks(self, blocks or range(0))
        chosen = [
            self.blocks[i] for i in (blocks if blocks is not None else range(len(self.blocks)))
        ]
        with self._lean_end(), record_attention(chosen, checkpoint=checkpoint) as means:
            logits = self.branches(images)
        tokens = self.prefix + height * width
        if len(means) != len(chosen) or any(mean.shape[-1] != tokens for mean in means):
            raise TagmaskError(
                f"the attention of {self.backbone} is not over class token and patches; {_ADVICE}."
            )
        return logits, [self.without_extra_tokens(mean) for mean in means]

    def without_extra_tokens(self, attention: Tensor) -> Tensor:
        """(…, prefix+n, prefix+n) to (…, T+n, T+n): class tokens and patches only."""
        if self.prefix == self.class_tokens:
            return attention
        keep = [*range(self.class_tokens), *range(self.prefix, attention.shape[-1])]
        index = torch.tensor(keep, device=attention.device)
        return attention.index_select(-2, index).index_select(-1, index)

    def stored(self) -> nn.Module:
        vit: nn.Module = self.vit
        return vit

    @classmethod
    def build(cls, config: Mapping[str, Any]) -> Self:
        names = config["classes"]
        return cls(config["backbone"], len(names), img_size=config["img_size"], classes=names)


def _create(
    name: str,
    num_classes: int,
    img_size: int | tuple[int, int] | None,
    pretrained: bool,
    drop_path: float,
) -> Any:
    """The timm model, or a sentence on why this backbone cannot be used."""
    options: dict[str, Any] = {
        "num_classes": num_classes,
        "drop_path_rate": drop_path,
        "pretrained": pretrained,
    }
    if img_size is not None:
        options["img_size"] = img_size
    if not pretrained:
        options["global_pool"] = (
            "token"  # published weights need the pooling they were trained with
        )
    biased = has_position_bias(name)
    if not biased:
        options["dynamic_img_size"] = True
    try:
        with fetching(name, pretrained):
            vit = timm.create_model(name, **options)
    except (
        TypeError,
        AssertionError,
    ):  # the constructor knows no dynamic size or no class-token pooling
        raise TagmaskError(
            f"{name} is not a vision transformer that reads a class token; {_ADVICE}."
        ) from None
    if getattr(vit, "cls_token", None) is None or not hasattr(vit, "blocks"):
        raise TagmaskError(f"{name} has no class token; {_ADVICE}.")
    read_class_token(vit)
    if biased:
        take_any_size(vit)
    for module in vit.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = True  # attention is recorded where the fused function is called
    return vit


def read_class_token(vit: Any) -> None:
    """Let the head of a timm ViT read the class token where it averages the patches or pools them by attention.

    A norm that follows the pooling comes before it instead: it treats every token by itself.
    """
    if vit.global_pool == "token":
        return
    if isinstance(vit.norm, nn.Identity):
        vit.norm, vit.fc_norm = vit.fc_norm, nn.Identity()
    vit.global_pool = "token"
    if getattr(vit, "attn_pool", None) is not None:
        vit.attn_pool = None


def _adapt(tensors: dict[str, Tensor], vit: nn.Module) -> Mapping[str, Tensor]:
    """The weights of a file in the layout of ``vit``, by timm's own conversion for its family."""
    own = getattr(inspect.getmodule(type(vit)), "checkpoint_filter_fn", checkpoint_filter_fn)
    adapted = dict(own(tensors, vit))
    if (
        "norm.weight" not in adapted and "fc_norm.weight" in adapted
    ):  # trained with an average over the patches
        adapted = {name.replace("fc_norm.", "norm."): value for name, value in adapted.items()}
    return adapted
