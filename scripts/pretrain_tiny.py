"""Pretrain ``tagmask_tiny`` on generated pictures, without labels or masks, and write the weights the package ships.

Squares of the picture are hidden and their pixels predicted from the rest, as in SimMIM (Xie et al. 2022). To fill a
hole inside an object the network has to look at the rest of the same object, which makes its attention object-like.
The tags of the scenes are never read.

    python scripts/pretrain_tiny.py --out pretrained --steps 3000
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
import tyro
from safetensors.torch import save_file
from torch import Tensor, nn

from tagmask.config import LoopSettings
from tagmask.data.datasets import TagDataset
from tagmask.data.scenes.catalog import Scenes
from tagmask.files import replacing
from tagmask.models.classifier import Classifier
from tagmask.training.loop import Loop, Task


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(LoopSettings):
    """Masked pretraining of the small backbone."""

    out: Path
    optimizer: str = "adamw"  # type: ignore[assignment]
    lr: float = 1e-3
    weight_decay: float = 0.05
    warmup: int = 100
    clip: float = 1.0
    batch: int = 32
    steps: int | None = 3000
    size: int = 80
    count: int = 6000
    scene_seed: int = 1000
    """Another series than the one that is trained on and scored later."""
    hidden: float = 0.6
    """Share of the picture that is hidden."""


class MaskedPictures(nn.Module):
    """Mean absolute error of the predicted pixels in the hidden squares."""

    def __init__(self, classifier: Classifier, hidden: float) -> None:
        super().__init__()
        self.classifier, self.hidden = classifier, hidden
        self.patch = classifier.patch_size
        self.decoder = nn.Linear(classifier.vit.embed_dim, 3 * self.patch**2)

    def forward(self, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Images (B, 3, H, W) in [0, 1]; the tags in ``targets`` are not used."""
        del targets
        pictures = self.classifier.normalize(images)
        rows, columns = self.classifier.grid(*images.shape[-2:])
        coarse = (
            torch.rand(len(images), 1, -(-rows // 2), -(-columns // 2)) < self.hidden
        )  # holes of 2×2 patches
        hole = coarse.repeat_interleave(2, -2).repeat_interleave(2, -1)[..., :rows, :columns]
        pixels = hole.repeat_interleave(self.patch, -2).repeat_interleave(
            self.patch, -1
        )  # (B, 1, H, W)
        tokens = self.classifier.vit.forward_features(pictures * ~pixels)[
            :, self.classifier.prefix :
        ]  # (B, n, d)
        guess = self.decoder(tokens).view(len(images), rows, columns, 3, self.patch, self.patch)
        guess = guess.permute(0, 3, 1, 4, 2, 5).reshape(images.shape)
        return {
            "loss": F.l1_loss(guess[pixels.expand_as(guess)], pictures[pixels.expand_as(guess)])
        }


class PretrainTask(Task):
    """What the training loop needs to know; there is nothing to validate on."""

    name, what, unusable = "pretrain", "network", "could not be read"
    new_layers = ()

    def __init__(self, scenes: Scenes, settings: PretrainSettings) -> None:
        torch.manual_seed(settings.seed)
        self.network = self.classifier = Classifier("tagmask_tiny", 1)
        self.module = MaskedPictures(self.classifier, settings.hidden)
        self.dataset = TagDataset(scenes, settings.size, 0.5, settings.seed)


def main() -> None:
    """Train, and write the weights in half precision, without the head."""
    settings = tyro.cli(PretrainSettings)
    scenes = Scenes(settings.count, settings.scene_seed)
    task = PretrainTask(scenes, settings)
    Loop(task, settings, settings.out, {"steps": settings.steps, "lr": settings.lr}).train(scenes)
    kept = {
        name: v
        for name, v in task.classifier.vit.state_dict().items()
        if not name.startswith("head")
    }
    with replacing(settings.out / "tagmask_tiny.safetensors") as partial:
        save_file({name: value.half().contiguous() for name, value in kept.items()}, partial)


if __name__ == "__main__":
    main()
