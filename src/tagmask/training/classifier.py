"""Training of the tag classifier: two views, class loss, and two consistency losses (paper Eq. 6).

Deviations from the paper: α and β are scaled to the grid unless ``alpha_absolute`` is set, and the
default recipe is ours where docs/reference/paper-settings.md says so; the presets `*-paper` restore
the paper's.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.utils.data import Subset

from tagmask.acr.consistency import consistency_losses, strength
from tagmask.acr.views import Identity, View, parse_view
from tagmask.config import TrainSettings
from tagmask.config.run import Place
from tagmask.data.catalog import Catalog
from tagmask.data.datasets import SquareDataset, TagDataset
from tagmask.errors import ImageError, TagmaskError
from tagmask.features.cache import TokenStore
from tagmask.features.dataset import TokenDataset
from tagmask.models.classifier import Classifier
from tagmask.models.kinds import KINDS
from tagmask.models.tail import tail
from tagmask.scoring.average_precision import mean_average_precision
from tagmask.training.loading import loader
from tagmask.training.loop import Task

Scored = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]  # logits and targets, both (N, C)


class TwoViews(nn.Module):
    """Loss of a batch; all passes are in one forward call, as synchronised gradients require."""

    def __init__(self, classifier: Classifier, view: View, settings: TrainSettings) -> None:
        super().__init__()
        self.classifier = classifier
        self.view = view
        self.settings = settings
        self.blocks = _block_range(settings.consistency_blocks, len(classifier.blocks))
        self.count = len(self.blocks)  # the losses are means over blocks
        # without a second view and without consistency there is nothing to see twice
        is_off = not settings.alpha and not settings.beta
        self.is_single = is_off and isinstance(view, Identity)

    def forward(self, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the losses of a batch of images and a randomly drawn view of them.

        With ``view="none"`` and α = β = 0 the images are seen once, as other classifiers see them.

        Args:
            images: Images (B, 3, H, W) in [0, 1].
            targets: Tags (B, C), 0 or 1.

        Returns:
            The total ``loss`` and its parts ``classes``, ``activation`` and ``affinity``.
        """
        view = self.view.draw()
        first = self.classifier.normalize(images)
        if self.is_single:
            return self._one_view(first, targets)
        second = self.classifier.normalize(view.apply(images))
        return self.losses(self.classifier, view, first, second, targets)

    def _one_view(self, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the class loss of normalised images (B, 3, H, W) alone, with parts of 0."""
        classes = _class_loss(self.classifier.branches(images), targets)
        nothing = classes.new_zeros(())
        return {"loss": classes, "classes": classes, "activation": nothing, "affinity": nothing}

    def losses(
        self, classifier: Classifier, view: View, first: Tensor, second: Tensor, targets: Tensor
    ) -> dict[str, Tensor]:
        """Return the losses of images and their view.

        Args:
            classifier: Classifier, or the part of it that is trained.
            view: View that made ``second`` from ``first``.
            first: Batch of images, normalised or as tokens: as ``classifier`` takes them.
            second: Their view, likewise.
            targets: Tags (B, C), 0 or 1.

        Returns:
            The total ``loss`` and its parts ``classes``, ``activation`` and ``affinity``.
        """
        settings = self.settings
        grid = classifier.grid(*first.shape[-2:])
        patches = grid[0] * grid[1]
        alpha = strength(settings.alpha, patches, settings.alpha_absolute, settings.distance)
        beta = strength(settings.beta, patches, settings.alpha_absolute, settings.distance)
        passes = self._two_passes(classifier, first, second, bool(alpha or beta))
        (logits, attention), (other_logits, other_attention) = passes

        class_losses = [_class_loss(logits, targets), _class_loss(other_logits, targets)]
        classes = torch.stack(class_losses).sum()
        activation = logits.new_zeros(())
        affinity = logits.new_zeros(())
        for original, transformed in zip(attention, other_attention, strict=True):
            restored = view.restore(transformed, grid, classifier.class_tokens)  # (B, T+n, T+n)
            of_activation, of_affinity = consistency_losses(
                original, restored, settings.distance, classifier.class_tokens
            )
            activation = activation + of_activation / self.count
            affinity = affinity + of_affinity / self.count
        loss = classes + alpha * activation + beta * affinity
        return {"loss": loss, "classes": classes, "activation": activation, "affinity": affinity}

    def _two_passes(
        self, classifier: Classifier, first: Tensor, second: Tensor, attend: bool
    ) -> list[tuple[Tensor, list[Tensor]]]:
        """Return logits (B, S, C) and attentions of both views, from one batch if sizes agree."""
        if first.shape != second.shape:
            return [self._pass(classifier, images, attend) for images in (first, second)]
        logits, attention = self._pass(classifier, torch.cat([first, second]), attend)
        first_logits, second_logits = logits.chunk(2)
        first_attention = []
        second_attention = []
        for block in attention:
            first_half, second_half = block.chunk(2)
            first_attention.append(first_half)
            second_attention.append(second_half)
        return [(first_logits, first_attention), (second_logits, second_attention)]

    def _pass(
        self, classifier: Classifier, images: Tensor, attend: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """Return logits (B, S, C) and, with ``attend``, the attentions of the chosen blocks."""
        if not attend:
            return classifier.branches(images), []
        return classifier.attend_branches(images, self.blocks, self.settings.checkpoint_attention)


class TokenViews(TwoViews):
    """Loss of a batch from the feature cache: photos and their mirror images.

    Only the blocks that are trained are passed. The terms of frozen blocks have no gradient and are
    left out; they count in the mean over blocks all the same, so that α and β mean what they mean
    without a feature cache.
    """

    def __init__(self, classifier: Classifier, view: View, settings: TrainSettings) -> None:
        super().__init__(classifier, view, settings)
        frozen = settings.freeze
        chosen = [i - frozen for i in self.blocks if i >= frozen]
        if not chosen:
            last = len(classifier.blocks) - 1
            raise TagmaskError(
                f"--consistency-blocks are all frozen; choose among blocks {frozen} to {last}."
            )
        # counted from the first block that is trained
        self.blocks = range(chosen[0], chosen[-1] + 1)

    def forward(  # type: ignore[override]
        self, tokens: list[Tensor], grids: Tensor, targets: Tensor
    ) -> dict[str, Tensor]:
        """Return the losses of a batch; photos of one grid go through the network together.

        Args:
            tokens: Features of each photo and its mirror image, each (2, N, D).
            grids: Height and width of each photo's grid in patches (B, 2).
            targets: Tags (B, C), 0 or 1.

        Returns:
            The total ``loss`` and its parts ``classes``, ``activation`` and ``affinity``.
        """
        indices: dict[tuple[int, int], list[int]] = {}
        for i, (height, width) in enumerate(grids.tolist()):
            indices.setdefault((height, width), []).append(i)
        total: dict[str, Tensor] = {}
        for grid, same in sorted(indices.items()):
            pairs = torch.stack([tokens[i] for i in same])  # (b, 2, N, D)
            first = pairs[:, 0]  # (b, N, D)
            second = pairs[:, 1]  # (b, N, D)
            rest = tail(self.classifier, self.settings.freeze, grid)
            losses = self.losses(rest, self.view, first, second, targets[same])
            share = len(same) / len(tokens)
            for name, value in losses.items():
                total[name] = total.get(name, 0) + value * share
        return total


def _class_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of the tags, summed over the branches of logits (B, S, C)."""
    branches = logits.unbind(1)
    losses = [F.multilabel_soft_margin_loss(branch, targets) for branch in branches]
    return torch.stack(losses).sum()


def _block_range(chosen: tuple[int, int] | None, depth: int) -> range:
    """Return the blocks from the first to the last chosen one; None chooses all."""
    if chosen is None:
        chosen = (0, depth - 1)
    first, last = chosen
    if not 0 <= first <= last < depth:
        raise TagmaskError(
            f"--consistency-blocks {first} {last} do not exist; "
            f"this backbone has blocks 0 to {depth - 1}."
        )
    return range(first, last + 1)


class ClassifierTask(Task):
    """Network, data and validation of the classifier, for the training loop.

    Args:
        train: Images to train on.
        val: Images to validate on; may be empty.
        settings: Those of the training.
        place: The run, in whose folder features are kept.
    """

    name = "train"
    what = "classifier"
    unusable = "could not be read"
    new_layers = ("head",)
    metric = "map"
    metric_title = "validation mAP"

    def __init__(self, train: Catalog, val: Catalog, settings: TrainSettings, place: Place) -> None:
        self.val = val
        self.settings = settings
        classifier = build_classifier(settings, train)
        self.classifier = classifier
        self.network = classifier
        self.size = settings.size or classifier.native_size
        # it refuses a size that is no multiple of the patch
        classifier.grid(self.size, self.size)
        classifier.crop_size = self.size
        view = parse_view(settings.view, classifier.patch_size)
        if settings.fixed_views:
            classifier.fixed_views = (self.size, settings.freeze)
            self.store = TokenStore.of(classifier, place.out, place.tokens_limit, place.tokens)
            self.module = TokenViews(classifier, view, settings)
            self.dataset = TokenDataset(train, self.store)
        else:
            self.module = TwoViews(classifier, view, settings)
            crops = settings.crop_scale if settings.long_side is None else settings.long_side
            augment = settings.augment is not None
            fill = classifier.mean.flatten().tolist()
            self.dataset = TagDataset(train, self.size, crops, settings.seed, augment, fill)

    def validate(self, accelerator: Accelerator) -> dict[str, float]:
        """Return mean average precision and class loss on the validation images.

        The images are shared out over the processes.
        """
        if not len(self.val):
            return {}
        share = range(accelerator.process_index, len(self.val), accelerator.num_processes)
        self.classifier.eval()
        with torch.inference_mode():
            if self.settings.fixed_views:
                seen = list(self._see_tokens(share))
            else:
                seen = list(self._see_images(share, accelerator))
        # a process may have no readable image, and has arrays without rows to give then
        none = np.zeros((0, self.classifier.num_classes), np.float32)
        logits = np.concatenate([none, *(scores for scores, _ in seen)])  # (N, C)
        targets = np.concatenate([none, *(tags for _, tags in seen)])  # (N, C)
        if accelerator.num_processes > 1:
            logits = np.concatenate(gather_object([logits]))
            targets = np.concatenate(gather_object([targets]))
        return _tag_scores(logits, targets)

    def scores_alone(self) -> dict[str, float]:
        """Return what ``validate`` returns, computed by this process from the feature cache."""
        self.classifier.eval()
        with torch.inference_mode():
            seen = list(self._see_tokens(range(len(self.val))))
        if not seen:
            return {}
        logits = np.concatenate([scores for scores, _ in seen])
        targets = np.concatenate([tags for _, tags in seen])
        return _tag_scores(logits, targets)

    def _see_images(self, share: range, accelerator: Accelerator) -> Iterator[Scored]:
        """Yield logits and targets of the readable images, in batches."""
        classifier = self.classifier
        data = Subset(SquareDataset(self.val, self.size), share)
        size = max(self.settings.batch, 8)
        for batch in loader(data, self.settings.workers, batch_size=size):
            is_good = batch["broken"] < 0
            images = batch["images"][is_good].to(accelerator.device)  # (B, 3, H, W)
            targets = batch["targets"][is_good]  # (B, C)
            if not len(images):
                continue
            with accelerator.autocast():
                logits = classifier(classifier.normalize(images)).float()  # (B, C)
            yield logits.cpu().numpy(), targets.numpy()

    def _see_tokens(self, share: range) -> Iterator[Scored]:
        """Yield logits and targets of the readable images, from the feature cache."""
        for i in share:
            with suppress(ImageError):
                tokens = self.store.get(self.val, i)
                rest = tail(self.classifier, self.settings.freeze, tokens.grid)
                logits = rest(tokens.values[:1]).float()  # (1, C)
                yield logits.cpu().numpy(), self.val.targets([i])


def _tag_scores(logits: np.ndarray[Any, Any], targets: np.ndarray[Any, Any]) -> dict[str, float]:
    """Return mean average precision and class loss of logits and targets (N, C)."""
    if not len(logits):
        # no image could be read
        return {}
    precision = mean_average_precision(logits, targets)
    loss = F.multilabel_soft_margin_loss(torch.from_numpy(logits), torch.from_numpy(targets))
    return {"map": float(precision), "val_loss": float(loss)}


def build_classifier(settings: TrainSettings, catalog: Catalog) -> Classifier:
    """Build the classifier before training, with its first ``freeze`` blocks frozen.

    Args:
        settings: Kind, backbone, weights and seed.
        catalog: Images whose classes it is to tell apart.

    Returns:
        The classifier; frozen parameters have ``requires_grad`` False.

    Raises:
        TagmaskError: If more blocks are to be frozen than there are.
    """
    torch.manual_seed(settings.seed)
    of_kind: dict[str, Any] = {} if settings.mct_read is None else {"mct_read": settings.mct_read}
    classifier = KINDS[settings.kind](
        settings.backbone,
        len(catalog.classes),
        pretrained=settings.pretrained,
        weights=settings.weights,
        classes=catalog.classes,
        drop_path=settings.drop_path,
        **of_kind,
    )
    depth = len(classifier.blocks)
    if settings.freeze > depth:
        raise TagmaskError(
            f"--freeze {settings.freeze} is more than the {depth} blocks of {settings.backbone}."
        )
    if settings.freeze:
        _freeze(classifier, settings.freeze)
    return classifier


def _freeze(classifier: Classifier, count: int) -> None:
    """Freeze the first ``count`` blocks, what comes before them, and tokens that are no logit."""
    blocks = [f"blocks.{i}." for i in range(count)]
    early = ("patch_embed", "norm_pre", "pos_embed", *blocks)
    for name, parameter in classifier.vit.named_parameters():
        # without a head the class tokens are the logits, equal for all classes until trained
        is_logit = name == "cls_token" and not classifier.has_head
        is_fixed_token = "token" in name and not is_logit
        is_frozen = name.startswith(early) or is_fixed_token
        parameter.requires_grad_(not is_frozen)
