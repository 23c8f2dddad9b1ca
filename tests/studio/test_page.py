"""The real page in a real browser: look, correct, learn, accept, reload; mouse and keyboard."""

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch

from tagmask.config import ExploreSettings
from tagmask.data.corrections import NOT_CORRECTED, PERSON_UNSURE, read_labels
from tagmask.data.images import read_mask
from tagmask.data.scenes.catalog import CLASSES, Scenes
from tagmask.studio.opening import open_explorer
from tagmask.studio.server import Server
from tagmask.training.head import person_labels
from tests.alone import run
from tests.runs.tiny import IMAGES, head_run
from tests.studio.conftest import Page, looking, serving, studio_of

SCENES = Scenes(IMAGES)
NAME = SCENES.name(0)
ABSENT = next(c for c in range(len(CLASSES)) if c not in SCENES.tags(0))


def kept_labels(out: Path, photo: int = 0) -> Any:
    return read_labels(out / "corrections", SCENES.name(photo), len(CLASSES))


def test_a_pixel_shows_the_affinity_of_the_model(look: Page, server: Server) -> None:
    """The row on the page and the sentence below it against attention from the network."""
    look.open(0)
    look.page.click("#why-button")
    look.until("studio.view.why.panes.length && studio.view.why.panes[0].affinity")
    canvas = look.page.locator("#panes canvas").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    look.page.mouse.click(box["x"] + 0.3 * box["width"], box["y"] + 0.6 * box["height"])
    look.until("studio.view.why.row")
    view = studio_of(server).view
    _, images, _, span = view._seen(0)
    with torch.no_grad():
        _, attention = view.classifier.attend(images)
    matrix = torch.stack(attention)[:, 0, 1:, 1:].sum(0).numpy()
    grid = view.classifier.grid(*images.shape[-2:])
    y, x = int(0.6 * span[0]), int(0.3 * span[1])
    assert look.page.evaluate("studio.view.why.cell") == [y, x]
    shown = np.array(look.page.evaluate("Array.from(studio.view.why.row)"))
    expected = matrix[y * grid[1] + x]
    np.testing.assert_allclose(shown, expected, atol=expected.max() / 200)
    sentence = look.page.inner_text("#reading")
    most = re.search(r"row (\d+), column (\d+) of .* itself ([\d.e-]+), most ([\d.e-]+)", sentence)
    assert most is not None
    assert (int(most[1]), int(most[2])) == (y + 1, x + 1)
    assert float(most[4]) == pytest.approx(expected.max(), rel=0.02)
    look.page.select_option("#transpose", "1")
    look.until("document.getElementById('reading').textContent.includes('Aᵀ')")
    transposed = np.array(look.page.evaluate("Array.from(studio.view.why.row)"))
    np.testing.assert_allclose(transposed, matrix[:, y * grid[1] + x], atol=matrix.max() / 200)


def test_the_map_on_the_page_is_that_of_the_pipeline(look: Page, server: Server) -> None:
    """Two normalised steps of the affinity of one block, against ``refine``."""
    from tagmask.acr.localize import acr, pad_classes, refine
    from tagmask.inference.maps import stretch

    look.open(0)
    look.page.keyboard.press("y")
    look.until("studio.view.why.panes.length && studio.view.why.panes[0].affinity")
    look.page.locator("#panes select").first.select_option("map")
    look.until("studio.view.why.panes[0].map")
    look.page.select_option("#low", "1")
    look.page.select_option("#high", "1")
    look.page.locator("#steps").fill("2")
    view = studio_of(server).view
    _, images, _, _ = view._seen(0)
    tags = SCENES.tags(0)
    maps = acr(view.classifier, images, pad_classes([tags]), range(1, 2))
    refined = refine(maps.plain[0, :1], maps.attention[0][0, 1:, 1:], steps=2)
    expected = stretch(refined[:, None])[0, 0]
    shown = np.array(look.page.evaluate("Array.from(studio.view.why.panes[0].map)"))
    np.testing.assert_allclose(shown, expected.detach().numpy(), atol=0.03)


def test_correct_learn_accept_reload(look: Page, server: Server, out: Path) -> None:
    """A later run finds done what was accepted, and the version before can be had back."""
    before = read_mask(out / f"6_predictions/{NAME}.png", len(CLASSES))
    tag = SCENES.tags(0)[0] + 1
    look.open(0)
    look.page.keyboard.press("b")
    look.page.locator("#size").fill("60")
    for x in (0.1, 0.3):
        look.click(x, 0.1)
    look.page.keyboard.press("s")
    look.page.keyboard.press("u")
    look.until("studio.view.tools.pieces.size")
    look.click(0.9, 0.9)
    look.saved()
    kept = kept_labels(out)
    assert kept[int(0.1 * kept.shape[0]), int(0.1 * kept.shape[1])] == tag
    assert {*np.unique(kept)} == {tag, PERSON_UNSURE, NOT_CORRECTED}
    look.page.click("#learn")
    look.page.wait_for_selector("#accept:visible", timeout=60_000)
    assert "photos change" in look.page.inner_text("#accept")
    look.page.click("#accept")
    look.until("document.getElementById('state').textContent.startsWith('Accepted')")
    after = read_mask(out / f"6_predictions/{NAME}.png", len(CLASSES))
    assert (after != before).any()
    assert (after[kept < PERSON_UNSURE] == tag).all()
    assert [version["is_current"] for version in look.get("get().server.versions")] == [False, True]
    look.page.reload()
    look.until("studio.get().open")
    shown = look.page.evaluate("Array.from(studio.get().open.correction)")
    assert np.array_equal(shown, kept.ravel())
    look.page.goto("about:blank")  # what it reads is about to change
    assert run(head_run(out)).made[-2:] == ("score", "report")
    look.goto("#/quality")
    look.page.get_by_text("Go back to it").first.click()
    look.until("studio.get().server.versions[0].is_current")
    assert (read_mask(out / f"6_predictions/{NAME}.png", len(CLASSES)) == before).all()


def test_undo_and_redo_of_everything(look: Page, out: Path) -> None:
    """A polygon, a tag and a check, taken back one by one from another photo, and done again."""
    look.open(0)
    look.page.keyboard.press("p")
    for x, y in ((0.2, 0.2), (0.8, 0.2), (0.5, 0.8), (0.1, 0.9)):
        look.click(x, y)
    look.page.keyboard.press("Control+z")  # the last corner
    look.page.keyboard.press("Enter")
    look.saved()
    kept = kept_labels(out)
    assert (kept < PERSON_UNSURE).mean() == pytest.approx(0.18, abs=0.03)  # of the triangle
    look.page.select_option("#add", CLASSES[ABSENT])
    look.page.keyboard.press("Escape")
    look.page.keyboard.press("Enter")
    look.saved()
    assert look.get("get().server.checked.length") == 1
    for _ in range(3):
        look.page.keyboard.press("Control+z")
    look.until("studio.get().history.undo === 0")
    look.saved()
    assert kept_labels(out) is None
    assert json.loads((out / "corrections/tags.json").read_text())["photos"] == {}
    assert json.loads((out / "review/review.json").read_text())["checked"] == {}
    for _ in range(3):
        look.page.keyboard.press("Control+Shift+z")
    look.until("studio.get().history.redo === 0")
    look.saved()
    assert (kept_labels(out) == kept).all()
    added = json.loads((out / "corrections/tags.json").read_text())["photos"][NAME]["added"]
    assert added == [CLASSES[ABSENT]]


def test_the_keyboard_alone(look: Page, out: Path) -> None:
    page = look.page
    page.keyboard.press("ArrowRight")
    page.keyboard.press("e")
    look.until("studio.get().open")
    photo = look.get("get().open.id")
    page.keyboard.press("?")
    assert page.is_visible("#help")
    page.keyboard.press("Enter")
    assert not page.is_visible("#help")
    page.keyboard.press("b")
    page.locator("#picture").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    look.saved()
    assert kept_labels(out, photo) is not None
    page.keyboard.press("Enter")
    look.until(f"studio.get().server.checked.includes({photo})")
    look.until(f"studio.get().open && studio.get().open.id !== {photo}")
    page.go_back()
    look.until(f"studio.get().open.id === {photo}")
    # single keys can be turned off
    page.keyboard.press("?")
    page.uncheck("#letters")
    page.keyboard.press("Escape")
    page.keyboard.press("v")
    assert look.get("get().tool") == "brush"


def test_names_phone_and_a_plain_click(look: Page) -> None:
    """No control without a name, nothing wider than a phone, a plain click keeps the mask."""
    look.open(0)
    assert look.get("get().tool") == "move"
    look.click(0.5, 0.5)
    assert not look.page.is_visible("#why")
    look.page.set_viewport_size({"width": 360, "height": 740})
    assert look.page.evaluate("document.documentElement.scrollWidth") <= 360
    nameless = look.page.evaluate(
        """[...document.querySelectorAll('button, select, input, canvas')].filter((control) => {
            const text = control.getAttribute('aria-label') || control.textContent.trim()
                || [...(control.labels || [])].map((label) => label.textContent.trim()).join('');
            return !text && !control.hidden;
        }).map((control) => control.outerHTML)"""
    )
    assert nameless == []


def test_filters_orders_and_the_address(look: Page, server: Server) -> None:
    tag = SCENES.tags(0)[0]
    look.page.select_option("#tag", CLASSES[tag])
    shown = look.page.evaluate("studio.view.grid.rows")
    assert sorted(shown) == [i for i in range(IMAGES) if tag in SCENES.tags(i)]
    look.page.select_option("#tag", "")
    studio_of(server).facts.wanted.set()
    studio_of(server).begin()
    look.until("[...document.getElementById('order').options].some((o) => o.value === 'score')")
    look.page.select_option("#order", "score")
    look.until("studio.get().server.facts.every((fact) => fact && 'score' in fact)")
    facts = studio_of(server).view.facts
    order = look.page.evaluate("studio.view.grid.rows")
    scores = [(facts[i] or {})["score"] for i in order]
    assert scores == sorted(scores)
    look.page.fill("#search", SCENES.name(3))
    look.page.reload()
    look.until("studio.view && studio.view.grid")
    assert look.page.evaluate("studio.view.grid.rows") == [3]
    assert look.page.input_value("#order") == "score"


@pytest.mark.parametrize("zoom", [1.0, 3.0, 12.0])
def test_what_is_painted_is_what_is_learned(look: Page, out: Path, zoom: float) -> None:
    """The same pixels on the page, in the file and in the cells, however far one zooms."""
    look.open(0)
    look.page.evaluate(f"studio.view.stage.zoom({zoom})")
    look.page.keyboard.press("b")
    look.page.mouse.move(*look.at(0.45, 0.5))
    look.page.mouse.down()
    look.page.mouse.move(*look.at(0.55, 0.52))
    look.page.mouse.up()
    look.saved()
    height, width = look.get("[get().open.height, get().open.width]")
    shown = np.array(look.page.evaluate("Array.from(studio.get().open.correction)"), np.uint8)
    kept = kept_labels(out)
    assert (kept == shown.reshape(height, width)).all()
    # a fast stroke is a line, not dots
    painted = kept == SCENES.tags(0)[0] + 1
    columns = np.flatnonzero(painted.any(0))
    assert (np.diff(columns) == 1).all()
    assert len(columns) >= 0.09 * width
    person = np.where(painted, kept, 255).astype(np.uint8)
    _, touched = person_labels(person, (height, width), len(CLASSES) + 1)
    assert (touched.numpy().reshape(height, width) == painted).all()


def test_the_demo_shows_masks_of_its_own_pictures(
    browser: Any, headed: Path, tmp_path: Path
) -> None:
    """Stages that were run one by one on other pictures: the last stage's are shown."""
    out = tmp_path / "run"
    shutil.copytree(headed, out)
    config = out / "config.toml"
    tables = tomllib.loads(config.read_text())
    # as the demo leaves it: what was learned from, and other pictures that have masks
    tables["predict"]["data"] = dict(tables["data"])
    tables["data"]["scene_seed"] = 5
    config.write_text(tomli_w.dumps(tables))
    with serving(open_explorer(ExploreSettings(out=out))) as server:
        assert studio_of(server).view.catalog.identity == SCENES.identity
        with looking(browser, server) as page:
            page.open(3)
            assert page.get("get().open.mask.length") > 0
            assert page.get("get().server.foreign") == ""
