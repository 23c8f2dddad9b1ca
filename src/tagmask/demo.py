"""Everything on built-in scenes, at a size that fits a laptop."""

import dataclasses
import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tagmask.config import PRESETS, ReportSettings, ScoreSettings
from tagmask.config.run import RunSettings, run_values
from tagmask.pipeline import layout

LABELLED: dict[str, Any] = {
    "count": 400,
    "scene_seed": 1,
}  # other pictures than the classifier learns from
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
    """All stages on scenes, with the baseline beside ACR; prints how good each is and where the files are."""
    from tagmask.pipeline.stages import stage
    from tagmask.scenes.catalog import Scenes
    from tagmask.stages.score import score_run, score_seeds

    began, out = time.monotonic(), settings.out
    training, baseline = demo_run(settings, out), demo_run(settings, out / "baseline", BASELINE)
    pictures, labelled = Scenes(training.count), Scenes(LABELLED["count"], LABELLED["scene_seed"])

    def do(name: str, run: RunSettings, data: dict[str, Any]) -> None:
        catalog = labelled if data else pictures
        print(
            stage(name).run(dataclasses.replace(run.for_stage(name), **data), catalog).summary(),
            flush=True,
        )

    _show_pictures(out, pictures)
    print(f"pictures and their tags, all that is learnt from: {out / 'pictures.png'}")
    print(
        "\nA vision transformer learns from pictures and tags; it never sees a mask. (A baseline learns beside it.)"
    )
    maps = dataclasses.replace(baseline.for_stage("seeds"), **LABELLED)
    with _beside({"train": (baseline.for_stage("train"), pictures), "seeds": (maps, labelled)}):
        do("train", training, {})
        do("seeds", training, LABELLED)
    print("\nThe same without consistency between two views, to compare.")
    do("train", baseline, {})
    do("seeds", baseline, LABELLED)
    without = score_seeds(ScoreSettings(out=baseline.out, processes=1, **LABELLED), labelled)
    print(
        "\nFrom the maps to a label for every pixel, along the edges of the pictures.", flush=True
    )
    do("pseudo", training, LABELLED)
    print("\nA segmentation network learns from these labels, and predicts the masks.", flush=True)
    do("segment", training, LABELLED)
    do("predict", training, LABELLED)
    scores = score_run(ScoreSettings(out=out, processes=1, **LABELLED), labelled)
    stage("report").run(ReportSettings(out=out, **LABELLED), labelled)
    _show_examples(out, labelled)
    print("\n" + table(without, scores) + "\n")
    for name, file in {
        "picture": "seeds.png",
        "report": layout.REPORT,
        "scores": layout.SCORES,
    }.items():
        print(f"{name}: {out / file}")
    print(f"the demo took {time.monotonic() - began:.0f} s.")


def demo_run(
    settings: DemoSettings, out: Path, changes: dict[str, float] | None = None
) -> RunSettings:
    """The preset `scenes`; predictions are restricted to the tags of a picture."""
    values = run_values("scenes", None)
    sections: dict[str, dict[str, Any]] = {
        "train": {"steps": settings.steps, "seed": settings.seed, **(changes or {})},
        "seeds": {"processes": 1},  # the other core has the other training
        "pseudo": {"rule": RULE},
        "segment": {
            "seed": settings.seed,
            "steps": 400,
            "val_every": 5.0,
        },  # shorter than the preset's
        "predict": {"use_tags": True},
    }
    values |= {
        name: dataclasses.replace(values[name], **section) for name, section in sections.items()
    }
    return RunSettings(**{**values, "out": out})


@contextmanager
def _beside(stages: Mapping[str, tuple[Any, Any]]) -> Iterator[None]:
    """Run stages (their settings and catalog) in a second process meanwhile.

    Two processes of one thread are faster than one of two. What it does not finish, the ordinary stages resume later.
    """
    import torch

    from tagmask.stages.pool import deaf_to_ctrl_c

    threads = torch.get_num_threads()
    if threads < 2:
        yield
        return
    process = multiprocessing.get_context("spawn").Process(
        target=_run_quietly, args=(stages,), daemon=True
    )
    with deaf_to_ctrl_c():  # this process terminates it
        process.start()
    torch.set_num_threads(threads // 2)
    try:
        yield
        process.join()
    finally:
        process.terminate()  # no effect if it has finished
        torch.set_num_threads(threads)


def _run_quietly(stages: Mapping[str, tuple[Any, Any]]) -> None:
    """Run stages on half of the cores, without output."""
    import torch

    from tagmask.pipeline.stages import stage
    from tagmask.stages.pool import end_with_parent

    end_with_parent()
    torch.set_num_threads(max(1, torch.get_num_threads() // 2))
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        for name, (settings, catalog) in stages.items():
            stage(name).run(settings, catalog)


def table(baseline: Any, run: Any) -> str:
    """mIoU from stage to stage; no threshold has seen a mask."""
    head = f"{'mIoU':28} {'without affinity':>18} {'with affinity':>15}"
    lines = [head, "-" * len(head)]
    for title, scores in (("baseline seeds (α = β = 0)", baseline), ("ACR seeds", run.seeds)):
        plain, refined = (_blind(scores, kind) for kind in ("plain", "refined"))
        lines.append(f"{title:28} {plain:>18} {refined:>15}")
    for title, stage in (("pseudo labels", "pseudo"), ("predictions", "predictions")):
        lines.append(f"{title:28} {'':>18} {100 * run.labels[stage].scores.miou_present:>15.1f}")
    note = f"{run.seeds.images} pictures with tags, their masks unseen; thresholds by {RULE}, chosen without masks."
    return "\n".join([*lines, note])


def _blind(scores: Any, kind: str) -> str:
    """mIoU at the threshold that the rule chose, in per cent; nan if it could not choose one."""
    threshold = scores.chosen[kind].get(RULE)
    return (
        "nan"
        if threshold is None
        else f"{100 * scores.curves[kind].at(threshold).miou_present:.1f}"
    )


def _show_pictures(out: Path, scenes: Any) -> None:
    """The first eight pictures with their tags."""
    from tagmask.show.sheet import save_picture, sheet

    tags = [", ".join(scenes.classes[c] for c in scenes.tags(i)) for i in range(8)]
    cells = [(tag, scenes.load_image(i)) for i, tag in enumerate(tags)]
    save_picture(out / "pictures.png", sheet([cells[:4], cells[4:]]))


def _show_examples(out: Path, scenes: Any) -> None:
    """A sheet of three pictures with two classes, from a good mask to a bad one: maps, pseudo label, mask, truth."""
    from tagmask.data.images import read_mask
    from tagmask.show.overlay import heat_overlay, mask_overlay
    from tagmask.show.sheet import save_picture, sheet
    from tagmask.stages.seeds import as_float, read_seeds

    rows: list[list[tuple[str, Any]]] = []
    for i in _quartiles(out, scenes.subset(range(min(60, len(scenes))))):
        scene, name = scenes.scene(i), scenes.name(i)
        seeds = read_seeds(layout.seed_file(out / layout.SEEDS, name))
        cells = [("picture", scene.image)]
        for place, number in enumerate(seeds["classes"].tolist()):
            for kind, title in (("plain", ""), ("refined", " + affinity")):
                heat = heat_overlay(scene.image, as_float(seeds[kind][place]))
                cells.append((f"{scenes.classes[number]}{title}", heat))
        for title, folder in (("pseudo label", layout.PSEUDO), ("prediction", layout.PREDICTIONS)):
            labels = read_mask(layout.label_file(out / folder, name), len(scenes.classes))
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
        mask = read_mask(layout.label_file(out / layout.PREDICTIONS, scenes.name(i)), classes)
        quality[i] = iou(confusion(mask, scenes.scene(i).mask, classes + 1)).miou_present
    ranked = sorted(quality, key=lambda i: -quality[i])
    return [ranked[len(ranked) * part // 4] for part in (1, 2, 3)] if ranked else []
