"""Tiny data and models for the tests."""

import importlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tagmask.cli import main
from tagmask.config import TrainSettings, preset_of
from tagmask.models.classifier import Classifier
from tests.alone import alone

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


def tiny_settings(out: Path, **changes: Any) -> Any:
    """A training of a few steps on a few scenes."""
    small = {
        "count": 24,
        "size": 32,
        "batch": 4,
        "steps": 6,
        "log_every": 1,
        "warmup": 2,
        "val_every": 0.5,
    }
    return alone(TrainSettings, out=out, **{**preset_of("scenes", "train"), **small, **changes})


def forkserver(_method: str = "") -> Any:
    """Starts processes that have the libraries already; in place of ``get_context``, for pools of processes too."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["tagmask.training.segmenter", "tagmask.stages.pseudo", "tagmask.stages.predict"]
    )
    return context


def process_of(work: Callable[..., None], *arguments: Any) -> Any:
    """A process for some work, not yet started."""
    return forkserver().Process(target=work, args=arguments)


def silent_command(words: Sequence[str]) -> None:
    """A command as a user types it, with one thread and without output."""
    torch.set_num_threads(1)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    main(words)


def kill_once(
    is_time: Callable[[], bool], work: Callable[..., None], *arguments: Any, seconds: float = 120
) -> None:
    """Start some work in a process of its own and kill it as soon as ``is_time`` says so."""
    process, end = process_of(work, *arguments), time.monotonic() + seconds
    process.start()
    while process.is_alive() and not is_time() and time.monotonic() < end:
        time.sleep(0.002)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, "it ended before it was killed"


def fiftyone_with_database() -> Any:
    """Return the package fiftyone; skip the test if its database cannot be started."""
    package: Any = pytest.importorskip("fiftyone", reason="fiftyone is not installed")
    config: Any = importlib.import_module("fiftyone.core.config")
    try:
        package.list_datasets()
    except config.FiftyOneConfigError as error:
        pytest.skip(f"FiftyOne has no database here: {error}")
    return package
