"""Everything on built-in scenes, at a size that fits a laptop."""

import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tagmask import layout
from tagmask.config import PRESETS, ScoreSettings
from tagmask.config.run import RunSettings
from tagmask.errors import TagmaskError, typed

if TYPE_CHECKING:
    from tagmask.runs.run import Run

# other pictures than the classifier learns from
LABELLED: dict[str, Any] = {"count": 400, "scene_seed": 1}
# the same training without consistency
BASELINE: dict[str, float] = {"alpha": 0.0, "beta": 0.0}
# chooses every threshold of the table, without masks
RULE = "cross_entropy"


@dataclass(frozen=True)
class DemoSettings:
    """Hold the settings of ``tagmask demo``."""

    out: Path = Path("demo")
    """Folder to write."""
    seed: int = 0
    """Random numbers of the trainings."""
    steps: int = PRESETS["scenes"]["train"]["steps"]
    """Training steps; fewer are quicker and worse."""


PICTURES = "pictures.png"  # the first file of a demo: a folder that has it is a demo's


def _refuse_other_folders(out: Path) -> None:
    """Refuse a folder with something else in it, such as photos or a run of the user."""
    if not out.is_dir() or (out / PICTURES).is_file():
        return
    if any(out.iterdir()):
        raise TagmaskError(
            f"{out} is not empty; the demo draws its own pictures: name a new folder, "
            f"--out demo. With your photos: `tagmask run {typed(out)} tags.csv --out run`."
        )


def run_demo(settings: DemoSettings) -> None:
    """Run all stages on scenes, with the baseline beside ACR.

    It prints how good each is and where the files are.
    """
    from tagmask.data.scenes.catalog import Scenes
    from tagmask.runs.run import Run
    from tagmask.stages.score import score_run, score_seeds

    began = time.monotonic()
    out = settings.out
    _refuse_other_folders(out)
    training = demo_run(settings, out)
    baseline = demo_run(settings, out / "baseline", BASELINE)
    pictures = Scenes(training.count)
    labelled = Scenes(LABELLED["count"], LABELLED["scene_seed"])

    _show_pictures(out, pictures)
    print(f"pictures and their tags, all that is learnt from: {out / PICTURES}")
    print(
        "\nA vision transformer learns from pictures and tags; it never sees a mask. "
        "(A baseline learns beside it.)"
    )
    unlabelled = Run.of(training, pictures)
    acr = Run.of(training.with_data(LABELLED), labelled)
    plain = Run.of(baseline.with_data(LABELLED), labelled)
    with _beside({"train": (baseline, pictures), "seeds": (plain.settings, labelled)}):
        _do("train", unlabelled)
        _do("seeds", acr)
    print("\nThe same without consistency between two views, to compare.")
    _do("train", Run.of(baseline, pictures))
    _do("seeds", plain)
    without = score_seeds(plain, ScoreSettings(processes=1))
    print(
        "\nFrom the maps to a label for every pixel, along the edges of the pictures.", flush=True
    )
    _do("pseudo", acr)
    print("\nA segmentation network learns from these labels, and predicts the masks.", flush=True)
    _do("segment", acr)
    _do("predict", acr)
    scores = score_run(acr, ScoreSettings(processes=1))
    acr.report()
    _show_examples(out, labelled)
    print("\n" + table(without, scores) + "\n")
    print(f"picture: {out / 'seeds.png'}")
    print(f"report: {out / layout.REPORT}")
    print(f"scores: {out / layout.SCORES}")
    print(f"the demo took {time.monotonic() - began:.0f} s.")


def _do(name: str, run: "Run") -> None:
    """Do a stage of a run, and print its summary."""
    print(run.do(name).summary(), flush=True)


def demo_run(
    settings: DemoSettings, out: Path, changes: dict[str, float] | None = None
) -> RunSettings:
    """Return the preset `scenes`, with predictions restricted to the tags of a picture.

    Args:
        settings: Settings of the demo.
        out: Folder of the run.
        changes: Settings of the training that are changed; default: none.
    """
    from tagmask.runs.settings import run_settings, run_values

    scenes = run_settings({**run_values("scenes", None), "out": out})
    sections: dict[str, dict[str, Any]] = {
        "train": {"steps": settings.steps, "seed": settings.seed, **(changes or {})},
        # the other core has the other training
        "seeds": {"processes": 1},
        "pseudo": {"rule": RULE},
        # shorter than the preset's
        "segment": {"seed": settings.seed, "steps": 400, "val_every": 5.0},
        "predict": {"use_tags": True},
    }
    return scenes.with_changes(**sections)


@contextmanager
def _beside(stages: Mapping[str, tuple[Any, Any]]) -> Iterator[None]:
    """Run stages (their settings and catalog) in a second process meanwhile.

    Two processes of one thread are faster than one of two. What the second does not finish, the
    ordinary stages resume later.
    """
    import torch

    from tagmask.runs.processes import block_sigint

    threads = torch.get_num_threads()
    if threads < 2:
        yield
        return
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_run_quietly, args=(stages,), daemon=True)
    # this process terminates the other one
    with block_sigint():
        process.start()
    torch.set_num_threads(threads // 2)
    try:
        yield
        process.join()
    finally:
        # no effect if it has finished
        process.terminate()
        torch.set_num_threads(threads)


def _run_quietly(stages: Mapping[str, tuple[Any, Any]]) -> None:
    """Run stages on half of the cores, without output."""
    import torch

    from tagmask.runs.processes import end_with_parent
    from tagmask.runs.run import Run

    end_with_parent()
    torch.set_num_threads(max(1, torch.get_num_threads() // 2))
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        for name, (settings, catalog) in stages.items():
            Run.of(settings, catalog).do(name)


def table(baseline: Any, run: Any) -> str:
    """Return mIoU from stage to stage as text; no threshold has seen a mask.

    Args:
        baseline: Scores of the baseline's seeds.
        run: Scores of all stages of ACR.
    """
    head = f"{'mIoU':28} {'without affinity':>18} {'with affinity':>15}"
    lines = [head, "-" * len(head)]
    for title, scores in (("baseline seeds (α = β = 0)", baseline), ("ACR seeds", run.seeds)):
        plain = _mask_free(scores, "plain")
        refined = _mask_free(scores, "refined")
        lines.append(f"{title:28} {plain:>18} {refined:>15}")
    for title, stage in (("pseudo labels", "pseudo"), ("predictions", "predictions")):
        percent = 100 * run.labels[stage].scores.miou_present
        lines.append(f"{title:28} {'':>18} {percent:>15.1f}")
    lines.append(
        f"{run.seeds.images} pictures with tags, their masks unseen; "
        f"thresholds by {RULE}, chosen without masks."
    )
    return "\n".join(lines)


def _mask_free(scores: Any, kind: str) -> str:
    """Return mIoU in per cent at the threshold that the rule chose; nan if it chose none."""
    threshold = scores.chosen[kind].get(RULE)
    if threshold is None:
        return "nan"
    miou = scores.curves[kind].at(threshold).miou_present
    return f"{100 * miou:.1f}"


def _show_pictures(out: Path, scenes: Any) -> None:
    """Save a sheet of the first eight pictures with their tags."""
    from tagmask.show.sheet import save_picture, sheet

    cells = []
    for i in range(8):
        tags = ", ".join(scenes.classes[c] for c in scenes.tags(i))
        cells.append((tags, scenes.load_image(i)))
    rows = [cells[:4], cells[4:]]
    save_picture(out / PICTURES, sheet(rows))


def _show_examples(out: Path, scenes: Any) -> None:
    """Save a sheet of three pictures with two classes, from a good mask to a bad one.

    Each row shows the picture, its maps, pseudo label, prediction and truth.
    """
    from tagmask.data.images import read_mask
    from tagmask.show.overlay import heat_overlay, mask_overlay
    from tagmask.show.sheet import Cell, in_rows, save_picture, sheet
    from tagmask.stages.seeds import as_float, read_seeds

    rows: list[Sequence[Cell]] = []
    first = range(min(60, len(scenes)))
    for i in _quartiles(out, scenes.subset(first)):
        scene = scenes.scene(i)
        name = scenes.name(i)
        seeds = read_seeds(layout.seed_file(out / layout.SEEDS, name))
        cells = [("picture", scene.image)]
        for index, number in enumerate(seeds["classes"].tolist()):
            for kind, title in (("plain", ""), ("refined", " + affinity")):
                values = as_float(seeds[kind][index])  # (H, W)
                heat = heat_overlay(scene.image, values)
                cells.append((f"{scenes.classes[number]}{title}", heat))
        for title, folder in (("pseudo label", layout.PSEUDO), ("prediction", layout.PREDICTIONS)):
            file = layout.label_file(out / folder, name)
            labels = read_mask(file, len(scenes.classes))
            cells.append((title, mask_overlay(scene.image, labels)))
        cells.append(("truth", mask_overlay(scene.image, scene.mask)))
        # two lines for each picture, so that captions can be read at the width of a page
        rows += in_rows(cells, 4)
    save_picture(out / "seeds.png", sheet(rows))


def _quartiles(out: Path, scenes: Any) -> list[int]:
    """Return three pictures with two classes, by the IoU of their masks.

    They are at the upper quartile, in the middle, and at the lower quartile.
    """
    from tagmask.data.images import read_mask
    from tagmask.scoring import confusion, iou

    classes = len(scenes.classes)
    quality = {}
    for i in range(len(scenes)):
        if len(scenes.tags(i)) == 2:
            file = layout.label_file(out / layout.PREDICTIONS, scenes.name(i))
            mask = read_mask(file, classes)
            counts = confusion(mask, scenes.scene(i).mask, classes + 1)
            quality[i] = iou(counts).miou_present
    if not quality:
        return []
    ranked = sorted(quality, key=lambda i: -quality[i])
    count = len(ranked)
    return [ranked[count * quarter // 4] for quarter in (1, 2, 3)]
