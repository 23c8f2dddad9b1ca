"""Training of the segmentation network on pseudo labels (docs/explanation/method.md §5)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

from tagmask.config import DeepLabSettings
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
        """Return the loss of a batch; with several scales, the sum of theirs.

        Args:
            images: Images (B, 3, H, W) in [0, 1].
            labels: Labels (B, H, W), 255 = unsure.

        Returns:
            The ``loss``, a mean over the labelled pixels.
        """
        every = self.model.all_logits(self.model.normalize(images))
        # a crop may have no labelled pixel: its loss is 0 then, not nan
        labelled = (labels != UNSURE).sum().clamp(min=1)
        size = (int(labels.shape[-2]), int(labels.shape[-1]))
        losses = []
        for logits in every:
            scores = self.model.upsample(logits, size).float()  # (B, K, H, W)
            loss = F.cross_entropy(scores, labels, ignore_index=UNSURE, reduction="sum")
            losses.append(loss)
        return {"loss": torch.stack(losses).sum() / labelled}


class SegmenterTask(Task):
    """Network, data and validation of the segmenter, for the training loop."""

    name = "segment"
    what = "segmenter"
    unusable = "could not be read or are unsure (255) everywhere"
    new_layers = ("aspp",)
    metric = "miou"
    metric_title = "mIoU against held-out pseudo labels"
    network: DeepLabV2

    def __init__(
        self, train: Catalog, val: Catalog, folder: Path, settings: DeepLabSettings
    ) -> None:
        self.val = val
        self.folder = folder
        self.network = build_segmenter(settings, train.classes)
        self.network.crop_size = settings.size
        self.module = PixelLoss(self.network)
        mean = self.network.mean.flatten().tolist()
        self.dataset = PseudoDataset(
            train, folder, settings.size, settings.scales, mean, settings.seed
        )

    def validate(self, accelerator: Accelerator) -> dict[str, float]:
        """Return mean IoU and pixel accuracy against held-out pseudo labels, which are not truth.

        The images are shared out over the processes.
        """
        classes = self.network.num_classes
        counts = np.zeros((classes, classes + 1), np.int64)
        self.network.eval()
        for i in range(accelerator.process_index, len(self.val), accelerator.num_processes):
            try:
                image, label = read_pair(self.val, i, self.folder)
            except ImageError:
                # training reports it when it draws it; here it is left out
                continue
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
    """Return the likeliest label of each pixel, in one pass at the image's own size.

    Args:
        model: Segmentation network.
        image: Image (H, W, 3) uint8.

    Returns:
        Labels (H, W) uint8.
    """
    height, width = image.shape[:2]
    picture = to_tensor(image).to(model.mean.device).float()[None] / 255  # (1, 3, H, W)
    logits = model(model.normalize(picture))  # (1, K, h, w)
    logits = model.upsample(logits, (height, width))  # (1, K, H, W)
    labels = logits[0].argmax(0).to(torch.uint8)  # (H, W)
    return labels.cpu().numpy()


def build_segmenter(
    settings: DeepLabSettings, classes: Sequence[str], fresh: bool = False
) -> DeepLabV2:
    """Build the network that a training starts from.

    Args:
        settings: Backbone, weights and seed.
        classes: Names of the classes, without the background.
        fresh: Leave the weights random, whatever the settings say.

    Returns:
        The network, with one more output than classes, for the background.
    """
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
