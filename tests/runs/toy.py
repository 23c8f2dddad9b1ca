"""A stage and a map method of a few lines, added by tests through the table and the registry alone."""

from dataclasses import dataclass
from pathlib import Path

from tagmask.config import DataSettings
from tagmask.data.catalog import Catalog
from tagmask.data.open import open_catalog
from tagmask.files import write_text
from tagmask.runs.images import Made
from tagmask.runs.record import made_from
from tagmask.runs.table import Stage
from tagmask.runs.timing import Probe

__all__ = ["ToySettings", "count_tags", "estimate", "made_from"]


@dataclass(frozen=True, kw_only=True)
class ToySettings(DataSettings):
    """Settings of the toy stage."""

    out: Path
    word: str = "tags"


def count_tags(settings: ToySettings, catalog: Catalog | None = None) -> Made:
    """One text file per image: how many tags it has."""
    catalog = open_catalog(settings) if catalog is None else catalog
    done = Made("counts", settings.out / "7_counts")
    for i in range(len(catalog)):
        write_text(
            done.folder / f"{catalog.name(i)}.txt", f"{len(catalog.tags(i))} {settings.word}\n"
        )
        done.made += 1
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
