"""What the settings of several stages share: data, training, and what is refused."""

import dataclasses
import math
import os
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from tagmask import layout
from tagmask.config.limits import (
    HUGE,
    Count,
    Images,
    Limit,
    NonNegative,
    Positive,
    Seed,
    Share,
    Whole,
)
from tagmask.errors import TagmaskError
from tagmask.files import unwritable


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a stage."""

    section: ClassVar[str] = ""  # their table in config.toml
    # settings that name a file to write; all other paths are inputs
    written: ClassVar[tuple[str, ...]] = ()
    makes: ClassVar[tuple[str, ...]] = ()  # what the stage makes in the folder --out
    # names of the settings that --help shows, with those of the base classes
    basic: ClassVar[str] = ""
    cache: ClassVar["type[Settings] | None"] = None  # settings of the feature cache that it uses

    def mistakes(self) -> list[str]:
        """Return one sentence for every setting that cannot be used."""
        return list(self._mistakes())

    @classmethod
    def kinds(cls) -> "Mapping[str, Mapping[str, type[Settings]]]":
        """Return the classes of a stage with several networks, by setting and its value."""
        return {}

    @classmethod
    def kind_for(cls, values: Mapping[str, Any]) -> "type[Settings]":
        """Return the class that holds these values; a stage may have one for each network.

        Args:
            values: Values by name.
        """
        return cls

    def mistakes_in(self, place: Any) -> Iterator[str]:
        """Yield a sentence for every setting that does not fit the folder or the data of a run.

        Args:
            place: A ``tagmask.config.run.Place``.
        """
        yield from ()

    def disagreements(self, stages: "Mapping[str, Settings]") -> Iterator[str]:
        """Yield a sentence for every setting that does not fit another stage of the run.

        Args:
            stages: Settings of all stages, by section.
        """
        yield from ()

    def needs_data(self) -> bool:
        """Return True if the stage works on the images of the run."""
        return True

    def _mistakes(self) -> Iterator[str]:
        hints = typing.get_type_hints(type(self), include_extras=True)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            yield from _beyond_limit(field.name, value, hints[field.name])
            # what stands in config.toml must be read again; other settings may name what was
            # added in Python alone
            if self.section:
                yield from _unknown_word(field.name, value, hints[field.name])
        yield from self._overwritten()

    def inputs(self) -> dict[str, Path]:
        """Return every path that is read, under its flag; the run's folder is not among them."""
        paths: dict[str, Path] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Settings):
                paths |= {
                    f"--{flag(field.name)}.{name[2:]}": path
                    for name, path in value.inputs().items()
                }
            elif isinstance(value, Path) and field.name not in (*self.written, "out"):
                paths[f"--{flag(field.name)}"] = value
        return paths

    def _overwritten(self) -> Iterator[str]:
        """Yield a sentence for every input that the command would write over."""
        targets: dict[str, Path] = {}
        for name in self.written:
            if getattr(self, name) is not None:
                targets[name] = getattr(self, name)
        for name, path in targets.items():
            over = self.over_an_input(name, path)
            if over:
                yield over
            why = unwritable(path)
            if why and not path.is_dir():
                yield f"--{flag(name)} {why}"
        if len({os.path.realpath(path) for path in targets.values()}) < len(targets):
            yield f"--{' and --'.join(map(flag, targets))} must be different files."
        out: Path | None = getattr(self, "out", None)
        if out is not None and "out" not in self.written:
            yield from written_over(out, self.makes, self.inputs())

    def over_an_input(self, name: str, target: Path) -> str:
        """Return a sentence if writing a file would replace an input; empty if not.

        Args:
            name: The setting that names the file.
            target: The file.
        """
        for source, path in self.inputs().items():
            if _same(target, path):
                return f"--{flag(name)} {target} is read itself ({source}); choose another place."
            if path.is_dir() and target.exists() and not target.is_dir() and within(target, path):
                return (
                    f"--{flag(name)} {target} exists and lies in {path}, which is read "
                    f"({source}); choose another place, or delete it first if it "
                    "is an earlier output."
                )
        return ""


def written_over(out: Path, makes: Iterable[str], inputs: Mapping[str, Path]) -> Iterator[str]:
    """Yield a sentence for every input that lies where a command writes.

    Args:
        out: Folder of the run.
        makes: What the command makes in it.
        inputs: Every path that is read, under its flag.
    """
    for name, path in inputs.items():
        if any(within(path, out / made) for made in makes):
            yield (
                f"{name} {path} is read, but lies in a part of --out {out} that is written; "
                "copy it."
            )
    foreign = [name for name in makes if (out / name).exists()]
    if foreign and not layout.is_run(out):
        yield f"--out {out} is no run, but holds {foreign[0]}; choose another folder."


def _beyond_limit(name: str, value: Any, hint: Any) -> Iterator[str]:
    """Yield a sentence about numbers outside the limit."""
    given = next((part for part in _metadata(hint) if isinstance(part, Limit)), None)
    limit = given or Limit()
    numbers = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(number, int | float) for number in numbers):  # a text, a path, nothing
        return
    if not numbers and given:
        yield f"--{flag(name)} is empty; give numbers: {limit}."
    elif not limit.admits(*numbers):
        if any(not -math.inf < number < math.inf for number in numbers):
            end = " and finite" if given else ""
        else:
            end = f" and at most {HUGE:g}" if max(map(abs, numbers)) > max(HUGE, limit.most) else ""
        shown = " ".join(
            "(too long to show)" if 1e30 < abs(number) < math.inf else str(number)
            for number in numbers
        )
        yield f"--{flag(name)} {shown} must be {limit}{end}."


def _unknown_word(name: str, value: Any, hint: Any) -> Iterator[str]:
    """Yield a sentence about a word that is none of those which the setting may have."""
    for part in (hint, *typing.get_args(hint)):
        if typing.get_origin(part) is not Literal:
            continue
        words = typing.get_args(part)
        if value is not None and value not in words:
            yield f"--{flag(name)} {value} must be one of {', '.join(map(str, words))}."


def _metadata(hint: Any) -> tuple[Any, ...]:
    """Return the metadata of an annotated type, also inside ``… | None``."""
    inner = next((part for part in typing.get_args(hint) if hasattr(part, "__metadata__")), None)
    return getattr(hint, "__metadata__", ()) or getattr(inner, "__metadata__", ())


_BELONGS = {  # setting: the kinds of data that have it
    "images": ("folder", "coco"),
    "tags": ("folder",),
    "masks": ("folder",),
    "root": ("voc",),
    "annotations": ("coco",),
}
_NEEDED = {"folder": ("images",), "voc": ("root",), "coco": ("images", "annotations"), "scenes": ()}


@dataclass(frozen=True, kw_only=True)
class DataSettings(Settings):
    """Where images and tags come from."""

    basic = "out data images tags root split annotations"
    data: Literal["scenes", "folder", "voc", "coco"] = "scenes"
    """scenes: built-in pictures; folder: images and a table of tags;
    voc, coco: their usual layouts."""
    images: Path | None = None
    """folder, coco: the folder of images."""
    tags: Path | None = None
    """folder: a table of files and tags, another tool's file, or "embedded" keywords; default: one
    sub-folder per tag."""
    masks: Path | None = None
    """folder: masks (palette PNG) named like the images, for scoring only."""
    root: Path | None = None
    """voc: the folder that holds JPEGImages and ImageSets."""
    split: str = "train"
    """voc: name of a list in ImageSets/Segmentation, or the path of a list file."""
    annotations: Path | None = None
    """coco: the instances*.json file."""
    count: Annotated[int, Limit(least=1, most=10_000_000)] = 2000
    """scenes: how many pictures."""
    scene_seed: Seed = 0
    """scenes: another seed draws other pictures."""

    def data_settings(self) -> dict[str, Any]:
        """Return the data settings by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(DataSettings)}

    def _mistakes(self) -> Iterator[str]:
        yield from super()._mistakes()
        yield from self.data_mistakes()

    def data_mistakes(self) -> Iterator[str]:
        """Yield a sentence for everything that is wrong with the data."""
        given: dict[str, Path] = {
            name: path for name in _BELONGS if (path := getattr(self, name)) is not None
        }
        for name in _NEEDED[self.data]:
            if name not in given:
                yield f"--{name} is missing; --data {self.data} needs it."
        for name, path in given.items():
            is_embedded = name == "tags" and str(path) in ("embedded", "embedded-paths")
            if not path.exists() and not is_embedded:
                remedy = "check the path"
                if name == "tags" and not path.suffix:
                    remedy = "check the path: a table with the columns file and tags is meant"
                yield f"--{name} {path} does not exist; {remedy}."
            if self.data not in _BELONGS[name]:
                kinds = " or ".join(_BELONGS[name])
                yield (
                    f"--{name} belongs to --data {kinds}, not to --data {self.data}; "
                    "change one of them."
                )
        out: Path | None = getattr(self, "out", None)
        if (
            self.data == "folder"
            and self.tags is None
            and self.images is not None
            and within(out, self.images)
        ):
            yield (
                f"--out {out} is inside --images {self.images}, whose folders are tags; "
                "put it elsewhere."
            )


@dataclass(frozen=True, kw_only=True)
class AboutSettings(Settings):
    """What is known about the photos besides tags, for the numbers on the report."""

    basic = "about by mm_per_pixel"
    about: Path | None = None
    """A CSV file with columns about each photo, e.g. its site; the first column is the photo."""
    by: tuple[str, ...] = ()
    """Columns of --about by which report and studio group how much each class covers."""
    mm_per_pixel: Positive | None = None
    """The size of a pixel, for areas; a column mm_per_pixel of --about comes first."""

    def _mistakes(self) -> Iterator[str]:
        yield from super()._mistakes()
        if self.about is not None and not self.about.is_file():
            yield f"--about {self.about} does not exist; check the path."
        if self.by and self.about is None:
            yield "--by names columns of --about; give --about FILE."


@dataclass(frozen=True, kw_only=True)
class TokenSettings(Settings):
    """How much may be kept of what frozen blocks compute."""

    tokens_limit: NonNegative = 20.0
    """Gigabytes that kept tokens (0_tokens) may take; the rest is computed when it is needed.
    0 keeps none."""


@dataclass(frozen=True, kw_only=True)
class SharedTokenSettings(TokenSettings):
    """Where the tokens are kept that a classifier is trained on."""

    written = ("tokens",)
    tokens: Path | None = None
    """Keep what enters the trained blocks in this folder, for several runs on the same photos;
    default: 0_tokens."""


@dataclass(frozen=True, kw_only=True)
class LoopSettings(Settings):
    """How a network is trained; shared by all networks."""

    basic = "pretrained weights epochs steps batch lr workers restart"
    pretrained: bool = False
    """Start from published weights (timm downloads them once;
    those of tagmask_tiny come with the package)."""
    weights: Path | None = None
    """Start from a local .safetensors or .pth file."""
    epochs: Positive = 15
    """Passes over the images; may be a fraction."""
    steps: Count | None = None
    """Number of steps instead of epochs."""
    batch: Images = 4
    """Images per step in total, over all processes and accumulated parts."""
    accumulate: Count = 1
    """Split each batch into this many parts, one after the other, to save memory."""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: Positive = 0.01
    """Learning rate."""
    weight_decay: NonNegative = 5e-4
    momentum: Share = 0.9
    """sgd only."""
    head_lr: NonNegative = 1.0
    """Factor on the learning rate of the new layers."""
    schedule: Literal["poly", "cosine"] | None = None
    """How the learning rate decays: poly (the default) as --power says,
    cosine along half a wave."""
    power: NonNegative = 0.9
    """Polynomial decay: lr · (1 − step/steps)^power."""
    warmup: Whole = 0
    """Steps of linear warm-up."""
    clip: NonNegative = 0.0
    """Largest norm of the gradient; 0 = no limit."""
    precision: Literal["no", "bf16", "fp16"] = "no"
    """Mixed precision, if the device supports it."""
    ema: Annotated[float, Limit(least=0, below=1, example="0.999")] = 0.0
    """Decay of an exponential moving average of the weights, e.g. 0.999; 0 = off."""
    seed: Seed = 0
    workers: Annotated[int, Limit(least=0, most=256)] = 0
    """Processes that load images; 0 loads in the main process."""
    log_every: Count = 20
    save_every: Count = 200
    """Steps between two resume points."""
    val_every: Positive = 1.0
    """Epochs between two validations."""
    tensorboard: bool = False
    """Also write TensorBoard events (needs the extra `tensorboard`)."""
    restart: bool = False
    """Discard an earlier training in the same folder instead of resuming it."""

    def _mistakes(self) -> Iterator[str]:
        yield from super()._mistakes()
        if self.accumulate and self.batch % self.accumulate:
            yield (
                f"--batch {self.batch} cannot be split into --accumulate "
                f"{self.accumulate} equal parts."
            )
        if self.weights is not None and not self.weights.is_file():
            yield f"--weights {self.weights} does not exist; check the path."
        if self.weights is not None and self.pretrained:
            yield (
                "--pretrained and --weights exclude each other; choose one: --no-pretrained goes "
                "with a file."
            )


@dataclass(frozen=True, kw_only=True)
class ShardSettings(Settings):
    """Which part of the images is worked on."""

    shard: str | None = None
    """Only part i of n, written i/n with i from 0: run the parts on several machines."""

    def _mistakes(self) -> Iterator[str]:
        yield from super()._mistakes()
        if self.shard is not None and parse_shard(self.shard) is None:
            yield f"--shard {self.shard} must be i/n with 0 ≤ i < n, e.g. 0/4."


def check(settings: Settings) -> None:
    """Raise one error that lists every mistake of ``settings``."""
    refuse(settings.mistakes())


def refuse(mistakes: Sequence[str]) -> None:
    """Raise one error that lists these mistakes, if there are any."""
    if mistakes:
        heading = [f"{len(mistakes)} settings cannot be used:"] if len(mistakes) > 1 else []
        raise TagmaskError("\n".join([*heading, *mistakes]))


def parse_shard(text: str) -> tuple[int, int] | None:
    """Return ``i/n`` as two numbers; None if the text has another form."""
    part, slash, whole = text.partition("/")
    if not (slash and part.isdecimal() and whole.isdecimal() and int(part) < int(whole)):
        return None
    return int(part), int(whole)


def flag(name: str) -> str:
    """Return the flag of a setting, without its dashes."""
    return name.replace("_", "-")


def within(path: Path | None, folder: Path) -> bool:
    """Return True if a path is a folder, or lies in it.

    Args:
        path: It need not exist; None lies nowhere.
        folder: The folder; links are followed.
    """
    return path is not None and Path(os.path.realpath(path)).is_relative_to(
        os.path.realpath(folder)
    )


def _same(path: Path, other: Path) -> bool:
    """Return True if two paths lead to the same file or folder, by whatever name."""
    try:
        return os.path.realpath(path) == os.path.realpath(other) or os.path.samefile(path, other)
    except (OSError, ValueError):  # one of them does not exist, or is a link to itself
        return False
