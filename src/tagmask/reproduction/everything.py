"""Every table and figure for a data set, one after the other, and one page of all numbers.

Each is made as its own command makes it, in the same folder, so whatever is done already is found
again: a stopped command goes on with the same command. What cannot be made of these data is left
out with the reason. The page is written after every table, so it can be looked at meanwhile.
"""

import dataclasses

from tagmask.config.paper import PaperSettings
from tagmask.data.images import read_image
from tagmask.errors import TagmaskError
from tagmask.files import write_text
from tagmask.progress import terminal_bars
from tagmask.report.page import data_uri
from tagmask.reproduction.bench import Bench, PartDoneError
from tagmask.reproduction.command import make, sentence
from tagmask.reproduction.names import EVERYTHING, FIGURES, NAMES, TABLES
from tagmask.reproduction.numbers import about, about_all
from tagmask.reproduction.overview import MADE, REFUSED, Overview, Part, numbers_of
from tagmask.reproduction.page import QUALITY, Figure, write
from tagmask.reproduction.table import Table

# compares only with numbers of one data set
_ONLY = {"compare-coco": ("coco",), "compare-voc": ("voc", "folder", "scenes")}
# their numbers are those of another table
_REPEATS = ("segmentation", "compare-seeds")
# longer side of figures in pixels: each has a page of its own where it is larger
_LONGEST = 1400


def everything(bench: Bench) -> Overview:
    """Make all tables and figures, and gather the numbers that the paper has too.

    Raises:
        PartDoneError: This process has done its share of all trainings.
    """
    settings = bench.settings
    is_first = bench.shard[0] == 0
    names = wanted(settings.data)
    parts = {name: Part(name) for name in names}
    notes = (about_all(settings.data),)
    for number, name in enumerate(names, 1):
        terminal_bars().write(f"{number} of {len(names)}: {name} ({NAMES[name].where})")
        part = _part(dataclasses.replace(settings, table=name), bench.shard)
        if part.state == REFUSED:
            terminal_bars().write(f"{name} is not made: {part.how}")
        parts[name] = part
        if is_first:
            overview = Overview(tuple(parts.values()), notes)
            write_text(settings.out / f"{EVERYTHING}.html", overview.page(sentence(bench)))
    if not is_first:
        raise PartDoneError(f"part {bench.shard[0]} has done its share of all tables.")
    return Overview(tuple(parts.values()), notes)


def _part(settings: PaperSettings, shard: tuple[int, int]) -> Part:
    """Make one table or figure, if these data allow it, and write its files."""
    name = settings.table
    try:
        made = make(Bench(settings, shard))
    except PartDoneError:
        return Part(name)
    except TagmaskError as error:
        return Part(name, REFUSED, str(error))
    how = sentence(Bench(settings))
    files = [file.name for file in write(made, settings.out, how).files]
    # the page has one of its own on what the paper's numbers were measured on
    common = (about("voc"), about("coco"))
    notes = tuple(note for note in made.notes if note not in common)
    part = Part(name, MADE, how, notes, tuple(files))
    if isinstance(made, Figure):
        return dataclasses.replace(part, uri=data_uri(made.picture, _LONGEST, QUALITY))
    if not isinstance(made, Table):
        return part
    if made.charts:
        plot = read_image(settings.out / f"{name}.png")
        part = dataclasses.replace(part, uri=data_uri(plot, _LONGEST, QUALITY))
    if name not in _REPEATS:
        part = dataclasses.replace(part, numbers=numbers_of(made))
    return part


def wanted(data: str) -> list[str]:
    """Return the tables and figures that belong to a kind of data, tables first."""
    names = []
    for name in (*TABLES, *FIGURES):
        if name != EVERYTHING and data in _ONLY.get(name, (data,)):
            names.append(name)
    return names
