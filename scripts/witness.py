"""Make tests/witness, a small run that every later tagmask must be able to open.

    python scripts/witness.py            only when the format of runs gets a new number

The run is made by commands on three built-in pictures. Networks are kept as the names and shapes of
their tensors (shapes.json), which tests fill with zeros; pages and resume points are left out.
"""

import argparse
import json
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
from safetensors import safe_open

from tagmask.cli import main
from tagmask.data.corrections import TagChange, write_labels, write_tags
from tagmask.data.scenes.catalog import Scenes
from tagmask.layout import BEST, MODEL

PLACE = Path(__file__).parents[1] / "tests/witness"
LEFT_OUT = (".html", ".safetensors", ".lock", ".jsonl")
OPTIONS = (
    "--no-estimate --rows 1 --count 3 --train.steps 2 --train.batch 2 --train.size 32 "
    "--train.warmup 1 --train.val-every 100 --seeds.size 32 --pseudo.method crf "
    "--segment.backbone test_resnet --segment.steps 2 --segment.batch 2 --segment.size 33 "
    "--predict.no-crf --predict.no-flip"
)


def make_run(out: Path) -> None:
    """Run the commands; a photo is corrected in between."""
    words = ["run", "--preset", "scenes", "--out", str(out), *OPTIONS.split()]
    for turn in range(2):
        with suppress(SystemExit):
            main(words)
        if turn == 0:
            scenes = Scenes(3)
            labels = np.full(scenes.load_image(0).shape[:2], 255, np.uint8)
            labels[:8, :8] = 0
            name = scenes.name(0)
            write_labels(out / "corrections", name, labels)
            change = {name: TagChange(added=(scenes.classes[0],))}
            write_tags(out / "corrections", change, scenes.classes, scenes.identity)


def shapes_of(file: Path) -> dict[str, list[int]]:
    """Return the shapes of the tensors in a file, by name."""
    with safe_open(file, framework="np") as tensors:
        return {name: list(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118


def keep(out: Path, place: Path) -> None:
    """Copy what is small from a run."""
    shutil.rmtree(place, ignore_errors=True)
    for file in sorted(out.rglob("*")):
        name = file.relative_to(out)
        is_left_out = file.suffix in LEFT_OUT or file.name == "scores.png" or BEST in name.parts
        if file.is_file() and not is_left_out:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            content = file.read_bytes().replace(str(out).encode(), b"run")
            (place / name).write_bytes(content)
        elif file.name == MODEL and BEST not in name.parts:
            shapes = json.dumps(shapes_of(file), indent=1)
            (place / name.parent).mkdir(parents=True, exist_ok=True)
            (place / name.parent / "shapes.json").write_text(shapes + "\n")


def start() -> None:
    """Make the run in a temporary folder and keep it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--place", type=Path, default=PLACE)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder).resolve() / "run"
        make_run(out)
        keep(out, options.place)
    size = sum(file.stat().st_size for file in options.place.rglob("*") if file.is_file())
    print(f"{options.place}: {size / 1e3:.0f} kB")


if __name__ == "__main__":
    start()
