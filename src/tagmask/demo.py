"""Everything on built-in scenes, at a size that fits a laptop."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tagmask.config import SCENE_MAPS, SCENES, ScoreSettings, SeedSettings, TrainSettings

SCORED: dict[str, Any] = {"data": "scenes", "count": 150, "scene_seed": 1}  # other pictures than those trained on
BASELINE: dict[str, float] = {"alpha": 0.0, "beta": 0.0}  # the same training without consistency


@dataclass(frozen=True)
class DemoSettings:
    """Learn from tags on built-in pictures and find the objects: minutes on two cores, no download, no GPU.

    example:
      tagmask demo --out demo
    """

    out: Path = Path("demo")
    """Folder to write."""
    seed: int = 0
    steps: int = SCENES["steps"]
    """Training steps; fewer are quicker and worse."""


def run_demo(settings: DemoSettings) -> None:
    """Train on scenes, make localisation maps of others, and tell how good both are and where the files are."""
    began = time.monotonic()
    print("A vision transformer learns from pictures and tags; it never sees a mask.", flush=True)
    found = {"ACR": _train_and_seed(settings, settings.out, {})}
    print("\nThe same without consistency between two views, to compare:", flush=True)
    found["baseline"] = _train_and_seed(settings, settings.out / "baseline", BASELINE)
    print("\n" + comparison(found))
    _show_examples(settings.out)
    print(f"\npicture: {settings.out / 'seeds.png'}\nscores: {settings.out / 'scores.json'}")
    print(f"the demo took {time.monotonic() - began:.0f} s.")


def _train_and_seed(settings: DemoSettings, out: Path, changes: dict[str, float]) -> Any:
    """The scores of the maps of a classifier trained as the scenes preset says, with ``changes``."""
    from tagmask.stages.score import score_seeds
    from tagmask.stages.seeds import seed_catalog
    from tagmask.training.classifier import train

    options = {**SCENES, **changes, "steps": settings.steps, "seed": settings.seed, "out": out}
    print(train(TrainSettings(**options)).summary())
    print(seed_catalog(SeedSettings(out=out, **SCENE_MAPS, **SCORED)).summary(), flush=True)
    return score_seeds(ScoreSettings(out=out, **SCORED))


def comparison(found: dict[str, Any]) -> str:
    """Baseline beside ACR, maps without and with affinity: mIoU where no mask chose the threshold, and oracle."""
    rule = "otsu"
    head = f"{'mIoU of localisation maps':26} {'without affinity':>18} {'with affinity':>18}"
    lines = [head, "-" * len(head)]
    for name, title in (("baseline", "baseline (α = β = 0)"), ("ACR", "ACR")):
        cells = []
        for kind in ("plain", "refined"):
            curve, threshold = found[name].curves[kind], found[name].chosen[kind].get(rule)
            blind = f"{100 * curve.at(threshold).miou_present:.1f}" if threshold is not None else "–"
            cells.append(f"{blind} ({100 * curve.best.miou_present:.1f})")
        lines.append(f"{title:26} {cells[0]:>18} {cells[1]:>18}")
    images = found["ACR"].images
    lines.append(
        f"{images} unseen pictures; threshold by {rule}, without masks (in brackets: oracle, tuned on the masks)"
    )
    return "\n".join(lines)


def _show_examples(out: Path) -> None:
    """One sheet: pictures, maps without and with affinity, and truth of a few scenes with two classes."""
    import numpy as np

    from tagmask.data.scenes import Scenes
    from tagmask.show.overlay import heat_overlay, mask_overlay
    from tagmask.show.sheet import save_picture, sheet
    from tagmask.stages.seeds import FOLDER, read_seeds, seed_file

    scenes = Scenes(30, seed=SCORED["scene_seed"])
    rows: list[list[tuple[str, Any]]] = []
    for i in [i for i in range(len(scenes)) if len(scenes.tags(i)) == 2][:3]:
        scene = scenes.scene(i)
        seeds = read_seeds(seed_file(out / FOLDER, scenes.name(i)))
        cells = [("picture", scene.image)]
        for place, number in enumerate(seeds["classes"].tolist()):
            for kind, title in (("plain", ""), ("refined", " + affinity")):
                heat = heat_overlay(scene.image, seeds[kind][place] / np.float32(255))
                cells.append((f"{scenes.classes[number]}{title}", heat))
        rows.append([*cells, ("truth", mask_overlay(scene.image, scene.mask))])
    save_picture(out / "seeds.png", sheet(rows))
