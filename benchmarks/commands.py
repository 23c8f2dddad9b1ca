"""The commands as a user runs them: where their time goes, photos per second, and memory.

    python benchmarks/commands.py [--entries 100 1000] [--stages seeds score pseudo predict] [--json FILE]

Photos are the first hundred of ``--root``, a folder in VOC's layout, or built-in scenes where it is absent; more
entries are the same photos under other names. Networks have random weights: the times are the same. Each stage runs in
a process of its own, as the command does, with one thread; with ``--two`` once more with two processes.

- photos/s: by processor time, without the start of Python and torch, so that other programs hardly disturb it;
- read, network, refine, write: shares of that time. network includes enlarging the maps, refine is the CRF or counting;
- rest: everything else, that is the command's own; goal: at most 1.3× the four parts, a rest of at most 23 %;
- peak MB: the largest resident size; goal: 10,000 entries at most 1.1× of 100;
- 2 processes: how much less wall time they take; goal 1.8×. Meaningless on a busy machine.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STAGES = ("seeds", "score", "pseudo", "predict")
PARTS = {  # functions whose time is a part, as module:name
    "read": (
        "tagmask.data.catalog:Catalog.load_image",
        "tagmask.data.catalog:Catalog.load_mask",
        "tagmask.stages.score:read_seeds",
        "tagmask.stages.score:read_mask",
        "tagmask.stages.pseudo:read_seeds",
    ),
    "network": ("tagmask.stages.seeds:make_maps", "tagmask.stages.predict:predict_probabilities"),
    "refine": (
        "tagmask.stages.pseudo:label_pixels",
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


def photos(root: Path, entries: int) -> Any:
    """A catalog of so many entries, the first hundred photos again and again."""
    from tagmask.data.catalog import Catalog
    from tagmask.data.voc import read_voc
    from tagmask.scenes.catalog import Scenes

    if not root.is_dir():
        return Scenes(entries)
    voc = read_voc(root, "val")
    items = [voc.item(i) for i in range(min(100, len(voc)))]
    chosen = [(turn, items[turn % len(items)]) for turn in range(entries)]
    return Catalog(
        voc.classes,
        [f"{turn // len(items):03}_{item.name}" for turn, item in chosen],
        [item.tags for _, item in chosen],
        images=[item.image for _, item in chosen],
        masks=[item.mask for _, item in chosen],
    )


def timed_parts(spent: dict[str, float]) -> None:
    """Add the processor time of the functions of each part to ``spent``; the outer of two nested ones counts."""
    import importlib

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
            module, _, path = name.partition(":")
            owner: Any = importlib.import_module(module)
            *above, last = path.split(".")
            for step in above:
                owner = getattr(owner, step)
            setattr(owner, last, timed(part, getattr(owner, last)))


def prepare(out: Path, classes: tuple[str, ...]) -> None:
    """Networks with random weights, where a run has them."""
    import torch

    from tagmask.config import SegmentSettings
    from tagmask.models.classifier import Classifier
    from tagmask.pipeline import layout
    from tagmask.training.segmenter import build_segmenter

    torch.manual_seed(0)
    Classifier("tagmask_tiny", len(classes), classes=classes, pretrained=True).save(out / layout.CLASSIFIER)
    settings = SegmentSettings(out=out, backbone="resnet18", net="deeplab")
    build_segmenter(settings, classes, fresh=True).save(out / layout.SEGMENTER)


def stage(name: str, out: Path, root: Path, entries: int, processes: int) -> None:
    """Run a stage and print what it took, as JSON."""
    import torch

    from tagmask.config import PredictSettings, PseudoSettings, ScoreSettings, SeedSettings
    from tagmask.stages.predict import predict_catalog
    from tagmask.stages.pseudo import make_pseudo
    from tagmask.stages.score import score_run
    from tagmask.stages.seeds import seed_catalog

    torch.set_num_threads(1)
    catalog = photos(root, entries)
    if not out.exists():
        prepare(out, catalog.classes)
    spent = dict.fromkeys(PARTS, 0.0)
    if processes == 1:
        timed_parts(spent)
    common: dict[str, Any] = {"out": out, "count": entries, "processes": processes}
    began, wall = time.process_time(), time.perf_counter()
    if name == "seeds":
        seed_catalog(SeedSettings(**common, size=224, restart=True), catalog)
    elif name == "score":
        score_run(ScoreSettings(**common), catalog)
    elif name == "pseudo":
        make_pseudo(PseudoSettings(**common, method="crf", background=0.4, restart=True), catalog)
    else:
        predict_catalog(PredictSettings(**common, scales=(1.0,), flip=False, restart=True), catalog)
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(json.dumps({"seconds": seconds, "wall": time.perf_counter() - wall, "peak": peak, **spent}))


def run(name: str, out: Path, root: Path, entries: int, processes: int) -> dict[str, float]:
    """The same in a process of its own."""
    words = ["--stage", name, "--out", str(out), "--root", str(root), "--entries", str(entries)]
    command = [sys.executable, __file__, *words, "--processes", str(processes)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(done.stderr)
    numbers: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return numbers


def row(name: str, out: Path, root: Path, entries: int, two: bool) -> dict[str, Any]:
    """One line of the table."""
    one = run(name, out, root, entries, 1)
    parts = sum(one[part] for part in PARTS)
    values = {"stage": name, "entries": entries, "photos_per_second": entries / one["seconds"]}
    shares = {part: one[part] / one["seconds"] for part in PARTS}
    values |= {**shares, "to_parts": one["seconds"] / parts, "peak_mb": one["peak"]}
    return {**values, "two": one["wall"] / run(name, out, root, entries, 2)["wall"] if two else None}


def main() -> None:
    """Measure, print, and write with --json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, nargs="+", default=[100])
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[2] / "shared/data/voc")
    parser.add_argument("--json", type=Path, help="write the rows here")
    parser.add_argument("--two", action="store_true", help="also with two processes")
    for hidden in ("--stage", "--out", "--processes"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        stage(options.stage, Path(options.out), options.root, options.entries[0], int(options.processes))
        return
    rows = []
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    shares = "".join(f"{part:>9}" for part in PARTS)
    print(
        f"{'stage':<9}{'entries':>8}{'photos/s':>10}{shares}{'/ parts':>9}{'peak MB':>9}{'2 processes':>13}", flush=True
    )
    with tempfile.TemporaryDirectory() as folder:
        for entries in options.entries:
            for name in options.stages:
                line = row(name, Path(folder) / str(entries), options.root, entries, options.two)
                rows.append(line)
                shares = "".join(f"{100 * line[part]:>7.0f} %" for part in PARTS)
                two = f"{line['two']:>12.2f}×" if line["two"] else ""
                numbers = f"{line['photos_per_second']:>10.1f}{shares}{line['to_parts']:>8.2f}×{line['peak_mb']:>9.0f}"
                print(f"{name:<9}{entries:>8}{numbers}{two}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
