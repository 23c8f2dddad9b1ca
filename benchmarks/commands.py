"""The commands as a user runs them: where their time goes, photos per second, memory, and two processes against one.

    python benchmarks/commands.py [--entries 100 1000 10000] [--stages seeds pseudo predict score] [--json FILE]

Photos are the first hundred of ``--root``, a folder in VOC's layout, or drawn scenes of 400 pixels where it is absent;
more entries are the same photos under other names. First they are taken at their own size, then reduced to 64 pixels,
so that 10,000 of them take minutes. Networks are small and have random weights: what a command adds shows all the
better. Each stage runs in a process of its own, as the command does, with one thread.

- photos/s: by processor time, without the start of Python and torch, so that other programs hardly disturb it;
- read, network, refine, write: shares of that time. network includes enlarging the maps, refine is the CRF or counting;
- / parts: the whole time against these four parts; goal: at most 1.3×. What a command does once (a catalog, a curve
  drawn by matplotlib, a record of 10,000 files) is not a part;
- peak MB: the largest resident size; goal: 10,000 entries at most 1.1× of 100;
- 2 processes: photos per second of wall time against one process, once both are at work; goal 1.8×. Their start, which
  is mostly the import of torch, is printed beside it. Meaningless on a busy machine.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

PHOTOS, SMALL, OWN = (
    100,
    64,
    400,
)  # photos, pixels of the long side of the reduced ones and of scenes
TWO_AT = 1000  # entries of reduced photos that two processes are timed with
STAGES = ("seeds", "pseudo", "predict", "score")
PARTS = {  # functions whose time is a part, as module:name
    "read": (
        "tagmask.data.catalog:Catalog.load_image",
        "tagmask.data.catalog:Catalog.load_mask",
        "tagmask.stages.score:read_seeds",
        "tagmask.stages.score:read_mask",
        "tagmask.stages.pseudo:read_seeds",
    ),
    "network": ("tagmask.stages.seeds:make_maps", "tagmask.inference.photo_mask:predict_labels"),
    "refine": (
        "tagmask.stages.pseudo:label_pixels",
        "tagmask.stages.predict:sharpen",
        "tagmask.scoring.sweep:Sweep.add",
        "tagmask.stages.score:top_histogram",
        "tagmask.stages.score:confusion",
    ),
    "write": (
        "tagmask.stages.seeds:write_seeds",
        "tagmask.stages.pseudo:write_mask",
        "tagmask.stages.predict:write_mask",
    ),
}


def write_photos(folder: Path, root: Path, side: int | None) -> None:
    """A hundred photos, their masks and tags; ``side`` reduces their long side."""
    import numpy as np
    from PIL import Image

    from tagmask.data.images import write_mask
    from tagmask.data.scenes.catalog import Scenes
    from tagmask.data.voc import read_voc

    source = read_voc(root, "val") if root.is_dir() else Scenes(PHOTOS, size=OWN)
    folder.mkdir()
    for i in range(min(PHOTOS, len(source))):
        image, mask = source.load_image(i), source.load_mask(i)
        assert mask is not None
        scale = side / max(mask.shape) if side else 1
        size = [max(1, round(length * scale)) for length in mask.shape[::-1]]
        Image.fromarray(image).resize(size).save(folder / f"{i:03}.jpg", quality=90)
        reduced = Image.fromarray(mask).resize(size, Image.Resampling.NEAREST)
        write_mask(folder / f"{i:03}.png", np.asarray(reduced))
    about = {
        "classes": source.classes,
        "tags": [source.tags(i) for i in range(min(PHOTOS, len(source)))],
    }
    (folder / "about.json").write_text(json.dumps(about))


def photos(folder: Path, entries: int) -> Any:
    """A catalog of so many entries, the photos of a folder again and again."""
    from tagmask.data.catalog import Catalog

    about = json.loads((folder / "about.json").read_text())
    chosen = [(turn, turn % len(about["tags"])) for turn in range(entries)]
    return Catalog(
        tuple(about["classes"]),
        [f"{turn:06}" for turn, _ in chosen],
        [tuple(about["tags"][i]) for _, i in chosen],
        images=[folder / f"{i:03}.jpg" for _, i in chosen],
        masks=[folder / f"{i:03}.png" for _, i in chosen],
    )


def replace(name: str, changed: Callable[[Any], Any]) -> None:
    """Put ``changed(it)`` in the place of what module:name stands for."""
    path, _, last = name.replace(":", ".").rpartition(".")
    owner = resolve_name(path)
    setattr(owner, last, changed(getattr(owner, last)))


def timed_parts(spent: dict[str, float]) -> None:
    """Add the processor time of the functions of each part to ``spent``; the outer of two nested ones counts."""
    inside: list[str] = []

    def timed(part: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            began = time.process_time()
            inside.append(part)
            try:
                return work(*arguments, **options)
            finally:
                inside.pop()
                spent[part] += 0 if inside else time.process_time() - began

        return run

    for part, names in PARTS.items():
        for name in names:
            replace(name, partial(timed, part))


def watched(times: list[tuple[float, int]], processes: int) -> None:
    """Note when each result comes, and how many come together."""

    def watch(each: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def run(work: Any, items: Any, processes: int, chunksize: int = 1) -> Iterator[Any]:
            for result in each(work, items, processes, chunksize):
                times.append((time.perf_counter(), 1 if processes == 1 else chunksize))
                yield result

        return run

    def write(work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            result = work(*arguments)
            times.append((time.perf_counter(), 1))
            return result

        return run

    for module in ("seeds", "images", "score"):
        replace(f"tagmask.stages.{module}:each", watch)
    if processes == 1:  # which makes seeds without ``each``
        replace("tagmask.stages.seeds:_Work.write", write)


def steady(times: list[tuple[float, int]], processes: int) -> float:
    """Results per second, once every process has delivered its first; nan if there are no more."""
    (first, chunk), (last, _) = times[0], times[-1]
    later = len(times) - processes * chunk
    return later / (last - first) if later > 0 else math.nan


def prepare(out: Path, classes: tuple[str, ...]) -> None:
    """Networks with random weights, where a run has them."""
    import torch

    from tagmask import layout
    from tagmask.config import DeepLabSettings
    from tagmask.models.classifier import Classifier
    from tagmask.training.segmenter import build_segmenter

    torch.manual_seed(0)
    Classifier("tagmask_tiny", len(classes), classes=classes, pretrained=True).save(
        out / layout.CLASSIFIER
    )
    settings = DeepLabSettings(backbone="test_resnet")
    build_segmenter(settings, classes, fresh=True).save(out / layout.SEGMENTER)


def peak_megabytes() -> float:
    """The largest resident size of this program; Linux's ``ru_maxrss`` would count the one that started it too."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return float(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # macOS counts bytes


def stage(name: str, out: Path, folder: Path, entries: int, processes: int) -> None:
    """Run a stage and print what it took, as JSON."""
    import torch

    from tagmask.config.run import RunSettings
    from tagmask.runs.run import Run

    torch.set_num_threads(1)
    spent, times = dict.fromkeys(PARTS, 0.0), list[tuple[float, int]]()
    if processes == 1:
        timed_parts(spent)
    watched(times, processes)
    options: dict[str, dict[str, Any]] = {
        "seeds": {"size": SMALL if folder.name == "small" else 224, "restart": True},
        "score": {},
        "pseudo": {"method": "crf", "background": 0.4, "restart": True},
        "predict": {"scales": (1.0,), "flip": False, "restart": True},
    }
    began, wall = time.process_time(), time.perf_counter()
    catalog = photos(folder, entries)
    run = Run.of(RunSettings(out=out, count=entries), catalog)
    run.do(name, processes=processes, **options[name])
    seconds = time.process_time() - began
    peak = peak_megabytes()
    speed = {"results_per_second": steady(times, processes), "start": times[0][0] - wall}
    print(json.dumps({"seconds": seconds, "peak": peak, **speed, **spent}))


def run(name: str, out: Path, folder: Path, entries: int, processes: int) -> dict[str, float]:
    """The same in a process of its own."""
    words = ["--stage", name, "--out", str(out), "--folder", str(folder), "--entries", str(entries)]
    command = [sys.executable, __file__, *words, "--processes", str(processes)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(done.stderr)
    numbers: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return numbers


def row(name: str, folder: Path, entries: int) -> dict[str, Any]:
    """One line of the table."""
    out = folder.with_name(f"{folder.name}-{entries}")
    one = run(name, out, folder, entries, 1)
    parts = sum(one[part] for part in PARTS)
    values = {
        "photos": folder.name,
        "stage": name,
        "entries": entries,
        "photos_per_second": entries / one["seconds"],
    }
    shares = {part: one[part] / one["seconds"] for part in PARTS}
    values |= {**shares, "to_parts": one["seconds"] / parts, "peak_mb": one["peak"]}
    if folder.name == "small" and entries != TWO_AT:
        return values
    two = run(name, out, folder, entries, 2)
    return values | {
        "two": two["results_per_second"] / one["results_per_second"],
        "start": two["start"],
    }


def show(line: dict[str, Any]) -> str:
    shares = "".join(f"{100 * line[part]:>7.0f} %" for part in PARTS)
    numbers = (
        f"{line['photos_per_second']:>9.1f}{shares}{line['to_parts']:>8.2f}×{line['peak_mb']:>9.0f}"
    )
    two = f"{line['two']:>12.2f}×{line['start']:>7.1f}" if "two" in line else ""
    return f"{line['photos']:<7}{line['stage']:<8}{line['entries']:>8}{numbers}{two}"


def main() -> None:
    """Measure, print, and write with --json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--entries", type=int, nargs="+", default=[100, 1000, 10_000], help="of reduced photos"
    )
    even = "of photos at their own size: eight windows of seeds, which two processes can share out evenly"
    parser.add_argument("--own", type=int, default=128, help=even)
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[2] / "shared/data/voc")
    parser.add_argument("--json", type=Path, help="write the rows here")
    for hidden in ("--stage", "--out", "--folder", "--processes"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        words = (
            Path(options.out),
            Path(options.folder),
            options.entries[0],
            int(options.processes),
        )
        stage(options.stage, *words)
        return
    rows: list[dict[str, Any]] = []
    shares = "".join(f"{part:>9}" for part in PARTS)
    head = f"{'photos':<7}{'stage':<8}{'entries':>8}{'photos/s':>9}{shares}{'/ parts':>9}{'peak MB':>9}"
    print(f"{head}{'2 processes':>13}{'start':>7}", flush=True)
    with tempfile.TemporaryDirectory() as place:
        for kind, sizes in (("own", [options.own]), ("small", options.entries)):
            folder = Path(place) / kind
            write_photos(folder, options.root, SMALL if kind == "small" else None)
            for entries in sizes:
                prepare(folder.with_name(f"{kind}-{entries}"), photos(folder, 1).classes)
                for name in options.stages:
                    rows.append(row(name, folder, entries))
                    print(show(rows[-1]), flush=True)
    few, many = min(options.entries), max(options.entries)
    peaks = {
        (line["stage"], line["entries"]): line["peak_mb"]
        for line in rows
        if line["photos"] == "small"
    }
    growth = ", ".join(
        f"{name} {peaks[name, many] / peaks[name, few]:.2f}×" for name in options.stages
    )
    print(f"memory of {many:,} entries against {few:,}: {growth}")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
