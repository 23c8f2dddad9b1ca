"""Drive the whole way of the studio in chromium, with nothing typed in a terminal but its command.

    python scripts/studio_way.py --photos FOLDER --tags TABLE [--flags="…"] [--weights FILE] [--show DIR]
        [--animation FILE.webp]

An untagged folder is tagged in bulk, masks are made, reviewed, corrected, learned from, accepted and
exported. TABLE (file,tags) stands in for the person: it says which photos to select for each tag.
Everything is done with mouse and keyboard. The count of actions and the seconds are printed; pictures
of the steps go to DIR, and one that moves to FILE.webp.
"""

import argparse
import csv
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from PIL import Image

# pixels of the animation's width, and its quality
WIDTH = 800
QUALITY = 52


def main() -> None:
    """Run the way and print what it took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--tags", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--backbone")
    parser.add_argument("--flags", default="")
    parser.add_argument("--show", type=Path)
    parser.add_argument("--animation", type=Path)
    args = parser.parse_args()
    words = ["studio", str(args.photos), "--no-browser"]
    if args.flags:
        words.append(f"--flags={args.flags}")
    for name in ("out", "weights", "backbone"):
        if getattr(args, name) is not None:
            words += [f"--{name}", str(getattr(args, name))]
    # started in a shell's background it would inherit that Ctrl-C is ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", "tagmask", *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    try:
        walk(address, args.tags, args.show, args.animation)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def walk(address: str, tags: Path, show: Path | None, animation: Path | None) -> None:
    """Go through all steps as a person does."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    wanted: dict[str, list[str]] = {}
    with tags.open() as file:
        for row in csv.DictReader(file):
            for tag in re.split("[;|]", row["tags"]):
                wanted.setdefault(tag, []).append(row["file"].rsplit(".", 1)[0])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 760})
        load = os.getloadavg()[0]
        began = time.monotonic()
        page.goto(address)
        steps = Steps(page, show)
        steps.until("document.documentElement.dataset.ready === 'yes'")
        names = page.evaluate("studio.get().server.photos")
        steps.thumbnails()
        steps.picture("photos")
        for k, (tag, photos) in enumerate(wanted.items()):
            steps.select([names.index(name) for name in photos])
            if not k:
                steps.picture("select")
            page.fill("#tag-field", tag)
            page.press("#tag-field", "Enter")
            steps.actions += 2
        steps.saved()
        steps.thumbnails()
        steps.picture("tag")
        tagged = time.monotonic() - began
        print(f"tagged {len(names)} photos: {steps.actions} actions, {tagged:.0f} s", flush=True)
        steps.click("#to-run")
        steps.click("#start-run")
        ended = "['done', 'failed'].includes(studio.get().server.job.state)"
        steps.until(f"studio.get().server.job.stages.length > 1 || {ended}", 3600)
        steps.picture("running")
        steps.until(ended, 3600)
        state = page.evaluate("studio.get().server.job")
        if state["state"] == "failed":
            sys.exit(f"the run failed: {state['why']}")
        steps.until("studio.get().server.masks.length && !document.hidden")
        steps.picture("run")
        print(f"masks after {time.monotonic() - began:.0f} s", flush=True)
        steps.click("#to-review")
        steps.until("studio.get().server.facts.every((fact) => fact)")
        steps.thumbnails()
        steps.picture("review")
        page.locator(".grid").focus()
        steps.press("Enter")
        steps.press("e")
        steps.until("studio.get().open && studio.view.stage")
        steps.press("s")
        steps.until("studio.view.tools.pieces.size")
        canvas = page.locator("#picture").bounding_box()
        middle = (canvas["x"] + canvas["width"] / 2, canvas["y"] + canvas["height"] / 2)
        page.mouse.move(*middle)
        steps.picture("correct")
        page.mouse.click(*middle)
        steps.actions += 1
        steps.saved()
        steps.picture("corrected")
        steps.click("#learn")
        steps.until("['learnt', 'failed'].includes(studio.get().server.learning.state)", 600)
        steps.until("studio.view.stage.trial")
        steps.picture("learn")
        steps.click("#accept")
        steps.until("['accepted', 'failed'].includes(studio.get().server.learning.state)", 3600)
        print(page.inner_text("#state"), flush=True)
        steps.press("Enter")
        steps.saved()
        steps.click("[data-step=export]")
        steps.click("[data-format=coco]")
        steps.until("document.getElementById('exported').textContent.startsWith('Written')", 120)
        print(page.inner_text("#exported"), flush=True)
        steps.picture("export")
        seconds = time.monotonic() - began
        print(f"the whole way: {steps.actions} actions, {seconds:.0f} s of this script")
        print(f"load of the machine before: {load:.1f} on {os.cpu_count()} cores")
        browser.close()
    if animation is not None:
        steps.animate(animation)


class Steps:
    """A page and how often something was done on it."""

    def __init__(self, page: Any, show: Path | None) -> None:
        self.page = page
        self.show = show
        self.actions = 0
        self.frames: list[Image.Image] = []

    def select(self, photos: list[int]) -> None:
        """Select photos: a click, then clicks with Ctrl held."""
        for k, photo in enumerate(photos):
            # a person scrolls
            self.page.evaluate(f"studio.view.grid.reveal({photo})")
            self.page.click(f"#card-{photo}", modifiers=["Control"] if k else [])
            self.actions += 1

    def thumbnails(self) -> None:
        """Wait for the thumbnails in sight."""
        shown = "[...document.querySelectorAll('.pic img')].filter((image) => !image.hidden)"
        self.until(f"{shown}.every((image) => image.complete)")

    def click(self, what: str) -> None:
        """Click on something."""
        self.page.click(what)
        self.actions += 1

    def press(self, key: str) -> None:
        """Press a key."""
        self.page.keyboard.press(key)
        self.actions += 1

    def until(self, is_so: str, seconds: float = 120) -> None:
        """Wait for an expression to be true."""
        end = time.monotonic() + seconds
        while not self.page.evaluate(f"Boolean({is_so})"):
            if time.monotonic() > end:
                sys.exit(f"this did not come true in {seconds:.0f} s: {is_so}")
            self.page.wait_for_timeout(50)

    def saved(self) -> None:
        """Wait until everything is written."""
        self.until("studio.get().outbox.waiting === 0")

    def picture(self, name: str) -> None:
        """Keep a picture of the page."""
        # what is drawn waits for the next frame of the browser
        self.page.evaluate(
            "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))"
        )
        data = self.page.screenshot()
        self.frames.append(Image.open(io.BytesIO(data)).convert("RGB"))
        if self.show is not None:
            self.show.mkdir(parents=True, exist_ok=True)
            (self.show / f"{name}.png").write_bytes(data)

    def animate(self, file: Path) -> None:
        """Write the pictures one after the other, as an animated WebP."""
        frames = []
        for frame in self.frames:
            size = (WIDTH, round(WIDTH * frame.height / frame.width))
            frames.append(frame.resize(size, Image.Resampling.LANCZOS))
        first, *others = frames
        first.save(
            file,
            save_all=True,
            append_images=others,
            duration=1800,
            loop=0,
            quality=QUALITY,
            method=6,
        )


if __name__ == "__main__":
    main()
