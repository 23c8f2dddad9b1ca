"""How fast the studio is, in a real browser: opening, scrolling, a stroke, saving, learning again.

    python benchmarks/studio.py [--photos 1000]     scenes with a small network, in a temporary folder
    python benchmarks/studio.py --megapixels 24     three large photos instead
    python benchmarks/studio.py --run run           a finished run with a head; it is copied first

Needs the extra dev (playwright) and a chromium of the system. `usable` is the time from entering the
address until the thumbnails in sight are shown; `stroke` is the longest that a movement of the brush
keeps the page busy; `saved` is the time from lifting the brush until the server has it. Both are
measured five times: another program on the machine makes any of them longer.
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
from PIL import Image

from tagmask.config import ExploreSettings, HeadSettings
from tagmask.config.run import write_config
from tagmask.data.images import write_mask
from tagmask.data.scenes.catalog import CLASSES, Scenes
from tagmask.layout import CLASSIFIER, PREDICTIONS, PSEUDO, label_file
from tagmask.models.classifier import Classifier
from tagmask.runs.run import Run
from tagmask.runs.settings import run_settings, run_values
from tagmask.studio.opening import open_explorer
from tagmask.studio.server import Server

# milliseconds of the slowest of 40 movements of the brush, one for each picture that is drawn
STROKE = """async () => {
    const {tools, stage} = studio.view, truth = studio.get().open, times = [];
    const height = truth.height * 0.3;
    let before = [truth.width * 0.2, height];
    tools.begin(truth, before);
    for (let k = 1; k <= 40; k++) {
        await new Promise((done) => requestAnimationFrame(done));
        const at = [truth.width * (0.2 + 0.012 * k), height], began = performance.now();
        tools.move(truth, at, before);
        stage.draw();
        // the picture is drawn before this comes back
        await new Promise((done) => setTimeout(done));
        times.push(performance.now() - began);
        before = at;
    }
    window.lifted = performance.now();
    tools.end(truth);
    return Math.max(...times);
}"""
# notes when nothing waits to be saved any more
WATCH = """void studio.watch(["outbox"], ({outbox}) => {
    if (!outbox.waiting) window.savedAt = performance.now();
})"""
ROW = """() => {
    const {why} = studio.view, times = [];
    for (let k = 0; k < 30; k++) {
        const began = performance.now();
        why.point([(k * 0.37) % 1, (k * 0.61) % 1]);
        times.push(performance.now() - began);
    }
    return times.sort((a, b) => a - b)[15];
}"""


def small_run(out: Path, photos: int) -> None:
    """Make a run on scenes whose pseudo labels are the truth: only times matter here."""
    scenes = Scenes(photos)
    Classifier("tagmask_tiny", len(CLASSES), img_size=96, classes=CLASSES).save(out / CLASSIFIER)
    values = run_values("scenes", None)
    settings = run_settings(values | {"out": out, "count": photos, "tokens_limit": 20.0})
    write_config(settings)
    for i in range(photos):
        for folder in (PSEUDO, PREDICTIONS):
            mask = scenes.load_mask(i)
            assert mask is not None
            write_mask(label_file(out / folder, scenes.name(i)), mask)
    head: dict[str, Any] = {
        "head_blocks": (1, 3),
        "size": 96,
        "steps": 60,
        "lr": 1e-2,
    }
    Run.of(settings).segment(HeadSettings(**head))


def large_run(out: Path, megapixels: float) -> None:
    """Make a run on three scenes that are enlarged to photos of a camera."""
    scenes = Scenes(3)
    images = out.parent / "photos"
    images.mkdir()
    height = round((megapixels * 1e6 / 1.5) ** 0.5)
    size = (round(1.5 * height), height)
    lines = ["file,tags"]
    tags = sorted({CLASSES[c] for i in range(3) for c in scenes.tags(i)})
    for i in range(3):
        Image.fromarray(scenes.load_image(i)).resize(size).save(images / f"{i}.jpg", quality=90)
        lines.append(f"{i}.jpg,{';'.join(CLASSES[c] for c in scenes.tags(i))}")
        mask = scenes.load_mask(i)
        assert mask is not None
        numbers = np.zeros(256, np.uint8)
        for c, name in enumerate(CLASSES):
            numbers[c + 1] = tags.index(name) + 1 if name in tags else 0
        large = np.asarray(Image.fromarray(numbers[mask]).resize(size, Image.Resampling.NEAREST))
        for folder in (PSEUDO, PREDICTIONS):
            write_mask(label_file(out / folder, str(i)), large)
    table = out.parent / "tags.csv"
    table.write_text("\n".join(lines) + "\n")
    Classifier("tagmask_tiny", len(tags), img_size=96, classes=tuple(tags)).save(out / CLASSIFIER)
    values = run_values("own-photos", None)
    settings = run_settings(values | {"out": out, "images": images, "tags": table})
    write_config(settings)
    head: dict[str, Any] = {"head_blocks": (1, 3), "size": 96, "steps": 60, "lr": 1e-2}
    Run.of(settings).segment(HeadSettings(**head))


def measure(out: Path, program: str) -> dict[str, float]:
    """Return how long things take."""
    from playwright.sync_api import sync_playwright

    began = time.monotonic()
    studio = open_explorer(ExploreSettings(out=out))
    times: dict[str, float] = {"photos": len(studio.photos), "server s": time.monotonic() - began}
    with Server(studio) as server, sync_playwright() as playwright:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 860})

        def until(is_so: str) -> float:
            start = time.monotonic()
            while not page.evaluate(f"Boolean({is_so})"):
                page.wait_for_timeout(5)
            return time.monotonic() - start

        thumbs = "[...document.querySelectorAll('.card img:first-child')]"
        began = time.monotonic()
        page.goto(server.address)
        until(f"{thumbs}.length && {thumbs}.every((image) => image.complete)")
        times["usable s"] = time.monotonic() - began
        began = time.monotonic()
        page.evaluate("studio.view.grid.root.scrollTop = 1e9")
        until(f"{thumbs}.every((image) => image.complete)")
        times["the last thumbnails s"] = time.monotonic() - began
        began = time.monotonic()
        page.evaluate("location.hash = '#/review/0'")
        until("studio.get().open && studio.view.stage")
        times["open a photo s"] = time.monotonic() - began
        page.keyboard.press("b")
        page.evaluate(WATCH)
        strokes = []
        saved = []
        for _ in range(5):
            strokes.append(page.evaluate(STROKE))
            until("studio.get().outbox.waiting === 0")
            saved.append(page.evaluate("window.savedAt - window.lifted"))
            page.keyboard.press("Control+z")
            until("studio.get().history.redo === 1 && studio.get().outbox.waiting === 0")
        page.keyboard.press("Control+Shift+z")
        until("studio.get().history.undo === 1 && studio.get().outbox.waiting === 0")
        times["stroke ms, best of 5"] = min(strokes)
        times["saved ms, best of 5"] = min(saved)
        times["saved ms, worst of 5"] = max(saved)
        began = time.monotonic()
        page.keyboard.press("y")
        until("studio.view.why.panes.length && studio.view.why.panes[0].affinity")
        times["affinity of a photo s"] = time.monotonic() - began
        times["row ms"] = page.evaluate(ROW)
        began = time.monotonic()
        page.click("#learn")
        until("['learnt', 'failed'].includes(studio.get().server.learning.state)")
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
    parser.add_argument("--megapixels", type=float)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None or importlib.util.find_spec("playwright") is None:
        print("studio: needs playwright (the extra dev) and a chromium of the system; left out.")
        return
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        if args.megapixels is not None:
            large_run(out, args.megapixels)
        elif args.run is None:
            small_run(out, args.photos)
        else:
            shutil.copytree(args.run, out)
        load = os.getloadavg()[0]
        times = measure(out, browser)
    print(f"load of the machine before: {load:.1f} on {os.cpu_count()} cores")
    for name, value in times.items():
        print(f"{name:>24} {value:10.2f}")
    if args.json is not None:
        args.json.write_text(json.dumps(times))


if __name__ == "__main__":
    main()
