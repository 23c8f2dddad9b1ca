"""Training the segmentation network on pseudo labels (docs/method.md §5)."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.utils.data import Dataset

from tagmask.config import SegmentSettings, check, to_plain, write_section
from tagmask.data.catalog import Catalog
from tagmask.data.datasets import to_tensor
from tagmask.data.images import IGNORE
from tagmask.data.made_by import check_classes
from tagmask.data.open import open_catalog
from tagmask.data.pseudo import PseudoDataset, label_file, read_pair
from tagmask.errors import ImageError, TagmaskError
from tagmask.files import write_json
from tagmask.models.deeplab import DeepLabV2
from tagmask.scoring.confusion import confusion, iou
from tagmask.training.loop import BROKEN, Loop, Outcome, told_broken

FOLDER = "5_segmenter"
PSEUDO_FOLDER = "4_pseudo"
_NOT_IDENTITY = {"out", "pseudo", "workers", "log_every", "save_every", "restart", "tensorboard"}


class PixelLoss(nn.Module):
    """Cross entropy of the upsampled logits over the pixels that are labelled."""

    def __init__(self, model: DeepLabV2) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Images (B, 3, H, W) in [0, 1], labels (B, H, W) with 255 = unsure; with several scales, their sum."""
        every = self.model.all_logits(self.model.normalize(images))
        labelled = (labels != IGNORE).sum().clamp(min=1)  # a crop may be unsure all over: loss 0, not nan
        size = (int(labels.shape[-2]), int(labels.shape[-1]))
        losses = [
            F.cross_entropy(self.model.upsample(logits, size).float(), labels, ignore_index=IGNORE, reduction="sum")
            for logits in every
        ]
        return {"loss": torch.stack(losses).sum() / labelled}


class SegmenterTask:
    """What the training loop needs to know about the segmenter."""

    name = "segment"
    new_layers: tuple[str, ...] = ("aspp",)
    metric = "miou"

    def __init__(self, train: Catalog, val: Catalog, folder: Path, settings: SegmentSettings) -> None:
        torch.manual_seed(settings.seed)
        self.model = DeepLabV2(
            settings.backbone,
            len(train.classes) + 1,
            pretrained=settings.pretrained,
            weights=settings.weights,
            classes=train.classes,
            multi_scale=settings.multi_scale,
            frozen_norm=settings.frozen_norm,
            caffe=settings.caffe,
        )
        self.model.crop_size = settings.crop
        self.module: nn.Module = PixelLoss(self.model)
        mean = self.model.mean.flatten().tolist()
        self.dataset: Dataset[Any] = PseudoDataset(train, folder, settings.crop, settings.scales, mean, settings.seed)
        self.images = len(train)
        self.val, self.folder = val, folder

    def validate(self, accelerator: Accelerator) -> dict[str, float]:
        """Mean IoU and pixel accuracy against held-out pseudo labels (not truth), shared out over the processes."""
        classes = self.model.num_classes
        counts = np.zeros((classes, classes + 1), np.int64)
        self.model.eval()
        for i in range(accelerator.process_index, len(self.val), accelerator.num_processes):
            try:
                image, label = read_pair(self.val, i, self.folder)
            except ImageError:
                continue  # told by the training where it is drawn; here it only does not count
            with accelerator.autocast():
                counts += confusion(predict_labels(self.model, image), label, classes)
        if accelerator.num_processes > 1:
            counts = np.sum(gather_object([counts]), axis=0)
        if not counts.sum():
            return {}
        scores = iou(counts)
        return {"miou": scores.miou_present, "pixel_accuracy": scores.pixel_accuracy}

    def save(self, folder: Path) -> None:
        self.model.save(folder)


@torch.inference_mode()
def predict_labels(model: DeepLabV2, image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The likeliest label of each pixel, (H, W, 3) uint8 to (H, W) uint8, in one pass at the image's own size."""
    picture = to_tensor(image).to(model.mean.device).float()[None] / 255  # (1, 3, H, W)
    logits = model.upsample(model(model.normalize(picture)), (image.shape[0], image.shape[1]))
    return logits[0].argmax(0).to(torch.uint8).cpu().numpy()


@dataclass
class Segmented:
    """What a training left behind."""

    folder: Path
    outcome: Outcome
    broken: list[str]  # names of images that gave nothing to learn from
    notes: tuple[str, ...]
    is_main: bool  # False in all processes of a launch but one

    def summary(self) -> str:
        """What a user wants to know at the end."""
        lines = [*self.notes, *told_broken(self.folder, self.broken, "could not be read or are unsure (255) all over")]
        if "miou" in self.outcome.metrics:
            best = self.outcome.best
            lines.append(
                f"mIoU against held-out pseudo labels {self.outcome.metrics['miou']:.3f} "
                f"(best {best['miou']:.3f} at step {best['step']:.0f})"
            )
        lines.append(f"segmenter: {self.folder / 'model.safetensors'}")
        return "\n".join(lines)


def labelled_part(catalog: Catalog, folder: Path) -> tuple[Catalog, tuple[str, ...], str]:
    """The images that have a pseudo label, a sentence on the others, and a fingerprint of the labels' files."""
    sizes = {}
    for i in range(len(catalog)):
        file = label_file(folder, catalog.name(i))
        if file.is_file():
            sizes[i] = file.stat().st_size
    if not sizes:
        raise TagmaskError(f"{folder} holds no pseudo label of these images; make them with `tagmask pseudo` first.")
    lacking = [catalog.name(i) for i in range(len(catalog)) if i not in sizes]
    shown = ", ".join(lacking[:5]) + (" …" if len(lacking) > 5 else "")
    told = f"{len(lacking)} of {len(catalog)} images have no pseudo label in {folder} and are left out: {shown}"
    part = catalog.subset(list(sizes))
    return part, (told,) if lacking else (), hashlib.sha256(str(list(sizes.values())).encode()).hexdigest()[:16]


def train_segmenter(settings: SegmentSettings) -> Segmented:
    """Train a segmenter as ``settings`` say, or go on with a training that was stopped."""
    check(settings)
    labels = settings.pseudo or settings.out / PSEUDO_FOLDER
    whole = open_catalog(settings)
    check_classes(labels, whole.classes, "pseudo labels")
    catalog, notes, fingerprint = labelled_part(whole, labels)
    training, val = catalog.split(settings.val_fraction, settings.seed)
    folder = settings.out / FOLDER
    task = SegmenterTask(training, val, labels, settings)
    identity = {k: v for k, v in to_plain(settings).items() if k not in _NOT_IDENTITY}
    loop = Loop(task, settings, folder, {**identity, "images": training.fingerprint(), "labels": fingerprint})
    if loop.accelerator.is_main_process:
        write_section(settings.out / "config.toml", "segment", settings)
    outcome = loop.run()
    broken = [training.name(i) for i in outcome.broken]
    if loop.accelerator.is_main_process and broken:
        write_json(folder / BROKEN, broken)
    told = (*whole.notes, *notes, *task.model.notes)
    return Segmented(folder, outcome, broken, told, loop.accelerator.is_main_process)
