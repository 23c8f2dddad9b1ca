"""Every stage by two and by four processes that a launcher started (gloo): the files of a single process."""

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tagmask.config.run import RunSettings
from tagmask.data.open import open_catalog
from tagmask.runs.table import stage
from tagmask.training.classifier import build_classifier
from tagmask.training.segmenter import build_segmenter
from tests.alone import alone_of, do
from tests.helpers import forkserver, process_of, tiny_settings
from tests.runs.tiny import alike, head_run, tiny_run

STAGES = ("seeds", "pseudo", "segment", "predict")
ONE_STEP: dict[
    str, Any
] = {  # of plain SGD with a learning rate of 1: the weights change by the gradient
    "steps": 1,
    "optimizer": "sgd",
    "lr": 1.0,
    "momentum": 0.0,
    "weight_decay": 0.0,
    "clip": 0.0,
    "warmup": 0,
    "batch": 4,
    "head_lr": 1.0,
    "power": 0.9,
}


def launch(processes: int, work: Callable[..., None], *arguments: Any) -> None:
    """Do ``work`` in several processes at once, as `accelerate launch` and torchrun start them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [
        process_of(_ranked, rank, processes, port, work, arguments) for rank in range(processes)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join()
    assert [process.exitcode for process in started] == [0] * processes


def _ranked(
    rank: int, world: int, port: int, work: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    here = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": world,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    os.environ.update({name: str(value) for name, value in here.items()})
    torch.set_num_threads(1)
    work(*arguments)


def all_stages(together: Any, settings: RunSettings) -> None:
    for name in STAGES:
        do(name, alone_of(settings, name))
        together.wait(120)  # the next stage reads what all of them have made


@pytest.mark.parametrize("processes", [2, 4])
def test_seeds_labels_head_and_masks(processes: int, headed: Path, out: Path) -> None:
    for name in STAGES:
        shutil.rmtree(out / stage(name).folder)
    launch(processes, all_stages, forkserver().Barrier(processes), head_run(out))
    for name in (
        STAGES[:2] + STAGES[3:]
    ):  # the last digits of maps depend on the photos in their batch
        alike(out / stage(name).folder, headed / stage(name).folder, values=1, pixels=1e-3)
    heads = (load_file(folder / "5_segmenter/model.safetensors") for folder in (out, headed))
    torch.testing.assert_close(*heads, rtol=1e-3, atol=1e-4)


def one_stage(name: str, settings: Any) -> None:
    do(name, settings)


@pytest.mark.parametrize("name", ["train", "segment"])
def test_four_processes_give_the_gradients_of_one(name: str, headed: Path, tmp_path: Path) -> None:
    if name == "train":
        settings: Any = tiny_settings(
            tmp_path, **{**ONE_STEP, "alpha": 100.0, "beta": 100.0, "count": 12}
        )
        start = build_classifier(settings.own, open_catalog(settings.run)).stored().state_dict()
    else:  # batch norms see the images of their process only, unless they are frozen
        settings = alone_of(tiny_run(tmp_path), name).but(
            pseudo=headed / "4_pseudo",
            freeze_norm=True,
            **ONE_STEP,
        )
        start = (
            build_segmenter(settings.own, open_catalog(settings.run).classes).stored().state_dict()
        )
    one_stage(name, settings.but(out=tmp_path / "one"))
    launch(4, one_stage, name, settings.but(out=tmp_path / "four"))
    one, four = (
        load_file(tmp_path / out / stage(name).folder / "model.safetensors")
        for out in ("one", "four")
    )
    torch.testing.assert_close(four, one, rtol=1e-3, atol=1e-5)
    assert max(float((one[part] - value).abs().max()) for part, value in start.items()) > 1e-2
