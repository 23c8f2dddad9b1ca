"""The tag classifier: any timm vision transformer with a class token, its attention exposed."""

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
from tagmask.config import MapSettings
from tagmask.errors import TagmaskError
from tagmask.models.backbones import Normalized, check_start, fetching
from tagmask.models.finder import ObjectFinder
from tagmask.models.position_bias import has_position_bias, take_any_size
from tagmask.models.weights import fit_weights

_ADVICE = (
    "use a ViT with a class token, such as deit_small_patch16_224, vit_base_r50_s16_384 or "
    "tagmask_tiny"
)
_OBJECTS = "objects"  # the object finder in config.json
_FINDER = "objects."  # and what the names of its tensors begin with
_HEADS = ("head.", "head_dist.", "fc_norm.")


class Classifier(Normalized):
    """A timm ViT by name, with logits read from the class token.

    Args:
        backbone: the name of a timm ViT with a class token.
        num_classes: the number of logits, C.
        img_size: the size at which position embeddings are stored (default: the backbone's own);
            any size that the patch size divides can be put in, square or not.
        pretrained: take timm's published weights.
        weights: a local file with weights, instead.
        classes: the names of the logits, kept with the saved model (default: "class 0" …).
        drop_path: share of the blocks that are left out at random in training.
    """

    kind = "classifier"
    saved = ("backbone", "img_size", "crop_size", "fixed_views", "classes")
    what = "a classifier"
    remedy = " that Classifier can read; tagmask.load reads networks of any kind."
    use_settings = MapSettings
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
        if classes is None:
            classes = [f"class {c}" for c in range(num_classes)]
        if len(classes) != num_classes:
            raise TagmaskError(
                f"{len(classes)} class names were given for {num_classes} classes; they must agree."
            )
        check_start(backbone, pretrained, weights, _ADVICE)
        self.backbone = backbone
        self.classes = tuple(classes)
        self.img_size = img_size
        logits = num_classes if self.has_head else 0
        self.vit: Any = _create(backbone, logits, img_size, pretrained, drop_path)
        if weights is not None:
            fit_weights(self.vit, backbone, Path(weights), _adapt, optional=_HEADS)
        self.use_statistics(self.vit)
        self.native_size: int = resolve_model_data_config(self.vit)["input_size"][-1]
        # side of the crops it was trained on; the training sets it
        self.crop_size = self.native_size
        # if it was trained on whole photos: their long side, and the number of frozen blocks
        self.finder: ObjectFinder | None = None  # where objects are, if that was learned
        self.fixed_views: tuple[int, int] | None = None

    @property
    def num_classes(self) -> int:
        """Return the number of logits, C."""
        return len(self.classes)

    @property
    def patch_size(self) -> int:
        """Return the pixels per token, the stem included."""
        return int(self.vit.patch_embed.feat_ratio())

    @property
    def prefix(self) -> int:
        """Return the number of tokens before the patches.

        They are the class tokens, then distillation or register tokens.
        """
        return int(self.vit.num_prefix_tokens)

    @property
    def blocks(self) -> Any:
        """Return the transformer blocks, a module list."""
        return self.vit.blocks

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Return the token grid (h, w) of an image.

        Args:
            height: pixels.
            width: pixels.

        Raises:
            TagmaskError: if the size is no multiple of the patch size.
        """
        patch = self.patch_size
        if height < patch or width < patch:
            raise TagmaskError(
                f"the image is {height}×{width} pixels, smaller than one {patch}-pixel patch of "
                f"{self.backbone}; enlarge it to at least {patch}×{patch}."
            )
        if height % patch or width % patch:
            near_height = round(height / patch) * patch
            near_width = round(width / patch) * patch
            raise TagmaskError(
                f"the image is {height}×{width} pixels, but {self.backbone} needs multiples of "
                f"{patch}; resize it, for example to {near_height}×{near_width}."
            )
        return height // patch, width // patch

    def forward(
        self, images: Tensor, return_attention: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the logits (B, C) of images.

        Args:
            images: (B, 3, H, W), normalised.
            return_attention: return also Ā (B, L, T+n, T+n) of all blocks.
        """
        if return_attention:
            logits, attention = self.attend(images)
            return logits, torch.stack(attention, dim=1)
        self.grid(*images.shape[-2:])
        return self.branches(images).mean(dim=1)

    def branches(self, images: Tensor) -> Tensor:
        """Return logits (B, S, C) of the S branches that are each trained on the tags.

        Here there is one, the class token's.
        """
        with self._lean_end():
            logits: Tensor = self.vit(images)  # (B, C)
        return logits.unsqueeze(1)

    def _lean_end(self) -> AbstractContextManager[None]:
        """Let only the tokens that the head reads leave the last block, in training.

        Nothing reads the others.
        """
        if not (self.training and self.has_head):
            return nullcontext()
        last = self.blocks[-1]
        is_covered = "forward" in last.__dict__  # attention is recorded: see ``attend_branches``
        if is_covered or why_no_shortcut(self):
            return nullcontext()
        count = 1 if getattr(self.vit, "head_dist", None) is None else 2
        return replaced_forwards({last: only_first(last, count)})

    def attend(self, images: Tensor, blocks: range | None = None) -> tuple[Tensor, list[Tensor]]:
        """Return the logits and the attention of some blocks.

        Args:
            images: (B, 3, H, W), normalised.
            blocks: the blocks whose attention is returned (default: all).

        Returns:
            Logits (B, C), and Ā (B, T+n, T+n) of each block, in order. First come the T class
            tokens (here one), then the patches in row-major order; distillation and register
            tokens are left out.
        """
        logits, attention = self.attend_branches(images, blocks)
        return logits.mean(dim=1), attention

    def attend_branches(
        self, images: Tensor, blocks: range | None = None, checkpoint: bool = False
    ) -> tuple[Tensor, list[Tensor]]:
        """Return what ``attend`` does, but with logits (B, S, C) of all branches.

        Args:
            images: (B, 3, H, W), normalised.
            blocks: the blocks whose attention is returned (default: all).
            checkpoint: save memory in training, for a third more time.
        """
        height, width = self.grid(*images.shape[-2:])
        if blocks is None:
            blocks = range(len(self.blocks))
        check_blocks(self, blocks)
        chosen = [self.blocks[i] for i in blocks]
        with self._lean_end(), record_attention(chosen, checkpoint=checkpoint) as means:
            logits = self.branches(images)  # (B, S, C)
        tokens = self.prefix + height * width
        is_recorded = len(means) == len(chosen)
        if not is_recorded or any(mean.shape[-1] != tokens for mean in means):
            raise TagmaskError(
                f"the attention of {self.backbone} is not over class token and patches; {_ADVICE}."
            )
        return logits, [self.without_extra_tokens(mean) for mean in means]

    def without_extra_tokens(self, attention: Tensor) -> Tensor:
        """Leave only class tokens and patches: (…, prefix+n, prefix+n) to (…, T+n, T+n)."""
        if self.prefix == self.class_tokens:
            return attention
        classes = range(self.class_tokens)
        patches = range(self.prefix, attention.shape[-1])
        index = torch.tensor([*classes, *patches], device=attention.device)  # (T+n,)
        return attention.index_select(-2, index).index_select(-1, index)

    @torch.no_grad()
    def block_tokens(self, images: Tensor, blocks: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return what leaves some blocks, each after the final norm and put side by side.

        Args:
            images: normalised (B, 3, H, W), whole patches.
            blocks: counted from 0.

        Returns:
            Patch tokens (B, n, F) and class tokens (B, F).
        """
        wanted = sorted(set(blocks))
        found = self.vit.forward_intermediates(
            images,
            wanted,
            return_prefix_tokens=True,
            norm=True,
            stop_early=True,
            output_fmt="NLC",
            intermediates_only=True,
        )  # of each wanted block (B, n, D) and (B, prefix, D)
        in_order = [found[wanted.index(i)] for i in blocks]
        patches = torch.cat([patch for patch, _ in in_order], dim=-1)
        class_tokens = torch.cat([prefix[:, 0] for _, prefix in in_order], dim=-1)
        return patches, class_tokens

    def stored(self) -> nn.Module:
        """Return the part whose weights are written."""
        vit: nn.Module = self.vit
        return vit

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights of the backbone and, where it was fitted, of the object finder."""
        tensors = super().tensors()
        if self.finder is not None:
            for name, value in self.finder.state_dict().items():
                tensors[_FINDER + name] = value
        return tensors

    def take_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Take over what ``tensors`` returned."""
        of_finder = {}
        of_backbone = {}
        for name, value in tensors.items():
            if name.startswith(_FINDER):
                of_finder[name.removeprefix(_FINDER)] = value
            else:
                of_backbone[name] = value
        super().take_tensors(of_backbone)
        if self.finder is not None:
            self.finder.load_state_dict(of_finder)

    def more_config(self) -> dict[str, Any]:
        """Return how the object finder is built, where there is one."""
        return {} if self.finder is None else {_OBJECTS: self.finder.config()}

    @classmethod
    def build(cls, config: Mapping[str, Any]) -> Self:
        """Build the network of a config.json, its weights not yet loaded."""
        names = config["classes"]
        model = cls(config["backbone"], len(names), img_size=config["img_size"], classes=names)
        if _OBJECTS in config:
            model.finder = ObjectFinder.build(
                config[_OBJECTS], int(model.vit.embed_dim), len(names), len(model.blocks)
            )
        return model


def _create(
    name: str,
    num_classes: int,
    img_size: int | tuple[int, int] | None,
    pretrained: bool,
    drop_path: float,
) -> Any:
    """Create the timm model, or say in a sentence why this backbone cannot be used."""
    options: dict[str, Any] = {
        "num_classes": num_classes,
        "drop_path_rate": drop_path,
        "pretrained": pretrained,
    }
    if img_size is not None:
        options["img_size"] = img_size
    if not pretrained:
        # published weights need the pooling they were trained with
        options["global_pool"] = "token"
    is_biased = has_position_bias(name)
    if not is_biased:
        options["dynamic_img_size"] = True
    try:
        with fetching(name, pretrained):
            vit = timm.create_model(name, **options)
    # the constructor knows no dynamic size or no class-token pooling
    except (TypeError, AssertionError):
        raise TagmaskError(
            f"{name} is not a vision transformer that reads a class token; {_ADVICE}."
        ) from None
    if getattr(vit, "cls_token", None) is None or not hasattr(vit, "blocks"):
        raise TagmaskError(f"{name} has no class token; {_ADVICE}.")
    read_class_token(vit)
    if is_biased:
        take_any_size(vit)
    for module in vit.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = True  # attention is recorded where the fused function is called
    return vit


def read_class_token(vit: Any) -> None:
    """Let the head of a timm ViT read the class token.

    It may have averaged the patches, or pooled them by attention. A norm that follows the pooling
    comes before it instead: it treats every token by itself.
    """
    if vit.global_pool == "token":
        return
    if isinstance(vit.norm, nn.Identity):
        vit.norm = vit.fc_norm
        vit.fc_norm = nn.Identity()
    vit.global_pool = "token"
    if getattr(vit, "attn_pool", None) is not None:
        vit.attn_pool = None


def _adapt(tensors: dict[str, Tensor], vit: nn.Module) -> Mapping[str, Tensor]:
    """Bring the weights of a file to the layout of ``vit``, by timm's conversion for its family."""
    family = inspect.getmodule(type(vit))
    convert = getattr(family, "checkpoint_filter_fn", checkpoint_filter_fn)
    adapted = dict(convert(tensors, vit))
    if "norm.weight" in adapted or "fc_norm.weight" not in adapted:
        return adapted
    # it was trained with an average over the patches
    return {name.replace("fc_norm.", "norm."): value for name, value in adapted.items()}
