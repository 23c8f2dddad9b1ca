"""`tagmask run --preset own-photos`, stage by stage, and with --deeplab against the DeepLab route on the same photos.

Both routes run as a user types them, each in a process of its own: train, seeds, pseudo, segment, predict, report. The
DeepLab route is the former preset: random crops, generic maps, a ResNet-18 trained for 4,000 steps. Only
``--deeplab-steps`` of them are run, and its segment time is scaled up. Photos are scenes enlarged to 512 pixels, unless
a folder and a table are given; without --weights backbones start from random weights: the times are the same.

    python benchmarks/own_photos.py                             two minutes
    python benchmarks/own_photos.py --photos 24 --deeplab       a quarter of an hour
    python benchmarks/own_photos.py --images photos --tags tags.csv --weights vit_small.safetensors
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STAGES = ("train", "seeds", "pseudo", "segment", "predict", "report")
OLD = [
    *(
        "--train.no-fixed-views",
        "--train.freeze",
        "0",
        "--train.size",
        "224",
        "--train.epochs",
        "15",
    ),
    *(
        "--train.batch",
        "4",
        "--train.optimizer",
        "sgd",
        "--train.lr",
        "0.01",
        "--train.head-lr",
        "1",
    ),
    *("--seeds.method", "generic", "--seeds.affinity-steps", "1", "--pseudo.rule", "cross_entropy"),
    *(
        "--segment.net",
        "deeplab",
        "--segment.backbone",
        "resnet18",
        "--segment.freeze-norm",
        "--segment.size",
        "321",
    ),
    *("--segment.batch", "10", "--predict.scales", "0.75", "1.0", "1.25", "--predict.flip"),
]


def make_photos(folder: Path, count: int) -> list[str]:
    """Scenes enlarged to a long side of 512 pixels, and their table."""
    from PIL import Image

    from tagmask.data.scenes.catalog import Scenes

    scenes, rows = Scenes(count, seed=9), ["file,tags"]
    (folder / "photos").mkdir()
    for i in range(count):
        image = Image.fromarray(scenes.load_image(i))
        factor = 512 / max(image.size)
        image.resize([round(side * factor) for side in image.size]).save(folder / f"photos/{i}.jpg")
        rows.append(f"{i}.jpg,{';'.join(scenes.classes[c] for c in scenes.tags(i))}")
    (folder / "tags.csv").write_text("\n".join(rows) + "\n")
    return ["--images", str(folder / "photos"), "--tags", str(folder / "tags.csv")]


def run(data: list[str], out: Path, flags: list[str]) -> dict[str, float]:
    """Seconds of each stage, and of the whole command."""
    command = [
        sys.executable,
        "-m",
        "tagmask",
        "run",
        "--preset",
        "own-photos",
        *data,
        "--out",
        str(out),
        *flags,
    ]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    seconds = {"whole command": time.perf_counter() - began}
    stage = ""
    for line in (done.stdout + done.stderr).splitlines():
        if match := re.match(r"\[\d+/\d+\] (\w+)", line.strip()):
            stage = match[1]
        if match := re.match(r"took (\d+) s", line.strip()):
            seconds[stage] = float(match[1])
    estimate = re.search(r"together about (\S+ \S+)", done.stdout)
    print(f"{out.name}: the plan said {estimate[1] if estimate else 'nothing'}")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--photos", type=int, default=12)
    parser.add_argument("--images", help="a folder of photos, with --tags")
    parser.add_argument("--tags")
    parser.add_argument("--weights", help="of vit_small_patch14_dinov2")
    parser.add_argument("--deeplab-steps", type=int, default=20)
    parser.add_argument("--deeplab", action="store_true", help="the DeepLab route too")
    parser.add_argument("--json", help="also write the ratios to this file")
    options = parser.parse_args()
    backbone = ["--train.backbone", "vit_small_patch14_dinov2", "--train.no-pretrained"]
    backbone += ["--train.weights", options.weights] if options.weights else []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        data = (
            ["--images", options.images, "--tags", options.tags]
            if options.images
            else make_photos(place, options.photos)
        )
        new = run(data, place / "head", backbone)
        print("again, with another head:")
        again = run(data, place / "head", [*backbone, "--segment.rounds", "2"])
        old: dict[str, float] = {}
        if options.deeplab:
            few = ["--segment.no-pretrained", "--segment.steps", str(options.deeplab_steps)]
            old = run(data, place / "deeplab", [*backbone, *OLD, *few])
            scaled = old["segment"] * 4000 / options.deeplab_steps
            old["whole command"] += scaled - old["segment"]
            old["segment"] = scaled
    print(
        f"\n{'seconds':14} {'head':>9} {'again':>9}"
        + (f" {'DeepLab':>9} {'ratio':>7}" if old else "")
    )
    for name in (*STAGES, "whole command"):
        ratio = (
            f" {old[name]:9.0f} {old[name] / max(1, new.get(name, 0)):6.1f}×" if name in old else ""
        )
        print(f"{name:14} {new.get(name, 0):9.0f} {again.get(name, 0):9.0f}{ratio}")
    if options.json:
        Path(options.json).write_text(
            json.dumps({"head": new, "again": again, "deeplab": old}, indent=2)
        )


if __name__ == "__main__":
    main()
