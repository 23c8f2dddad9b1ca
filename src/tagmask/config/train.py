"""Settings of the classifier's training."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from tagmask import layout
from tagmask.config.base import LoopSettings, SharedTokenSettings
from tagmask.config.limits import Blocks, Limit, NonNegative, Share, Side


@dataclass(frozen=True, kw_only=True)
class TrainSettings(LoopSettings):
    """Train a tag classifier with all-pairs consistency.

    The presets `*-paper` follow the paper's text.
    """

    section = "train"
    makes = (layout.CONFIG, layout.CLASSIFIER)
    cache = SharedTokenSettings
    basic = "kind backbone freeze fixed_views size alpha beta"
    kind: Literal["acr", "mct"] = "acr"
    """acr: one class token, as in the paper; mct: a class token for each
    class and a patch branch (MCTformer)."""
    mct_read: Literal["before_norm"] | None = None
    """mct: before_norm: read class and patch tokens before the final norm,
    as MCTformer's code does; default: after."""
    backbone: str = "deit_small_patch16_224"
    """Any timm ViT with a class token, with --weights the one that the file is of; the paper's are
    vit_base_r50_s16_384 and deit_small_patch16_224."""
    freeze: Annotated[int, Limit(least=0, most=1000)] = 0
    """Do not train the stem and this many first blocks."""
    fixed_views: bool = False
    """Train on whole photos and their mirror images, not on random crops; what the frozen blocks
    make of them is computed once and kept in 0_tokens."""
    head_first: bool = False
    """Begin with the head that fits the untouched backbone best; needs --fixed-views."""
    objects: bool = False
    """Learn from all photos together where objects are, and which tag each has, without masks
    and without training: maps then show objects, not their surroundings. Name tags that are no
    objects in --stuff."""
    stuff: str | None = None
    """objects: tags that are no objects but ground or surroundings, e.g. grass,sky."""
    object_method: Literal["border", "component"] = "border"
    """objects: how they are found; border: what the middle of photos has
    and their border has not."""
    object_blocks: Annotated[tuple[int, ...], Limit(least=0)] = (8, 11)
    """objects: the blocks, counted from 0, whose tokens are read;
    the last must be the backbone's last."""
    object_size: Annotated[int, Limit(least=9, most=16_384)] = 392
    """objects: long side in pixels at which photos are seen."""
    train_from: Annotated[int, Limit(least=0, most=1_000_000_000)] = 0
    """Train only with at least this many photos; with fewer the head is
    fitted and the backbone stays as it is."""
    earn: bool = False
    """Keep a training only if it helps on photos held out and leaves the maps on the objects;
    otherwise the fitted head on the untouched backbone stays."""
    size: Side | None = None
    """Side of the training crops in pixels, with --fixed-views long side of the photos;
    default: the backbone's."""
    crop_scale: Annotated[float, Limit(above=0, most=1)] = 0.6
    """Smallest share of the image's area in a training crop."""
    long_side: Annotated[tuple[int, int], Limit(least=1, most=16_384, rising=True)] | None = None
    """Resize images so that their long side is between these, keep their proportions,
    and crop (the authors' way)."""
    augment: Literal["rand"] | None = None
    """rand: RandAugment on the training crops; default: crops and flips only."""
    drop_path: Share = 0.0
    alpha: NonNegative = 100.0
    """Weight of region activation consistency, at the paper's 24×24 grid. 0 = off."""
    beta: NonNegative = 100.0
    """Weight of region affinity consistency, at the paper's 24×24 grid. 0 = off."""
    alpha_absolute: bool = False
    """Use alpha and beta as they are, not scaled to the grid."""
    view: str = "hflip"
    """Second view: none, hflip, vflip, rotate90/180/270, rotate, resize0.5, hide0.25, gray;
    joined by +; one of several at random: hflip|rotate. none with alpha and beta of 0: images are
    seen once."""
    distance: Literal["l1", "l2", "smooth_l1"] = "l1"
    consistency_blocks: Blocks | None = None
    """First and last block (from 0) whose attention the consistency compares; default: all."""
    checkpoint_attention: bool = False
    """Recompute each block in the backward pass: less memory, more time."""
    val_fraction: Share = 0.1
    """Share of the images kept for validation when there is no --val-split."""
    val_split: str | None = None
    """voc: the list to validate on."""

    def _mistakes(self) -> Iterator[str]:
        from tagmask.acr.views import parse_view

        yield from super()._mistakes()
        try:
            parse_view(self.view, 16)
        except ValueError as error:
            yield f"--view {self.view}: {error}."
        if self.view == "none" and (self.alpha or self.beta):
            yield (
                "--view none shows the same image twice, and nothing can be inconsistent; "
                "give --view hflip, or --alpha 0 --beta 0."
            )
        if self.fixed_views and (
            self.view != "hflip" or not self.freeze or self.kind != "acr" or self.drop_path
        ):
            yield (
                "--fixed-views needs --freeze 1 or more, --view hflip, "
                "--kind acr and no --drop-path."
            )
        if self.mct_read is not None and self.kind != "mct":
            yield "--mct-read belongs to --kind mct; leave it out."
        if self.head_first and not self.fixed_views:
            yield "--head-first fits the head to kept tokens; add --fixed-views and --freeze."
        if self.objects and self.kind != "acr":
            yield "--objects needs --kind acr."
        if self.stuff is not None and not self.objects:
            yield "--stuff belongs to --objects; add it, or leave out --stuff."
        if (self.earn or self.train_from) and not self.head_first:
            yield "--earn and --train-from go back to the fitted head; add --head-first."

    def mistakes_in(self, place: Any) -> Iterator[str]:
        """Yield a sentence if the data have no lists to validate on."""
        if self.val_split is not None and place.data != "voc":
            yield f"--val-split belongs to --data voc; with --data {place.data} use --val-fraction."
