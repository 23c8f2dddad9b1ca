"""Everything on built-in scenes, at a size that fits a laptop."""

import time
from dataclasses import dataclass
from pathlib import Path

from tagmask.config import SCENES, TrainSettings


@dataclass(frozen=True)
class DemoSettings:
    """Learn from tags on built-in pictures, without download or GPU: about three minutes on two cores.

    example:
      tagmask demo --out demo
    """

    out: Path = Path("demo")
    """Folder to write."""
    seed: int = 0


def run_demo(settings: DemoSettings) -> None:
    """Train a small classifier on scenes and tell how good it is and where the files are."""
    from tagmask.training.classifier import train

    began = time.monotonic()
    print("Drawing scenes; the classifier sees pictures and tags, never a mask.", flush=True)
    trained = train(TrainSettings(**{**SCENES, "seed": settings.seed, "out": settings.out}))
    print(trained.summary())
    print(f"settings: {settings.out / 'config.toml'}\nthe demo took {time.monotonic() - began:.0f} s.")
