"""The studio of a small run on a free port, and a browser to look at it."""

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tagmask.config import ExploreSettings
from tagmask.studio.app import Studio
from tagmask.studio.choose import Chooser
from tagmask.studio.opening import open_explorer
from tagmask.studio.server import Server

BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


def studio_of(server: Server) -> Studio:
    """Return the studio that is served."""
    assert isinstance(server.studio, Studio)
    return server.studio


@contextmanager
def serving(studio: Studio | Chooser) -> Iterator[Server]:
    """Serve a studio in a thread."""
    with Server(studio) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def server(out: Path) -> Iterator[Server]:
    with serving(open_explorer(ExploreSettings(out=out))) as server:
        yield server


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs the extra dev: playwright")
    if BROWSER is None:
        pytest.skip("needs a chromium or chrome of the system")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=flags)
        yield browser
        browser.close()


class Page:
    """A page that has not logged an error and asks nobody else, and what tests do with it."""

    def __init__(self, context: Any, server: Server) -> None:
        self.server = server
        self.errors: list[str] = []
        self.expected: list[str] = []  # parts of messages that a test provokes
        self.page = context.new_page()
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._log)
        self.page.on("request", self._asked)

    def _log(self, line: Any) -> None:
        if line.type == "error" and not any(part in line.text for part in self.expected):
            self.errors.append(line.text)

    def _asked(self, sent: Any) -> None:
        if not sent.url.startswith((self.server.address, "blob:", "data:")):
            self.errors.append(sent.url)

    def goto(self, where: str = "") -> None:
        self.page.goto(self.server.address + where)
        self.until("document.documentElement.dataset.ready === 'yes'")

    def until(self, is_so: str, seconds: float = 60) -> None:
        """Wait for an expression; the page's policy forbids playwright's way of waiting."""
        end = time.monotonic() + seconds
        while not self.page.evaluate(f"Boolean({is_so})"):
            assert time.monotonic() < end, is_so
            self.page.wait_for_timeout(20)

    def get(self, expression: str) -> Any:
        """Return a part of the page's state."""
        return self.page.evaluate(f"(({{get}}) => {expression})(window.studio)")

    def open(self, photo: int) -> None:
        self.goto(f"#/review/{photo}")
        self.until(f"studio.get().open && studio.get().open.id === {photo}")

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return where a share of the photo's width and height is on the screen."""
        place = self.page.evaluate(
            """([x, y]) => { const {stage} = studio.view, box = stage.canvas.getBoundingClientRect();
            const ratio = stage.canvas.width / box.width, {truth} = stage;
            return [box.left + (stage.x + x * truth.width * stage.scale) / ratio,
                    box.top + (stage.y + y * truth.height * stage.scale) / ratio]; }""",
            [x, y],
        )
        return place[0], place[1]

    def click(self, x: float, y: float) -> None:
        """Click at shares of the photo's width and height."""
        self.page.mouse.click(*self.at(x, y))

    def saved(self) -> None:
        """Wait until everything is written."""
        self.until("studio.get().outbox.waiting === 0")


@pytest.fixture
def look(browser: Any, server: Server) -> Iterator[Page]:
    """A page on the small run."""
    with looking(browser, server) as page:
        yield page


@contextmanager
def looking(browser: Any, server: Server, **options: Any) -> Iterator[Page]:
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **options})
    page = Page(context, server)
    page.goto()
    yield page
    context.close()
    assert page.errors == []
