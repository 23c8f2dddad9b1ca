"""Types, lint and accessibility of the page, by tools that a developer may have.

`npm install --no-save typescript eslint @eslint/js globals axe-core` in the folder of the project, or
in another one that TAGMASK_NODE names, brings them; nothing of them is needed to install or to use
tagmask.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tagmask.config import StudioSettings
from tagmask.data.scenes.catalog import Scenes
from tagmask.studio.choose import Chooser
from tagmask.studio.server import Server
from tests.studio.conftest import Page, looking, serving

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NODE = Path(os.environ.get("TAGMASK_NODE", ROOT)) / "node_modules"
WEB = ROOT / "src/tagmask/studio/web"
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


def program(name: str) -> str:
    """Return a program of node's packages; skip the test if it is not there."""
    found = shutil.which(name, path=str(NODE / ".bin"))
    if found is None or shutil.which("node") is None:
        pytest.skip(f"needs node and {name}; the head of this file says how to get it")
    return found


def test_types_of_the_page() -> None:
    done = subprocess.run(
        [program("tsc"), "-p", str(HERE / "tsconfig.json")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout


def test_lint_of_the_page(tmp_path: Path) -> None:
    eslint = program("eslint")
    # its configuration finds its packages beside itself
    (tmp_path / "node_modules").symlink_to(NODE)
    shutil.copytree(WEB, tmp_path / "web")
    shutil.copy(HERE / "eslint.config.mjs", tmp_path / "eslint.config.mjs")
    done = subprocess.run(
        [eslint, "web"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout


HOWS = pytest.mark.parametrize(
    "how",
    [
        {"color_scheme": "light"},
        {"color_scheme": "dark"},
        {"viewport": {"width": 360, "height": 740}},
    ],
    ids=["light", "dark", "phone"],
)


@pytest.fixture
def faults() -> Callable[[Page, str], list[Any]]:
    """Return what tells the faults of a page, at the levels A and AA."""
    file = NODE / "axe-core/axe.min.js"
    if not file.is_file():
        pytest.skip("needs axe-core; the head of this file says how to get it")
    axe = file.read_text()

    def check(page: Page, what: str) -> list[Any]:
        page.page.evaluate(axe)
        options = json.dumps({"runOnly": {"type": "tag", "values": LEVELS}})
        result = page.page.evaluate(f"axe.run(document, {options})")
        found = []
        for problem in result["violations"]:
            where = [node["html"][:120] for node in problem["nodes"][:3]]
            found.append((what, problem["id"], where))
        return found

    return check


@HOWS
def test_axe_finds_nothing(
    browser: Any, server: Server, how: dict[str, Any], faults: Callable[[Page, str], list[Any]]
) -> None:
    """Every step and every dialog of a run."""
    found = []
    with looking(browser, server, bypass_csp=True, **how) as page:
        found += faults(page, "review")
        page.page.keyboard.press("?")
        found += faults(page, "help")
        page.page.keyboard.press("Escape")
        page.open(0)
        found += faults(page, "editor")
        page.page.keyboard.press("y")
        page.until("studio.view.why.panes.length && studio.view.why.panes[0].affinity")
        found += faults(page, "why")
        for step in ("quality", "export"):
            page.goto(f"#/{step}")
            page.until(f"studio.get().route.step === '{step}'")
            found += faults(page, step)
    assert found == []


@HOWS
def test_axe_finds_nothing_before_a_run(
    browser: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: dict[str, Any],
    faults: Callable[[Page, str], list[Any]],
) -> None:
    """Choosing a folder, dropped photos, tags with their dialog, and what makes the masks."""
    scenes = Scenes(4)
    for i, name in enumerate(("cats/a", "cats/b", "dogs/c", "dogs/d")):
        file = tmp_path / f"photos/{name}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(scenes.load_image(i)).save(file)
    monkeypatch.chdir(tmp_path)
    found = []
    chooser = Chooser(StudioSettings(backbone="tagmask_tiny"))
    with serving(chooser) as server, looking(browser, server, bypass_csp=True, **how) as page:
        found += faults(page, "choose")
        page.page.set_input_files("#pick-folder", tmp_path / "photos")
        found += faults(page, "dropped")
        page.page.get_by_role("button", name="photos", exact=True).click()
        page.until("document.getElementById('about-folder').textContent === '4 photos.'")
        with page.page.expect_navigation():
            page.page.click("#open-folder")
        page.until("document.documentElement.dataset.ready === 'yes'")
        found += faults(page, "tag")
        page.page.click("#use-folders")
        page.page.click("#card-0")
        page.saved()
        found += faults(page, "tagged")
        page.page.dblclick("#card-0")
        found += faults(page, "large")
        page.page.keyboard.press("Escape")
        page.goto("#/run")
        found += faults(page, "run")
        assert page.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert found == []
