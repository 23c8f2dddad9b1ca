"""A whole run of a few steps on a few scenes, and the files it makes."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from tagmask.config import HeadSettings
from tagmask.config.run import RunSettings
from tagmask.data.images import read_mask
from tagmask.runs.settings import run_settings, run_values
from tagmask.stages.seeds import read_seeds

IMAGES, STEPS = 12, 6
CHANGING = {
    "config.toml",
    "report.html",
    "report.done.json",
    "log.jsonl",
    "resume.safetensors",
}  # hold paths or times


def tiny_run(out: Path, **changes: Any) -> RunSettings:
    loop: dict[str, Any] = {
        "steps": STEPS,
        "batch": 2,
        "warmup": 1,
        "log_every": 1,
        "save_every": 2,
        "workers": 0,
        "val_every": 100.0,
    }
    values = run_values("scenes", None)
    sections: dict[str, dict[str, Any]] = {
        "train": {**loop, "size": 32},
        "seeds": {"size": 32},
        "segment": {**loop, "backbone": "test_resnet", "size": 33, "lr": 0.002},
        "pseudo": {"method": "crf"},
        "predict": {"crf": False, "flip": False},
    }
    for name, small in sections.items():
        values[name] = dataclasses.replace(values[name], **small)
    return run_settings(
        {**values, "out": out, "count": IMAGES, "estimate": False, "rows": 3, **changes}
    )


def head_run(out: Path, **changes: Any) -> RunSettings:
    """The same with a head on kept tokens."""
    settings = tiny_run(out, **changes)
    head: dict[str, Any] = {
        "head_blocks": (1, 3),
        "size": 48,
        "steps": 30,
        "cells": 64,
        "lr": 1e-2,
    }
    return settings.with_stages(HeadSettings(**head, weight_decay=0.01))


def products(out: Path) -> dict[str, bytes]:
    """The files of a run that are the same whenever and wherever it is made."""
    files = [file for file in out.rglob("*") if file.is_file() and file.name not in CHANGING]
    return {file.relative_to(out).as_posix(): file.read_bytes() for file in files}


def alike(folder: Path, expected: Path, values: int = 3, pixels: float = 0.02) -> None:
    """Compares masks and maps of two folders: at most so much apart, of 255, and such a share of pixels."""
    files = sorted(
        file.relative_to(expected)
        for file in expected.rglob("*")
        if file.suffix in (".png", ".npz")
    )
    assert len(files) >= IMAGES
    for file in files:
        if file.suffix == ".png":
            assert (read_mask(folder / file, 10) != read_mask(expected / file, 10)).mean() <= pixels
        else:
            one, other = read_seeds(folder / file), read_seeds(expected / file)
            assert np.abs(one["refined"].astype(int) - other["refined"]).max() <= values
