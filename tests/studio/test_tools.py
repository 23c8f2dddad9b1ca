"""Types, lint and accessibility of the page, by tools that a developer may have.

`npm install --no-save typescript eslint @eslint/js globals axe-core` in the folder of the project, or
in another one that TAGMASK_NODE names, brings them; nothing of them is needed to install or to use
tagmask.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tagmask.studio.server import Server
from tests.studio.conftest import Page, looking

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


@pytest.mark.parametrize(
    "how",
    [
        {"color_scheme": "light"},
        {"color_scheme": "dark"},
        {"viewport": {"width": 360, "height": 740}},
    ],
    ids=["light", "dark", "phone"],
)
def test_axe_finds_nothing(browser: Any, server: Server, how: dict[str, Any]) -> None:
    """Every step and every dialog, at the levels A and AA."""
    file = NODE / "axe-core/axe.min.js"
    if not file.is_file():
        pytest.skip("needs axe-core; the head of this file says how to get it")
    axe = file.read_text()
    found = []

    def check(page: Page, what: str) -> None:
        page.page.evaluate(axe)
        options = json.dumps({"runOnly": {"type": "tag", "values": LEVELS}})
        result = page.page.evaluate(f"axe.run(document, {options})")
        for problem in result["violations"]:
            where = [node["html"][:120] for node in problem["nodes"][:3]]
            found.append((what, problem["id"], where))

    with looking(browser, server, bypass_csp=True, **how) as page:
        check(page, "review")
        page.page.keyboard.press("?")
        check(page, "help")
        page.page.keyboard.press("Escape")
        page.open(0)
        check(page, "editor")
        page.page.keyboard.press("y")
        page.until("studio.view.why.panes.length && studio.view.why.panes[0].affinity")
        check(page, "why")
        for step in ("quality", "export"):
            page.goto(f"#/{step}")
            page.until(f"studio.get().route.step === '{step}'")
            check(page, step)
    assert found == []
