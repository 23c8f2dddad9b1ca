"""Settings of the explorer."""

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
            yield "name either a run (--out run) or a photo (tagmask explore photo.jpg --model FOLDER)."
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
