"""A stage of a few lines with settings of its own, added by tests through the table alone."""

from dataclasses import dataclass

from tagmask.config import Settings
from tagmask.files import write_text
from tagmask.runs.images import Made
from tagmask.runs.run import Run
from tagmask.runs.table import Stage
from tagmask.runs.timing import Probe


@dataclass(frozen=True, kw_only=True)
class ToySettings(Settings):
    """Settings of the toy stage."""

    section = "counts"
    makes = ("config.toml", "7_counts")
    word: str = "tags"
    """What is written after the number."""


def count_tags(run: Run, settings: ToySettings) -> Made:
    """One text file per image: how many tags it has."""
    done = Made("counts", run.out / "7_counts")
    catalog = run.catalog
    for i in range(len(catalog)):
        text = f"{len(catalog.tags(i))} {settings.word}\n"
        write_text(done.folder / f"{catalog.name(i)}.txt", text)
        done.made += 1
    run.keep(settings)
    return done


def estimate(probe: Probe) -> float:
    return 0.5 * len(probe.catalog.classes)


ROW = Stage(
    "counts",
    "counts",
    "7_counts",
    "**/*.txt",
    ToySettings,
    "tests.runs.toy:count_tags",
    ("predict",),
)
