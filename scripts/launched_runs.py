"""Whole runs by several processes on real photos: the same files as one process, also after kills.

    python scripts/launched_runs.py VOC [--weights FILE] [--out FOLDER] [--photos 200] [--kills 12]
    python scripts/launched_runs.py VOC --train 30 [--weights FILE] [--photos 200] [--kills 6]

VOC is a folder with JPEGImages and SegmentationClassAug; FILE holds weights of
vit_small_patch14_dinov2, without which a tiny backbone is used. One process makes the files to
compare with, unless they are there. Then the run is made by 2 and by 4 processes that torchrun
starts, and in parts by --shard with 1, 2 and 4 of them. At last it is killed: a random process at a
random moment, started again with another number of processes, until it has been killed as often as
asked; after each kill the others have to end by themselves. Every file but logs and those that hold
times or paths has to be the same byte by byte.

With --train STEPS the classifier is trained, not only fitted. Sums of gradients are rounded
differently with another number of processes, so 2 processes make the run to compare with, and the
one that is killed: half of the times within the training.
"""

import argparse
import csv
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from tagmask.data.images import read_mask
from tagmask.data.voc import CLASSES

CHANGING = {  # hold times or paths
    "config.toml",
    "report.html",
    "report.done.json",
    "log.jsonl",
    "resume.safetensors",
    ".contents.json",
}
SIZE = 112  # pixels at which photos are seen
SECONDS_TO_END = 60.0  # after a kill


def main() -> None:
    """Do everything, and print one line for each run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("voc", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--out", type=Path, default=Path("launched"))
    parser.add_argument("--photos", type=int, default=200)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--span", type=float, help="seconds in which a run is killed")
    parser.add_argument("--only", nargs="*", default=["launch", "shards", "kills"])
    parser.add_argument("--train", type=int, metavar="STEPS", help="train for so many steps")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    flags = [*data_of(asked), *settings_of(asked.weights)]
    if asked.train:
        kill_trainings(asked, flags)
        return

    one = asked.out / "one"
    seconds = 0.0
    if not (one / "report.html").is_file():
        seconds = timed(flags, one, 1)
        report("1 process", seconds, one, one)
    if "launch" in asked.only:
        for count in (2, 4):
            out = fresh(asked.out / f"processes-{count}")
            report(f"{count} processes", timed(flags, out, count), out, one)
    if "shards" in asked.only:
        for count in (1, 2, 4):
            out = fresh(asked.out / f"shards-{count}")
            report(f"{count} shards", in_shards(flags, out, count), out, one)
    if "kills" in asked.only:
        out = fresh(asked.out / "killed")
        began = time.monotonic()
        draw = random.Random(asked.seed)
        kill_often(flags, out, asked.kills, draw, asked.span or seconds or 60.0)
        report(f"{asked.kills} kills", time.monotonic() - began, out, one)


def kill_trainings(asked: argparse.Namespace, flags: list[str]) -> None:
    """Kill runs of two processes with a training in them, and compare the files."""
    flags = [*flags, "--train.train-from", "0", "--train.steps", str(asked.train)]
    flags += ["--train.batch", "4", "--train.save-every", "3", "--train.log-every", "1"]
    whole = asked.out / "trained"
    seconds = asked.span or 60.0
    if not (whole / "report.html").is_file():
        seconds = timed(flags, whole, 2)
        report("2 processes", seconds, whole, whole)
    out = fresh(asked.out / "trained-killed")
    began = time.monotonic()
    kill_often(flags, out, asked.kills, random.Random(asked.seed), seconds, counts=(2,))
    report(f"{asked.kills} kills", time.monotonic() - began, out, whole)


def data_of(asked: argparse.Namespace) -> list[str]:
    """Write a table of photos and tags, and return the flags that name it."""
    photos = asked.voc / "JPEGImages"
    table = asked.out / "tags.csv"
    flags = ["--images", str(photos), "--tags", str(table)]
    if table.is_file():
        return flags
    names = (asked.voc / "ImageSets/Segmentation/train.txt").read_text().split()
    with table.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["file", "tags"])
        for name in names[: asked.photos]:
            mask = read_mask(asked.voc / "SegmentationClassAug" / f"{name}.png", len(CLASSES))
            labels = [label for label in sorted(set(mask.flat)) if 0 < label < 255]
            rows.writerow([f"{name}.jpg", ";".join(CLASSES[label - 1] for label in labels)])
    return flags


def settings_of(weights: Path | None) -> list[str]:
    """Return the flags of a quick run of own photos."""
    flags = ["--preset", "own-photos", "--no-estimate", "--predict.crf-size", "64"]
    flags += ["--train.size", str(SIZE), "--train.object-size", str(SIZE)]
    flags += ["--segment.size", str(SIZE)]
    # pools of processes would only take time to start
    for stage in ("seeds", "pseudo", "predict"):
        flags += [f"--{stage}.processes", "1"]
    if weights is not None:
        flags += ["--train.backbone", "vit_small_patch14_dinov2", "--train.no-pretrained"]
        return [*flags, "--train.weights", str(weights)]
    flags += ["--train.backbone", "tagmask_tiny", "--train.freeze", "2"]
    flags += ["--train.object-blocks", "1", "3", "--segment.head-blocks", "1", "3"]
    return [*flags, "--seeds.affinity-blocks", "0", "2"]


def fresh(out: Path) -> Path:
    """Return a folder that is not there."""
    shutil.rmtree(out, ignore_errors=True)
    return out


def start(words: list[str], processes: int, log: Path) -> "subprocess.Popen[bytes]":
    """Start tagmask once, or several times by torchrun, with one thread each."""
    command = [sys.executable]
    if processes > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        launcher = ["-m", "torch.distributed.run", "--nproc_per_node", str(processes)]
        command += [*launcher, "--master_port", str(port)]
    command += ["-m", "tagmask", *words]
    with log.open("ab") as file:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, stdout=file, stderr=file, env=environment)


def timed(flags: list[str], out: Path, processes: int) -> float:
    """Do a run, and return its seconds."""
    began = time.monotonic()
    log = out.with_suffix(".log")
    code = start(["run", *flags, "--out", str(out)], processes, log).wait()
    if code:
        sys.exit(f"{out}: the run ended with {code}; see {log}.")
    return time.monotonic() - began


def in_shards(flags: list[str], out: Path, count: int) -> float:
    """Do the stages one by one, those of single images in parts at the same time."""
    began = time.monotonic()
    for stage in ("train", "seeds", "pseudo", "segment", "predict"):
        place = [*own_flags(flags, stage), "--out", str(out)]
        parts = count if stage in ("seeds", "pseudo", "predict") else 1
        log = out.with_suffix(".log")
        started = []
        for part in range(parts):
            shard = ["--shard", f"{part}/{parts}"] if parts > 1 else []
            started.append(start([stage, *place, *shard], 1, log))
        codes = [process.wait() for process in started]
        if any(codes):
            sys.exit(f"{out}: {stage} ended with {codes}; see {log}.")
    return time.monotonic() - began


def own_flags(flags: list[str], stage: str) -> list[str]:
    """Return the flags of a run that a stage has, as the stage's own command takes them."""
    taken = []
    is_taken = True
    for word in flags:
        if word.startswith("--"):
            is_own = word.startswith(f"--{stage}.")
            is_taken = is_own or ("." not in word and word != "--no-estimate")
            word = word.replace(f"{stage}.", "") if is_own else word
        if is_taken:
            taken.append(word)
    return taken


def kill_often(
    flags: list[str],
    out: Path,
    kills: int,
    draw: random.Random,
    span: float,
    counts: Sequence[int] = (2, 3, 4),
) -> None:
    """Kill a run at random moments within a span of seconds, then let it end.

    Args:
        flags: those of the run.
        out: its folder.
        kills: how often.
        draw: what is drawn from.
        span: seconds of the whole run.
        counts: numbers of processes to draw from. If it is one number, the last run has as many,
            and every other kill waits for a step of the training.
    """
    log = out.with_suffix(".log")
    words = ["run", *flags, "--out", str(out)]
    longest = 0.0
    killed = 0
    steps = out / "1_classifier/log.jsonl"
    while killed < kills:
        count = draw.choice(counts)
        before = steps.stat().st_size if steps.is_file() else 0
        told = log.stat().st_size if log.is_file() else 0
        launcher = start(words, count, log)
        is_awaited = len(counts) == 1 and killed % 2 == 0
        end = time.monotonic() + (4 if is_awaited else draw.uniform(0.1, 0.9)) * span
        while launcher.poll() is None and time.monotonic() < end:
            time.sleep(0.2)
            is_trained = steps.is_file() and steps.stat().st_size > before
            if is_awaited and is_trained:
                time.sleep(draw.uniform(0, 0.05) * span)
                break
        workers = psutil.Process(launcher.pid).children() if launcher.poll() is None else []
        if not workers:
            launcher.wait()
            # it was done before: begin a stage anew
            shutil.rmtree(out / draw.choice(("2_seeds", "4_pseudo", "6_predictions")), True)
            continue
        victim = draw.choice(workers)
        victim.kill()
        killed += 1
        print(f"kill {killed}: {last_line(log, told)}", flush=True)
        began = time.monotonic()
        try:
            launcher.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            sys.exit(f"{out}: the others did not end after kill {killed}; see {log}.")
        longest = max(longest, time.monotonic() - began)
    print(f"{kills} kills: all others had ended {longest:.1f} s later at most", flush=True)
    code = start(words, counts[0] if len(counts) == 1 else 1, log).wait()
    if code:
        sys.exit(f"{out}: the last run ended with {code}; see {log}.")


def last_line(log: Path, told: int) -> str:
    """Return what a run has told last, of which so many bytes had been told before it began."""
    lines = log.read_bytes()[told:].decode(errors="replace").replace("\r", "\n").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "nothing was told")


def report(title: str, seconds: float, out: Path, expected: Path) -> None:
    """Compare two runs, and print what was found."""
    ours = products(out)
    theirs = products(expected)
    if title.endswith("shards"):
        # stages that are done alone write no notes of a run
        theirs = {name: content for name, content in theirs.items() if name in ours}
        ours = {name: content for name, content in ours.items() if Path(name).parent.name}
        theirs = {name: content for name, content in theirs.items() if name in ours}
    different = [name for name in theirs if ours.get(name) != theirs[name]]
    more = ours.keys() - theirs.keys()
    verdict = "the same" if not different and not more else "DIFFERENT"
    print(f"{title:12} {seconds:6.0f} s   {len(theirs)} files: {verdict}", flush=True)
    for name in [*different, *more][:10]:
        print(f"    {name}")
    if different or more:
        sys.exit(1)


def products(out: Path) -> dict[str, bytes]:
    """Return the files of a run that are the same whenever and wherever it is made."""
    files = [file for file in out.rglob("*") if file.is_file() and file.name not in CHANGING]
    return {file.relative_to(out).as_posix(): file.read_bytes() for file in files}


if __name__ == "__main__":
    main()
