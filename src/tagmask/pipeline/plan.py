"""The plan of a run: its stages, how far each is, and about how long the rest will take.

Times come from the log of a training that goes on, otherwise from one step on one batch and from one image; networks
are built for it with random weights, so that a wrong name is told before hours of work and not after.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from tagmask.config.run import RunSettings
from tagmask.data.catalog import Catalog
from tagmask.errors import ImageError
from tagmask.pipeline.record import Standing
from tagmask.training.checkpoint import read_state
from tagmask.training.loop import total_steps

_SLOW = 5.0  # seconds after which a first, slower, measurement is good enough
_UNKNOWN = "unknown until it has begun"
TRAININGS = {"train": "1_classifier", "segment": "5_segmenter"}
FILES = {"seeds": ("2_seeds", ".npz"), "pseudo": ("4_pseudo", ".png"), "predict": ("6_predictions", ".png")}


def plan(settings: RunSettings, catalog: Catalog, found: Mapping[str, Standing]) -> str:
    """One line per stage: what it does, how far it is, how long it will take."""
    waiting = _to_do(found)
    left = {name: _left(settings, catalog, name, found[name]) for name in found}
    rates = _rates(settings, catalog, waiting) if settings.estimate else {}
    lines = [f"plan for {settings.out}: {len(catalog)} images, {len(catalog.classes)} classes"]
    known, unknown = 0.0, []
    for name, standing in found.items():
        seconds = rates.get(name)
        if name in waiting and name in left and seconds is not None:
            known += seconds * left[name][0]
            told = f"about {duration(seconds * left[name][0])}"
        elif name in waiting and name in (*TRAININGS, *FILES):
            unknown.append(name)
            told = _UNKNOWN if settings.estimate else ""
        else:
            told = ""
        amount = f"{left[name][0]} {left[name][1]}" if name in waiting else ""
        lines.append(f"  {name:8} {_state(standing, name in waiting):38} {amount:14} {told}".rstrip())
    if not catalog.has_masks:
        lines.append("  score    left out, these data have no masks")
    if known:
        lines.append(f"  together about {duration(known)}" + (f", without {', '.join(unknown)}" if unknown else ""))
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """A time as one would say it."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def _to_do(found: Mapping[str, Standing]) -> tuple[str, ...]:
    """The first stage that is not done, and all after it."""
    names = list(found)
    first = next((place for place, name in enumerate(names) if found[name].state != "done"), len(names))
    return tuple(names[first:])


def _state(standing: Standing, waiting: bool) -> str:
    if not waiting:
        return "done, nothing has changed"
    if standing.state == "done":
        return "again where its inputs change"
    told = {"new": "to do", "goes on": "goes on", "anew": "anew"}[standing.state]
    more = f" and {len(standing.why) - 1} more" if len(standing.why) > 1 else ""
    return f"{told}: {standing.why[0]}{more}" if standing.why else told


def _left(settings: RunSettings, catalog: Catalog, name: str, standing: Standing) -> tuple[int, str]:
    """How many steps or images are left of a stage, at most."""
    goes_on = standing.state == "goes on"
    if name in TRAININGS:
        section: Any = getattr(settings, name)
        total = total_steps(section, round(len(catalog) * (1 - section.val_fraction)))
        state = read_state(settings.out / TRAININGS[name]) if goes_on else None
        return total - min(total, state["step"] if state else 0), "steps"
    if name in FILES and goes_on:
        folder, suffix = FILES[name]
        made = sum((settings.out / folder / f"{catalog.name(i)}{suffix}").is_file() for i in range(len(catalog)))
        return len(catalog) - made, "images"
    return (1, "page") if name == "report" else (len(catalog), "images")


def _rates(settings: RunSettings, catalog: Catalog, waiting: tuple[str, ...]) -> dict[str, float | None]:
    """Seconds of a step or an image of each stage, where they can be measured."""
    image = _first_image(catalog)
    if image is None:
        return {}
    generator = torch.random.get_rng_state()
    probes = Probes(settings, catalog, *image)
    found: dict[str, float | None] = {}
    for name in waiting:
        if name in TRAININGS:
            found[name] = logged_rate(settings.out / TRAININGS[name] / "log.jsonl")
        if found.get(name) is None and name in (*TRAININGS, *FILES):
            found[name] = _guarded(getattr(probes, name))
    torch.random.set_rng_state(generator)
    return found


def _guarded(probe: Callable[[], float | None]) -> float | None:
    try:
        return probe()
    except torch.OutOfMemoryError:
        return None


def _first_image(catalog: Catalog) -> tuple[Any, list[int]] | None:
    """The first readable image that has tags, and these."""
    for i in range(min(20, len(catalog))):
        try:
            if catalog.tags(i):
                return catalog.load_image(i), list(catalog.tags(i))
        except ImageError:
            continue
    return None


def logged_rate(log: Path) -> float | None:
    """Seconds per step of the last part of a training's log; None where it is too short to tell."""
    if not log.is_file():
        return None
    rows = []
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # a line cut off by a kill
        if isinstance(row, dict) and {"step", "seconds"} <= row.keys():
            rows.append((row["step"], row["seconds"]))
    for (step, seconds), (later, end) in zip(rows[-2::-1], rows[:0:-1], strict=True):
        if later > step and end > seconds:
            return float((end - seconds) / (later - step))
    return None


@dataclass
class Probes:
    """One step or one image of each stage, timed."""

    settings: RunSettings
    catalog: Catalog
    image: Any  # (H, W, 3) uint8
    classes: list[int]

    def train(self) -> float:
        from tagmask.training.classifier import ClassifierTask

        settings = dataclasses.replace(self.settings.for_stage("train"), pretrained=False, weights=None)
        task = ClassifierTask(self.catalog, self.catalog.subset([]), settings)
        part = settings.batch // settings.accumulate

        def step() -> None:
            samples = [task.dataset[(k, k % len(self.catalog))] for k in range(part)]
            batch = default_collate(samples)
            batch.pop("broken")
            _learn(task.module, batch)

        return _timed(step, task.module) * self.settings.train.accumulate

    def seeds(self) -> float:
        from tagmask.stages.maps import make_maps
        from tagmask.training.classifier import build_classifier

        train = dataclasses.replace(self.settings.for_stage("train"), pretrained=False, weights=None)
        model = build_classifier(train, self.catalog).eval()
        model.crop_size = train.size or model.native_size
        settings = self.settings.for_stage("seeds")
        return _timed(lambda: make_maps(model, [self.image], [self.classes], settings))

    def pseudo(self) -> float | None:
        """Only the route without a network to train; the others depend on what that learns."""
        from tagmask.masks.crf import PRESETS
        from tagmask.masks.labels import label_pixels

        settings = self.settings.for_stage("pseudo")
        if settings.method != "crf":
            return None
        ramp = np.linspace(0, 1, self.image.shape[1], dtype=np.float32)
        maps = np.broadcast_to(ramp, (len(self.classes), *self.image.shape[:2])).copy()
        crf = PRESETS[settings.crf_preset] if settings.crf else None
        seconds = _timed(lambda: label_pixels(self.image, self.classes, maps, 0.5, crf))
        return seconds * (2 if settings.unsure else 1) / self.settings.pseudo.processes

    def segment(self) -> float:
        from tagmask.training.segmenter import PixelLoss

        settings, size = self.settings.for_stage("segment"), self.settings.segment.size
        part = settings.batch // settings.accumulate
        module = PixelLoss(self._net())
        batch = {"images": torch.rand(part, 3, size, size), "labels": torch.zeros(part, size, size, dtype=torch.long)}
        return _timed(lambda: _learn(module, batch), module) * self.settings.segment.accumulate

    def predict(self) -> float:
        from tagmask.models.device import on_device
        from tagmask.stages.predict import views_of
        from tagmask.stages.probabilities import predict_probabilities, sharpen

        settings, model = self.settings.for_stage("predict"), on_device(self._net()).eval()

        def one() -> None:
            chances = predict_probabilities(model, self.image, tags=self.classes, **views_of(settings))
            if settings.crf:
                sharpen(self.image, chances)

        return _timed(one)

    def _net(self) -> Any:
        """The segmenter, with random weights."""
        from tagmask.models.deeplab import DeepLabV2

        settings = self.settings.segment
        switches = {name: getattr(settings, name) for name in ("multi_scale", "freeze_norm", "caffe")}
        return DeepLabV2(settings.backbone, len(self.catalog.classes) + 1, classes=self.catalog.classes, **switches)


def _learn(module: nn.Module, batch: Mapping[str, Tensor]) -> None:
    """One forward and backward pass."""
    device = next(module.parameters()).device
    losses = module(**{name: value.to(device) for name, value in batch.items()})
    losses["loss"].backward()
    float(losses["loss"].detach())  # waits for the GPU
    module.zero_grad()


def _timed(work: Callable[[], Any], module: nn.Module | None = None) -> float:
    """Seconds of ``work`` once it is warm; of the first time where that is long enough."""
    if module is not None:
        module.train()
        if torch.accelerator.is_available():
            module.to(torch.accelerator.current_accelerator())
    seconds = 0.0
    for _ in range(2):
        began = time.perf_counter()
        work()
        seconds = time.perf_counter() - began
        if seconds > _SLOW:
            break
    return seconds
