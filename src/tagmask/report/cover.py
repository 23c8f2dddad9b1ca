"""How much each class covers: over all photos, and by columns of the user's table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tagmask.config.base import AboutSettings
from tagmask.data.about import About, read_about
from tagmask.errors import TagmaskError
from tagmask.exchange.numbers import Group, Summary
from tagmask.progress import track
from tagmask.report.images import RunLabels

# columns for classes in a table by groups; the widest come first
MOST_CLASSES = 12
# more values of a column (a date with its time) make no table to look at
MOST_VALUES = 100
# masks that are read for the page; the export counts any number
MOST_PHOTOS = 20_000


@dataclass(frozen=True)
class CoverRow:
    """A class, or the photos with one value of a column."""

    name: str
    photos: int
    with_it: int  # photos that show the class
    where_found: float | None  # mean share of the photos that show it
    mean_share: float  # of all photos
    share_of_all: float
    area: float | None  # mm²


@dataclass(frozen=True)
class CoverTable:
    """The mean shares of the largest classes by the values of a column."""

    column: str
    classes: Sequence[str]
    rows: Sequence[tuple[str, int, Sequence[float]]]  # value, photos, mean share of each class
    left_out: int = 0  # values without a row


@dataclass(frozen=True)
class Cover:
    """What the page shows of a summary."""

    classes: Sequence[CoverRow]
    tables: Sequence[CoverTable]
    has_scale: bool


def about_of(own: AboutSettings, run: AboutSettings) -> AboutSettings:
    """Return what is known about the photos: what the stage was told, or else the run.

    Args:
        own: settings of the stage.
        run: settings of the run.
    """
    if own.about is not None or own.mm_per_pixel is not None:
        return own
    return run


def summarise(
    labels: RunLabels, indices: Sequence[int], known: AboutSettings, images: Path | None
) -> Summary:
    """Count the pixels of each class in the predictions of a run.

    Args:
        labels: the masks of the run; those that cannot be read are added to its problems.
        indices: the photos that have one.
        known: further columns about the photos, and their scale.
        images: the folder of the photos, for absolute paths in that table.

    Raises:
        TagmaskError: the table about the photos has mistakes.
    """
    catalog = labels.catalog
    about = About()
    if known.about is not None:
        names = [item.name for item in catalog]
        about = read_about(known.about, names, images or Path())
    summary = Summary(catalog.classes, known.mm_per_pixel, about, known.by)
    for i in track(indices, "areas", len(indices)):
        name = catalog.name(i)
        try:
            mask = labels.read("predictions", i)
        except TagmaskError as error:
            labels.problems[name] = str(error)
            continue
        summary.add(name, mask)
    return summary


def cover_of(summary: Summary) -> Cover:
    """Return what the page shows of a summary.

    Args:
        summary: the counts.
    """
    rows = [_row(name, summary.everything) for name in summary.largest(len(summary.classes))]
    tables = []
    for column in summary.by:
        tables.append(_table(summary, column))
    return Cover(rows, tables, summary.has_scale)


def _row(name: str, group: Group) -> CoverRow:
    """Return the row of a class."""
    return CoverRow(
        name=name,
        photos=group.photos,
        with_it=group.with_it.get(name, 0),
        where_found=group.share_where_found(name),
        mean_share=group.mean_share(name),
        share_of_all=group.share_of_all(name),
        area=group.area(name),
    )


def _table(summary: Summary, column: str) -> CoverTable:
    """Return the table of a column."""
    classes = summary.largest(MOST_CLASSES)
    groups = summary.of_column(column)
    rows = []
    for value, group in list(groups.items())[:MOST_VALUES]:
        shares = [group.mean_share(name) for name in classes]
        rows.append((value or "(empty)", group.photos, shares))
    return CoverTable(column, classes, rows, left_out=len(groups) - len(rows))
