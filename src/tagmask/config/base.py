"""What several stages share: where images come from, how a network is trained, and how mistakes are told."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from tagmask.errors import TagmaskError


class Settings(Protocol):
    """Settings of a stage."""

    def mistakes(self) -> list[str]:
        """One sentence for every setting that cannot be used."""


_BELONGS = {  # setting: the kinds of data that have it
    "images": ("folder", "coco"),
    "tags": ("folder",),
    "masks": ("folder",),
    "root": ("voc",),
    "annotations": ("coco",),
}


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Where images and tags come from."""

    data: Literal["scenes", "folder", "voc", "coco"] = "scenes"
    """scenes: built in, drawn on the fly; folder: images + tags table; voc, coco: their usual layouts."""
    images: Path | None = None
    """folder, coco: the folder of images."""
    tags: Path | None = None
    """folder: CSV, JSON or JSONL with a file and its tags per row; without it, one sub-folder per tag."""
    masks: Path | None = None
    """folder: masks (palette PNG) named as the images, for scoring only."""
    root: Path | None = None
    """voc: the folder that holds JPEGImages and ImageSets."""
    split: str = "train"
    """voc: name of a list in ImageSets/Segmentation, or the path of a list file."""
    annotations: Path | None = None
    """coco: the instances*.json file."""
    count: int = 2000
    """scenes: how many pictures."""
    scene_seed: int = 0
    """scenes: another seed draws other pictures."""

    def mistakes(self) -> list[str]:
        """One sentence for every setting that cannot be used."""
        needed = {"folder": ("images",), "voc": ("root",), "coco": ("images", "annotations"), "scenes": ()}
        found = [
            f"--{name} is missing; --data {self.data} needs it."
            for name in needed[self.data]
            if getattr(self, name) is None
        ]
        for name in ("images", "tags", "masks", "root", "annotations"):
            path = getattr(self, name)
            if path is not None and not path.exists():
                found.append(f"--{name} {path} does not exist; check the path.")
        for name, kinds in _BELONGS.items():
            if getattr(self, name) is not None and self.data not in kinds:
                found.append(
                    f"--{name} belongs to --data {' or '.join(kinds)}, not to --data {self.data}; add or drop one."
                )
        out: Path | None = getattr(self, "out", None)
        if self.data == "folder" and self.tags is None and self.images is not None and within(out, self.images):
            found.append(
                f"--out {out} lies in --images {self.images}, whose folders are the tags; choose another place."
            )
        return found + below(self, count=1)


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """How a network is trained; shared by all three networks."""

    epochs: float = 15
    """Passes over the images; may be a fraction."""
    steps: int | None = None
    """Number of steps instead of epochs."""
    batch: int = 4
    """Images per step in total, over all processes and accumulated parts."""
    accumulate: int = 1
    """Split each batch into this many parts, one after the other, to save memory."""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: float = 0.01
    weight_decay: float = 5e-4
    momentum: float = 0.9
    """sgd only."""
    head_lr: float = 1.0
    """Factor on the learning rate of the new layers."""
    power: float = 0.9
    """Polynomial decay: lr · (1 − step/steps)^power."""
    warmup: int = 0
    """Steps of linear warm-up."""
    clip: float = 0.0
    """Largest norm of the gradient; 0 = no limit."""
    precision: Literal["no", "bf16", "fp16"] = "no"
    """Mixed precision, where the device has it."""
    ema: float = 0.0
    """Decay of an exponential moving average of the weights, e.g. 0.999; 0 = off."""
    seed: int = 0
    workers: int = 0
    """Processes that load images; 0 loads in the main process."""
    log_every: int = 20
    save_every: int = 200
    """Steps between two resume points."""
    val_every: float = 1.0
    """Epochs between two validations."""
    tensorboard: bool = False
    """Also write TensorBoard events (needs the extra `tensorboard`)."""
    restart: bool = False
    """Throw away an earlier training in the same folder instead of going on with it."""

    def mistakes(self) -> list[str]:
        found = below(self, batch=1, accumulate=1, log_every=1, save_every=1, workers=0, warmup=0, clip=0, steps=1)
        found += below(self, seed=0, momentum=0, weight_decay=0, head_lr=0, power=0)
        for name in ("epochs", "lr", "val_every"):
            if not 0 < getattr(self, name) < math.inf:
                found.append(f"--{flag(name)} {getattr(self, name)} must be above 0.")
        if self.seed >= 2**63:
            found.append(f"--seed {self.seed} must be below 2^63.")
        if not 0 <= self.ema < 1:
            found.append(f"--ema {self.ema} must be at least 0 and below 1, e.g. 0.999.")
        if self.batch % self.accumulate:
            found.append(f"--batch {self.batch} cannot be split into --accumulate {self.accumulate} equal parts.")
        return found


def check(settings: Settings) -> None:
    """Raise one error that lists every mistake of ``settings``."""
    found = settings.mistakes()
    if found:
        raise TagmaskError(
            "\n".join(found) if len(found) == 1 else "\n".join(["several settings need mending:", *found])
        )


def parse_shard(text: str) -> tuple[int, int] | None:
    """``i/n`` as two numbers, None where it is not of that form."""
    part, slash, whole = text.partition("/")
    if not (slash and part.isdecimal() and whole.isdecimal() and int(part) < int(whole)):
        return None
    return int(part), int(whole)


def flag(name: str) -> str:
    return name.replace("_", "-")


def below(settings: Any, **limits: float) -> list[str]:
    values = {name: getattr(settings, name) for name in limits}
    return [
        f"--{flag(name)} {value} must be at least {limits[name]}."
        for name, value in values.items()
        if value is not None and value < limits[name]
    ]


def within(path: Path | None, folder: Path) -> bool:
    """Whether a path is a folder, or lies in it."""
    return path is not None and path.resolve().is_relative_to(folder.resolve())


def same_file(photo: Path, **written: Path | None) -> list[str]:
    """Mistakes in where something is written: not over the photo itself."""
    return [
        f"--{flag(name)} {path} is the photo itself; choose another name."
        for name, path in written.items()
        if path is not None and path.resolve() == photo.resolve()
    ]


def check_weights(weights: Path | None, pretrained: bool) -> list[str]:
    """Mistakes in where a network starts from."""
    found = []
    if weights is not None and not weights.is_file():
        found.append(f"--weights {weights} does not exist; check the path.")
    if weights is not None and pretrained:
        found.append("--pretrained and --weights exclude each other; choose one.")
    return found


def check_scales(scales: tuple[float, ...]) -> list[str]:
    """Mistakes in the scales at which an image is seen."""
    if scales and all(0 < scale <= 4 for scale in scales):
        return []
    return [f"--scales {' '.join(map(str, scales))} must be numbers above 0 and at most 4."]


def check_blocks(blocks: tuple[int, int] | None) -> list[str]:
    """Mistakes in the first and last of some blocks."""
    if blocks is None or 0 <= blocks[0] <= blocks[1]:
        return []
    return [f"--affinity-blocks {blocks[0]} {blocks[1]} must be the first and the last, counted from 0."]


def check_shard(shard: str | None) -> list[str]:
    """Mistakes in a part i/n."""
    if shard is None or parse_shard(shard) is not None:
        return []
    return [f"--shard {shard} must be i/n with 0 ≤ i < n, e.g. 0/4."]
