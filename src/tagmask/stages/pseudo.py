"""Pseudo labels: one palette PNG per image, from its seeds, by one of three routes (docs/method.md §4).

    walk       confident regions → AffinityNet → random walk → labels        (the paper's, PSA)
    crf        the dense CRF on the maps, nothing to train
    attention  random walk on the classifier's own affinity, nothing to train

The background's score is constant. The paper sets it to 0.55; by default it is chosen without masks, from the
histogram of the maps that are labelled. Every step can be stopped and goes on when it is started again.
"""

import dataclasses
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from tagmask.config import PseudoSettings, check, parse_shard, write_section
from tagmask.data.catalog import Catalog
from tagmask.data.images import read_mask, write_mask
from tagmask.data.open import open_catalog
from tagmask.errors import ImageError, TagmaskError
from tagmask.files import read_object, write_json
from tagmask.masks.crf import PRESETS
from tagmask.masks.labels import agreement, check_maps, confident_regions, label_pixels
from tagmask.models.affinity_net import AffinityNet
from tagmask.models.kinds import load_classifier
from tagmask.scoring.threshold import choosers
from tagmask.stages.maps import Image
from tagmask.stages.pool import pool
from tagmask.stages.resume import check_identity, file_digest, launched_shard, maker, single_process, told_skipped
from tagmask.stages.seeds import FOLDER as SEED_FOLDER
from tagmask.stages.seeds import read_seeds, seed_file
from tagmask.stages.spread import AttentionWalk, Maps, NetWalk, Route, Unchanged
from tagmask.training.affinity import train_affinity
from tagmask.training.classifier import FOLDER as CLASSIFIER_FOLDER

FOLDER = "4_pseudo"
AFFINITY_FOLDER = "3_affinity"
REGION_FOLDER = "regions"
BACKGROUND = "background.json"
_SAMPLE = 200  # images on which the background's score is chosen


@dataclass
class Pseudo:
    """What the stage did."""

    folder: Path
    made: int
    kept: int
    background: float
    skipped: dict[str, str] = field(default_factory=dict)  # name: why
    notes: tuple[str, ...] = ()

    def summary(self) -> str:
        lines = [*self.notes, *told_skipped(self.skipped)]
        lines.append(f"score of the background: {self.background:.2f}")
        return "\n".join([*lines, f"pseudo labels: {self.made} made, {self.kept} were there already, in {self.folder}"])


def make_pseudo(settings: PseudoSettings) -> Pseudo:
    """Label every image that has seeds and no pseudo label yet."""
    check(settings)
    catalog = open_catalog(settings)
    if not (settings.out / SEED_FOLDER).is_dir():
        raise TagmaskError(
            f"{settings.out / SEED_FOLDER} does not exist; run `tagmask seeds --out {settings.out}` first."
        )
    shard = (parse_shard(settings.shard) if settings.shard else None) or launched_shard()
    if shard[0] == 0:
        write_section(settings.out / "config.toml", "pseudo", settings)
    notes: tuple[str, ...] = catalog.notes
    if settings.method == "walk":
        notes += _prepare_walk(catalog, settings, shard)
    folder = settings.out / FOLDER
    own = range(shard[0], len(catalog), shard[1])
    files = [folder / BACKGROUND, *(label_file(folder, catalog.name(i)) for i in own)]
    check_identity(
        folder, {**_identity(settings), "classes": list(catalog.classes)}, settings.restart, "pseudo labels", files
    )
    background = _background(catalog, settings, folder)
    todo = [i for i in own if not _is_whole(folder, catalog, i)]
    done = Pseudo(folder, 0, len(own) - len(todo), background, notes=notes)
    work = partial(label_image, catalog, settings, background)
    done.skipped = _each(work, catalog, todo, settings.processes, "pseudo", shard[0] > 0)
    done.made = len(todo) - len(done.skipped)
    if done.skipped:
        write_json(folder / f"skipped_{shard[0]}_of_{shard[1]}.json", done.skipped)
    return done


def label_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.png"


def label_image(catalog: Catalog, settings: PseudoSettings, background: float, i: int) -> None:
    """Write the pseudo label of item ``i``."""
    image, seeds = _read(catalog, settings, i)
    classes, crf = seeds["classes"].tolist(), PRESETS[settings.crf_preset] if settings.crf else None
    maps = _route(settings).spread(image, _float(seeds[settings.source()]))
    labels = label_pixels(image, classes, maps, background, crf)
    if settings.unsure:
        labels = agreement(labels, label_pixels(image, classes, _float(seeds["plain"]), background, crf))
    write_mask(label_file(settings.out / FOLDER, catalog.name(i)), labels)


def write_regions(catalog: Catalog, settings: PseudoSettings, i: int) -> None:
    """Write the confident regions of item ``i``, from the maps without affinity: those over-activate less."""
    image, seeds = _read(catalog, settings, i)
    classes, maps = seeds["classes"].tolist(), _float(seeds["plain"])
    sure = confident_regions(image, classes, maps, settings.alpha_low, settings.alpha_high)
    write_mask(label_file(settings.out / AFFINITY_FOLDER / REGION_FOLDER, catalog.name(i)), sure)


def _prepare_walk(catalog: Catalog, settings: PseudoSettings, shard: tuple[int, int]) -> tuple[str, ...]:
    """Confident regions and AffinityNet, where they are not there yet; other shards wait for the first one's."""
    folder = settings.out / AFFINITY_FOLDER
    regions = folder / REGION_FOLDER
    is_there = (folder / "model.safetensors").is_file()
    if launched_shard()[1] > 1 and (settings.restart or not is_there):
        raise TagmaskError(
            "AffinityNet is trained by one process; start `tagmask pseudo` without accelerate launch, or with it once "
            f"{folder} holds the network."
        )
    if shard[0] > 0:
        if not is_there:
            raise TagmaskError(f"{folder} holds no affinity network yet; let shard 0/{shard[1]} train it first.")
        return ()
    identity = {"seeds": maker(settings.out / SEED_FOLDER), "low": settings.alpha_low, "high": settings.alpha_high}
    files = [label_file(regions, catalog.name(i)) for i in range(len(catalog))]
    check_identity(regions, identity, settings.restart, "confident regions", files)
    todo = [i for i, file in enumerate(files) if not file.is_file()]
    skipped = _each(partial(write_regions, catalog, settings), catalog, todo, settings.processes, "regions", False)
    if todo:
        from tagmask.show.regions import show_regions

        show_regions(catalog, regions, folder / "regions.png")
    own = dataclasses.replace(settings.affinity, restart=settings.restart or settings.affinity.restart)
    with single_process():
        trained = train_affinity(catalog, regions, own, folder)
    _route.cache_clear()
    return (*((f"{len(skipped)} images have no confident regions.",) if skipped else ()), *trained.notes)


@cache
def _route(settings: PseudoSettings) -> Route:
    """The route of these settings, its network loaded once per process."""
    if settings.method == "crf":
        return Unchanged()
    if settings.method == "walk":
        net = AffinityNet.load(settings.out / AFFINITY_FOLDER)
        return NetWalk(net, settings.affinity.radius, settings.beta or 36.0, settings.steps or 64)
    model = load_classifier(settings.model or settings.out / CLASSIFIER_FOLDER)
    return AttentionWalk(model, settings.map_settings(), settings.beta or 1.0, settings.steps or 2)


def _background(catalog: Catalog, settings: PseudoSettings, folder: Path) -> float:
    """The background's score as set, as chosen before, or chosen now on a sample of the images."""
    if settings.background is not None:
        return settings.background
    file = folder / BACKGROUND
    if file.is_file() and not settings.restart:
        return float(read_object(file, "background")["background"])
    chooser = choosers()[settings.rule]
    sample = np.unique(np.linspace(0, len(catalog) - 1, min(_SAMPLE, len(catalog))).astype(int))
    for i in tqdm(sample.tolist(), desc="background", unit="image"):
        try:
            image, seeds = _read(catalog, settings, i)
        except TagmaskError:
            continue  # told when its turn to be labelled comes
        chooser.add(np.clip(_route(settings).spread(image, _float(seeds[settings.source()])), 0, 1))
    chosen = chooser.result()
    write_json(file, {"background": chosen, "rule": settings.rule, "images": len(sample)})
    return chosen


def _read(catalog: Catalog, settings: PseudoSettings, i: int) -> tuple[Image, dict[str, Any]]:
    """Image and seeds of item ``i``; a sentence where they do not belong together."""
    seeds = read_seeds(seed_file(settings.out / SEED_FOLDER, catalog.name(i)))
    image = catalog.load_image(i)
    check_maps(image, seeds["classes"].tolist(), seeds["plain"])
    return image, seeds


def _float(maps: np.ndarray[Any, Any]) -> Maps:
    """Maps as stored to numbers from 0 to 1."""
    return maps.astype(np.float32) / np.float32(255 if maps.dtype == np.uint8 else 1)


def _each(work: Any, catalog: Catalog, todo: list[int], processes: int, name: str, quiet: bool) -> dict[str, str]:
    """Do ``work`` for each image, on one thread per process; what could not be done is returned with its reason."""
    skipped: dict[str, str] = {}
    with tqdm(total=len(todo), desc=name, unit="image", disable=quiet) as bar:
        if processes == 1:
            results = map(partial(_attempt, work), todo)
            for i, why in zip(todo, results, strict=True):
                skipped |= {catalog.name(i): why} if why else {}
                bar.update()
            return skipped
        with pool(processes, _one_thread) as each:
            for i, why in zip(todo, each(partial(_attempt, work), todo, chunksize=8), strict=True):
                skipped |= {catalog.name(i): why} if why else {}
                bar.update()
    return skipped


def _attempt(work: Any, i: int) -> str:
    """Why item ``i`` could not be done; empty where it was."""
    try:
        work(i)
    except TagmaskError as error:
        return str(error)
    return ""


def _one_thread() -> None:
    torch.set_num_threads(1)


def _is_whole(folder: Path, catalog: Catalog, i: int) -> bool:
    try:
        read_mask(label_file(folder, catalog.name(i)), len(catalog.classes))
    except ImageError:
        return False
    return True


def _identity(settings: PseudoSettings) -> dict[str, Any]:
    """What makes these labels: the seeds, the network of the route and every setting that changes a pixel."""
    names = ("method", "maps", "crf", "crf_preset", "unsure", "background", "rule", "beta", "steps")
    found: dict[str, Any] = {
        "seeds": maker(settings.out / SEED_FOLDER),
        **{name: getattr(settings, name) for name in names},
    }
    if settings.method == "walk":
        found["network"] = file_digest(settings.out / AFFINITY_FOLDER / "model.safetensors")
    if settings.method == "attention":
        model = settings.model or settings.out / CLASSIFIER_FOLDER
        blocks = list(settings.affinity_blocks) if settings.affinity_blocks else None
        found |= {"network": file_digest(model / "model.safetensors"), "affinity_blocks": blocks, "size": settings.size}
    return found
