"""Settings of localisation maps, and of the scores and the report of a run."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, Literal

from tagmask import layout
from tagmask.config.base import AboutSettings, Settings, ShardSettings, SharedTokenSettings
from tagmask.config.limits import Blocks, Count, Images, Limit, Processes, Rows, Scales, Side

MAP_METHODS: Mapping[str, tuple[str, ...]] = {
    "acr": ("layers", "centre"),
    "weighted": ("layers",),
    "generic": (),
    "grad_cam": (),
    "cam": (),
    "ts_cam": (),
    "legrad": (),
    "rollout": (),
}
"""The map methods that come with the package and can be chosen, and which options each has."""


@dataclass(frozen=True, kw_only=True)
class MapSettings(Settings):
    """How localisation maps are made."""

    basic = "method affinity_blocks affinity_steps size scales flip batch"
    method: str = "acr"
    """acr: class gradients of the attention; weighted: these times the attention itself;
    generic, grad_cam, cam and ts_cam are what the paper compares with, on the same classifier;
    legrad and rollout are not in the paper; or a method of your own, by its name in the
    registry tagmask.methods.METHODS."""
    objects: bool | None = None
    """Make maps of objects: where they are in photos like those of the run, and which of the
    photo's tags each has; default: yes, if the classifier has learned that (train --objects).
    No: maps by --method."""
    layers: Count | None = None
    """How many last blocks give class gradients (default 2),
    or class attention in an mct model (default 3)."""
    affinity_blocks: Blocks | None = None
    """First and last block (from 0) whose attention refines the maps; default: all."""
    affinity_steps: Annotated[int, Limit(least=1, most=1000)] = 1
    """How often the affinity refines the maps; from 2 on its rows are
    normalised (not the paper's)."""
    transpose: bool = False
    """Propagate by Aᵀ·g (as the paper prints it) instead of A·g (as its authors compute it)."""
    centre: bool = False
    """Take class gradients against their mean over the patches (not the paper's;
    better on all data measured)."""
    size: Side | None = None
    """Long side of the image in pixels; default: a quarter more than the training crops,
    as those saw it."""
    shape: Literal["square", "own"] | None = None
    """square: squeeze images to a square of --size pixels, as the authors' code does; own: see
    them at their own size, as MCTformer's code does; default: keep proportions, long side of
    --size pixels."""
    scales: Scales = (1.0,)
    """The image is seen at each of these scales of its size, and the maps are added."""
    flip: bool = True
    """Also see the mirrored image."""
    batch: Images = 16
    """Images of equal shape that go through the network together."""

    def _mistakes(self) -> Iterator[str]:
        yield from super()._mistakes()
        options = _options_of(self.method)
        if options is None:
            yield (
                f"--method {self.method} is no map method; choose from {', '.join(MAP_METHODS)}, "
                "or add it to the registry tagmask.methods.METHODS first."
            )
            options = ("layers", "centre")
        about, leave_out = (
            "is about the class gradients of --method acr",
            f"leave it out with {self.method}.",
        )
        if self.centre and "centre" not in options:
            yield f"--centre {about}; {leave_out}"
        if self.layers and "layers" not in options:
            yield f"--layers {about} and weighted; {leave_out}"
        if self.shape == "own" and self.size is not None:
            yield f"--shape own sees photos at their own size; leave out --size {self.size}."


def _options_of(method: str) -> tuple[str, ...] | None:
    """Return the options that a map method has; None if there is no method of that name.

    Args:
        method: A built-in name, or one that was added to the registry. The maps of an MCTformer
            have no name of their own here: for it, "acr" means them.
    """
    if method in MAP_METHODS:
        return MAP_METHODS[method]
    # the registry stands above this room, so it is asked for other names alone
    registry: Mapping[str, Any] = resolve_name("tagmask.methods:METHODS")
    if method not in registry or method == "mct":
        return None
    return tuple(inspect.signature(registry[method].maps).parameters)


@dataclass(frozen=True, kw_only=True)
class SeedSettings(MapSettings, ShardSettings):
    """Make localisation maps for every image of a catalog."""

    section = "seeds"
    makes = (layout.CONFIG, layout.SEEDS)
    cache = SharedTokenSettings
    basic = "model processes shard restart"
    model: Path | None = None
    """Folder of a trained classifier; default: 1_classifier of the run."""
    dtype: Literal["uint8", "float16"] = "uint8"
    """How the maps are stored: uint8 (0 to 255 for 0 to 1) or float16."""
    processes: Processes | None = None
    """Make maps with this many processes, one thread each;
    default: one for each core, or one on a GPU."""
    restart: bool = False
    """Discard earlier maps and make all of them."""

    def disagreements(self, stages: Mapping[str, Settings]) -> Iterator[str]:
        """Yield a sentence if the classifier has maps of its own."""
        is_mct = getattr(stages.get("train"), "kind", "") == "mct"
        if is_mct and (self.method != "acr" or self.centre):
            yield (
                "--train.kind mct has maps of its own; "
                "give --seeds.method acr and leave out --seeds.centre."
            )


@dataclass(frozen=True, kw_only=True)
class PhotoSettings(MapSettings):
    """Localisation maps of one photo."""

    basic = "photo model tags show show_affinity out"
    written = ("show", "show_affinity", "out")
    photo: Path
    """The photo; `--photo` may be left out if it comes first."""
    model: Path
    """Folder of a trained classifier."""
    tags: str | None = None
    """What is on the photo, e.g. dog,sofa; default: what the model itself sees."""
    show: Path | None = None
    """Write a picture of the maps here (PNG)."""
    show_affinity: Path | None = None
    """Write a picture of the patch affinity here (PNG): from chosen source pixels,
    and the whole matrix."""
    out: Path | None = None
    """Write the maps here (.npz)."""


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(Settings):
    """Compare maps, labels and predictions with true masks."""

    basic = "masks processes"
    makes = (layout.SCORES, layout.CURVE)
    processes: Processes | None = None
    """Read and count with this many processes; default: one for each core."""


@dataclass(frozen=True, kw_only=True)
class CheckSettings(Settings):
    """Say, without masks, whether the masks of each tag can be believed."""

    makes = (layout.CHECK,)


@dataclass(frozen=True, kw_only=True)
class ReportSettings(AboutSettings):
    """Write one HTML page about a run: scores, curves, pictures, and how everything was made."""

    basic = "rows"
    makes = (layout.REPORT,)
    rows: Rows = 12
    """Images in the gallery: best, median and worst in equal parts."""
