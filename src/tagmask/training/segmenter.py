"""Training the segmentation network on pseudo labels (docs/method.md §5)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

from tagmask.config import SegmentSettings
from tagmask.data.catalog import Catalog
from tagmask.data.datasets import PseudoDataset, read_pair, to_tensor
from tagmask.errors import ImageError
from tagmask.labels import UNSURE
from tagmask.models.deeplab import DeepLabV2
from tagmask.scoring.confusion import confusion, iou
from tagmask.training.loop import Task


class PixelLoss(nn.Module):
    """Cross entropy of the upsampled logits over the pixels that are labelled."""

    def __init__(self, model: DeepLabV2) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Images (B, 3, H, W) in [0, 1], labels (B, H, W) with 255 = unsure; with several scales, their sum."""
        every = self.model.all_logits(self.model.normalize(images))
        labelled = (
            (labels != UNSURE).sum().clamp(min=1)
        )  # a crop may have no labelled pixel: loss 0, not nan
        size = (int(labels.shape[-2]), int(labels.shape[-1]))
        losses = [
            F.cross_entropy(
                self.model.upsample(logits, size).float(),
                labels,
                ignore_index=UNSURE,
                reduction="sum",
            )
            for logits in every
        ]
        return {"loss": torch.stack(losses).sum() / labelled}


class SegmenterTask(Task):
    """What the training loop needs to know about the segmenter."""

    name, what, unusable = (
        "segment",
        "segmenter",
        "could not be read or are unsure (255) everywhere",
    )
    new_layers = ("aspp",)
    metric, metric_title = "miou", "mIoU against held-out pseudo labels"
    network: DeepLabV2

    def __init__(
        self, train: Catalog, val: Catalog, folder: Path, settings: SegmentSettings
    ) -> None:
        self.network = build_segmenter(settings, train.classes)
        self.network.crop_size = settings.size
        self.module = PixelLoss(self.network)
        mean = self.network.mean.flatten().tolist()
        self.dataset = PseudoDataset(
            train, folder, settings.size, settings.scales, mean, settings.seed
        )
        self.val, self.folder = val, folder

    def validate(self, accelerator: Accelerator) -> dict[str, float]:
        """Mean IoU and pixel accuracy against held-out pseudo labels (not truth), shared out over the processes."""
        classes = self.network.num_classes
        counts = np.zeros((classes, classes + 1), np.int64)
        self.network.eval()
        for i in range(accelerator.process_index, len(self.val), accelerator.num_processes):
            try:
                image, label = read_pair(self.val, i, self.folder)
            except ImageError:
                continue  # training reports it when it draws it; here it is left out
            with accelerator.autocast():
                counts += confusion(predict_labels(self.network, image), label, classes)
        if accelerator.num_processes > 1:
            counts = np.sum(gather_object([counts]), axis=0)
        if not counts.sum():
            return {}
        scores = iou(counts)
        return {"miou": scores.miou_present, "pixel_accuracy": scores.pixel_accuracy}


@torch.inference_mode()
def predict_labels(model: DeepLabV2, image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The likeliest label of each pixel, (H, W, 3) uint8 to (H, W) uint8, in one pass at the image's own size."""
    picture = to_tensor(image).to(model.mean.device).float()[None] / 255  # (1, 3, H, W)
    logits = model.upsample(model(model.normalize(picture)), (image.shape[0], image.shape[1]))
    return logits[0].argmax(0).to(torch.uint8).cpu().numpy()


def build_segmenter(
    settings: SegmentSettings, classes: Sequence[str], fresh: bool = False
) -> DeepLabV2:
    """The network to start from; ``fresh`` leaves its weights random."""
    torch.manual_seed(settings.seed)
    return DeepLabV2(
        settings.backbone,
        len(classes) + 1,
        pretrained=settings.pretrained and not fresh,
        weights=None if fresh else settings.weights,
        classes=classes,
        multi_scale=settings.multi_scale,
        freeze_norm=settings.freeze_norm,
        caffe=settings.caffe,
    )
