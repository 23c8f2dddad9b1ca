"""One table or figure: check, run what is not done, write."""

from pkgutil import resolve_name

import torch

from tagmask import __version__
from tagmask.config import check, parse_shard
from tagmask.config.paper import PaperSettings, write_paper_config
from tagmask.errors import TagmaskError
from tagmask.paper.bench import Bench, PartDoneError
from tagmask.paper.names import NAMES, NO_TRAINING
from tagmask.paper.page import Written, write
from tagmask.stages.pool import launched_shard, single_process


def run_paper(settings: PaperSettings) -> Written:
    """Make one table or figure; trainings and scores that are in the folder already are not repeated."""
    check(settings)
    if settings.table not in NAMES:
        raise TagmaskError(
            f"there is no table or figure {settings.table!r}; choose from {', '.join(NAMES)}."
        )
    _check_options(settings)
    entry, (part, parts) = NAMES[settings.table], _part(settings)
    if part and entry.needs == NO_TRAINING:
        return Written(f"part {part} of {parts}: {settings.table} has no training to share out.")
    bench = Bench(settings, (part, parts))
    if settings.scores is None:
        bench.check_masks(entry.masks)
    if not part:
        write_paper_config(settings.out / f"{settings.table}.toml", settings)
    with single_process():  # each training is one process, also under a launch
        try:
            made = resolve_name(f"tagmask.paper.{entry.maker}")(bench)
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
    """The part of the trainings that this process begins with, and how many parts there are; selects its device."""
    if settings.shard is not None:
        return parse_shard(settings.shard) or (0, 1)
    part, parts = launched_shard()
    if parts > 1 and torch.cuda.is_available():
        torch.cuda.set_device(part % torch.cuda.device_count())
    return part, parts


def how(bench: Bench) -> str:
    """What was run, in a sentence."""
    settings = bench.settings
    train = settings.train
    if settings.scores is not None:
        return f"tagmask {__version__}; ours: `{settings.scores}`."
    budget = f"{train.steps} steps" if train.steps else f"{train.epochs:g} epochs"
    return (
        f"tagmask {__version__}; {train.backbone}, {budget} of {train.batch} images each, {len(bench.training_images)} "
        f"images to train on, {settings.random_seeds} random seed(s); all settings: `{settings.table}.toml`."
    )
