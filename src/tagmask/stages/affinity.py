"""Train AffinityNet on confident regions, for the random walk that makes pseudo labels (PSA).

The regions are where a class wins against a strong background, and where a weak background still
wins; they come from the maps without affinity, which over-activate less.
"""

import dataclasses
import hashlib
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tagmask import layout
from tagmask.config import AffinitySettings, PseudoSettings, check
from tagmask.data.catalog import Catalog
from tagmask.data.images import is_whole_mask, write_kept_mask
from tagmask.errors import TagmaskError, typed
from tagmask.files import file_size
from tagmask.labels import Picture
from tagmask.layout import label_file, seed_file
from tagmask.masks.crf import SEEDS
from tagmask.masks.labels import check_maps, confident_regions
from tagmask.models.device import chosen_device
from tagmask.notes import CONTENTS, INPUT, Parts
from tagmask.runs import record
from tagmask.runs.images import each_image, share_of
from tagmask.runs.processes import count_processes, launched_shard, single_process
from tagmask.runs.run import Run
from tagmask.stages.seeds import as_float, check_seeds, read_seeds
from tagmask.training.affinity import AffinityTask, build_net
from tagmask.training.loop import Loop, Trained, total_steps


@dataclass
class Prepared:
    """What is left behind for the random walk."""

    folder: Path
    notes: tuple[str, ...] = ()

    def summary(self) -> str:
        """Return lines for the terminal: notes, and where the network is."""
        return "\n".join([*self.notes, f"AffinityNet: {self.folder / layout.MODEL}"])


def is_needed(settings: PseudoSettings) -> bool:
    """Return True if the labels are made by a random walk on AffinityNet."""
    return settings.method == "walk"


def made_from(run: Run, settings: PseudoSettings) -> Parts:
    """Return what AffinityNet is made from; settings that only labelling has do not count.

    Args:
        run: The run.
        settings: Those of the pseudo labels.
    """
    parts: Parts = {}
    seeds = {"seeds": run.out / layout.SEEDS}
    for name, value in record.made_from(settings, seeds).items():
        if name.startswith(("affinity.", "alpha_", "regions", INPUT)):
            parts[name] = value
    return parts


def check_start(_: Run, settings: PseudoSettings) -> None:
    """Refuse weights that do not fit the backbone.

    Args:
        _: The run.
        settings: Those of the labels, and of AffinityNet in them.

    Raises:
        TagmaskError: They do not fit, or cannot be read.
    """
    if settings.affinity.weights is not None:
        build_net(settings.affinity)


def prepare_walk(run: Run, settings: PseudoSettings) -> Prepared:
    """Make confident regions and train AffinityNet, or resume.

    The processes of a whole run share this; of shards that are started by hand the first does it.

    Args:
        run: The run.
        settings: Those of the pseudo labels.

    Raises:
        TagmaskError: There are no seeds, or only another process may train the network.
    """
    chosen_device(settings.device)  # refuses one that is not there, before anything is removed
    catalog = run.catalog
    check_has_seeds(run.out)
    shard, _ = share_of(settings, catalog)
    folder = run.out / layout.AFFINITY
    is_there = (folder / layout.MODEL).is_file()
    is_team = run.team.count > 1
    if not is_team and launched_shard()[1] > 1 and (settings.restart or not is_there):
        raise TagmaskError(
            "AffinityNet is trained by a single process; "
            "run `tagmask pseudo` without accelerate launch first, until "
            f"{folder} holds the network."
        )
    if shard[0] > 0 and not is_team:
        if not is_there:
            raise TagmaskError(
                f"{folder} holds no affinity network yet; let shard 0/{shard[1]} train it first."
            )
        return Prepared(folder)

    skipped = _make_regions(run, settings)
    restart = settings.restart or settings.affinity.restart
    network = dataclasses.replace(settings.affinity, restart=restart)
    with nullcontext() if is_team else single_process():
        trained = train_affinity(catalog, folder / layout.REGIONS, network, folder)
    if not skipped:
        return Prepared(folder, trained.notes)
    note = f"{len(skipped)} images have no confident regions."
    return Prepared(folder, (note, *trained.notes))


def _make_regions(run: Run, settings: PseudoSettings) -> dict[str, str]:
    """Write the confident regions that are not there yet; return the skipped images and why."""
    catalog = run.catalog
    folder = run.out / layout.AFFINITY
    regions = folder / layout.REGIONS
    files = [label_file(regions, catalog.name(i)) for i in range(len(catalog))]
    parts: Parts = {}
    for name, value in run.made_from("affinity", settings).items():
        if name.startswith(("alpha_", "regions", INPUT)):
            parts[name] = value
    regions_record = record.Record(regions, "**/*.png")
    with run.team.first_goes_first():
        regions_record.claim(parts, catalog, "confident regions", settings.restart, files)
    share = run.team.share(len(catalog))
    todo = [i for i in share if not is_whole_mask(files[i])]
    work = partial(write_regions, run.out, catalog, settings)
    quiet = not run.team.is_first
    processes = count_processes(processes_of(settings), len(catalog))
    skipped: dict[str, str] = {}
    for part in run.team.gather(each_image(work, catalog, todo, processes, "regions", quiet)):
        skipped |= part
    if todo and run.team.is_first:
        from tagmask.show.seeds import show_regions

        show_regions(catalog, regions, folder / layout.REGIONS_PICTURE)
    return skipped


def train_affinity(
    catalog: Catalog, regions: Path, settings: AffinitySettings, out: Path
) -> Trained:
    """Train AffinityNet, or resume a training that was stopped.

    Args:
        catalog: Images to train on; those without regions are left out.
        regions: Folder with one PNG of labels per image, named as the image: 0 = surely
            background, c+1 = surely class c, 255 = unsure.
        settings: Settings of the training.
        out: Folder for the network, its log and its resume point.

    Returns:
        What the training loop returns, with a note on images without regions.

    Raises:
        TagmaskError: If none of the images has regions.
    """
    check(settings)
    training, sizes = _with_regions(catalog, regions)
    missing = len(catalog) - len(training)
    notes: tuple[str, ...] = ()
    if missing:
        notes = (f"{missing} of {len(catalog)} images have no confident regions in {regions}.",)
    identity: Parts = {
        **record.made_from(settings),
        **record.places(settings),
        record.IMAGES[0]: training.fingerprint(),
    }
    task = AffinityTask(training, regions, settings)
    identity[f"{INPUT}regions"] = sizes
    files = [label_file(regions, training.name(i)) for i in range(len(training))]
    identity[f"{CONTENTS}regions"] = record.contents_of(files)
    loop = Loop(task, settings, out, identity)
    return loop.train(training, notes)


def _with_regions(catalog: Catalog, regions: Path) -> tuple[Catalog, str]:
    """Return the images that have regions, and a hash that tells one set of regions from another.

    The hash is made from the sizes of the files.
    """
    indices = []
    sizes = []
    for i in range(len(catalog)):
        size = file_size(label_file(regions, catalog.name(i)))
        if size >= 0:
            indices.append(i)
            sizes.append(size)
    if not indices:
        raise TagmaskError(
            f"{regions} holds no regions of these images, named <image>.png; make them first."
        )
    joined = b"".join(size.to_bytes(8, "little") for size in sizes)
    return catalog.subset(indices), hashlib.sha256(joined).hexdigest()[:32]


def write_regions(out: Path, catalog: Catalog, settings: PseudoSettings, i: int) -> None:
    """Write the confident regions of item ``i``.

    They come from the maps without affinity, which over-activate less, unless ``regions`` says
    otherwise.

    Args:
        out: Folder of the run.
        catalog: Images and tags.
        settings: Settings of the stage, with the two strengths of the background.
        i: Index of the image in the catalog.
    """
    image, seeds = read_item(out, catalog, i)
    classes = seeds["classes"].tolist()
    maps = as_float(seeds[settings.regions or "plain"])
    crf = dataclasses.replace(SEEDS, device=chosen_device(settings.device))
    regions = confident_regions(image, classes, maps, settings.alpha_low, settings.alpha_high, crf)
    folder = out / layout.AFFINITY / layout.REGIONS
    write_kept_mask(label_file(folder, catalog.name(i)), regions)


def processes_of(settings: PseudoSettings) -> int | None:
    """Return how many processes label images; None leaves the choice to ``count_processes``."""
    if settings.processes:
        return settings.processes
    return 1 if settings.device == "gpu" else None


def read_item(
    out: Path, catalog: Catalog, i: int, *, decode: bool = True
) -> tuple[Picture, dict[str, Any]]:
    """Read image and seeds of one item.

    Args:
        out: Folder of the run.
        catalog: Images and tags.
        i: Index of the image in the catalog.
        decode: Read the pixels of the image; where nobody looks at them, black ones will do.

    Raises:
        TagmaskError: They are missing, or do not fit together.
    """
    seeds = read_seeds(seed_file(out / layout.SEEDS, catalog.name(i)))
    check_seeds(seeds, catalog)
    if decode:
        image = catalog.load_image(i)
    else:
        height, width = seeds["size"].tolist()
        image = np.zeros((height, width, 3), np.uint8)
    check_maps(image, seeds["classes"].tolist(), seeds["plain"])
    return image, seeds


def check_has_seeds(out: Path) -> None:
    """Raise TagmaskError if there are no seeds in the run's folder ``out``."""
    seeds = out / layout.SEEDS
    if not seeds.is_dir():
        raise TagmaskError(f"{seeds} does not exist; run `tagmask seeds --out {typed(out)}` first.")


def amount(settings: PseudoSettings, photos: int) -> tuple[int, str]:
    """Return how much there is to do, and in which unit.

    Args:
        settings: Those of the pseudo labels.
        photos: How many there are.
    """
    return total_steps(settings.affinity, photos), "steps"
