"""Every setting of every stage: one frozen dataclass per stage, TOML in and out, all mistakes told at once."""

import dataclasses
import difflib
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tagmask.errors import TagmaskError
from tagmask.files import write_text


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
        return found + _below(self, count=1)


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
        found = _below(self, batch=1, accumulate=1, log_every=1, save_every=1, workers=0, warmup=0, clip=0, steps=1)
        for name in ("epochs", "lr", "val_every"):
            if not getattr(self, name) > 0:
                found.append(f"--{_flag(name)} {getattr(self, name)} must be above 0.")
        if not 0 <= self.ema < 1:
            found.append(f"--ema {self.ema} must be at least 0 and below 1, e.g. 0.999.")
        if self.batch % self.accumulate:
            found.append(f"--batch {self.batch} cannot be split into --accumulate {self.accumulate} equal parts.")
        return found


@dataclass(frozen=True, kw_only=True)
class TrainSettings(LoopSettings, DataSettings):
    """Train a tag classifier with all-pairs consistency. The defaults are the paper's recipe."""

    out: Path
    """Folder of the run; the classifier goes into its 1_classifier."""
    backbone: str = "deit_small_patch16_224"
    """Any timm ViT with a class token; the paper's are vit_base_r50_s16_384 and deit_small_patch16_224."""
    pretrained: bool = False
    """Start from published weights (downloaded by timm once; those of tagmask_tiny come with the package)."""
    weights: Path | None = None
    """Start from a local .safetensors or .pth file."""
    freeze: int = 0
    """Keep the stem and this many first blocks as they are."""
    size: int | None = None
    """Side of the square training crops in pixels; default: the backbone's own."""
    crop_scale: float = 0.6
    """Smallest share of the image's area in a training crop."""
    drop_path: float = 0.0
    alpha: float = 100.0
    """Weight of region activation consistency, at the paper's 24×24 grid. 0 = off."""
    beta: float = 100.0
    """Weight of region affinity consistency, at the paper's 24×24 grid. 0 = off."""
    alpha_absolute: bool = False
    """Use alpha and beta as they are, not scaled to the grid."""
    view: str = "hflip"
    """Second view: none, hflip, vflip, rotate90/180/270, rotate, resize0.5, hide, gray; joined by +."""
    distance: Literal["l1", "l2", "smooth_l1"] = "l1"
    consistency_blocks: tuple[int, int] | None = None
    """First and last block (from 0) that the consistency looks at; default: all."""
    checkpoint_attention: bool = False
    """Recompute each block in the backward pass: less memory, more time."""
    val_fraction: float = 0.1
    """Share of the images kept for validation when there is no --val-split."""
    val_split: str | None = None
    """voc: the list to validate on."""

    def mistakes(self) -> list[str]:
        from tagmask.acr.views import parse_view

        found = DataSettings.mistakes(self) + LoopSettings.mistakes(self)
        found += _below(self, alpha=0, beta=0, freeze=0, size=1)
        try:
            parse_view(self.view, 16)
        except ValueError as error:
            found.append(f"--view {self.view}: {error}.")
        if not 0 < self.crop_scale <= 1:
            found.append(f"--crop-scale {self.crop_scale} must be above 0 and at most 1.")
        if not 0 <= self.val_fraction < 1:
            found.append(f"--val-fraction {self.val_fraction} must be at least 0 and below 1.")
        if self.weights is not None and not self.weights.is_file():
            found.append(f"--weights {self.weights} does not exist; check the path.")
        if self.weights is not None and self.pretrained:
            found.append("--pretrained and --weights exclude each other; choose one.")
        if self.val_split is not None and self.data != "voc":
            found.append(f"--val-split belongs to --data voc; with --data {self.data} use --val-fraction.")
        return found


@dataclass(frozen=True, kw_only=True)
class MapSettings:
    """How localisation maps are made; the defaults are the paper's."""

    layers: int = 2
    """How many last blocks give class gradients."""
    affinity_blocks: tuple[int, int] | None = None
    """First and last block (from 0) whose attention refines the maps; default: all."""
    transpose: bool = False
    """Propagate by Aᵀ·g (as the paper prints it) instead of A·g (as its authors compute it)."""
    size: int | None = None
    """Long side of the image in pixels; default: a quarter more than the training crops, as those saw it."""
    scales: tuple[float, ...] = (1.0,)
    """The image is seen at each of these scales of its size, and the maps are added."""
    flip: bool = True
    """Also see the mirrored image."""
    batch: int = 16
    """Images of equal shape that go through the network together."""

    def mistakes(self) -> list[str]:
        found = _below(self, layers=1, size=1, batch=1)
        if not self.scales or not all(0 < scale <= 4 for scale in self.scales):
            found.append(f"--scales {' '.join(map(str, self.scales))} must be numbers above 0 and at most 4.")
        return found


@dataclass(frozen=True, kw_only=True)
class SeedSettings(MapSettings, DataSettings):
    """Make localisation maps for every image of a catalog."""

    out: Path
    """Folder of the run; the maps go into its 2_seeds."""
    model: Path | None = None
    """Folder of a trained classifier; default: 1_classifier of the run."""
    dtype: Literal["uint8", "float16"] = "uint8"
    """How the maps are stored: uint8 (0 to 255 for 0 to 1) or float16."""
    shard: str | None = None
    """Only part i of n, written i/n with i from 0: run the parts on several machines."""
    restart: bool = False
    """Make all maps anew."""

    def mistakes(self) -> list[str]:
        found = DataSettings.mistakes(self) + MapSettings.mistakes(self)
        if self.shard is not None and parse_shard(self.shard) is None:
            found.append(f"--shard {self.shard} must be i/n with 0 ≤ i < n, e.g. 0/4.")
        return found


@dataclass(frozen=True, kw_only=True)
class PhotoSettings(MapSettings):
    """Localisation maps of one photo."""

    photo: Path
    """The photo; may also stand first, without --photo."""
    model: Path
    """Folder of a trained classifier."""
    tags: str | None = None
    """What is on the photo, e.g. dog,sofa; default: what the model itself sees."""
    show: Path | None = None
    """Write a picture of the maps here (PNG)."""
    show_affinity: Path | None = None
    """Write a picture of the patch affinity here (PNG): from chosen source pixels, and the whole matrix."""
    out: Path | None = None
    """Write the maps here (.npz)."""


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(DataSettings):
    """Compare localisation maps with masks."""

    out: Path
    """Folder of the run."""
    processes: int = 1
    """Read and count with this many processes."""

    def mistakes(self) -> list[str]:
        return DataSettings.mistakes(self) + _below(self, processes=1)


def parse_shard(text: str) -> tuple[int, int] | None:
    """``i/n`` as two numbers, None where it is not of that form."""
    part, slash, whole = text.partition("/")
    if not (slash and part.isdecimal() and whole.isdecimal() and int(part) < int(whole)):
        return None
    return int(part), int(whole)


SCENES: Mapping[str, Any] = {
    "data": "scenes",
    "backbone": "tagmask_tiny",
    "pretrained": True,
    "optimizer": "adamw",
    "lr": 1e-3,
    "weight_decay": 0.02,
    "warmup": 50,
    "clip": 0.0,
    "batch": 32,
    "count": 4000,
    "steps": 650,
    "size": 64,
    "crop_scale": 0.8,
    "workers": 1,
    "val_every": 1.0,
    "alpha": 15.0,
    "beta": 15.0,
}
SCENE_MAPS: Mapping[str, Any] = {"affinity_blocks": (0, 1)}
PAPER_VOC: Mapping[str, Any] = {
    "data": "voc",
    "split": "train_aug",
    "backbone": "vit_base_r50_s16_384",
    "pretrained": True,
}
TRAIN_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "scenes": SCENES,
    "voc": PAPER_VOC,
    "voc-deit-s": {**PAPER_VOC, "backbone": "deit_small_patch16_224"},
    "coco": {**PAPER_VOC, "data": "coco"},
}


SEED_PRESETS: Mapping[str, Mapping[str, Any]] = {"scenes": SCENE_MAPS}


def check(settings: DataSettings) -> None:
    """Raise one error that lists every mistake of ``settings``."""
    found = settings.mistakes()
    if found:
        raise TagmaskError(
            "\n".join(found) if len(found) == 1 else "\n".join(["several settings need mending:", *found])
        )


def to_plain(settings: DataSettings) -> dict[str, Any]:
    """Settings as TOML and JSON can hold them; unset ones are left out."""
    plain = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    return {
        name: str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
        for name, value in plain.items()
        if value is not None
    }


def read_values(kind: type[DataSettings], values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Arguments of ``kind`` from TOML values; unknown names and wrong types are all told at once."""
    hints = typing.get_type_hints(kind)
    found, ready = [], {}
    for name, value in values.items():
        if name not in hints:
            near = difflib.get_close_matches(name, hints, n=1)
            found.append(f"{source}: there is no setting {name!r}" + (f"; did you mean {near[0]!r}?" if near else "."))
            continue
        try:
            ready[name] = _convert(value, hints[name])
        except (TypeError, ValueError):
            found.append(f"{source}: {name} = {value!r} is not of the form {_describe(hints[name])}.")
    if found:
        raise TagmaskError("\n".join(found))
    return ready


def write_section(path: Path, section: str, settings: DataSettings) -> None:
    """Put ``settings`` into the ``[section]`` of a run's config.toml; the other sections stay."""
    import tomli_w

    whole = read_toml(path) if path.exists() else {}
    whole[section] = to_plain(settings)
    write_text(path, tomli_w.dumps(whole))


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TagmaskError(f"{path} does not exist; check --config.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TagmaskError(f"{path} is not valid TOML: {error}.") from None


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _below(settings: Any, **limits: float) -> list[str]:
    values = {name: getattr(settings, name) for name in limits}
    return [
        f"--{_flag(name)} {value} must be at least {limits[name]}."
        for name, value in values.items()
        if value is not None and value < limits[name]
    ]


def _convert(value: Any, hint: Any) -> Any:
    """``value`` as the type ``hint``, or TypeError/ValueError."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        inner = next(arg for arg in args if arg is not type(None))
        return None if value is None else _convert(value, inner)
    if origin is Literal:
        if value not in args:
            raise ValueError
        return value
    if origin is tuple:
        variadic = len(args) == 2 and args[1] is Ellipsis
        if not isinstance(value, (list, tuple)) or (not variadic and len(value) != len(args)):
            raise ValueError
        return tuple(_convert(item, args[0]) for item in value)
    if hint is Path and isinstance(value, (str, Path)):
        return Path(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not hint:
        raise TypeError
    return value


def _describe(hint: Any) -> str:
    args = typing.get_args(hint)
    if typing.get_origin(hint) is Literal:
        return " | ".join(repr(arg) for arg in args)
    return getattr(hint, "__name__", str(hint)) if not args else str(hint)
