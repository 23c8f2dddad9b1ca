"""Pseudo labels: one palette PNG per image, from its seeds, by one of three routes (docs/method.md §4).

    walk       confident regions → AffinityNet → random walk → labels        (the paper's, PSA)
    crf        the dense CRF on the maps, nothing to train
    attention  random walk on the classifier's own affinity, nothing to train

The background's score is constant: as set, or chosen without masks from the histogram of the maps that are labelled.
With ``background_power`` it is (1 − highest map)^power and walks along with the maps, as in PSA.

Deviations from PSA and MCTformer's copy of it: maps are stretched after the walk (``stretch``), and a CRF
corrects the labels (``crf``). docs/paper-settings.md lists all settings.
"""

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image as Pillow
from tqdm import tqdm

from tagmask import layout
from tagmask.acr.localize import affinity
from tagmask.config import AffinitySettings, MapSettings, PseudoSettings, check, write_section
from tagmask.data.catalog import Catalog
from tagmask.data.corrections import fix
from tagmask.data.datasets import to_tensor
from tagmask.data.images import write_mask
from tagmask.data.open import open_catalog
from tagmask.errors import TagmaskError
from tagmask.files import file_size, read_object, write_json
from tagmask.inference.maps import block_range, views
from tagmask.inference.probabilities import resized
from tagmask.layout import label_file, seed_file
from tagmask.masks.crf import PRESETS, SEEDS, CrfSettings
from tagmask.masks.grid import stretch, to_cells, to_pixels
from tagmask.masks.labels import agreement, check_maps, confident_regions, label_pixels
from tagmask.masks.walk import from_attention, random_walk, transition
from tagmask.models.affinity_net import STRIDE, AffinityNet
from tagmask.models.classifier import Classifier
from tagmask.models.device import chosen_device
from tagmask.models.kinds import load_classifier
from tagmask.notes import INPUT, Parts
from tagmask.runs import record
from tagmask.runs.images import Image, Made, each_image, is_current, share_of
from tagmask.runs.processes import count_processes, launched_shard, single_process
from tagmask.runs.timing import Probe, timed
from tagmask.scoring.threshold import choosers
from tagmask.stages.seeds import as_float, check_seeds, read_seeds
from tagmask.training.affinity import AffinityTask
from tagmask.training.loop import Loop, Trained

Maps = np.ndarray[Any, np.dtype[np.float32]]  # (k, H, W) in [0, 1]
_SAMPLE = 200  # images on which the background's score is chosen


@dataclass
class Pseudo(Made):
    """What the stage has made."""

    background: float | None = 0.0  # None: it walks along

    def summary(self) -> str:
        *lines, counts = super().summary().splitlines()
        note = (
            [] if self.background is None else [f"score of the background: {self.background:.2f}"]
        )
        return "\n".join([*lines, *note, counts])


def made_from(settings: PseudoSettings) -> Parts:
    """What the labels are made from: the seeds, the classifier whose affinity is walked on, the settings."""
    inputs = {"seeds": settings.out / layout.SEEDS}
    if settings.method == "attention":
        inputs["classifier"] = settings.model or settings.out / layout.CLASSIFIER
    return record.made_from(
        settings, inputs, unused=[] if settings.method == "walk" else ["affinity."]
    )


def make_pseudo(settings: PseudoSettings, catalog: Catalog | None = None) -> Pseudo:
    """Label every image that has seeds and no pseudo label yet."""
    check(settings)
    chosen_device(settings.device)
    catalog = open_catalog(settings) if catalog is None else catalog
    seeds, folder = settings.out / layout.SEEDS, settings.out / layout.PSEUDO
    if not seeds.is_dir():
        raise TagmaskError(
            f"{seeds} does not exist; run `tagmask seeds --out {settings.out}` first."
        )
    shard, indices = share_of(settings, catalog)
    if shard[0] == 0:
        write_section(settings.out / layout.CONFIG, "pseudo", settings)
    notes: tuple[str, ...] = catalog.notes
    parts = made_from(settings)
    if settings.method == "walk":
        notes += _prepare_walk(catalog, settings, shard)
        parts["input network"] = record.file_digest(settings.out / layout.AFFINITY / layout.MODEL)
    labels = {i: label_file(folder, catalog.name(i)) for i in indices}
    files = [folder / layout.BACKGROUND, *labels.values()]
    record.Record(folder, "**/*.png").claim(
        parts, catalog, "pseudo labels", settings.restart, files
    )
    background = _background(catalog, settings, folder)
    todo = [i for i, file in labels.items() if not is_current(file, catalog, i)]
    done = Pseudo(
        "pseudo labels", folder, kept=len(indices) - len(todo), notes=notes, background=background
    )
    work = partial(label_image, catalog, settings, background)
    done.skipped = each_image(work, catalog, todo, _processes(settings), "pseudo", shard[0] > 0)
    done.made = len(todo) - len(done.skipped)
    done.write_skipped(shard)
    return done


def label_image(
    catalog: Catalog, settings: PseudoSettings, background: float | None, i: int
) -> None:
    """Write the pseudo label of item ``i``; a ``background`` of None is made from the maps and walks along."""
    image, seeds = _read(catalog, settings, i)
    classes, crf = seeds["classes"].tolist(), _crf(settings)
    maps = _behind(as_float(seeds[settings.source()]), settings)
    labels = _label(
        image, classes, _route(settings)(image, maps), background, crf, settings.crf_size
    )
    if settings.unsure:
        plain = _behind(as_float(seeds["plain"]), settings)
        labels = agreement(
            labels, _label(image, classes, plain, background, crf, settings.crf_size)
        )
    name, correction = catalog.name(i), catalog.correction_digest(i)
    labels = fix(labels, catalog.load_correction(i), name)
    write_mask(label_file(settings.out / layout.PSEUDO, name), labels, correction=correction)


def _label(
    image: Image,
    classes: list[int],
    maps: Any,
    background: float | None,
    crf: CrfSettings | None,
    size: int | None,
) -> Any:
    """Labels of maps (k, H, W) against a constant, or of (k + 1, H, W) against the first of them.

    With ``size`` the CRF works on a smaller image, and its labels are enlarged.
    """
    if crf is not None and len(maps):
        small, maps = resized(image, maps, size)
        if small.shape != image.shape:
            scaled = crf.at_scale(max(small.shape) / max(image.shape))
            labels = Pillow.fromarray(_label(small, classes, maps, background, scaled, None))
            return np.asarray(labels.resize(image.shape[1::-1], Pillow.Resampling.NEAREST))
    if background is not None:
        return label_pixels(image, classes, maps, background, crf)
    return label_pixels(image, classes, maps[1:], maps[0], crf)


def _crf(settings: PseudoSettings) -> CrfSettings | None:
    """The CRF that sharpens the labels."""
    preset = PRESETS[settings.crf_preset]
    return (
        dataclasses.replace(preset, device=chosen_device(settings.device)) if settings.crf else None
    )


def _processes(settings: PseudoSettings) -> int | None:
    return settings.processes or (1 if settings.device == "gpu" else None)


def _behind(maps: Any, settings: PseudoSettings) -> Any:
    """Maps (k, H, W), with ``background_power`` behind a background of (1 − highest map)^power: (k + 1, H, W)."""
    if settings.background_power is None:
        return maps
    gap = 1 - maps.max(axis=0, initial=0)  # (H, W)
    return np.concatenate([gap[None] ** settings.background_power, maps]).astype(np.float32)


def write_regions(catalog: Catalog, settings: PseudoSettings, i: int) -> None:
    """Write the confident regions of item ``i``, from the maps without affinity, which over-activate less."""
    image, seeds = _read(catalog, settings, i)
    classes, maps = seeds["classes"].tolist(), as_float(seeds["plain"])
    crf = dataclasses.replace(SEEDS, device=chosen_device(settings.device))
    regions = confident_regions(image, classes, maps, settings.alpha_low, settings.alpha_high, crf)
    write_mask(
        label_file(settings.out / layout.AFFINITY / layout.REGIONS, catalog.name(i)), regions
    )


def estimate(probe: Probe) -> float | None:
    """Seconds per image; None for routes whose time depends on a network yet to be trained."""
    settings: PseudoSettings = probe.run.for_stage("pseudo")
    crf = _crf(settings)
    if settings.method != "crf":
        return None
    ramp = np.linspace(0, 1, probe.image.shape[1], dtype=np.float32)
    maps = np.broadcast_to(ramp, (len(probe.classes), *probe.image.shape[:2])).copy()
    seconds = timed(lambda: label_pixels(probe.image, probe.classes, maps, 0.5, crf))
    return (
        seconds
        * (2 if settings.unsure else 1)
        / count_processes(_processes(settings), len(probe.catalog))
    )


def _prepare_walk(
    catalog: Catalog, settings: PseudoSettings, shard: tuple[int, int]
) -> tuple[str, ...]:
    """Make confident regions and train AffinityNet, unless done; only the first shard does this."""
    folder = settings.out / layout.AFFINITY
    regions = folder / layout.REGIONS
    is_there = (folder / layout.MODEL).is_file()
    if launched_shard()[1] > 1 and (settings.restart or not is_there):
        raise TagmaskError(
            "AffinityNet is trained by a single process; run `tagmask pseudo` without accelerate launch first, until "
            f"{folder} holds the network."
        )
    if shard[0] > 0:
        if not is_there:
            raise TagmaskError(
                f"{folder} holds no affinity network yet; let shard 0/{shard[1]} train it first."
            )
        return ()
    files = [label_file(regions, catalog.name(i)) for i in range(len(catalog))]
    parts = {
        name: value
        for name, value in made_from(settings).items()
        if name.startswith(("alpha_", INPUT))
    }
    record.Record(regions, "**/*.png").claim(
        parts, catalog, "confident regions", settings.restart, files
    )
    todo = [i for i, file in enumerate(files) if not file.is_file()]
    work = partial(write_regions, catalog, settings)
    skipped = each_image(work, catalog, todo, _processes(settings), "regions", False)
    if todo:
        from tagmask.show.seeds import show_regions

        show_regions(catalog, regions, folder / layout.REGIONS_PICTURE)
    network = dataclasses.replace(
        settings.affinity, restart=settings.restart or settings.affinity.restart
    )
    with single_process():
        trained = train_affinity(catalog, regions, network, folder)
    _route.cache_clear()
    return (
        *((f"{len(skipped)} images have no confident regions.",) if skipped else ()),
        *trained.notes,
    )


def train_affinity(
    catalog: Catalog, regions: Path, settings: AffinitySettings, out: Path
) -> Trained:
    """Train AffinityNet into the folder ``out``, or resume a training that was stopped.

    ``regions`` holds one PNG of labels per image, named as the image: 0 = surely background, c+1 = surely class c,
    255 = unsure. Images without one are left out.
    """
    check(settings)
    training, sizes = _with_regions(catalog, regions)
    missing = len(catalog) - len(training)
    notes = (
        (f"{missing} of {len(catalog)} images have no confident regions in {regions}.",)
        if missing
        else ()
    )
    identity: Parts = {
        **record.made_from(settings),
        **record.places(settings),
        record.IMAGES[0]: training.fingerprint(),
    }
    loop = Loop(
        AffinityTask(training, regions, settings),
        settings,
        out,
        {**identity, f"{INPUT}regions": sizes},
    )
    return loop.train(training, notes)


def _with_regions(catalog: Catalog, regions: Path) -> tuple[Catalog, str]:
    """The images that have regions, and a hash of the files' sizes that tells one set of regions from another."""
    every = {i: file_size(label_file(regions, catalog.name(i))) for i in range(len(catalog))}
    sizes = {i: size for i, size in every.items() if size >= 0}
    if not sizes:
        raise TagmaskError(
            f"{regions} holds no regions of these images, named <image>.png; make them first."
        )
    joined = b"".join(size.to_bytes(8, "little") for size in sizes.values())
    return catalog.subset(list(sizes)), hashlib.sha256(joined).hexdigest()[:32]


@cache
def _route(settings: PseudoSettings) -> Callable[[Image, Maps], Maps]:
    """What turns the seeds of an image into the maps that are labelled; its network is loaded once per process."""
    if settings.method == "crf":
        return lambda image, maps: maps  # the CRF that labels them does all the work
    device = chosen_device(settings.device)
    if settings.method == "walk":
        net, radius = (
            AffinityNet.load(settings.out / layout.AFFINITY).to(device),
            settings.affinity.radius,
        )
        walk: dict[str, Any] = {
            "beta": settings.beta or 36.0,
            "steps": settings.steps or 64,
            "device": device,
        }
        return partial(net_walk, net=net, radius=radius, stretched=settings.stretches(), **walk)
    model, how = (
        load_classifier(settings.model or settings.out / layout.CLASSIFIER).to(device),
        settings.map_settings(),
    )
    walk = {"beta": settings.beta or 1.0, "steps": settings.steps or 2, "device": device}
    return partial(
        attention_walk, model=model, settings=how, stretched=settings.stretches(), **walk
    )


def net_walk(
    image: Image,
    maps: Maps,
    *,
    net: AffinityNet,
    radius: float,
    beta: float,
    steps: int,
    stretched: bool = True,
    device: str | None = None,
) -> Maps:
    """A random walk on the affinities of AffinityNet, on its grid of 8-pixel cells."""
    if not len(maps):
        return maps
    picture = to_tensor(image).to(net.mean.device).float()[None] / 255  # (1, 3, H, W)
    padding = [max(0, STRIDE - side) for side in picture.shape[-2:]]
    picture = F.pad(picture, (0, padding[1], 0, padding[0]), mode="replicate")
    with torch.inference_mode():
        features = net(net.normalize(picture))[0].cpu().numpy()  # (C, h, w)
    walked = random_walk(to_cells(maps, STRIDE), transition(features, radius, beta), steps, device)
    return _finished(to_pixels(walked, maps.shape[1:], STRIDE), stretched)


def attention_walk(
    image: Image,
    maps: Maps,
    *,
    model: Classifier,
    settings: MapSettings,
    beta: float,
    steps: int,
    stretched: bool = True,
    device: str | None = None,
) -> Maps:
    """A random walk on the classifier's own patch affinity."""
    if not len(maps):
        return maps
    first = next(views(model, to_tensor(image).to(model.mean.device).float()[None] / 255, settings))
    with torch.inference_mode():
        _, attention = model.attend(first.images, block_range(settings.affinity_blocks))
    pairs = affinity(attention, model.class_tokens)[0].cpu().numpy()  # (n, n)
    patch, size = model.patch_size, first.images.shape[-2:]
    resized = F.interpolate(
        torch.from_numpy(maps)[None], first.inner, mode="bilinear", antialias=True
    )[0]
    padded = F.pad(resized, (0, size[1] - first.inner[1], 0, size[0] - first.inner[0]))
    walked = random_walk(
        to_cells(padded.numpy(), patch, True), from_attention(pairs, beta), steps, device
    )
    pixels = torch.from_numpy(to_pixels(walked, (size[0], size[1]), patch, True))
    inner = pixels[None, :, : first.inner[0], : first.inner[1]]
    whole = F.interpolate(inner, maps.shape[1:], mode="bilinear", align_corners=False)[0]
    return _finished(whole.numpy(), stretched)


def _finished(walked: Maps, stretched: bool) -> Maps:
    """Walked maps, stretched to 0 … 1 or only freed of rounding errors beyond it."""
    return (stretch(walked) if stretched else np.clip(walked, 0, 1)).astype(np.float32)


def _background(catalog: Catalog, settings: PseudoSettings, folder: Path) -> float | None:
    """The background's score as set, as chosen before, or chosen now on a sample of the images; None if it walks."""
    if settings.background is not None or settings.background_power is not None:
        return settings.background
    file = folder / layout.BACKGROUND
    if file.is_file() and not settings.restart:
        return float(read_object(file, background=(int, float))["background"])
    chooser = choosers()[settings.rule]
    sample = np.unique(np.linspace(0, len(catalog) - 1, min(_SAMPLE, len(catalog))).astype(int))
    for i in tqdm(sample.tolist(), desc="background", unit="image"):
        try:
            image, seeds = _read(catalog, settings, i)
        except TagmaskError:
            continue  # it is listed when it is labelled
        chooser.add(np.clip(_route(settings)(image, as_float(seeds[settings.source()])), 0, 1))
    chosen = chooser.result()
    write_json(file, {"background": chosen, "rule": settings.rule, "images": len(sample)})
    return chosen


def _read(catalog: Catalog, settings: PseudoSettings, i: int) -> tuple[Image, dict[str, Any]]:
    """Image and seeds of item ``i``; a sentence if they do not fit together."""
    seeds = read_seeds(seed_file(settings.out / layout.SEEDS, catalog.name(i)))
    check_seeds(seeds, catalog)
    image = catalog.load_image(i)
    check_maps(image, seeds["classes"].tolist(), seeds["plain"])
    return image, seeds
