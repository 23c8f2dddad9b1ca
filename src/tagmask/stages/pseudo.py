"""Pseudo labels: one palette PNG per image, from its seeds, by one of three routes.

docs/explanation/method.md §4 describes the routes:

    walk       confident regions → AffinityNet → random walk → labels        (the paper's, PSA)
    crf        the dense CRF on the maps, nothing to train
    attention  random walk on the classifier's own affinity, nothing to train

The background's score is constant: as set, or chosen without masks from the histogram of the maps
that are labelled. With ``background_power`` it is (1 − highest map)^power and walks along with the
maps, as in PSA.

Deviations from PSA and MCTformer's copy of it: maps are stretched after the walk (``stretch``), and
a CRF corrects the labels (``crf``). docs/reference/paper-settings.md lists all settings.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image as Pillow

from tagmask import layout
from tagmask.acr.localize import affinity
from tagmask.config import MapSettings, PseudoSettings
from tagmask.data.catalog import Catalog
from tagmask.data.corrections import fix
from tagmask.data.datasets import to_tensor
from tagmask.data.images import write_mask
from tagmask.errors import TagmaskError
from tagmask.files import read_object, write_json
from tagmask.inference.maps import block_range, views
from tagmask.inference.probabilities import resized
from tagmask.labels import UNSURE, MapArray, Mask, Picture
from tagmask.layout import label_file
from tagmask.masks.crf import PRESETS, CrfSettings
from tagmask.masks.grid import stretch, to_cells, to_pixels
from tagmask.masks.labels import agreement, label_pixels
from tagmask.masks.walk import from_attention, random_walk, transition
from tagmask.models.affinity_net import STRIDE, AffinityNet
from tagmask.models.classifier import Classifier
from tagmask.models.device import chosen_device
from tagmask.models.kinds import load_classifier
from tagmask.notes import Parts
from tagmask.progress import track
from tagmask.runs import record
from tagmask.runs.images import Made, each_image, is_current, share_of
from tagmask.runs.memory import of_pool
from tagmask.runs.processes import count_processes, few_threads
from tagmask.runs.run import Run
from tagmask.runs.timing import Probe, timed
from tagmask.scoring.threshold import choosers
from tagmask.stages.affinity import check_has_seeds, processes_of, read_item
from tagmask.stages.seeds import as_float

LEAST_SURE = 0.1  # share of the pixels of a class that must be sure; otherwise all count
SURELY_NONE = 0.02  # background stays background where no map is above this
_SAMPLE = 200  # images on which the background's score is chosen


@dataclass
class Pseudo(Made):
    """The pseudo labels that the stage has made."""

    background: float | None = 0.0  # None: it walks along

    def summary(self) -> str:
        """Return lines for the terminal; the counts come last."""
        *lines, counts = super().summary().splitlines()
        if self.background is not None:
            lines.append(f"score of the background: {self.background:.2f}")
        lines.append(counts)
        return "\n".join(lines)


def made_from(run: Run, settings: PseudoSettings) -> Parts:
    """Return what the labels are made from: settings, seeds, perhaps a classifier.

    Args:
        run: The run.
        settings: Those of the stage.
    """
    inputs = {"seeds": run.out / layout.SEEDS}
    if settings.method == "attention":
        inputs["classifier"] = settings.model or run.out / layout.CLASSIFIER
    unused = [] if settings.method == "walk" else ["affinity."]
    return record.made_from(settings, inputs, unused=unused)


def make_pseudo(run: Run, settings: PseudoSettings) -> Pseudo:
    """Label every image that has seeds and no pseudo label yet.

    Args:
        run: The run; for a walk it has AffinityNet.
        settings: Settings of the stage.

    Returns:
        How many labels were made, which images were skipped, and the background's score.

    Raises:
        TagmaskError: There are no seeds, or AffinityNet is missing.
    """
    chosen_device(settings.device)
    catalog = run.catalog
    out = run.out
    folder = out / layout.PSEUDO
    check_has_seeds(out)
    # a route that was used before holds the network of an earlier training
    _route.cache_clear()
    shard, indices = share_of(settings, catalog)
    if shard[0] == 0:
        run.keep(settings)

    parts = run.made_from("pseudo", settings)
    if settings.method == "walk":
        parts["input network"] = record.file_digest(out / layout.AFFINITY / layout.MODEL)

    labels = {i: label_file(folder, catalog.name(i)) for i in indices}
    files = [folder / layout.BACKGROUND, *labels.values()]
    labels_record = record.Record(folder, "**/*.png")
    with run.team.first_goes_first():
        labels_record.claim(parts, catalog, "pseudo labels", settings.restart, files)
        # the first process chooses it, the others read its choice
        background = _background(out, catalog, settings)

    todo = [i for i, file in labels.items() if not is_current(file, catalog, i)]
    kept = len(indices) - len(todo)
    done = Pseudo("pseudo labels", folder, kept=kept, notes=catalog.notes, background=background)
    work = partial(label_image, out, catalog, settings, background)
    quiet = shard[0] > 0
    processes = count_processes(processes_of(settings), len(catalog))
    with few_threads(len(catalog)):
        done.skipped = each_image(work, catalog, todo, processes, "pseudo", quiet)
    done.made = len(todo) - len(done.skipped)
    done.finish(run.team, shard, catalog)
    return done


def label_image(
    out: Path, catalog: Catalog, settings: PseudoSettings, background: float | None, i: int
) -> None:
    """Write the pseudo label of item ``i``.

    Args:
        out: Folder of the run.
        catalog: Images, tags and corrections.
        settings: Settings of the stage.
        background: Score of the background in [0, 1]; None makes it from the maps, and it walks
            along with them.
        i: Index of the image in the catalog.
    """
    looks_at_pixels = settings.crf or settings.method != "crf"
    image, seeds = read_item(out, catalog, i, decode=looks_at_pixels)
    classes = seeds["classes"].tolist()
    crf = _crf(settings)
    maps = _with_background(as_float(seeds[settings.source()]), settings)
    refined = _route(out, settings)(image, maps)
    labels = _label(image, classes, refined, background, crf, settings.crf_size)
    if settings.unsure:
        plain = _with_background(as_float(seeds["plain"]), settings)
        other = _label(image, classes, plain, background, crf, settings.crf_size)
        labels = sure_labels(labels, other, refined)
    name = catalog.name(i)
    correction = catalog.correction_digest(i)
    labels = fix(labels, catalog.load_correction(i), name)
    file = label_file(out / layout.PSEUDO, name)
    write_mask(file, labels, correction=correction)


def sure_labels(labels: Mask, other: Mask, maps: MapArray) -> Mask:
    """Return the labels on which two kinds of maps agree, 255 elsewhere.

    Background that no map claims stays background: where the surroundings give a tag away, the
    evidence of the tag lies on them, and without this nothing would teach what background is.
    A class that would lose nearly all of its pixels keeps them: nothing could be learned of it.

    Args:
        labels: Labels (H, W).
        other: Labels (H, W) by the other maps.
        maps: The maps (k, H, W) in [0, 1] that the labels come from.
    """
    sure = agreement(labels, other)
    is_unclaimed = maps.max(axis=0, initial=0) < SURELY_NONE  # (H, W)
    sure[(labels == 0) & is_unclaimed] = 0
    for label in np.unique(labels):
        is_here = labels == label
        share = float((sure[is_here] == label).mean())
        if label not in (0, UNSURE) and share < LEAST_SURE:
            sure[is_here] = label
    return sure


def _label(
    image: Picture,
    classes: list[int],
    maps: Any,
    background: float | None,
    crf: CrfSettings | None,
    size: int | None,
) -> Any:
    """Label the pixels by maps (k, H, W) against a constant, or by (k + 1, H, W) against the first.

    With ``size`` the CRF works on a smaller image, and its labels are enlarged.
    """
    if crf is not None and len(maps):
        small, maps = resized(image, maps, size)
        if small.shape != image.shape:
            scaled = crf.at_scale(max(small.shape) / max(image.shape))
            labels = Pillow.fromarray(_label(small, classes, maps, background, scaled, None))
            width_height = image.shape[1::-1]
            return np.asarray(labels.resize(width_height, Pillow.Resampling.NEAREST))
    if background is not None:
        return label_pixels(image, classes, maps, background, crf)
    return label_pixels(image, classes, maps[1:], maps[0], crf)


def _crf(settings: PseudoSettings) -> CrfSettings | None:
    """Return the CRF that sharpens the labels, None if they stay as they are."""
    preset = PRESETS[settings.crf_preset]
    if not settings.crf:
        return None
    return dataclasses.replace(preset, device=chosen_device(settings.device))


def _with_background(maps: Any, settings: PseudoSettings) -> Any:
    """Put a background of (1 − highest map)^power before the maps (k, H, W), if a power is set."""
    power = settings.background_power
    if power is None:
        return maps
    gap = 1 - maps.max(axis=0, initial=0)  # (H, W)
    background = gap[None] ** power  # (1, H, W)
    return np.concatenate([background, maps]).astype(np.float32)  # (k + 1, H, W)


def estimate(probe: Probe) -> float | None:
    """Return seconds per image; None if they depend on a network yet to be trained."""
    settings = probe.run.of(PseudoSettings)
    crf = _crf(settings)
    if settings.method != "crf":
        return None
    height, width = probe.image.shape[:2]
    ramp = np.linspace(0, 1, width, dtype=np.float32)
    maps = np.broadcast_to(ramp, (len(probe.classes), height, width)).copy()
    seconds = timed(lambda: label_pixels(probe.image, probe.classes, maps, 0.5, crf))
    passes = 2 if settings.unsure else 1
    return seconds * passes / count_processes(processes_of(settings), len(probe.catalog))


def memory(probe: Probe, one: float) -> float:
    """Return the bytes of the stage.

    Args:
        probe: Settings and an image.
        one: Bytes of a process that labels a photo.
    """
    settings = probe.run.of(PseudoSettings)
    return of_pool(one, count_processes(processes_of(settings), len(probe.catalog)))


@cache
def _route(out: Path, settings: PseudoSettings) -> Callable[[Picture, MapArray], MapArray]:
    """Return what turns the seeds of an image into the maps that are labelled.

    Its network is loaded once per process.
    """
    if settings.method == "crf":
        # the CRF that labels the maps does all the work
        return lambda image, maps: maps
    device = chosen_device(settings.device)
    if settings.method == "walk":
        return partial(
            net_walk,
            net=AffinityNet.load(out / layout.AFFINITY).to(device),
            radius=settings.affinity.radius,
            beta=settings.beta or 36.0,
            steps=settings.steps or 64,
            stretched=settings.stretches(),
            device=device,
        )
    model = load_classifier(settings.model or out / layout.CLASSIFIER)
    return partial(
        attention_walk,
        model=model.to(device),
        settings=settings.map_settings(),
        beta=settings.beta or 1.0,
        steps=settings.steps or 2,
        stretched=settings.stretches(),
        device=device,
    )


def net_walk(
    image: Picture,
    maps: MapArray,
    *,
    net: AffinityNet,
    radius: float,
    beta: float,
    steps: int,
    stretched: bool = True,
    device: str | None = None,
) -> MapArray:
    """Walk at random on the affinities of AffinityNet, on its grid of 8-pixel cells.

    Args:
        image: Photo (H, W, 3) uint8.
        maps: Localisation maps (k, H, W) in [0, 1].
        net: Network whose features give the affinities.
        radius: Distance in cells below which two cells are neighbours.
        beta: Power of the affinities; the larger, the less weak ones count.
        steps: Number of steps.
        stretched: Stretch each map to 0 … 1 afterwards.
        device: Where torch takes the steps, e.g. "cuda"; None takes them without torch.

    Returns:
        Walked maps (k, H, W) in [0, 1].
    """
    if not len(maps):
        return maps
    picture = to_tensor(image).to(net.mean.device).float()[None] / 255  # (1, 3, H, W)
    # the network needs one whole cell at least
    height, width = picture.shape[-2:]
    below = max(0, STRIDE - height)
    right = max(0, STRIDE - width)
    picture = F.pad(picture, (0, right, 0, below), mode="replicate")
    with torch.inference_mode():
        features = net(net.normalize(picture))[0].cpu().numpy()  # (C, h, w)
    cells = to_cells(maps, STRIDE)  # (k, h, w)
    walked = random_walk(cells, transition(features, radius, beta), steps, device)  # (k, h, w)
    return _finished(to_pixels(walked, maps.shape[1:], STRIDE), stretched)


def attention_walk(
    image: Picture,
    maps: MapArray,
    *,
    model: Classifier,
    settings: MapSettings,
    beta: float,
    steps: int,
    stretched: bool = True,
    device: str | None = None,
) -> MapArray:
    """Walk at random on the classifier's own patch affinity.

    Args:
        image: Photo (H, W, 3) uint8.
        maps: Localisation maps (k, H, W) in [0, 1].
        model: Classifier whose attention gives the affinities.
        settings: Size of the image and blocks whose attention is taken.
        beta: Power of the affinities; the larger, the less weak ones count.
        steps: Number of steps.
        stretched: Stretch each map to 0 … 1 afterwards.
        device: Where torch takes the steps, e.g. "cuda"; None takes them without torch.

    Returns:
        Walked maps (k, H, W) in [0, 1].
    """
    if not len(maps):
        return maps
    picture = to_tensor(image).to(model.mean.device).float()[None] / 255  # (1, 3, H, W)
    first = next(views(model, picture, settings))
    with torch.inference_mode():
        _, attention = model.attend(first.images, block_range(settings.affinity_blocks))
    pairs = affinity(attention, model.class_tokens)[0].cpu().numpy()  # (n, n)

    # the view is the image at the inner size, padded to whole patches
    patch = model.patch_size
    height, width = first.images.shape[-2:]
    inner_height, inner_width = first.inner
    given = torch.from_numpy(maps)[None]  # (1, k, H, W)
    small = F.interpolate(given, first.inner, mode="bilinear", antialias=True)[0]
    padded = F.pad(small, (0, width - inner_width, 0, height - inner_height))
    cells = to_cells(padded.numpy(), patch, True)  # (k, h, w)
    walked = random_walk(cells, from_attention(pairs, beta), steps, device)  # (k, h, w)

    pixels = torch.from_numpy(to_pixels(walked, (height, width), patch, True))
    inner = pixels[None, :, :inner_height, :inner_width]
    whole = F.interpolate(inner, maps.shape[1:], mode="bilinear", align_corners=False)[0]
    return _finished(whole.numpy(), stretched)  # (k, H, W)


def _finished(walked: MapArray, stretched: bool) -> MapArray:
    """Stretch walked maps to 0 … 1, or only free them of rounding errors beyond it."""
    finished = stretch(walked) if stretched else np.clip(walked, 0, 1)
    return finished.astype(np.float32)


def _background(out: Path, catalog: Catalog, settings: PseudoSettings) -> float | None:
    """Return the background's score as set, as chosen before, or chosen now on a sample of images.

    It is None if the background walks along with the maps.
    """
    if settings.background is not None or settings.background_power is not None:
        return settings.background
    file = out / layout.PSEUDO / layout.BACKGROUND
    if file.is_file() and not settings.restart:
        return float(read_object(file, background=(int, float))["background"])

    chooser = choosers()[settings.rule]
    spread = np.linspace(0, len(catalog) - 1, min(_SAMPLE, len(catalog)))
    sample = np.unique(spread.astype(int))
    for i in track(sample.tolist(), "background", len(sample)):
        try:
            image, seeds = read_item(out, catalog, i, decode=settings.method != "crf")
        except TagmaskError:
            # it is listed when it is labelled
            continue
        maps = _route(out, settings)(image, as_float(seeds[settings.source()]))
        chooser.add(np.clip(maps, 0, 1))
    chosen = chooser.result()
    write_json(file, {"background": chosen, "rule": settings.rule, "images": len(sample)})
    return chosen
