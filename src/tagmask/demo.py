"""Everything on built-in scenes, at a size that fits a laptop."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tagmask.config import SCENES, ScoreSettings, SeedSettings, TrainSettings

SCORED: dict[str, Any] = {"data": "scenes", "count": 150, "scene_seed": 1}  # other pictures than those trained on


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
    from tagmask.stages.score import score_seeds
    from tagmask.stages.seeds import seed_catalog
    from tagmask.training.classifier import train

    began = time.monotonic()
    print("A vision transformer learns from pictures and tags; it never sees a mask.", flush=True)
    options = {**SCENES, "steps": settings.steps, "seed": settings.seed, "out": settings.out}
    print(train(TrainSettings(**options)).summary())
    print("\nWhere did it look? Localisation maps of pictures it has not seen, compared with their masks:", flush=True)
    print(seed_catalog(SeedSettings(out=settings.out, **SCORED)).summary())
    print(score_seeds(ScoreSettings(out=settings.out, **SCORED)).summary(settings.out))
    _show_examples(settings.out)
    print(f"picture: {settings.out / 'seeds.png'}\nthe demo took {time.monotonic() - began:.0f} s.")


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
