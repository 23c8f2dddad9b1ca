"""Everything on built-in scenes, at a size that fits a laptop."""

import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tagmask.config import (
    PRESETS,
    PredictSettings,
    PseudoSettings,
    ReportSettings,
    ScoreSettings,
    SeedSettings,
    SegmentSettings,
    TrainSettings,
    preset_of,
)

LABELLED: dict[str, Any] = {"data": "scenes", "count": 400, "scene_seed": 1}  # others than the classifier learns from
BASELINE: dict[str, float] = {"alpha": 0.0, "beta": 0.0}  # the same training without consistency
RULE = "cross_entropy"  # chooses every threshold of the table, without masks


@dataclass(frozen=True)
class DemoSettings:
    """From tags to masks, on built-in pictures: minutes on two cores, no download, no GPU.

    example:
      tagmask demo --out demo
    """

    out: Path = Path("demo")
    """Folder to write."""
    seed: int = 0
    steps: int = PRESETS["scenes"]["train"]["steps"]
    """Training steps; fewer are quicker and worse."""


def run_demo(settings: DemoSettings) -> None:
    """All stages on scenes, with the baseline beside ACR; tells how good each is and where the files are."""
    began, out = time.monotonic(), settings.out
    _say("A vision transformer learns from pictures and tags; it never sees a mask. (A baseline learns beside it.)")
    with _beside(_training(settings, out / "baseline", BASELINE)):
        _train_and_seed(settings, out, {})
    _say("The same without consistency between two views, to compare.")
    baseline = _train_and_seed(settings, out / "baseline", BASELINE)
    _say("From the maps to a label for every pixel, along the edges of the pictures.")
    _label(out)
    _say("A segmentation network learns from these labels, and predicts the masks.")
    _segment(settings, out)
    found = _score(out)
    _show_examples(out)
    print("\n" + table(baseline, found) + "\n")
    for name, file in {"picture": "seeds.png", "report": "report.html", "scores": "scores.json"}.items():
        print(f"{name}: {out / file}")
    print(f"the demo took {time.monotonic() - began:.0f} s.")


def _say(sentence: str) -> None:
    print(f"\n{sentence}", flush=True)


def _training(settings: DemoSettings, out: Path, changes: dict[str, float]) -> TrainSettings:
    own = {**changes, "steps": settings.steps, "seed": settings.seed, "out": out}
    return TrainSettings(**{**preset_of("scenes", "train"), **own})


def _preset(section: str) -> dict[str, Any]:
    """What a stage after the training starts from, on the pictures that are labelled."""
    return {**preset_of("scenes", section), **LABELLED}


@contextmanager
def _beside(training: TrainSettings) -> Iterator[None]:
    """Another training goes on in a process of its own meanwhile; two single threads get more done than one pair.

    It is only a head start: whatever it leaves undone is done by whoever asks for that training afterwards.
    """
    import torch

    from tagmask.stages.pool import deaf_to_ctrl_c

    threads = torch.get_num_threads()
    if threads < 2:
        yield
        return
    process = multiprocessing.get_context("spawn").Process(target=_train_quietly, args=(training,), daemon=True)
    with deaf_to_ctrl_c():  # this process ends it
        process.start()
    torch.set_num_threads(threads // 2)
    try:
        yield
        process.join()
    finally:
        process.terminate()  # where this one was stopped; a training can be
        torch.set_num_threads(threads)


def _train_quietly(training: TrainSettings) -> None:
    """Train on half of the cores; what it says is thrown away."""
    import torch

    from tagmask.training.classifier import train

    torch.set_num_threads(max(1, torch.get_num_threads() // 2))
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        train(training)


def _train_and_seed(settings: DemoSettings, out: Path, changes: dict[str, float]) -> Any:
    """The scores of the maps of a classifier trained as the scenes preset says, with ``changes``."""
    from tagmask.stages.score import score_seeds
    from tagmask.stages.seeds import seed_catalog
    from tagmask.training.classifier import train

    print(train(_training(settings, out, changes)).summary())
    print(seed_catalog(SeedSettings(out=out, **_preset("seeds"))).summary(), flush=True)
    return score_seeds(ScoreSettings(out=out, **LABELLED)) if changes else None


def _label(out: Path) -> None:
    """Pseudo labels."""
    from tagmask.config import read_values
    from tagmask.stages.pseudo import make_pseudo

    options = {**read_values(PseudoSettings, _preset("pseudo"), "preset scenes"), "rule": RULE}
    options["processes"] = min(4, os.cpu_count() or 1)
    print(make_pseudo(PseudoSettings(out=out, **options)).summary())


def _segment(settings: DemoSettings, out: Path) -> None:
    """The segmentation network and the masks it predicts; of a picture's tags it is told."""
    from tagmask.stages.predict import predict_catalog
    from tagmask.training.segmenter import train_segmenter

    print(train_segmenter(SegmentSettings(out=out, **{**_preset("segment"), "seed": settings.seed})).summary())
    print(predict_catalog(PredictSettings(out=out, use_tags=True, **_preset("predict"))).summary())


def _score(out: Path) -> Any:
    """The scores of every stage, and the report."""
    from tagmask.stages.report import write_report
    from tagmask.stages.score_run import score_run

    found = score_run(ScoreSettings(out=out, **LABELLED))
    write_report(ReportSettings(out=out, **LABELLED))
    return found


def table(baseline: Any, found: Any) -> str:
    """mIoU from stage to stage; no threshold has seen a mask."""
    head = f"{'mIoU':28} {'without affinity':>18} {'with affinity':>15}"
    lines = [head, "-" * len(head)]
    for title, scores in (("baseline seeds (α = β = 0)", baseline), ("ACR seeds", found.seeds)):
        plain, refined = (_percent(_blind(scores, kind)) for kind in ("plain", "refined"))
        lines.append(f"{title:28} {plain:>18} {refined:>15}")
    for title, stage in (("pseudo labels", "pseudo"), ("predictions", "predictions")):
        lines.append(f"{title:28} {'':>18} {_percent(found.labels[stage].scores.miou_present):>15}")
    told = f"{found.seeds.images} pictures with tags, their masks unseen; thresholds by {RULE}, chosen without masks."
    return "\n".join([*lines, told])


def _blind(scores: Any, kind: str) -> float:
    """mIoU at the threshold that the rule chose; nan where it could not."""
    threshold = scores.chosen[kind].get(RULE)
    return float("nan") if threshold is None else float(scores.curves[kind].at(threshold).miou_present)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _show_examples(out: Path) -> None:
    """A sheet of three pictures with two classes, from a good mask to a bad one: maps, pseudo label, mask, truth."""
    import numpy as np

    from tagmask.data.images import read_mask
    from tagmask.scenes.catalog import CLASSES, Scenes
    from tagmask.show.overlay import heat_overlay, mask_overlay
    from tagmask.show.sheet import save_picture, sheet
    from tagmask.stages.seeds import FOLDER, read_seeds, seed_file

    scenes = Scenes(min(60, LABELLED["count"]), seed=LABELLED["scene_seed"])
    rows: list[list[tuple[str, Any]]] = []
    for i in _quartiles(out, scenes):
        scene, name = scenes.scene(i), scenes.name(i)
        seeds = read_seeds(seed_file(out / FOLDER, name))
        cells = [("picture", scene.image)]
        for place, number in enumerate(seeds["classes"].tolist()):
            for kind, title in (("plain", ""), ("refined", " + affinity")):
                heat = heat_overlay(scene.image, seeds[kind][place] / np.float32(255))
                cells.append((f"{scenes.classes[number]}{title}", heat))
        for title, folder in (("pseudo label", "4_pseudo"), ("prediction", "6_predictions")):
            labels = read_mask(out / folder / f"{name}.png", len(CLASSES))
            cells.append((title, mask_overlay(scene.image, labels)))
        cells.append(("truth", mask_overlay(scene.image, scene.mask)))
        rows.append(cells)
    save_picture(out / "seeds.png", sheet(rows))


def _quartiles(out: Path, scenes: Any) -> list[int]:
    """Pictures with two classes: the upper quartile by the IoU of their masks, the middle one, the lower quartile."""
    from tagmask.data.images import read_mask
    from tagmask.scoring import confusion, iou

    quality, classes = {}, len(scenes.classes)
    for i in (i for i in range(len(scenes)) if len(scenes.tags(i)) == 2):
        found = read_mask(out / "6_predictions" / f"{scenes.name(i)}.png", classes)
        quality[i] = iou(confusion(found, scenes.scene(i).mask, classes + 1)).miou_present
    ranked = sorted(quality, key=lambda i: -quality[i])
    return [ranked[len(ranked) * part // 4] for part in (1, 2, 3)] if ranked else []
