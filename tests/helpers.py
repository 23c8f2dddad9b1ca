"""Tiny data and models for the tests."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tagmask.config import TrainSettings, preset_of
from tagmask.models.classifier import Classifier

SHARED = Path(__file__).parents[1].parent / "shared"
"""Real photos and weights, where they are at hand; tests that need them skip elsewhere."""


def tiny_classifier(classes: int = 3, size: int = 32, seed: int = 0, **options: Any) -> Classifier:
    """A small ViT whose weights are large enough that attention is far from uniform."""
    torch.manual_seed(seed)
    model = Classifier("tagmask_tiny", classes, img_size=size, **options)
    with torch.no_grad():
        for block in model.blocks:
            block.attn.qkv.weight.mul_(3)
        model.vit.head.weight.normal_()
    return model


def tiny_settings(out: Path, **changes: Any) -> TrainSettings:
    """A training of a few steps on a few scenes."""
    small = {"count": 24, "size": 32, "batch": 4, "steps": 6, "log_every": 1, "warmup": 2, "val_every": 0.5}
    return TrainSettings(out=out, **{**preset_of("scenes", "train"), **small, **changes})


def process_of(work: Callable[..., None], *arguments: Any) -> Any:
    """A process for some work, not yet started; the libraries are imported once for all of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tagmask.training.segmenter", "tagmask.stages.pseudo", "tagmask.stages.predict"])
    return context.Process(target=work, args=arguments)
