"""Work that must not be lost or land elsewhere: slow answers, no network, two windows, full disks."""

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tagmask.config import ExploreSettings
from tagmask.data.corrections import read_labels
from tagmask.data.scenes.catalog import CLASSES, Scenes
from tagmask.studio.opening import open_explorer
from tagmask.studio.server import Server
from tests.alone import run
from tests.runs.tiny import IMAGES, head_run
from tests.studio.conftest import Page, looking, studio_of

SCENES = Scenes(IMAGES)
OFFLINE = ("ERR_INTERNET_DISCONNECTED", "ERR_FAILED", "net::ERR")


def corrected(out: Path) -> set[int]:
    """Return the photos that have corrected pixels."""
    folder = out / "corrections"
    return {
        i for i in range(IMAGES) if read_labels(folder, SCENES.name(i), len(CLASSES)) is not None
    }


def stroke(look: Page, y: float = 0.5) -> None:
    look.page.keyboard.press("b")
    start = look.at(0.3, y)
    look.page.mouse.move(*start)
    look.page.mouse.down()
    look.page.mouse.move(start[0] + 60, start[1])
    look.page.mouse.up()


def test_a_stroke_while_the_next_photo_loads_is_painted_nowhere(look: Page, out: Path) -> None:
    look.open(0)
    order = look.page.evaluate("studio.get().server.photos.length")
    assert order == IMAGES
    held: list[Any] = []
    look.page.route("**/info/1", lambda route: held.append(route))
    look.page.evaluate("location.hash = '#/review/1'")
    look.until("studio.get().opening === 1")
    stroke(look)
    assert look.get("get().outbox.waiting") == 0
    while not held:
        look.page.wait_for_timeout(20)
    held[0].continue_()
    look.until("studio.get().open.id === 1")
    look.saved()
    assert corrected(out) == set()
    stroke(look)
    look.saved()
    assert corrected(out) == {1}


def test_after_a_failed_load_the_photo_that_is_shown_is_painted(look: Page, out: Path) -> None:
    look.expected += OFFLINE
    look.open(0)
    look.page.context.set_offline(True)
    look.page.evaluate("location.hash = '#/review/1'")
    look.until("!document.getElementById('message').hidden")
    look.page.context.set_offline(False)
    assert look.get("get().open.id") == 0
    assert look.page.inner_text("#name") == SCENES.name(0)
    look.until("location.hash.startsWith('#/review/0')")
    stroke(look)
    look.saved()
    assert corrected(out) == {0}


def test_pieces_that_arrive_late_label_nothing(look: Page, out: Path) -> None:
    look.open(0)
    held: list[Any] = []
    look.page.route("**/pieces/**", lambda route: held.append(route))
    look.page.keyboard.press("s")
    look.click(0.5, 0.5)
    look.page.evaluate("location.hash = '#/review/1'")
    look.until("studio.get().open.id === 1")
    look.click(0.5, 0.5)
    for route in held:
        route.continue_()
    look.page.unroute("**/pieces/**")
    look.until("studio.view.tools.pieces.has('medium/1')")
    look.saved()
    assert corrected(out) == set()
    look.click(0.5, 0.5)
    look.saved()
    assert corrected(out) == {1}


def test_the_class_of_the_last_photo_is_not_painted_on_this_one(look: Page, out: Path) -> None:
    first = SCENES.tags(0)[0]
    other = next(i for i in range(IMAGES) if first not in SCENES.tags(i))
    look.open(0)
    assert look.get("get().label") == first + 1
    look.page.evaluate(f"location.hash = '#/review/{other}'")
    look.until(f"studio.get().open.id === {other}")
    assert look.get("get().label") == SCENES.tags(other)[0] + 1
    # a class that is chosen on purpose adds its tag, and undo takes the tag with the stroke
    look.page.select_option("#label", str(first + 1))
    stroke(look)
    look.saved()
    assert CLASSES[first] in look.get(f"get().server.tags[{other}]")
    look.page.keyboard.press("Control+z")
    look.until("studio.get().history.redo === 1")
    look.saved()
    assert corrected(out) == set()
    assert json.loads((out / "corrections/tags.json").read_text())["photos"] == {}


def test_an_offline_stroke_waits_and_is_saved(look: Page, out: Path) -> None:
    look.expected += OFFLINE
    look.open(0)
    look.page.context.set_offline(True)
    stroke(look)
    look.until("document.getElementById('saving').textContent.includes('not saved: 1')")
    asks = look.page.evaluate(
        "!window.dispatchEvent(new Event('beforeunload', {cancelable: true}))"
    )
    assert asks
    look.page.evaluate("location.hash = '#/review/1'")
    look.until("!document.getElementById('message').hidden")
    look.page.context.set_offline(False)
    look.saved()
    assert corrected(out) == {0}


def test_tags_in_two_windows(browser: Any, look: Page, server: Server, out: Path) -> None:
    free = [name for c, name in enumerate(CLASSES) if c not in SCENES.tags(0)]
    look.open(0)
    with looking(browser, server) as second:
        second.open(0)
        look.page.select_option("#add", free[0])
        second.until(f"studio.get().server.tags[0].includes('{free[0]}')")
        assert "another window" in second.page.inner_text("#message")
        # one that has not been told yet: its change is refused, and it shows what is there
        second.page.evaluate("studio.setServer({})")
        held: list[Any] = []
        second.page.route("**/tags", lambda route: held.append(route))
        second.page.select_option("#add", free[1])
        while not held:
            second.page.wait_for_timeout(20)
        look.page.select_option("#add", free[2])
        look.saved()
        held[0].continue_()
        second.saved()
        assert "changed in another window" in second.page.inner_text("#message")
        assert free[2] in second.get("get().server.tags[0]")
        assert free[1] not in second.get("get().server.tags[0]")
    added = json.loads((out / "corrections/tags.json").read_text())["photos"][SCENES.name(0)]
    assert added["added"] == sorted([free[0], free[2]])


@pytest.mark.parametrize("when", ["segment", "predict"])
def test_accepting_on_a_full_disk_keeps_the_old_head_and_masks(
    out: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    studio = open_explorer(ExploreSettings(out=out))
    labels = np.zeros((9, 9), np.uint8)
    studio.correct(0, (0, 0, 9, 9), labels.tobytes(), "", "")
    assert studio.learner is not None
    studio.learner.learn()

    def kept() -> dict[str, bytes]:
        folders = (out / "5_segmenter", out / "6_predictions")
        return {
            str(file): file.read_bytes()
            for folder in folders
            for file in folder.rglob("*")
            if file.is_file()
        }

    before = kept()
    full = OSError(errno.ENOSPC, "No space left on device")

    def fail(*_: Any, **__: Any) -> None:
        raise full

    with monkeypatch.context() as patch:
        if when == "segment":
            patch.setattr("tagmask.models.head.HeadSegmenter.save", fail)
        else:
            patch.setattr("tagmask.stages.predict.write_mask", fail)
        with pytest.raises(OSError, match="No space"):
            studio.learner.accept()
    assert kept() == before
    # with space again, the same trial is accepted, and a run finds it done
    assert studio.learner.trial is not None
    studio.learner.accept()
    assert kept() != before
    assert run(head_run(out)).made[-2:] == ("score", "report")
    shutil.rmtree(out)


def test_an_idle_page_asks_for_nothing(look: Page) -> None:
    """Progress and changes are told by the server; nothing is polled."""
    look.open(0)
    look.saved()
    asked: list[str] = []
    look.page.on("request", lambda sent: asked.append(sent.url))
    look.page.wait_for_timeout(1200)
    assert asked == []


def test_only_the_changed_box_is_sent(look: Page) -> None:
    look.open(0)
    sent: list[Any] = []
    look.page.on("request", lambda one: sent.append(one) if "/correct/" in one.url else None)
    look.page.keyboard.press("b")
    look.page.locator("#size").fill("4")
    look.click(0.5, 0.5)
    look.saved()
    assert len(sent) == 1
    top, left, height, width = map(int, sent[0].headers["x-box"].split(","))
    area = look.get("get().open.height * get().open.width")
    assert len(sent[0].post_data_buffer) == height * width < area / 4
    assert (top, left) > (0, 0)


def test_why_a_run_cannot_learn_stays_on_the_page(
    look: Page, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = "The segmenter of this run is DeepLabV2, which takes hours to train."
    monkeypatch.setattr(studio_of(server).learner, "refusal", lambda: sentence)
    look.open(0)
    assert look.page.inner_text("#state") == sentence
    assert look.page.is_disabled("#learn")
    stroke(look)
    look.saved()
    look.page.evaluate("location.hash = '#/review/1'")
    look.until("studio.get().open.id === 1")
    assert look.page.inner_text("#state") == sentence


def test_two_fingers_zoom_and_paint_nothing(look: Page, out: Path) -> None:
    look.open(0)
    look.page.keyboard.press("b")
    before = look.page.evaluate("studio.view.stage.scale")
    look.page.evaluate(
        """() => {
            const {canvas} = studio.view.stage, box = canvas.getBoundingClientRect();
            canvas.setPointerCapture = () => {};
            const send = (kind, id, x) => canvas.dispatchEvent(new PointerEvent(kind, {
                pointerId: id, pointerType: "touch", clientX: box.left + x, clientY: box.top + 200,
                bubbles: true, cancelable: true, isPrimary: id === 7}));
            send("pointerdown", 7, 300);
            send("pointermove", 7, 304);
            send("pointerdown", 8, 400);
            for (let k = 1; k <= 10; k++) send("pointermove", 8, 400 + 20 * k);
            send("pointerup", 8, 600);
            send("pointerup", 7, 304);
        }"""
    )
    assert look.page.evaluate("studio.view.stage.scale") > 1.5 * before
    look.saved()
    assert look.page.evaluate("studio.get().open.correction.every((label) => label === 255)")
    assert corrected(out) == set()


def test_a_preview_shows_what_a_stroke_leads_to(look: Page, out: Path) -> None:
    look.open(0)
    look.page.check("#preview")
    stroke(look)
    look.saved()
    look.until("studio.view.stage.trial || !studio.get().preview")
    if look.get("get().preview"):
        assert look.page.evaluate("studio.view.stage.trialName") == "preview"
        assert look.get("get().split") == 1
    look.page.uncheck("#preview")
    look.until("studio.get().split === 0")
    assert look.get("get().server.learning.state") == "idle"
    assert corrected(out) == {0}
