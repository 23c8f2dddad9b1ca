"""Training the tag classifier: two views, class loss, and the two consistency losses (paper Eq. 6).

Deviations from the paper: α and β are scaled to the grid unless ``alpha_absolute`` is set, and the default recipe is
ours where docs/paper-settings.md says so; the presets `*-paper` restore the paper's."""

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
from tagmask.acr.views import View, parse_view
from tagmask.config import TrainSettings
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
    """The loss of a batch; all passes are in one forward call, as synchronised gradients require."""

    def __init__(self, classifier: Classifier, view: View, settings: TrainSettings) -> None:
        super().__init__()
        self.classifier, self.view, self.settings = classifier, view, settings
        self.blocks = _block_range(settings.consistency_blocks, len(classifier.blocks))
        self.count = len(self.blocks)  # the losses are means over blocks

    def forward(self, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Images (B, 3, H, W) in [0, 1], targets (B, C) to the total loss and its parts."""
        view, normalize = self.view.draw(), self.classifier.normalize
        return self.losses(
            self.classifier, view, normalize(images), normalize(view.apply(images)), targets
        )

    def losses(
        self, classifier: Classifier, view: View, first: Tensor, second: Tensor, targets: Tensor
    ) -> dict[str, Tensor]:
        """The losses of an image and its view, both as ``classifier`` takes them."""
        settings, grid = self.settings, classifier.grid(*first.shape[-2:])
        how = grid[0] * grid[1], settings.alpha_absolute, settings.distance
        alpha, beta = (strength(weight, *how) for weight in (settings.alpha, settings.beta))
        passes = self._two_passes(classifier, first, second, bool(alpha or beta))
        (logits, attention), (other_logits, other_attention) = passes
        classes = torch.stack(
            [_class_loss(scores, targets) for scores in (logits, other_logits)]
        ).sum()
        activation, affinity = logits.new_zeros(()), logits.new_zeros(())
        for original, transformed in zip(attention, other_attention, strict=True):
            restored = view.restore(transformed, grid, classifier.class_tokens)  # (B, T+n, T+n)
            losses = consistency_losses(
                original, restored, settings.distance, classifier.class_tokens
            )
            activation, affinity = (
                activation + losses[0] / self.count,
                affinity + losses[1] / self.count,
            )
        loss = classes + alpha * activation + beta * affinity
        return {"loss": loss, "classes": classes, "activation": activation, "affinity": affinity}

    def _two_passes(
        self, classifier: Classifier, first: Tensor, second: Tensor, attend: bool
    ) -> list[tuple[Tensor, list[Tensor]]]:
        """Logits (B, S, C) and attentions of both views, in one batch where their sizes agree."""
        if first.shape != second.shape:
            return [self._pass(classifier, images, attend) for images in (first, second)]
        logits, attention = self._pass(classifier, torch.cat([first, second]), attend)
        halves = [a.chunk(2) for a in attention]
        return [(part, [half[i] for half in halves]) for i, part in enumerate(logits.chunk(2))]

    def _pass(
        self, classifier: Classifier, images: Tensor, attend: bool
    ) -> tuple[Tensor, list[Tensor]]:
        if not attend:
            return classifier.branches(images), []
        return classifier.attend_branches(images, self.blocks, self.settings.checkpoint_attention)


class TokenViews(TwoViews):
    """The loss of a batch of kept tokens: photos and their mirror images, through the blocks that are trained.

    The terms of frozen blocks have no gradient and are left out; they count in the mean over blocks all the same, so
    that α and β mean what they mean without kept tokens.
    """

    def __init__(self, classifier: Classifier, view: View, settings: TrainSettings) -> None:
        super().__init__(classifier, view, settings)
        frozen, depth = settings.freeze, len(classifier.blocks)
        chosen = [i - frozen for i in self.blocks if i >= frozen]
        if not chosen:
            raise TagmaskError(
                f"--consistency-blocks are all frozen; choose among blocks {frozen} to {depth - 1}."
            )
        self.blocks = range(chosen[0], chosen[-1] + 1)  # of the part that is trained

    def forward(self, tokens: list[Tensor], grids: Tensor, targets: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
        """Tokens, each (2, N, D), their grids (B, 2) and targets (B, C) to the losses; photos of one grid together."""
        total: dict[str, Tensor] = {}
        for height, width in sorted(set(map(tuple, grids.tolist()))):
            same = [i for i, grid in enumerate(grids.tolist()) if grid == [height, width]]
            pairs = torch.stack([tokens[i] for i in same])  # (b, 2, N, D)
            rest = tail(self.classifier, self.settings.freeze, (height, width))
            losses = self.losses(rest, self.view, pairs[:, 0], pairs[:, 1], targets[same])
            for name, value in losses.items():
                total[name] = total.get(name, 0) + value * (len(same) / len(tokens))
        return total


def _class_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum over the branches of logits (B, S, C)."""
    return torch.stack(
        [F.multilabel_soft_margin_loss(branch, targets) for branch in logits.unbind(1)]
    ).sum()


def _block_range(chosen: tuple[int, int] | None, depth: int) -> range:
    first, last = chosen if chosen is not None else (0, depth - 1)
    if not 0 <= first <= last < depth:
        raise TagmaskError(
            f"--consistency-blocks {first} {last} do not exist; this backbone has blocks 0 to {depth - 1}."
        )
    return range(first, last + 1)


class ClassifierTask(Task):
    """What the training loop needs to know about the classifier."""

    name, what, unusable = "train", "classifier", "could not be read"
    new_layers = ("head",)
    metric, metric_title = "map", "validation mAP"

    def __init__(self, train: Catalog, val: Catalog, settings: TrainSettings) -> None:
        self.classifier = self.network = build_classifier(settings, train)
        self.size = settings.size or self.classifier.native_size
        self.classifier.grid(self.size, self.size)
        self.classifier.crop_size = self.size
        view = parse_view(settings.view, self.classifier.patch_size)
        if settings.fixed_views:
            self.classifier.fixed_views = (self.size, settings.freeze)
            self.store = TokenStore.of(
                self.classifier, settings.out, settings.tokens_limit, settings.tokens
            )
            self.module = TokenViews(self.classifier, view, settings)
            self.dataset = TokenDataset(train, self.store)
        else:
            self.module = TwoViews(self.classifier, view, settings)
            crops = settings.crop_scale if settings.long_side is None else settings.long_side
            fill = self.classifier.mean.flatten().tolist()
            self.dataset = TagDataset(
                train, self.size, crops, settings.seed, settings.augment is not None, fill
            )
        self.val, self.settings = val, settings

    def validate(self, accelerator: Accelerator) -> dict[str, float]:
        """Mean average precision and class loss on the validation images, shared out over the processes."""
        if not len(self.val):
            return {}
        share = range(accelerator.process_index, len(self.val), accelerator.num_processes)
        none = np.zeros((0, self.classifier.num_classes), np.float32)
        self.classifier.eval()
        with torch.inference_mode():
            seen = (
                self._see_tokens(share)
                if self.settings.fixed_views
                else self._see_images(share, accelerator)
            )
            logits, targets = (
                np.concatenate(parts) for parts in zip((none, none), *seen, strict=True)
            )
        if accelerator.num_processes > 1:
            logits, targets = (np.concatenate(gather_object([x])) for x in (logits, targets))
        return _tag_scores(logits, targets)

    def scores_alone(self) -> dict[str, float]:
        """Return what ``validate`` returns, computed by this process from kept tokens."""
        self.classifier.eval()
        with torch.inference_mode():
            seen = list(self._see_tokens(range(len(self.val))))
        if not seen:
            return {}
        logits = np.concatenate([scores for scores, _ in seen])
        targets = np.concatenate([tags for _, tags in seen])
        return _tag_scores(logits, targets)

    def _see_images(self, share: range, accelerator: Accelerator) -> Iterator[Scored]:
        """The readable images, in batches."""
        data = Subset(SquareDataset(self.val, self.size), share)
        for batch in loader(data, self.settings.workers, batch_size=max(self.settings.batch, 8)):
            good = batch["broken"] < 0
            images = batch["images"][good].to(accelerator.device)
            if len(images):
                with accelerator.autocast():
                    logits = self.classifier(self.classifier.normalize(images)).float()
                yield logits.cpu().numpy(), batch["targets"][good].numpy()

    def _see_tokens(self, share: range) -> Iterator[Scored]:
        """The readable images, from kept tokens."""
        for i in share:
            with suppress(ImageError):
                tokens = self.store.get(self.val, i)
                rest = tail(self.classifier, self.settings.freeze, tokens.grid)
                yield rest(tokens.values[:1]).float().cpu().numpy(), self.val.targets([i])


def _tag_scores(logits: np.ndarray[Any, Any], targets: np.ndarray[Any, Any]) -> dict[str, float]:
    """Return mean average precision and class loss of logits and targets (N, C)."""
    if not len(logits):  # none could be read
        return {}
    loss = F.multilabel_soft_margin_loss(torch.from_numpy(logits), torch.from_numpy(targets))
    return {"map": float(mean_average_precision(logits, targets)), "val_loss": float(loss)}


def build_classifier(settings: TrainSettings, catalog: Catalog) -> Classifier:
    """The classifier before training, with its first ``freeze`` blocks frozen."""
    torch.manual_seed(settings.seed)
    classifier = KINDS[settings.kind](
        settings.backbone,
        len(catalog.classes),
        pretrained=settings.pretrained,
        weights=settings.weights,
        classes=catalog.classes,
        drop_path=settings.drop_path,
    )
    if settings.freeze > len(classifier.blocks):
        raise TagmaskError(
            f"--freeze {settings.freeze} is more than the {len(classifier.blocks)} blocks of {settings.backbone}."
        )
    if settings.freeze:
        first = tuple(f"blocks.{i}." for i in range(settings.freeze))
        for name, parameter in classifier.vit.named_parameters():
            early = name.startswith(first) or name.startswith(
                ("patch_embed", "norm_pre", "pos_embed")
            )
            is_logit = (
                name == "cls_token" and not classifier.has_head
            )  # equal for all classes until they are trained
            fixed = "token" in name and not is_logit
            parameter.requires_grad_(not (early or fixed))
    return classifier
