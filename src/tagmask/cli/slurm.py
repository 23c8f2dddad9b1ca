"""`tagmask slurm`: a batch script for a command on one node, on several, or as a job array."""

import os
import shlex
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tagmask.cli.parse import parse_run, parse_stage
from tagmask.cli.understand import understand
from tagmask.config.base import LoopSettings, Settings, refuse
from tagmask.config.limits import Count
from tagmask.errors import TagmaskError, printable
from tagmask.files import unwritable, write_text

IN_PARTS = ("seeds", "pseudo", "predict")  # commands that take --shard
TOGETHER = ("run", "train", "segment")  # commands that several processes do at once
PORT = 29500  # at which the processes of a job meet


@dataclass(frozen=True, kw_only=True)
class SlurmSettings(Settings):
    """Write a Slurm script for a command, which follows the settings."""

    basic = "to nodes gpus cpus memory time array partition account python"
    to: Path
    """The script to write; submit it with `sbatch FILE`."""
    nodes: Count = 1
    """Nodes that do the run together."""
    gpus: int = 1
    """GPUs of each node, one process each; 0: one process on the processor."""
    cpus: Count = 8
    """Processor cores for each process."""
    memory: str = "32G"
    """Memory of each node."""
    time: str = "24:00:00"
    """Longest time, as Slurm writes it."""
    array: Count | None = None
    """Split seeds, pseudo or predict into this many jobs of an array, a part of the images each."""
    partition: str | None = None
    """Slurm's partition; default: the cluster's own."""
    account: str | None = None
    """Slurm's account; default: your own."""
    python: str = "python"
    """The Python that tagmask is installed in."""


def write_slurm(settings: SlurmSettings, command: Sequence[str]) -> str:
    """Write a batch script, and return what to do with it.

    Args:
        settings: What Slurm is asked for.
        command: The command of tagmask and its arguments.

    Raises:
        TagmaskError: The command cannot be run in this way, e.g. for a batch that the processes of
            the job cannot split evenly.
    """
    _check(settings, command)
    lines = ["#!/bin/bash", *_asked(settings, command), "", "set -euo pipefail", ""]
    if settings.array is not None:
        lines += _part(settings, command)
    elif settings.nodes == 1 and settings.gpus <= 1:
        lines += ["srun " + _joined([settings.python, "-m", "tagmask", *command])]
    else:
        lines += _together(settings, command)
    write_text(settings.to, "\n".join(lines) + "\n")
    mode = settings.to.stat().st_mode
    os.chmod(settings.to, mode | stat.S_IXUSR)
    return f"script: {settings.to}; submit it with: sbatch {settings.to}"


def _check(settings: SlurmSettings, command: Sequence[str]) -> None:
    """Refuse what Slurm could not run."""
    if not command:
        raise TagmaskError(
            "name the command at the end, e.g. "
            "`tagmask slurm --to job.sh run --preset voc --root VOC2012 --out run`."
        )
    mistakes = settings.mistakes()
    name = command[0]
    if name not in (*IN_PARTS, *TOGETHER):
        known = ", ".join((*TOGETHER, *IN_PARTS))
        mistakes.append(f"{name} is no command for a cluster; these are: {known}.")
    if not 0 <= settings.gpus <= 64:
        mistakes.append(f"--gpus {settings.gpus} must be from 0 to 64.")
    if settings.array is not None and name not in IN_PARTS:
        mistakes.append(
            f"--array splits {', '.join(IN_PARTS)}; {name} is done by the processes of one job, "
            "leave --array out."
        )
    if settings.array is not None and settings.nodes > 1:
        mistakes.append("--array and --nodes exclude each other: a part needs one node.")
    for flag in ("memory", "time", "partition", "account"):
        value = getattr(settings, flag) or ""
        if not value.isprintable():
            mistakes.append(f"--{flag} {printable(value)} has a line break; leave it out.")
    for flag in ("--gpus", "--shard"):
        if any(word == flag or word.startswith(f"{flag}=") for word in command):
            mistakes.append(f"{flag} after {name} is set by the script; leave it out.")
    why = unwritable(settings.to)
    if why:
        mistakes.append(f"--to {why}")
    refuse(mistakes)
    processes = settings.nodes * max(1, settings.gpus)
    if processes > 1 and settings.array is None and name in TOGETHER:
        refuse(_uneven(name, command[1:], processes))


def _uneven(name: str, arguments: Sequence[str], processes: int) -> list[str]:
    """Return what the launch would say about batches that its processes cannot split evenly.

    Args:
        name: One of ``TOGETHER``.
        arguments: What follows it.
        processes: How many the job has, on all nodes.

    Raises:
        TagmaskError: The command itself cannot be understood.
    """
    from tagmask.runs.run import uneven_batches
    from tagmask.runs.table import STAGES, stage
    from tagmask.training.loop import uneven_batch

    words = understand(name, arguments)
    if name == "run":
        run = parse_run(words)
        rows = [row for row in STAGES if row.is_needed(row.settings_of(run))]
        # the photos are not counted here: with one, what might only be fitted is left out
        return uneven_batches(run, rows, 1, processes)
    _, own = parse_stage(stage(name).settings, words, name, "")
    sentence = uneven_batch(own, processes) if isinstance(own, LoopSettings) else ""
    return [sentence] if sentence else []


def _asked(settings: SlurmSettings, command: Sequence[str]) -> list[str]:
    """Return the lines that ask Slurm for machines and time."""
    processes = max(1, settings.gpus)
    asked = {
        "job-name": f"tagmask-{command[0]}",
        "nodes": settings.nodes,
        # one launcher a node starts its processes
        "ntasks-per-node": 1,
        "cpus-per-task": settings.cpus * processes,
        "mem": settings.memory,
        "time": settings.time,
    }
    if settings.gpus:
        asked["gres"] = f"gpu:{settings.gpus}"
    if settings.array is not None:
        asked["array"] = f"0-{settings.array - 1}"
        asked["gres"] = "gpu:1"
        asked["cpus-per-task"] = settings.cpus
        if not settings.gpus:
            del asked["gres"]
    for name, value in (("partition", settings.partition), ("account", settings.account)):
        if value is not None:
            asked[name] = value
    lines = [f"#SBATCH --{name}={value}" for name, value in asked.items()]
    # a job that is put off or preempted is started again, and continues
    return [*lines, "#SBATCH --requeue", "#SBATCH --open-mode=append"]


def _part(settings: SlurmSettings, command: Sequence[str]) -> list[str]:
    """Return the lines of a job of an array."""
    words = _joined([settings.python, "-m", "tagmask", *command])
    return [f'srun {words} --shard "$SLURM_ARRAY_TASK_ID/{settings.array}"']


def _together(settings: SlurmSettings, command: Sequence[str]) -> list[str]:
    """Return the lines of a job whose processes work together."""
    launcher = [
        *(settings.python, "-m", "torch.distributed.run"),
        *("--nnodes", "$SLURM_NNODES"),
        *("--nproc_per_node", str(max(1, settings.gpus))),
        *("--rdzv_id", "$SLURM_JOB_ID"),
        *("--rdzv_backend", "c10d"),
        *("--rdzv_endpoint", f"$first:{PORT}"),
    ]
    shown = " ".join(f'"{word}"' if "$" in word else shlex.quote(word) for word in launcher)
    return [
        "# all processes meet at the first node",
        # no pipe: a reader that has enough would end the script
        'read -r first < <(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        f"export OMP_NUM_THREADS={settings.cpus}",
        f"srun {shown} -m tagmask {_joined(command)}",
    ]


def _joined(words: Sequence[str]) -> str:
    """Return words as a shell reads them."""
    return " ".join(shlex.quote(word) for word in words)
