"""Everything on built-in scenes, at a size that fits a laptop."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tagmask.config import SCENES, ScoreSettings, SeedSettings, TrainSettings

if TYPE_CHECKING:
    from tagmask.stages.score import SeedScores

SHOWN = (("baseline", "plain", "baseline"), ("acr", "plain", "ACR*"), ("acr", "refined", "ACR"))
SCORED = 150  # scenes of another series than the one trained on


@dataclass(frozen=True)
class DemoSettings:
    """Learn from tags on built-in pictures and find the objects: minutes on two cores, no download, no GPU.

    example:
      tagmask demo --out demo
    """

    out: Path = Path("demo")
    """Folder to write."""
    seed: int = 0
    scale: float = 1.0
    """Share of the usual training steps; less is quicker and worse."""


def run_demo(settings: DemoSettings) -> None:
    """Train twice on scenes, without and with consistency, make seeds, and print how good they are."""
    from tagmask.training.classifier import train

    began = time.monotonic()
    print("The classifier sees pictures and tags, never a mask.", flush=True)
    scores: dict[str, SeedScores] = {}
    steps = max(2, round(SCENES["steps"] * settings.scale))
    for name, strengths in (("baseline", {"alpha": 0.0, "beta": 0.0}), ("ACR", {})):
        out = settings.out / name.lower()
        print(f"\n{name}: {'α = β = 0' if strengths else 'with all-pairs consistency'}", flush=True)
        options = {**SCENES, **strengths, "steps": steps, "seed": settings.seed, "out": out}
        print(train(TrainSettings(**options)).summary())
        scores[name] = _seed_and_score(out)
    _show_examples(settings.out)
    print(f"\n{table(scores)}\n")
    print(f"pictures: {settings.out / 'seeds.png'} and {settings.out / 'acr' / 'scores.png'}")
    print(f"classifiers, maps, scores and settings: {settings.out / 'baseline'} and {settings.out / 'acr'}")
    print(f"the demo took {time.monotonic() - began:.0f} s.")


def _seed_and_score(out: Path) -> "SeedScores":
    from tagmask.stages.score import score_seeds
    from tagmask.stages.seeds import seed_catalog

    scenes = {"data": "scenes", "count": SCORED, "scene_seed": 1}
    seed_catalog(SeedSettings(out=out, **scenes))  # type: ignore[arg-type]
    return score_seeds(ScoreSettings(out=out, **scenes))  # type: ignore[arg-type]


def table(scores: "dict[str, SeedScores]") -> str:
    """Seed mIoU without and with affinity, at the oracle threshold and at one chosen without masks."""
    head = f"{'seeds':10} {'maps':18} {'mIoU, oracle':>13} {'mIoU, edges':>12}"
    lines = [head, "-" * len(head)]
    for name, one in scores.items():
        for kind, title in (("plain", "without affinity"), ("refined", "with affinity")):
            curve = one.curves[kind]
            oracle = f"{100 * curve.best.miou_present:13.1f}"
            chosen = one.chosen[kind].get("edges")
            free = f"{100 * curve.at(chosen).miou_present:12.1f}" if chosen is not None else f"{'–':>12}"
            lines.append(f"{name:10} {title:18} {oracle} {free}")
    lines.append("oracle: threshold tuned on the masks; edges: chosen without them")
    return "\n".join(lines)


def _show_examples(out: Path) -> None:
    """One sheet: pictures, ACR maps and truth of a few scenes."""
    import numpy as np

    from tagmask.data.scenes import Scenes
    from tagmask.show.overlay import heat_overlay, mask_overlay
    from tagmask.show.sheet import save_picture, sheet
    from tagmask.stages.seeds import FOLDER, read_seeds, seed_file

    scenes = Scenes(12, seed=1)
    rows: list[list[tuple[str, Any]]] = []
    for i in range(12):
        if len(scenes.tags(i)) < 2 or len(rows) == 4:
            continue
        scene = scenes.scene(i)
        cells = [("tags only", scene.image)]
        for folder, kind, title in (
            ("baseline", "plain", "baseline"),
            ("acr", "plain", "ACR*"),
            ("acr", "refined", "ACR"),
        ):
            seeds = read_seeds(seed_file(out / folder / FOLDER, scenes.name(i)))
            name = scenes.classes[int(seeds["classes"][0])]
            cells.append((f"{name}, {title}", heat_overlay(scene.image, seeds[kind][0] / np.float32(255))))
        rows.append([*cells, ("truth", mask_overlay(scene.image, scene.mask))])
    save_picture(out / "seeds.png", sheet(rows))
