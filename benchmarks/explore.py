"""How fast the explorer is, in a real browser: opening a run, a click, saving a correction, learning again.

    python benchmarks/explore.py [--photos 1000]     300 scenes with a small network, made in a temporary folder
    python benchmarks/explore.py --run run           a finished run with a head; it is copied first

Needs the extra dev (playwright) and a chromium of the system. `usable` is the time from entering the address until the
first photo and the thumbnails in view are shown; `click` is the time from a click to the drawn affinity row.
"""

import argparse
import importlib.util
import json
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tagmask.config import ExploreSettings
from tagmask.config.run import RunSettings, run_values, write_config
from tagmask.data.corrections import NOT_CORRECTED
from tagmask.data.images import write_mask
from tagmask.data.scenes.catalog import CLASSES, Scenes
from tagmask.explore.server import Server, open_explorer
from tagmask.layout import CLASSIFIER, PREDICTIONS, PSEUDO, label_file
from tagmask.models.classifier import Classifier
from tagmask.stages.segment import train_segmenter

CLICK = """() => {
    const times = [];
    for (let k = 0; k < 30; k++) {
        explorer.pixel = [(k * 0.37) % 1, (k * 0.61) % 1];
        const began = performance.now();
        explorer.panes[0].draw();
        times.push(performance.now() - began);
    }
    return times.sort((a, b) => a - b)[15];
}"""


def small_run(out: Path, photos: int) -> None:
    """A run on scenes whose pseudo labels are the truth: only times matter here."""
    scenes = Scenes(photos)
    Classifier("tagmask_tiny", len(CLASSES), img_size=96, classes=CLASSES).save(out / CLASSIFIER)
    values = run_values("scenes", None)
    settings = RunSettings(**(values | {"out": out, "count": photos, "tokens_limit": 20.0}))
    write_config(settings)
    for i in range(photos):
        for folder in (PSEUDO, PREDICTIONS):
            mask = scenes.load_mask(i)
            assert mask is not None
            write_mask(label_file(out / folder, scenes.name(i)), mask)
    head: dict[str, Any] = {
        "net": "head",
        "head_blocks": (1, 3),
        "size": 96,
        "steps": 60,
        "lr": 1e-2,
    }
    train_segmenter(type(settings.segment)(out=out, count=photos, **head))


def measure(out: Path, program: str) -> dict[str, float]:
    from playwright.sync_api import sync_playwright

    began = time.monotonic()
    explorer = open_explorer(ExploreSettings(out=out))
    times: dict[str, float] = {
        "photos": len(explorer.views[0].catalog),
        "server s": time.monotonic() - began,
    }
    with Server(explorer) as server, sync_playwright() as playwright:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 860})

        def until(is_so: str) -> float:
            start = time.monotonic()
            while not page.evaluate(f"Boolean({is_so})"):
                page.wait_for_timeout(5)
            return time.monotonic() - start

        began = time.monotonic()
        page.goto(server.address)
        until("explorer.panes.length && explorer.panes[0].canvas.hasAttribute('aria-label')")
        until(
            "[...document.querySelectorAll('.card img')].slice(0, 12).every((image) => image.complete)"
        )
        times["usable s"] = time.monotonic() - began
        began = time.monotonic()
        page.keyboard.press("a")
        until("explorer.panes[0].affinity")
        times["affinity of a photo s"] = time.monotonic() - began
        times["click ms"] = page.evaluate(CLICK)
        view = explorer.views[0]
        labels = np.full(view.size(0), NOT_CORRECTED, np.uint8)
        labels[: len(labels) // 2] = view.catalog.tags(0)[0] + 1
        began = time.monotonic()
        explorer.correct(0, labels.tobytes(), explorer.digest(0))
        times["save ms"] = 1000 * (time.monotonic() - began)
        began = time.monotonic()
        page.click("#learn")
        until(
            "!document.getElementById('accept').hidden || document.getElementById('state').textContent.includes(';')"
        )
        times["learning again s"] = time.monotonic() - began
        browser.close()
        server.shutdown()
    return {name: round(value, 2) for name, value in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--photos", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None or importlib.util.find_spec("playwright") is None:
        print("explore: needs playwright (the extra dev) and a chromium of the system; left out.")
        return
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        if args.run is None:
            small_run(out, args.photos)
        else:
            shutil.copytree(args.run, out)
        load = os.getloadavg()[0]
        times = measure(out, browser)
    print(f"load of the machine before: {load:.1f} on {os.cpu_count()} cores")
    for name, value in times.items():
        print(f"{name:24} {value:8.2f}")
    if args.json is not None:
        args.json.write_text(json.dumps(times, indent=2) + "\n")


if __name__ == "__main__":
    main()
