"""Settings of the studio, and of the same page on a run or a photo."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tagmask import layout
from tagmask.config.base import Settings
from tagmask.config.limits import Limit


@dataclass(frozen=True, kw_only=True)
class ExploreSettings(Settings):
    """Look into a run or a photo in the browser."""

    basic = "out against photo model tags port browser"
    makes = (layout.CORRECTIONS,)
    out: Path | None = None
    """Folder of the run."""
    against: Path | None = None
    """Folder of a second run on the same photos, to compare with."""
    photo: Path | None = None
    """One photo instead of a run; `--photo` may be left out if it comes first."""
    model: Path | None = None
    """photo: folder of a trained classifier."""
    tags: str | None = None
    """photo: what is on it, e.g. dog,sofa; default: what the model itself sees."""
    port: Annotated[int, Limit(least=0, most=65_535)] = 0
    """Port on this machine; 0 takes a free one."""
    browser: bool = True
    """Open the page; with --no-browser only its address is printed."""

    def _mistakes(self) -> Iterator[str]:
        yield from super()._mistakes()
        if (self.out is None) == (self.photo is None):
            yield (
                "name either a run (--out run) or a photo (tagmask explore "
                "photo.jpg --model FOLDER)."
            )
        if self.photo is not None and self.model is None:
            yield "--model is missing; name the folder of a classifier, e.g. run/1_classifier."
        if self.photo is None and (self.model is not None or self.tags is not None):
            yield "--model and --tags belong to a single photo; a run has its own."
        if self.photo is not None and self.against is not None:
            yield "--against belongs to a run; leave it out with a photo."
        for name, folder in (("out", self.out), ("against", self.against)):
            if folder is not None and not folder.exists():
                yield f"--{name} {folder} does not exist; check the path."
            elif folder is not None and not (folder / layout.CONFIG).is_file():
                yield f"--{name} {folder} is no run (it has no {layout.CONFIG}); check the path."


@dataclass(frozen=True, kw_only=True)
class StudioSettings(Settings):
    """From a folder of photos to checked masks, in the browser."""

    basic = "folder out tags weights port browser"
    folder: Path | None = None
    """Folder of photos, or of a run; `--folder` may be left out if it comes first. Without one,
    the page lets you choose."""
    out: Path | None = None
    """Folder of the run, for tags and masks; default: FOLDER-tagmask beside the photos."""
    tags: Path | None = None
    """Tags that are there already, as `tagmask run` takes them; they are copied, not changed."""
    preset: str = "own-photos"
    """Recipe of the run."""
    backbone: str | None = None
    """Network that looks at the photos; default: that of the preset."""
    weights: Path | None = None
    """File with its weights, instead of fetching them once."""
    flags: str = ""
    """More flags for `tagmask run`, e.g. --flags="--predict.no-crf"."""
    port: Annotated[int, Limit(least=0, most=65_535)] = 0
    """Port on this machine; 0 takes a free one."""
    browser: bool = True
    """Open the page; with --no-browser only its address is printed."""

    def _mistakes(self) -> Iterator[str]:
        yield from super()._mistakes()
        if self.folder is not None and not self.folder.is_dir():
            yield f"{self.folder} is not a folder; check the path."
        if self.weights is not None and not self.weights.is_file():
            yield f"--weights {self.weights} does not exist; check the path."
        if self.tags is not None and not self.tags.exists() and str(self.tags) != "embedded":
            yield f"--tags {self.tags} does not exist; check the path."
