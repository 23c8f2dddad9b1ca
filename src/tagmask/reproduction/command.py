"""One table or figure: check, run what is not done, write."""

from pathlib import Path
from pkgutil import resolve_name

import torch

from tagmask.config import TrainSettings, check, parse_shard
from tagmask.config.paper import PREDICTING, PaperSettings, write_paper_config
from tagmask.errors import TagmaskError
from tagmask.reproduction.bench import Bench, PartDoneError
from tagmask.reproduction.measures import budget
from tagmask.reproduction.names import CONSISTENCY, NAMES, NO_TRAINING
from tagmask.reproduction.overview import Overview
from tagmask.reproduction.page import Figure, Written, write
from tagmask.reproduction.seed_tables import MCT_TABLES, mct_variants
from tagmask.reproduction.table import Table
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
    bench = Bench(settings, _part(settings))
    try:
        made = make(bench)
    except PartDoneError as done:
        return Written(str(done))
    return write(made, settings.out, sentence(bench))


def make(bench: Bench) -> Table | Figure | Overview:
    """Make one table or figure, and write the settings that it is made with.

    Args:
        bench: Gives the settings, with the table's name, and the part of the trainings.

    Raises:
        PartDoneError: This process has done its share, and part 0 makes the table.
        TagmaskError: The table has no such name, an option does not belong to it, or it cannot be
            made of these data.
    """
    settings = bench.settings
    table = settings.table
    if table not in NAMES:
        raise TagmaskError(
            f"there is no table or figure {table!r}; choose from {', '.join(NAMES)}."
        )
    _check_options(settings)
    _check_rows(settings)
    entry = NAMES[table]
    part, parts = bench.shard
    if part and entry.needs == NO_TRAINING:
        raise PartDoneError(f"part {part} of {parts}: {table} has no training to share out.")
    if settings.scores is None:
        bench.check_masks(entry.masks)
    _check_trained(bench)
    if not part:
        write_paper_config(settings.out / f"{table}.toml", settings)
    # each training is one process, also under a launch
    with single_process():
        try:
            maker = resolve_name(f"tagmask.reproduction.{entry.maker}")
            made: Table | Figure | Overview = maker(bench)
        except PartDoneError as done:
            raise PartDoneError(f"{done} Part 0 makes the table.") from None
    return made


def _check_options(settings: PaperSettings) -> None:
    """Refuse options that the table would ignore."""
    for name in ("rows", "scores"):
        tables = [table for table, entry in NAMES.items() if getattr(entry, name)]
        if getattr(settings, name) and settings.table not in tables:
            raise TagmaskError(
                f"--{name} belongs to {', '.join(tables)}; leave it out for {settings.table}."
            )


def _check_rows(settings: PaperSettings) -> None:
    """Refuse settings with which the rows or the numbers would not be what their titles say.

    Raises:
        TagmaskError: A row called ACR would be the baseline or have one consistency alone, or
            images trained on would be called val.
    """
    table = settings.table
    train = settings.of(TrainSettings)
    weights = {"alpha": train.alpha, "beta": train.beta}
    missing = [name for name, weight in weights.items() if not weight]
    if table in CONSISTENCY and len(missing) == 2:
        raise TagmaskError(
            f"{table} is about the consistency losses, and --train.alpha and --train.beta are 0; "
            "give --train.alpha 100 --train.beta 100 --train.view hflip or, for MCTformer by its "
            "own recipe beside ACR, --preset voc-deit-s-paper."
        )
    if table in CONSISTENCY and missing:
        other = max(weights.values())
        raise TagmaskError(
            f"{table} compares trainings with ACR's, which has both consistency losses, and "
            f"--train.{missing[0]} is 0; give --train.{missing[0]} {other:g}, or a preset that "
            "has both."
        )
    is_val_missing = settings.score_images is None or settings.score_annotations is None
    if settings.data == "coco" and table in PREDICTING and not settings.scores and is_val_missing:
        raise TagmaskError(
            f"{table} is about COCO's val; give its photos and annotations with --score-images and "
            "--score-annotations, otherwise images that were trained on would be scored."
        )


def _check_trained(bench: Bench) -> None:
    """Refuse a comparison of trainings that are none.

    Raises:
        TagmaskError: There are too few photos to train on, so all rows would be alike.
    """
    table = bench.settings.table
    train = bench.settings.of(TrainSettings)
    if table not in CONSISTENCY or not train.train_from:
        return
    count = len(bench.training_images)
    if count < train.train_from:
        raise TagmaskError(
            f"{table} compares trainings, and with {count} photos nothing is trained "
            f"(--train.train-from {train.train_from}); give --train.train-from 0, and "
            "--train.no-earn to keep trainings that do not help."
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


def sentence(bench: Bench) -> str:
    """Say in a sentence what was run."""
    settings = bench.settings
    if NAMES[settings.table].needs == NO_TRAINING:
        return f"tagmask {__version__}; no training; all settings: `{settings.table}.toml`."
    if settings.scores is not None:
        return f"tagmask {__version__}; ours: `{settings.scores}`."
    seeds = settings.random_seeds
    return (
        f"tagmask {__version__}; {_trainings(bench)}, "
        f"{len(bench.training_images)} images to train on, "
        f"{seeds} random seed{'s' if seeds > 1 else ''}; "
        f"all settings: `{settings.table}.toml`."
    )


def _trainings(bench: Bench) -> str:
    """Say what is trained for how long; of two recipes, which is whose."""
    settings = bench.settings
    if not settings.mct_recipe or settings.table not in MCT_TABLES:
        train = settings.of(TrainSettings)
        return f"{train.backbone}, {budget(train)} each"
    changes = mct_variants(bench)
    # the figure has ACR as the preset trains it
    acr = changes["acr"] if settings.table == "backbones" else {}
    recipes = []
    for name, changed in (("ACR", acr), ("MCTformer", changes["mct"])):
        train = settings.run(Path(), changes=changed).of(TrainSettings)
        recipes.append(f"{name}: {train.backbone}, {budget(train)}")
    return "; ".join(recipes)
