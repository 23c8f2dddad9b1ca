"""Every stage by two and by four processes that a launcher started (gloo): the files of a single process."""

import dataclasses
import errno
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tagmask.config.run import RunSettings
from tagmask.data.open import open_catalog
from tagmask.errors import TagmaskError, Told
from tagmask.runs.run import Run, check_batches
from tagmask.runs.table import STAGES as ALL_STAGES
from tagmask.runs.table import stage
from tagmask.runs.team import Team
from tagmask.stages import predict
from tagmask.training.classifier import build_classifier
from tagmask.training.segmenter import build_segmenter
from tests.alone import alone_of, do, run
from tests.helpers import forkserver, process_of, tiny_settings
from tests.runs.tiny import alike, head_run, products, tiny_run

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


def launch(
    processes: int, work: Callable[..., None], *arguments: Any, codes: Sequence[int] = ()
) -> None:
    """Do ``work`` in several processes at once, as `accelerate launch` and torchrun start them.

    They are to end with ``codes``, by default 0.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [
        process_of(_ranked, rank, processes, port, work, arguments) for rank in range(processes)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
    assert [process.exitcode for process in started] == list(codes or [0] * processes)


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


def whole_run(settings: RunSettings) -> None:
    Run.of(settings)()


def without_stages(out: Path) -> RunSettings:
    """Leave the classifier of a run alone."""
    for name in STAGES:
        shutil.rmtree(out / stage(name).folder)
    for name in ("check", "score", "report"):
        stage(name).record(out).discard()
    return head_run(out)


def test_the_whole_run_by_two_processes(headed: Path, out: Path) -> None:
    launch(2, whole_run, without_stages(out))
    assert products(out) == products(headed)


def test_trainings_of_a_whole_run_by_two_processes(tmp_path: Path) -> None:
    # batch norms see the images of their process only, unless they are frozen
    settings = tiny_run(tmp_path / "one").with_changes(segment={"freeze_norm": True})
    run(settings)
    launch(2, whole_run, dataclasses.replace(settings, out=tmp_path / "two"))
    for name in ("train", "segment"):
        file = Path(stage(name).folder) / "model.safetensors"
        one, two = (load_file(tmp_path / out / file) for out in ("one", "two"))
        torch.testing.assert_close(two, one, rtol=1e-2, atol=1e-3)
    names = [{*products(tmp_path / out)} for out in ("one", "two")]
    assert names[0] == names[1]


def run_that_fails(settings: RunSettings, said: Path, how: str) -> None:
    """Do a run in which the last process meets a full disk, or is killed, while it predicts."""

    def fail(*_: Any) -> None:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "mask.png")

    if os.environ["RANK"] == "1":
        predict.__dict__["_predict_image"] = fail
    try:
        Run.of(settings)()
    except Told:
        sys.exit(3)
    except (OSError, TagmaskError) as error:
        said.write_text(str(error), encoding="utf-8")
        sys.exit(1)


@pytest.mark.parametrize(
    ("how", "codes", "sentence"),
    [
        ("full disk", [1, 3], "No space left on device: 'mask.png'"),
        ("killed", [1, -signal.SIGKILL], "was killed, perhaps because memory ran out"),
    ],
)
def test_an_error_in_one_process_ends_all_and_the_run_continues(
    how: str, codes: list[int], sentence: str, headed: Path, out: Path, tmp_path: Path
) -> None:
    shutil.rmtree(out / stage("predict").folder)
    said = tmp_path / "said"
    launch(2, run_that_fails, head_run(out), said, how, codes=codes)
    assert sentence in said.read_text(encoding="utf-8")
    run(head_run(out))
    assert products(out) == products(headed)


def test_batches_that_cannot_be_split_are_refused_at_once(tmp_path: Path) -> None:
    settings = tiny_run(tmp_path / "run").with_changes(pseudo={"method": "walk"})
    whole = Run.of(settings)
    whole.team = Team()
    whole.team.count = 3
    with pytest.raises(TagmaskError, match=r"--train\.batch 2 cannot .* multiple of 3") as refused:
        check_batches(whole, ALL_STAGES)
    assert "--pseudo.affinity.batch" in str(refused.value)
    assert "--segment.batch" in str(refused.value)
