"""A COCO-size annotation file: time and memory to open it, and to use the catalog.

    python benchmarks/catalog.py [--images 82783] [--objects 604907] [--json FILE]

The file is generated in the temporary folder, about 300 MB at the default size. Processor time; wall time for the last
row. If ijson is installed, its row reads the same three lists with it, in one pass over the file for each list.
"""

import argparse
import json
import multiprocessing
import pickle
import resource
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tagmask.data.catalog import Catalog
from tagmask.data.coco import read_coco
from tagmask.data.json_stream import stream_lists

LISTS = ("images", "annotations", "categories")


def generate(root: Path, images: int, objects: int) -> Path:
    """Empty image files, and instances.json with one polygon per object of 4 corners or more."""
    rng = np.random.default_rng(0)
    (root / "images").mkdir()
    names = [f"COCO_train2014_{number:012d}.jpg" for number in range(images)]
    for name in names:
        (root / "images" / name).touch()
    entries = [
        {"id": i, "file_name": name, "height": 480, "width": 640} for i, name in enumerate(names)
    ]
    categories = [{"id": number, "name": f"class {number}"} for number in range(1, 81)]
    file = root / "instances.json"
    with file.open("w") as out:
        out.write(f'{{"images": {json.dumps(entries)}, "annotations": [')
        for number in range(objects):
            corners = np.round(rng.random(2 * max(4, int(rng.gamma(2, 12)))) * 400, 2).tolist()
            thing: dict[str, Any] = {
                "id": number,
                "image_id": int(rng.integers(images)),
                "category_id": number % 80 + 1,
                "iscrowd": 0,
            }
            thing |= {
                "segmentation": [corners],
                "area": 100.5,
                "bbox": [199.84, 200.46, 77.71, 70.88],
            }
            out.write((", " if number else "") + json.dumps(thing))
        out.write(f'], "categories": {json.dumps(categories)}}}')
    return file


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def with_ijson(file: Path) -> None:
    import ijson  # type: ignore[import-not-found, unused-ignore]

    for name in LISTS:
        with file.open("rb") as stream:
            deque(ijson.items(stream, f"{name}.item", use_float=True, buf_size=1 << 20), 0)


def length(catalog: Catalog) -> None:
    """What a spawned process does with its catalog."""
    len(catalog)


def spawned(catalog: Catalog) -> None:
    process = multiprocessing.get_context("spawn").Process(target=length, args=(catalog,))
    process.start()
    process.join()


def measure(root: Path, file: Path) -> dict[str, float]:
    seconds, catalog = timed(lambda: read_coco(root / "images", file))
    every = range(len(catalog))
    rows = {
        "open, s": seconds,
        "open, peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    rows["its JSON alone, s"] = timed(lambda: deque(stream_lists(file, LISTS), 0))[0]
    with suppress(ImportError):
        rows["JSON with ijson, s"] = timed(lambda: with_ijson(file))[0]
    rows["fingerprint, s"] = timed(catalog.fingerprint)[0]
    rows["all names, s"] = timed(lambda: [catalog.name(i) for i in every])[0]
    rows["all tags, s"] = timed(lambda: [catalog.tags(i) for i in every])[0]
    rows["all items, s"] = timed(lambda: [catalog.item(i) for i in every])[0]
    rows["split, s"] = timed(lambda: catalog.split(0.1, 0))[0]
    rows["pickled, MB"] = len(pickle.dumps(catalog)) / 1e6
    start = time.perf_counter()
    spawned(catalog)
    rows["sent to a spawned process, s"] = time.perf_counter() - start
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=82_783)
    parser.add_argument("--objects", type=int, default=604_907)
    parser.add_argument("--json", type=Path)
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), generate(Path(folder), settings.images, settings.objects))
    for name, value in rows.items():
        print(f"{name:34} {value:8.2f}")
    if settings.json:
        settings.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
