"""One table or figure: check, run what is not done, write."""

from pkgutil import resolve_name

import torch

from tagmask.config import check, parse_shard
from tagmask.config.paper import PaperSettings, write_paper_config
from tagmask.errors import TagmaskError
from tagmask.reproduction.bench import Bench, PartDoneError
from tagmask.reproduction.names import NAMES, NO_TRAINING
from tagmask.reproduction.page import Written, write
from tagmask.runs.processes import launched_shard, single_process
from tagmask.version import __version__


def run_paper(settings: PaperSettings) -> Written:
    """Make one table or figure; what is in the folder already is not trained or scored again.

    Returns:
        The text to print and the files; of a part other than the first a sentence and no files.

    Raises:
        TagmaskError: The table has no such name, or an option does not belong to it.
    """
    check(settings)
    table = settings.table
    if table not in NAMES:
        raise TagmaskError(
            f"there is no table or figure {table!r}; choose from {', '.join(NAMES)}."
        )
    _check_options(settings)
    entry = NAMES[table]
    part, parts = _part(settings)
    if part and entry.needs == NO_TRAINING:
        return Written(f"part {part} of {parts}: {table} has no training to share out.")
    bench = Bench(settings, (part, parts))
    if settings.scores is None:
        bench.check_masks(entry.masks)
    if not part:
        write_paper_config(settings.out / f"{table}.toml", settings)
    # each training is one process, also under a launch
    with single_process():
        make = resolve_name(f"tagmask.reproduction.{entry.maker}")
        try:
            made = make(bench)
        except PartDoneError as done:
            return Written(f"{done} Part 0 makes the table.")
    return write(made, settings.out, how(bench))


def _check_options(settings: PaperSettings) -> None:
    """Refuse options that the table would ignore."""
    for name in ("rows", "scores"):
        tables = [table for table, entry in NAMES.items() if getattr(entry, name)]
        if getattr(settings, name) and settings.table not in tables:
            raise TagmaskError(
                f"--{name} belongs to {', '.join(tables)}; leave it out for {settings.table}."
            )


def _part(settings: PaperSettings) -> tuple[int, int]:
    """Return the part of the trainings that this process begins with, and the number of parts.

    Under a launch it also selects the device of the part.
    """
    if settings.shard is not None:
        return parse_shard(settings.shard) or (0, 1)
    part, parts = launched_shard()
    if parts > 1 and torch.cuda.is_available():
        torch.cuda.set_device(part % torch.cuda.device_count())
    return part, parts


def how(bench: Bench) -> str:
    """Say in a sentence what was run."""
    settings = bench.settings
    if settings.scores is not None:
        return f"tagmask {__version__}; ours: `{settings.scores}`."
    train = settings.train
    budget = f"{train.steps} steps" if train.steps else f"{train.epochs:g} epochs"
    return (
        f"tagmask {__version__}; {train.backbone}, {budget} of {train.batch} images each, "
        f"{len(bench.training_images)} images to train on, {settings.random_seeds} random seed(s); "
        f"all settings: `{settings.table}.toml`."
    )
