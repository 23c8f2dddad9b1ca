"""Training the tag classifier: two views, class loss, and the two consistency losses (paper Eq. 6).

Deviations from the paper: α and β are scaled to the grid unless ``alpha_absolute`` is set, and the default recipe is
ours where docs/paper-settings.md says so; the presets `*-paper` restore the paper's."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset

from tagmask.acr.consistency import consistency_losses, strength
from tagmask.acr.views import View, parse_view
from tagmask.config import TrainSettings
from tagmask.data.catalog import Catalog
from tagmask.data.datasets import SquareDataset, TagDataset
from tagmask.errors import TagmaskError
from tagmask.models.classifier import Classifier
from tagmask.models.kinds import KINDS
from tagmask.scoring.average_precision import mean_average_precision
from tagmask.training.loading import loader


class TwoViews(nn.Module):
    """The loss of a batch; all passes are in one forward call, as synchronised gradients require."""

    def __init__(self, classifier: Classifier, view: View, settings: TrainSettings) -> None:
        super().__init__()
        self.classifier, self.view, self.settings = classifier, view, settings
        self.blocks = _block_range(settings.consistency_blocks, len(classifier.blocks))

    def forward(self, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Images (B, 3, H, W) in [0, 1], targets (B, C) to the total loss and its parts."""
        settings = self.settings
        view = self.view.draw()
        grid = self.classifier.grid(*images.shape[-2:])
        how = grid[0] * grid[1], settings.alpha_absolute, settings.distance
        alpha, beta = (strength(weight, *how) for weight in (settings.alpha, settings.beta))
        normalize = self.classifier.normalize
        passes = self._two_passes(normalize(images), normalize(view.apply(images)), bool(alpha or beta))
        (logits, attention), (other_logits, other_attention) = passes
        classes = torch.stack([_class_loss(scores, targets) for scores in (logits, other_logits)]).sum()
        activation, affinity = logits.new_zeros(()), logits.new_zeros(())
        for original, transformed in zip(attention, other_attention, strict=True):
            restored = view.restore(transformed, grid, self.classifier.class_tokens)  # (B, T+n, T+n)
            losses = consistency_losses(original, restored, settings.distance, self.classifier.class_tokens)
            activation, affinity = activation + losses[0] / len(attention), affinity + losses[1] / len(attention)
        loss = classes + alpha * activation + beta * affinity
        return {"loss": loss, "classes": classes, "activation": activation, "affinity": affinity}

    def _two_passes(self, first: Tensor, second: Tensor, attend: bool) -> list[tuple[Tensor, list[Tensor]]]:
        """Logits (B, S, C) and attentions of both views, in one batch where their sizes agree."""
        if first.shape != second.shape:
            return [self._pass(first, attend), self._pass(second, attend)]
        logits, attention = self._pass(torch.cat([first, second]), attend)
        halves = [a.chunk(2) for a in attention]
        return [(part, [half[i] for half in halves]) for i, part in enumerate(logits.chunk(2))]

    def _pass(self, images: Tensor, attend: bool) -> tuple[Tensor, list[Tensor]]:
        if not attend:
            return self.classifier.branches(images), []
        return self.classifier.attend_branches(images, self.blocks, self.settings.checkpoint_attention)


def _class_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum over the branches of logits (B, S, C)."""
    return torch.stack([F.multilabel_soft_margin_loss(branch, targets) for branch in logits.unbind(1)]).sum()


def _block_range(chosen: tuple[int, int] | None, depth: int) -> range:
    first, last = chosen if chosen is not None else (0, depth - 1)
    if not 0 <= first <= last < depth:
        raise TagmaskError(
            f"--consistency-blocks {first} {last} do not exist; this backbone has blocks 0 to {depth - 1}."
        )
    return range(first, last + 1)


class ClassifierTask:
    """What the training loop needs to know about the classifier."""

    name, what, unusable = "train", "classifier", "could not be read"
    new_layers: tuple[str, ...] = ("head",)
    metric, metric_title = "map", "validation mAP"

    def __init__(self, train: Catalog, val: Catalog, settings: TrainSettings) -> None:
        self.classifier = build_classifier(settings, train)
        self.size = settings.size or self.classifier.native_size
        self.classifier.grid(self.size, self.size)
        self.classifier.crop_size = self.size
        self.module: nn.Module = TwoViews(
            self.classifier, parse_view(settings.view, self.classifier.patch_size), settings
        )
        crops = settings.crop_scale if settings.long_side is None else settings.long_side
        fill = self.classifier.mean.flatten().tolist()
        self.dataset: Dataset[Any] = TagDataset(
            train, self.size, crops, settings.seed, settings.augment is not None, fill
        )
        self.images = len(train)
        self.val, self.settings = val, settings

    def validate(self, accelerator: Accelerator) -> dict[str, float]:
        """Mean average precision and class loss on the validation images, shared out over the processes."""
        if not len(self.val):
            return {}
        share = range(accelerator.process_index, len(self.val), accelerator.num_processes)
        images = Subset(SquareDataset(self.val, self.size), share)
        logits, targets = _predict(self.classifier, images, accelerator, self.settings)
        if accelerator.num_processes > 1:
            logits, targets = (np.concatenate(gather_object([x])) for x in (logits, targets))
        if not len(logits):  # none could be read
            return {}
        loss = F.multilabel_soft_margin_loss(torch.from_numpy(logits), torch.from_numpy(targets))
        return {"map": float(mean_average_precision(logits, targets)), "val_loss": float(loss)}

    def save(self, folder: Path) -> None:
        self.classifier.save(folder)


@torch.inference_mode()
def _predict(
    classifier: Classifier, data: Any, accelerator: Accelerator, settings: TrainSettings
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Logits and targets (N, C) of the readable images."""
    classifier.eval()
    classes = classifier.num_classes
    logits, targets = [np.zeros((0, classes), np.float32)], [np.zeros((0, classes), np.float32)]
    for batch in loader(data, settings.workers, batch_size=max(settings.batch, 8)):
        good = batch["broken"] < 0
        images = batch["images"][good].to(accelerator.device)
        if len(images):
            with accelerator.autocast():
                logits.append(classifier(classifier.normalize(images)).float().cpu().numpy())
            targets.append(batch["targets"][good].numpy())
    return np.concatenate(logits), np.concatenate(targets)


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
            early = name.startswith(first) or name.startswith(("patch_embed", "norm_pre", "pos_embed"))
            is_logit = name == "cls_token" and not classifier.has_head  # equal for all classes until they are trained
            fixed = "token" in name and not is_logit
            parameter.requires_grad_(not (early or fixed))
    return classifier
