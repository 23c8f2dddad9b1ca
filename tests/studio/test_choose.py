"""The studio without a folder: choosing one, dropping photos, and what nobody may do with it."""

import http.client
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from PIL import Image

from tagmask.cli import main
from tagmask.config import StudioSettings
from tagmask.data.scenes.catalog import Scenes
from tagmask.studio import choose
from tagmask.studio.app import Refused, Studio
from tagmask.studio.choose import Chooser
from tagmask.studio.opening import open_studio
from tagmask.studio.server import Server
from tests.studio.conftest import Page, looking, serving
from tests.studio.test_server import request

SCENES = Scenes(4)
SETTINGS = StudioSettings(backbone="tagmask_tiny")


def save_photos(folder: Path, names: list[str]) -> None:
    for i, name in enumerate(names):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(SCENES.load_image(i % len(SCENES))).save(file)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a folder of photos in sub-folders, an empty one, and a file."""
    home = tmp_path / "home"
    save_photos(home / "pets", ["cats/a.jpg", "cats/b.png", "dogs/c.jpg", "d.jpg"])
    (home / "empty").mkdir()
    (home / ".hidden").mkdir()
    (home / "notes.txt").write_text("no photo")
    monkeypatch.chdir(home)
    return home


@pytest.fixture
def choosing(home: Path) -> Iterator[Server]:
    with serving(Chooser(SETTINGS)) as server:
        yield server


def ask(server: Server, path: str, value: Any = None) -> tuple[int, Any]:
    """Return the status and the answer of a question or, with a value, of a request."""
    body = None if value is None else json.dumps(value).encode()
    status, data, _ = request(server, path, "GET" if body is None else "POST", body)
    return status, json.loads(data)


def number_of(listing: Any, name: str) -> int:
    return int(next(row["folder"] for row in listing["folders"] if row["name"] == name))


def receive(server: Server, number: int, name: str, data: bytes) -> tuple[int, Any]:
    """Send a photo that was dropped."""
    status, answer, _ = request(server, f"receive/{number}", "POST", data, X_File=quote(name))
    return status, json.loads(answer)


def test_folders_are_listed_with_their_photos(choosing: Server, home: Path) -> None:
    state = ask(choosing, "state")[1]
    assert state["mode"] == "choose"
    listing = state["listing"]
    assert listing["path"] == str(home)
    assert (listing["photos"], listing["counted"]) == (4, True)
    rows = [(row["name"], row["photos"], row["run"]) for row in listing["folders"]]
    assert rows == [("empty", 0, False), ("pets", 4, False)]
    inner = ask(choosing, f"folders/{number_of(listing, 'pets')}")[1]
    assert [(row["name"], row["photos"]) for row in inner["folders"]] == [("cats", 2), ("dogs", 1)]
    assert inner["photos"] == 4
    # one can go up again
    assert ask(choosing, f"folders/{inner['above'][-1]['folder']}")[1]["path"] == str(home)


def test_a_large_disk_is_counted_in_part(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "COUNTING", -1.0)
    monkeypatch.setattr(choose, "MOST_LISTED", 1)
    listing = Chooser(SETTINGS).state()["listing"]
    assert [row["name"] for row in listing["folders"]] == ["empty"]
    assert (listing["left"], listing["counted"]) == (1, False)


def test_a_folder_is_opened_and_served_at_the_same_address(choosing: Server, home: Path) -> None:
    listing = ask(choosing, "state")[1]["listing"]
    status, answer = ask(choosing, "choose", {"folder": number_of(listing, "empty")})
    assert status == 422
    assert "contains no photos" in answer["error"]
    status, answer = ask(choosing, "choose", {"folder": number_of(listing, "pets")})
    assert (status, answer) == (200, {"photos": 4})
    state = ask(choosing, "state")[1]
    assert state["mode"] == "folder"
    assert state["photos"] == ["cats/a", "cats/b", "d", "dogs/c"]
    assert state["out"] == str(home / "pets-tagmask")
    # what was for choosing is there no more
    assert ask(choosing, "choose", {"folder": 0})[0] == 404
    assert ask(choosing, "folders/0")[0] == 404


def test_the_first_window_chooses(home: Path) -> None:
    chooser = Chooser(SETTINGS)
    listing = chooser.state()["listing"]
    assert isinstance(chooser.open(number_of(listing, "pets")), Studio)
    with pytest.raises(Refused) as refusal:
        chooser.open(number_of(listing, "pets"))
    assert "another window" in refusal.value.why


def test_dropped_photos_are_copied_into_a_new_folder(choosing: Server, home: Path) -> None:
    here = ask(choosing, "state")[1]["listing"]["folder"]
    status, made = ask(choosing, "make", {"folder": here, "name": "Bären 2024", "size": 10})
    assert status == 200
    data = (home / "pets/cats/a.jpg").read_bytes()
    assert receive(choosing, made["folder"], "cats/Kätzchen.jpg", data) == (200, {"photos": 1})
    # sent again because the answer was lost
    assert receive(choosing, made["folder"], "cats/Kätzchen.jpg", data) == (200, {"photos": 1})
    assert (home / "Bären 2024/cats/Kätzchen.jpg").read_bytes() == data
    assert ask(choosing, "choose", {"folder": made["folder"]})[0] == 200
    assert ask(choosing, "state")[1]["photos"] == ["cats/Kätzchen"]


@pytest.mark.parametrize(
    "name",
    ["", " ", ".", "..", ".hidden", "a/b", "../x", "a\\b", "a\0b", "a\nb", "x" * 300, 7, None],
)
def test_folders_of_other_names_are_not_made(choosing: Server, home: Path, name: Any) -> None:
    before = sorted(home.parent.rglob("*"))
    here = ask(choosing, "state")[1]["listing"]["folder"]
    assert ask(choosing, "make", {"folder": here, "name": name, "size": 1})[0] in (400, 422)
    assert sorted(home.parent.rglob("*")) == before


def test_a_folder_that_is_there_is_not_written_into(choosing: Server, home: Path) -> None:
    listing = ask(choosing, "state")[1]["listing"]
    status, answer = ask(choosing, "make", {"folder": listing["folder"], "name": "pets", "size": 1})
    assert status == 422
    assert "is there already; choose another name" in answer["error"]
    before = sorted(home.rglob("*"))
    status, answer = receive(choosing, number_of(listing, "pets"), "x.jpg", b"x")
    assert status == 403
    assert sorted(home.rglob("*")) == before


@pytest.mark.parametrize(
    "name",
    [
        *("", "../x.jpg", "a/../../x.jpg", "/x.jpg", "a//x.jpg", "a\\x.jpg", "x.jpg/", ".x.jpg"),
        *("x.txt", "x.py", "x", "a\0.jpg", "d/" * 20 + "x.jpg", "x" * 300 + ".jpg"),
    ],
)
def test_files_of_other_names_are_not_written(choosing: Server, home: Path, name: str) -> None:
    here = ask(choosing, "state")[1]["listing"]["folder"]
    made = ask(choosing, "make", {"folder": here, "name": "new", "size": 1})[1]
    status, answer = receive(choosing, made["folder"], name, b"x")
    assert status == 422
    assert re.search("cannot be copied|is no photo|too deep", answer["error"])
    assert not list((home / "new").rglob("*"))


def test_a_link_leads_nowhere_else(choosing: Server, home: Path, tmp_path: Path) -> None:
    here = ask(choosing, "state")[1]["listing"]["folder"]
    made = ask(choosing, "make", {"folder": here, "name": "new", "size": 1})[1]
    (tmp_path / "elsewhere").mkdir()
    (home / "new/link").symlink_to(tmp_path / "elsewhere")
    status, answer = receive(choosing, made["folder"], "link/x.jpg", b"x")
    assert status == 422
    assert "leads out of" in answer["error"]
    assert not list((tmp_path / "elsewhere").iterdir())


def test_sizes_are_bounded(choosing: Server, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = ask(choosing, "state")[1]["listing"]["folder"]
    status, answer = ask(choosing, "make", {"folder": here, "name": "new", "size": 10**18})
    assert status == 422
    assert "has room for" in answer["error"]
    assert not (home / "new").exists()
    made = ask(choosing, "make", {"folder": here, "name": "new", "size": 1})[1]
    path = f"/{choosing.token}/receive/{made['folder']}"
    connection = http.client.HTTPConnection("127.0.0.1", choosing.server_port, timeout=60)
    # the length alone is enough to be refused
    headers = {"Content-Length": str(choose.MOST_PHOTO + 1), "X-File": "x.jpg"}
    connection.request("POST", path, None, headers)
    assert connection.getresponse().status == 413
    connection.close()
    monkeypatch.setattr(choose, "MOST_PHOTOS", 1)
    assert receive(choosing, made["folder"], "1.jpg", b"1")[0] == 200
    status, answer = receive(choosing, made["folder"], "2.jpg", b"2")
    assert (status, "more than 1 photos" in answer["error"]) == (422, True)
    assert [file.name for file in (home / "new").iterdir()] == ["1.jpg"]


@pytest.mark.parametrize("path", ["/state", "/wrong/state", "/wrong/folders/0"])
def test_strangers_see_no_folder(choosing: Server, path: str) -> None:
    assert request(choosing, path)[0] == 403
    assert request(choosing, "folders/0", Host="evil.example")[0] == 403
    for word in ("choose", "make", "receive/0"):
        assert request(choosing, word, "POST", b"{}", Origin="https://evil.example")[0] == 403


@pytest.mark.parametrize(
    "path", ["folders/99", "folders/-1", "folders/..", "folders/%2e%2e", "photo/0", "marks", "x"]
)
def test_folders_have_numbers_alone(choosing: Server, path: str) -> None:
    ask(choosing, "state")
    assert request(choosing, path)[0] == 404


@pytest.mark.parametrize("folder", [-1, 10**6, "0", 0.5, None, True, ["/"], "/etc"])
def test_only_listed_folders_are_opened(choosing: Server, folder: Any) -> None:
    ask(choosing, "state")
    for word in ("choose", "make"):
        value = {"folder": folder, "name": "x", "size": 1}
        assert ask(choosing, word, value)[0] == 404


def test_a_folder_that_cannot_be_read_is_told(home: Path) -> None:
    chooser = Chooser(SETTINGS)
    number = number_of(chooser.state()["listing"], "empty")
    (home / "empty").rmdir()
    with pytest.raises(Exception, match=r"cannot be read .*; choose another folder"):
        chooser.look(number)


def test_folder_names_that_can_be_tags(tmp_path: Path) -> None:
    save_photos(
        tmp_path / "photos", ["two  words/in/a.jpg", "a,b/c.jpg", "background/d.jpg", "e.jpg"]
    )
    studio = open_studio(StudioSettings(folder=tmp_path / "photos"))
    assert studio.state()["folderTags"] == {"two  words": "two words"}


def test_the_command_without_a_folder(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """It says what to do, and ends with a sentence if nothing was chosen."""

    def interrupted(server: Server, poll_interval: float) -> None:
        assert isinstance(server.studio, Chooser)
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "serve_forever", interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["studio", "--no-browser"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert "choose a folder of photos in the page" in printed
    assert "no folder was chosen" in printed


def open_by(look: Page, button: str) -> None:
    """Click on a button that opens a folder: the page loads again, and begins with tags."""
    with look.page.expect_navigation():
        look.page.click(button)
    look.until("document.documentElement.dataset.ready === 'yes'")
    assert look.get("get().route.step") == "tag"


@pytest.fixture
def look(browser: Any, choosing: Server) -> Iterator[Page]:
    with looking(browser, choosing) as page:
        yield page


def test_choose_in_the_browser_and_use_folder_names_as_tags(look: Page, home: Path) -> None:
    page = look.page
    page.get_by_role("button", name="empty", exact=True).click()
    look.until("document.getElementById('open-folder').disabled")
    page.click("[data-place='current folder']")
    page.get_by_role("button", name="pets", exact=True).click()
    look.until("document.getElementById('about-folder').textContent === '4 photos.'")
    open_by(look, "#open-folder")
    assert "cats (2), dogs (1)" in page.inner_text("#folder-tags")
    page.click("#use-folders")
    look.saved()
    assert page.is_hidden("#folder-tags")
    table = (home / "pets-tagmask/tags.csv").read_text()
    assert table == "file,tags\ncats/a.jpg,cats\ncats/b.png,cats\nd.jpg,\ndogs/c.jpg,dogs\n"
    page.keyboard.press("Control+z")
    look.until("studio.get().history.redo === 1")
    look.saved()
    assert "cats/a.jpg,\n" in (home / "pets-tagmask/tags.csv").read_text()
    assert page.is_visible("#folder-tags")


def test_drop_photos_in_the_browser(look: Page, home: Path) -> None:
    page = look.page
    (home / "pets/list.txt").write_text("no photo")
    page.set_input_files("#pick-folder", home / "pets")
    assert "4 photos" in page.inner_text("#what-dropped")
    assert "1 file is left out" in page.inner_text("#message")
    # the folder's own name is taken already
    assert page.input_value("#new-name") == "pets"
    look.expected.append("422")
    page.press("#new-name", "Enter")
    look.until("document.getElementById('message').textContent.includes('is there already')")
    page.fill("#new-name", "copy")
    open_by(look, "#copy")
    assert look.get("get().server.photos") == ["cats/a", "cats/b", "d", "dogs/c"]
    copied = (home / "copy/cats/b.png").read_bytes()
    assert copied == (home / "pets/cats/b.png").read_bytes()
    assert not list(home.glob("copy/**/*.partial"))


def test_a_drop_on_the_page_and_a_failure_in_the_middle(look: Page, home: Path) -> None:
    """Files that fall on the page; the disk is full for one of them, then it goes on."""
    page = look.page
    page.evaluate(
        """() => {
            const transfer = new DataTransfer();
            for (const name of ["a.jpg", "b.jpg"]) transfer.items.add(new File(["not read yet"], name));
            const event = new DragEvent("drop", {dataTransfer: transfer, bubbles: true, cancelable: true});
            document.getElementById("drop").dispatchEvent(event);
        }"""
    )
    look.until("document.getElementById('new-name')")
    assert page.input_value("#new-name") == "photos"
    # the server has no room once, and in the end the files are no photos
    look.expected += ["503", "422"]
    page.route("**/receive/*", full_once())
    page.click("#copy")
    look.until("document.getElementById('message').textContent.includes('disk is full')")
    assert os.listdir(home / "photos") == ["a.jpg"]
    open_by(look, "#copy")
    assert look.get("get().server.photos") == ["a", "b"]


def full_once() -> Any:
    """Return what answers the second request with a full disk, and lets all others through."""
    seen = []

    def handle(route: Any) -> None:
        seen.append(route)
        if len(seen) == 2:
            route.fulfill(status=503, json={"error": "the disk is full."})
        else:
            route.continue_()

    return handle
