"""Shards: images per second for one and two processes, what shards cost beyond the work itself, and memory.

    python benchmarks/scale.py [--images 8] [--shards 4] [--photos FOLDER] [--backbone NAME]
    python benchmarks/scale.py --rows 1000000 [--work FOLDER]

The first line measures `tagmask predict` on shards as a user types it, as one command and as two (--shard 0/2 and
1/2), and the same work without shards: read a photo, predict, sharpen, encode. The overhead is what a command takes
per image beyond that, apart from its start. Other programs may use the cores, so seconds of the processor count, and
those of the clock are shown beside them. Goal: at most 10 %.

The second line puts a manifest of so many rows into shards of 10,000 tiny images, predicts one of them from the
manifest, and predicts and exports 100 shards of 100 tiny images; it prints seconds and the largest resident memory of
each command.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from tagmask.config import MaskSettings
from tagmask.data.images import palette_image, read_image
from tagmask.data.scenes.catalog import Scenes
from tagmask.exchange.items import png
from tagmask.inference.probabilities import predict_labels, sharpen
from tagmask.models.classifier import Classifier
from tagmask.models.head import HeadSegmenter

SIZE = (300, 400)  # of the photos, if none are given
TINY = 10_000  # different tiny images


@dataclass
class Used:
    """What a command has used."""

    clock: float  # seconds
    processor: float
    megabytes: float  # the largest resident size


def save_segmenter(folder: Path, backbone: str, size: int, classes: int) -> HeadSegmenter:
    """A head on a backbone with random weights: they do not change how long it takes."""
    torch.manual_seed(0)
    classifier = Classifier(backbone, classes, img_size=size)
    blocks = (len(classifier.blocks) // 2, len(classifier.blocks) - 1)
    model = HeadSegmenter(classifier, blocks, size).eval()
    model.save(folder)
    return model


def write_photos(folder: Path, count: int, size: tuple[int, int]) -> None:
    """Built-in scenes, enlarged or reduced."""
    folder.mkdir(parents=True)
    scenes = Scenes(min(count, 200), seed=1)
    for i in range(count):
        picture = Image.fromarray(scenes.load_image(i % len(scenes)))
        picture.resize(size[::-1]).save(folder / f"{i:06}.jpg", quality=90)


def command(*words: object) -> subprocess.Popen[str]:
    """A command of tagmask, started."""
    arguments = [sys.executable, "-m", "tagmask", *map(str, words)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def wait(processes: list[subprocess.Popen[str]], began: float) -> list[Used]:
    """Wait for commands, and return what each has used."""
    used = []
    for process in processes:
        _, status, usage = os.wait4(process.pid, 0)
        assert status == 0, process.args
        clock = time.monotonic() - began
        scale = 1e6 if sys.platform == "darwin" else 1e3
        used.append(Used(clock, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / scale))
    return used


def run(*words: object) -> Used:
    """Run a command, and return what it has used."""
    began = time.monotonic()
    return wait([command(*words)], began)[0]


def bare(photos: Path, model: HeadSegmenter, settings: MaskSettings) -> dict[str, float]:
    """Seconds of the processor per image of each step, without shards."""
    torch.set_num_threads(1)
    seconds = dict.fromkeys(("read", "network", "CRF", "encode"), 0.0)
    files = sorted(photos.iterdir())
    for number, file in enumerate([files[0], *files]):  # the first one warms up
        marks = [time.process_time()]
        image = read_image(file)
        marks.append(time.process_time())
        found = predict_labels(model, image, scales=settings.scales, flip=settings.flip)
        marks.append(time.process_time())
        sharp = sharpen(image, found.values)
        marks.append(time.process_time())
        png(palette_image(found.labels.astype(np.uint8)[sharp.argmax(0)]))
        marks.append(time.process_time())
        if number:
            for name, spent in zip(seconds, np.diff(marks), strict=True):
                seconds[name] += float(spent) / len(files)
    return seconds


def throughput(work: Path, options: argparse.Namespace) -> None:
    """Measure images per second, and the share of the overhead."""
    photos = options.photos or work / "photos"
    if options.photos is None:
        write_photos(photos, options.images * options.shards, SIZE)
    model = save_segmenter(work / "model", options.backbone, options.size, 20)
    count = len(list(photos.iterdir()))
    settings = MaskSettings(scales=(1.0,), flip=False)
    flags = ("--model", work / "model", "--scales", "1.0", "--no-flip", "--processes", 1)
    run("shard", photos, "--to", work / "shards", "--images", -(-count // options.shards))
    steps = bare(photos, model, settings)
    alone = sum(steps.values())
    # a command that has nothing to do: how long it takes to start
    predict = ("predict", "--shards", work / "shards", *flags)
    one = run(*predict, "--to", work / "one")
    start = run(*predict, "--to", work / "one")
    began = time.monotonic()
    parts = [command(*predict, "--to", work / "two", "--shard", f"{i}/2") for i in range(2)]
    two = wait(parts, began)
    print(
        f"{count} photos in {options.shards} shards; {options.backbone} at {options.size} px, CRF"
    )
    print("\nwithout shards, seconds of the processor per image:")
    print("  " + ", ".join(f"{name} {value:.3f}" for name, value in steps.items()), end="")
    print(f"; in all {alone:.3f}")
    print(f"start of a command: {start.processor:.1f} s of the processor\n")
    print("| processes | images/s per process, by the processor | by the clock | overhead | MB |")
    print("|---:|---:|---:|---:|---:|")
    for used, images in ((one, count), *((part, count / 2) for part in two)):
        each = (used.processor - start.processor) / images
        clock = (used.clock - start.clock) / images
        share = 100 * (each / alone - 1)
        number = 1 if used is one else 2
        print(
            f"| {number} | {1 / each:.2f} | {1 / max(clock, 1e-9):.2f} | {share:+.1f} % "
            f"| {used.megabytes:.0f} |"
        )
    made = sorted((work / "one").glob("*.tar"))
    assert all(file.read_bytes() == (work / "two" / file.name).read_bytes() for file in made)
    print("\nboth made the same bytes")


def memory(work: Path, rows: int) -> None:
    """Measure a manifest of many rows, and 100 shards of tiny images."""
    write_photos(work / "tiny", min(TINY, rows), (16, 16))
    with (work / "tiny/manifest.csv").open("w", encoding="utf-8") as file:
        file.write("file,tags\n")
        for row in range(rows):
            file.write(f"{row % TINY:06}.jpg,{'dog' if row % 2 else 'cat;dog'}\n")
    save_segmenter(work / "model", "tagmask_tiny", 32, 3)
    few = work / "few"
    few.mkdir()
    for number in range(100 * 100):
        os.link(work / f"tiny/{number % TINY % rows:06}.jpg", few / f"{number:06}.jpg")
    flags = ("--model", work / "model", "--no-crf", "--no-flip", "--scales", "1.0")
    alone = (*flags, "--processes", 1)
    manifest = work / "tiny/manifest.csv"
    steps = {
        "predict: one shard of the manifest": (
            *("predict", "--shards", manifest, "--to", work / "masks-of-rows", *alone),
            *("--shard", f"0/{-(-rows // 10_000)}"),
        ),
        "shard: 100 × 100 images": ("shard", few, "--to", work / "100", "--images", 100),
        "predict: 100 shards": (
            *("predict", "--shards", work / "100", "--to", work / "masks", *alone),
        ),
        "predict: the same again": (
            *("predict", "--shards", work / "100", "--to", work / "masks", *alone),
        ),
        "export: 100 shards": ("export", work / "masks", "--to", work / "coco", "--processes", 1),
        f"shard: {rows:,} rows": ("shard", manifest, "--to", work / "shards"),
    }
    print("| command | seconds of the processor | by the clock | MB |\n|---|---:|---:|---:|")
    for title, words in steps.items():
        used = run(*words)
        print(
            f"| {title} | {used.processor:.0f} | {used.clock:.0f} | {used.megabytes:.0f} |",
            flush=True,
        )
    notes = [json.loads(file.read_text()) for file in (work / "shards").glob("*.note.json")]
    assert sum(note["images"] for note in notes) == rows
    notes = [json.loads(file.read_text()) for file in (work / "masks").glob("*.note.json")]
    assert (len(notes), sum(note["images"] for note in notes)) == (100, 10_000)
    assert len(list((work / "coco").glob("*.note.json"))) == 100


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=8, help="in each shard")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--photos", type=Path, help="a folder of photos; default: built-in scenes")
    parser.add_argument("--backbone", default="vit_small_patch14_dinov2")
    parser.add_argument("--size", type=int, default=392, help="long side that the network sees")
    parser.add_argument("--rows", type=int, help="of a manifest; measure memory instead")
    parser.add_argument("--work", type=Path, help="an empty folder to work in")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = options.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        if options.rows:
            memory(work, options.rows)
        else:
            throughput(work, options)


if __name__ == "__main__":
    main()
