"""The real page in a real browser: look, correct, learn, accept, reload; with the mouse and with the keyboard."""

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tagmask.data.corrections import NOT_CORRECTED, PERSON_UNSURE, read_labels
from tagmask.data.images import read_mask
from tagmask.data.scenes.catalog import CLASSES, Scenes
from tagmask.explore.server import Server
from tagmask.runs.run import run
from tests.runs.tiny import IMAGES, head_run

api = pytest.importorskip("playwright.sync_api", reason="needs the extra dev: playwright")
BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs a chromium or chrome of the system")
NAME = Scenes(IMAGES).name(0)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Any]:
    """The open page; it must not have logged an error."""
    context = browser.new_context()
    page, errors = context.new_page(), list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    page.on(
        "request",
        lambda sent: None if sent.url.startswith(server.address) else errors.append(sent.url),
    )
    page.goto(server.address)
    until(page, "window.explorer.panes.length && window.explorer.panes[0].show.value")
    yield page
    context.close()
    assert errors == []


def until(page: Any, is_so: str) -> None:
    """Wait for an expression to be true; the page's own policy forbids playwright's way of waiting."""
    end = time.monotonic() + 120
    while not page.evaluate(f"Boolean({is_so})"):
        assert time.monotonic() < end, is_so
        page.wait_for_timeout(30)


def click(page: Any, x: float, y: float) -> None:
    """Click at shares of the picture's width and height."""
    canvas = page.locator("#panes canvas").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])


def paint(page: Any, work: Any, *values: Any) -> None:
    """Do something that changes the correction, and wait until it is saved."""
    before = page.evaluate("window.explorer.digest")
    work(*values)
    until(page, f"window.explorer.digest !== '{before}'")


def test_a_clicked_pixel_shows_the_affinity_of_the_model(page: Any, server: Server) -> None:
    """The row on the page and the sentence below it against attention recorded from the network."""
    page.keyboard.press("a")
    until(page, "window.explorer.panes[0].affinity")
    click(page, 0.3, 0.6)
    until(page, "window.explorer.row")
    view = server.explorer.views[0]
    _, images, _, span = view._seen(0)
    with torch.no_grad():
        _, attention = view.classifier.attend(images)
    matrix = torch.stack(attention)[:, 0, 1:, 1:].sum(0).numpy()
    grid = view.classifier.grid(*images.shape[-2:])
    y, x = int(0.6 * span[0]), int(0.3 * span[1])
    assert page.evaluate("window.explorer.cell") == [y, x]
    shown = np.array(page.evaluate("Array.from(window.explorer.row)"))
    expected = matrix[y * grid[1] + x]
    np.testing.assert_allclose(shown, expected, atol=expected.max() / 200)
    sentence = page.inner_text("#reading")
    most = re.search(r"row (\d+), column (\d+) of .* itself ([\d.e-]+), most ([\d.e-]+)", sentence)
    assert most is not None
    assert (int(most[1]), int(most[2])) == (y + 1, x + 1)
    assert float(most[4]) == pytest.approx(expected.max(), rel=0.02)
    page.select_option("#transpose", "1")
    until(page, "document.getElementById('reading').textContent.includes('Aᵀ')")
    transposed = np.array(page.evaluate("Array.from(window.explorer.row)"))
    np.testing.assert_allclose(transposed, matrix[:, y * grid[1] + x], atol=matrix.max() / 200)


def test_the_map_on_the_page_is_that_of_the_pipeline(page: Any, server: Server) -> None:
    """Two normalised steps of the affinity of one block, against ``refine``."""
    from tagmask.acr.localize import acr, pad_classes, refine
    from tagmask.inference.maps import stretch

    page.keyboard.press("m")
    until(page, "window.explorer.panes[0].map")
    page.select_option("#low", "1")
    page.select_option("#high", "1")
    page.locator("#steps").fill("2")
    view = server.explorer.views[0]
    _, images, _, _ = view._seen(0)
    tags = Scenes(IMAGES).tags(0)
    maps = acr(view.classifier, images, pad_classes([tags]), range(1, 2))
    expected = stretch(refine(maps.plain[0, :1], maps.attention[0][0, 1:, 1:], steps=2)[:, None])[
        0, 0
    ]
    shown = np.array(page.evaluate("Array.from(window.explorer.panes[0].map)"))
    np.testing.assert_allclose(shown, expected.detach().numpy(), atol=0.03)


def test_correct_learn_accept_reload(page: Any, server: Server, out: Path) -> None:
    absent = next(c for c in range(len(CLASSES)) if c not in Scenes(IMAGES).tags(0))
    before = read_mask(out / f"6_predictions/{NAME}.png", len(CLASSES))
    tag = Scenes(IMAGES).tags(0)[0] + 1
    page.keyboard.press("b")
    page.locator("#size").fill("60")
    for x in (0.1, 0.3):
        paint(page, click, page, x, 0.1)
    page.keyboard.press("s")
    page.keyboard.press("u")
    paint(page, click, page, 0.9, 0.9)
    kept = read_labels(out / "corrections", NAME, len(CLASSES))
    assert kept is not None
    assert kept[int(0.1 * kept.shape[0]), int(0.1 * kept.shape[1])] == tag
    assert {*np.unique(kept)} == {tag, PERSON_UNSURE, NOT_CORRECTED}
    page.click("#learn")
    page.wait_for_selector("#accept:visible", timeout=60_000)
    assert "photos change" in page.inner_text("#state")
    page.click("#accept")
    until(page, "document.getElementById('state').textContent.startsWith('Accepted')")
    after = read_mask(out / f"6_predictions/{NAME}.png", len(CLASSES))
    assert (after != before).any()
    assert (after[kept < PERSON_UNSURE] == tag).all()
    page.select_option("#add", str(absent))
    until(page, f"window.explorer.state.tags[0].includes({absent})")
    page.reload()
    until(page, "window.explorer.correction && window.explorer.panes.length")
    assert np.array_equal(page.evaluate("Array.from(window.explorer.correction)"), kept.ravel())
    assert CLASSES[absent] in page.inner_text("#tags")
    assert json.loads((out / "corrections/tags.json").read_text())["photos"][NAME]["added"] == [
        CLASSES[absent]
    ]


def test_a_run_afterwards_finds_what_was_accepted_done(
    page: Any, server: Server, out: Path
) -> None:
    page.keyboard.press("s")
    paint(page, click, page, 0.5, 0.5)
    page.click("#learn")
    page.wait_for_selector("#accept:visible", timeout=60_000)
    page.click("#accept")
    until(page, "document.getElementById('state').textContent.startsWith('Accepted')")
    page.goto("about:blank")  # what it reads is about to change
    masks = {file.name: file.read_bytes() for file in (out / "6_predictions").glob("*.png")}
    assert run(head_run(out)).made == ("score", "report")
    assert masks == {file.name: file.read_bytes() for file in (out / "6_predictions").glob("*.png")}


def test_taking_back_keeps_the_run_and_undo_removes_the_correction(page: Any, out: Path) -> None:
    head = (out / "5_segmenter/model.safetensors").read_bytes()
    page.keyboard.press("g")
    for x, y in ((0.2, 0.2), (0.8, 0.2), (0.5, 0.8)):
        click(page, x, y)
    paint(page, page.keyboard.press, "c")
    kept = read_labels(out / "corrections", NAME, len(CLASSES))
    assert kept is not None
    assert (kept < PERSON_UNSURE).mean() == pytest.approx(
        0.18, abs=0.03
    )  # the area of the triangle
    page.click("#learn")
    page.wait_for_selector("#back:visible", timeout=60_000)
    page.click("#back")
    page.wait_for_selector("#back", state="hidden")
    page.keyboard.press("z")
    until(page, "window.explorer.correction.every((label) => label === 255)")
    until(page, "window.explorer.digest === ''")
    assert not (out / f"corrections/{NAME}.png").exists()
    assert (out / "5_segmenter/model.safetensors").read_bytes() == head


def test_the_keyboard_alone(page: Any, out: Path) -> None:
    page.keyboard.press("ArrowRight")
    until(page, f"document.getElementById('name').textContent === '{Scenes(IMAGES).name(1)}'")
    page.keyboard.press("?")
    assert page.is_visible("#help")
    page.keyboard.press("Enter")
    assert not page.is_visible("#help")
    page.keyboard.press("b")
    page.locator("#panes canvas").first.focus()
    page.keyboard.press("ArrowDown")
    paint(page, page.keyboard.press, "Space")
    assert read_labels(out / "corrections", Scenes(IMAGES).name(1), len(CLASSES)) is not None
    page.keyboard.press("v")
    page.keyboard.press("Space")
    until(page, "document.getElementById('reading').textContent.startsWith('Affinity')")


def test_everything_has_a_name_and_fits_a_phone(page: Any) -> None:
    """No control without a label, no class told by its colour alone, nothing wider than the screen."""
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    nameless = page.evaluate(
        """[...document.querySelectorAll('button, select, input, canvas')].filter((control) => {
            const text = control.getAttribute('aria-label') || control.textContent.trim()
                || [...(control.labels || [])].map((label) => label.textContent.trim()).join('');
            return !text && !control.hidden;
        }).map((control) => control.outerHTML)"""
    )
    assert nameless == []
    legend = page.evaluate(
        "[...document.querySelectorAll('#legend > span')].map((entry) => entry.textContent)"
    )
    assert {*legend} <= {*CLASSES}


def test_filters_and_orders(page: Any, server: Server) -> None:
    scenes = Scenes(IMAGES)
    tag = scenes.tags(0)[0]
    page.select_option("#tag", str(tag))
    shown = page.evaluate("window.explorer.order")
    assert shown == [i for i in range(IMAGES) if tag in scenes.tags(i)]
    page.select_option("#tag", "")
    server.explorer.views[0].gather_facts(lambda: False)
    until(
        page,
        "[...document.getElementById('order').options].some((option) => option.value === 'score')",
    )
    page.select_option("#order", "score")
    facts = server.explorer.views[0].facts
    scores = [(facts[i] or {})["score"] for i in page.evaluate("window.explorer.order")]
    assert scores == sorted(scores)
    assert page.locator(".card").count() == IMAGES
