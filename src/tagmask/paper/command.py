"""One table or figure: check, run what is not done, write."""

from collections.abc import Callable, Mapping

from tagmask import __version__
from tagmask.config import check
from tagmask.config.paper import PaperSettings, write_paper_config
from tagmask.errors import TagmaskError
from tagmask.paper import computation, figures, label_tables, seed_tables
from tagmask.paper.bench import Bench
from tagmask.paper.names import NAMES, WITH_ROWS
from tagmask.paper.page import Figure, Written, write
from tagmask.paper.table import Table
from tagmask.stages.pool import launched_shard

MAKERS: Mapping[str, Callable[[Bench], Table | Figure]] = {
    "ablation": seed_tables.ablation,
    "methods": seed_tables.methods,
    "backbones": seed_tables.backbones,
    "augmentations": seed_tables.augmentations,
    "distances": seed_tables.distances,
    "layers": seed_tables.layers,
    "computation": computation.computation,
    "pseudo": label_tables.pseudo,
    "segmentation": label_tables.segmentation,
    "maps": figures.maps,
    "multi-class": figures.multi_class,
    "affinity": figures.affinity,
    "source-pixels": figures.source_pixels,
    "examples": figures.examples,
}


def run_paper(settings: PaperSettings) -> Written:
    """Make one table or figure; trainings and scores that are in the folder already are found again."""
    check(settings)
    if settings.table not in NAMES:
        raise TagmaskError(f"there is no table or figure {settings.table!r}; choose from {', '.join(NAMES)}.")
    if settings.rows and settings.table not in WITH_ROWS:
        raise TagmaskError(f"--rows belongs to {', '.join(WITH_ROWS)}; leave it out for {settings.table}.")
    if launched_shard()[1] > 1:
        raise TagmaskError("tagmask paper is one process; start it without accelerate launch.")
    bench = Bench(settings)
    bench.check_masks(NAMES[settings.table].masks)
    write_paper_config(settings.out / f"{settings.table}.toml", settings)
    return write(MAKERS[settings.table](bench), settings.out, how(bench))


def how(bench: Bench) -> str:
    """What was run, in a sentence."""
    settings = bench.settings
    train = settings.train
    budget = f"{train.steps} steps" if train.steps else f"{train.epochs:g} epochs"
    return (
        f"tagmask {__version__}; {train.backbone}, {budget} of {train.batch} images each, {len(bench.training_images)} "
        f"images to train on, {settings.random_seeds} random seed(s); all settings: `{settings.table}.toml`."
    )
