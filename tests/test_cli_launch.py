"""`tagmask run --gpus` and `tagmask slurm`."""

import os
import subprocess
from pathlib import Path

import pytest

from tagmask.cli import launch, main
from tagmask.cli.slurm import SlurmSettings, write_slurm
from tagmask.errors import TagmaskError, Told


def test_without_several_gpus_a_run_is_done_as_usual(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for here, words in ((0, "no GPU"), (1, "one GPU")):
        monkeypatch.setattr(launch, "gpus_here", lambda here=here: here)
        assert not launch.launch_on_gpus("all", ["--out", "run"])
        assert f"there is {words} here" in capsys.readouterr().out


def test_gpus_that_are_not_there_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "gpus_here", lambda: 2)
    with pytest.raises(TagmaskError, match="torch finds 2 here"):
        launch.launch_on_gpus("3", [])
    with pytest.raises(TagmaskError, match="must be all, or a number"):
        launch.launch_on_gpus("many", [])
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(TagmaskError, match="leave it out under a launcher"):
        launch.launch_on_gpus("all", [])


def test_the_run_is_started_once_for_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr(launch, "gpus_here", lambda: 4)
    monkeypatch.setattr(launch, "_start", lambda count, words: started.append((count, words)))
    assert launch.launch_on_gpus("all", ["--out", "run"])
    assert launch.launch_on_gpus("2", [])
    assert started == [
        (4, ["-m", "tagmask", "run", "--out", "run"]),
        (2, ["-m", "tagmask", "run"]),
    ]


def test_processes_know_each_other_and_failures_are_told_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = (
        "import os, pathlib; rank, world = os.environ['RANK'], os.environ['WORLD_SIZE'];"
        f"pathlib.Path({str(tmp_path)!r}, rank).write_text(world)"
    )
    launch._start(2, ["-c", code])
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"0": "2", "1": "2"}
    with pytest.raises(Told):
        launch._start(2, ["-c", "import os, sys; sys.exit(int(os.environ['RANK']))"])
    with pytest.raises(TagmaskError, match="was killed"):
        launch._start(1, ["-c", "import os; os.kill(os.getpid(), 9)"])
    assert "Traceback" not in capfd.readouterr().err


def said_by(script: Path, folder: Path, **environment: str) -> str:
    """Run a batch script with commands of Slurm that only say how they are called."""
    folder.mkdir(exist_ok=True)
    for name, text in (("srun", 'printf "%s\\n" "$*"'), ("scontrol", "echo node1; echo node2")):
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", str(script)],
        env={**os.environ, **environment, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.strip()


def test_slurm_scripts(tmp_path: Path) -> None:
    job = tmp_path / "job.sh"
    run = ["run", "--preset", "voc", "--root", "my data", "--out", "run"]

    write_slurm(SlurmSettings(to=job), run)
    assert (
        said_by(job, tmp_path / "bin") == "python -m tagmask run --preset voc --root my data "
        "--out run"
    )

    for flag in ("--train.batch", "--pseudo.affinity.batch", "--segment.batch"):
        run += [flag, "16"]
    write_slurm(SlurmSettings(to=job, nodes=2, gpus=8, partition="gpu"), run)
    text = job.read_text()
    for asked in ("nodes=2", "ntasks-per-node=1", "gres=gpu:8", "partition=gpu", "requeue"):
        assert f"#SBATCH --{asked}" in text
    job_of = {"SLURM_NNODES": "2", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]"}
    said = said_by(job, tmp_path / "bin", **job_of)
    assert said.startswith("python -m torch.distributed.run --nnodes 2 --nproc_per_node 8")
    assert "--rdzv_id 7 --rdzv_backend c10d --rdzv_endpoint node1:29500" in said
    assert " -m tagmask run --preset voc --root my data --out run --train.batch 16 " in said

    write_slurm(SlurmSettings(to=job, array=4), ["predict", "--out", "masks"])
    assert "#SBATCH --array=0-3" in job.read_text()
    said = said_by(job, tmp_path / "bin", SLURM_ARRAY_TASK_ID="3")
    assert said == "python -m tagmask predict --out masks --shard 3/4"


EIGHT = ("--to", "job.sh", "--gpus", "8")
VOC_PAPER = ("--preset", "voc-paper", "--root", "VOC2012", "--out", "run")


@pytest.mark.parametrize(
    "words",
    [
        (*EIGHT, "run", *VOC_PAPER, "--train.batch", "8", "--segment.batch", "16"),
        ("--to", "job.sh", "run", *VOC_PAPER),
        ("--to", "job.sh", "--gpus", "4", "train", *VOC_PAPER),
        # with fewer than 1,000 photos nothing is trained in steps
        (*EIGHT, "run", "--preset", "own-photos", "--images", "photos", "--out", "run"),
    ],
)
def test_slurm_takes_batches_that_can_be_split(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["slurm", *words])
    assert ended.value.code == 0
    assert (tmp_path / "job.sh").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--to", "job.sh"], "name the command at the end"),
        (["--to", "job.sh", "--array", "4", "run", "--out", "run"], "--array splits seeds"),
        (["--to", "job.sh", "predict", "--shard", "0/4"], "--shard after predict is set"),
        (["--to", "job.sh", "--nodes", "2", "--array", "4", "seeds"], "exclude each other"),
        (["--to", "job.sh", "--memory", "1G\nrm x", "run"], "has a line break"),
        (
            [*EIGHT, "run", *VOC_PAPER],
            "--train.batch 4 cannot be split evenly over 8 processes; use a multiple of 8.",
        ),
        (
            [*EIGHT, "run", *VOC_PAPER, "--train.batch", "8"],
            "--segment.batch 10 cannot be split evenly over 8 processes; use a multiple of 8.",
        ),
        (
            [*EIGHT, "--nodes", "2", "run", *VOC_PAPER],
            "--pseudo.affinity.batch 8 cannot be split evenly over 16 processes",
        ),
        (
            [*EIGHT, "train", *VOC_PAPER],
            "--batch 4 cannot be split evenly: 8 processes × 1 parts; use a multiple of 8.",
        ),
        ([*EIGHT, "run", *VOC_PAPER, "--train.bach", "8"], "--train.bach"),
    ],
)
def test_slurm_refuses(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["slurm", *words])
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "job.sh").exists()
