"""The server answers its page alone, and nothing that anyone sends reads or writes outside the run."""

import http.client
import importlib.resources
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tagmask.cli import main
from tagmask.config import ExploreSettings
from tagmask.data.corrections import NOT_CORRECTED, read_labels, write_labels
from tagmask.data.scenes.catalog import CLASSES, Scenes
from tagmask.studio.opening import open_explorer
from tagmask.studio.server import Server
from tagmask.studio.tags import digest
from tests.helpers import kill_once
from tests.runs.tiny import IMAGES
from tests.studio.conftest import serving, studio_of

SCENES = Scenes(IMAGES)
HEIGHT, WIDTH = SCENES.load_image(0).shape[:2]
WHOLE = f"0,0,{HEIGHT},{WIDTH}"


def request(
    server: Server, path: str, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, bytes, http.client.HTTPMessage]:
    """Status, body and headers; ``path`` comes after the token unless it begins with a slash."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(
        method, path if path.startswith("/") else f"/{server.token}/{path}", body, names
    )
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, data, answer.headers


def names(tags: Any) -> list[str]:
    return [CLASSES[tag] for tag in tags]


def retag(server: Server, photo: int, tags: list[str], before: list[str]) -> Any:
    """Ask for other tags of a photo, and return the answer."""
    change = {"photo": photo, "tags": tags, "before": digest(before)}
    return json.loads(request(server, "tags", "POST", json.dumps([change]).encode())[1])


def files(out: Path) -> dict[str, bytes]:
    return {
        file.relative_to(out).as_posix(): file.read_bytes()
        for file in out.rglob("*")
        if file.is_file()
    }


def test_the_page_carries_its_policy_and_loads_nothing_from_elsewhere(server: Server) -> None:
    status, page, headers = request(server, "")
    assert status == 200
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert b"http://" not in page and b"https://" not in page and b"<script>" not in page  # noqa: PT018


def test_the_page_asks_for_all_its_modules_at_once(server: Server) -> None:
    """Otherwise each would be found only after the one that imports it has arrived."""
    page = request(server, "")[1].decode()
    told = re.findall(r'<link rel="modulepreload" href="web/(\w+\.js)">', page)
    files = importlib.resources.files("tagmask.studio").joinpath("web").iterdir()
    names = {file.name for file in files if file.name.endswith(".js")}
    # the first is named by its own line, and the last holds nothing that runs
    assert sorted(told) == sorted(names - {"main.js", "types.js"})


def test_state_names_photos_tags_and_classes(server: Server) -> None:
    state = json.loads(request(server, "state")[1])
    assert state["classes"] == list(CLASSES)
    assert state["photos"] == [SCENES.name(i) for i in range(IMAGES)]
    assert state["tags"] == [names(SCENES.tags(i)) for i in range(IMAGES)]
    assert state["masks"] == [*range(IMAGES)]


def test_layers_are_the_files_of_the_run(server: Server) -> None:
    truth = np.frombuffer(request(server, "truth/0/0")[1], np.uint8).reshape(HEIGHT, WIDTH)
    mask = SCENES.load_mask(0)
    assert mask is not None
    assert (truth == mask).all()
    assert request(server, "correction/0")[1] == b""
    assert request(server, "thumb/0")[2]["Content-Type"] == "image/jpeg"


def test_affinity_and_maps_are_those_of_the_classifier(server: Server) -> None:
    """Bytes of each row against attention recorded from the network itself."""
    view = studio_of(server).view
    data = request(server, "affinity/0/acr/0")[1]
    line, rest = data.split(b"\n", 1)
    head = json.loads(line)
    n, blocks, tags = head["cells"], head["blocks"], len(head["tags"])
    tops = np.frombuffer(rest, "<f4", blocks * n).reshape(blocks, n)
    pairs = np.frombuffer(rest, np.uint8, offset=4 * (blocks + tags) * n).reshape(blocks, n, n)
    _, images, _, _ = view._seen(0)
    with torch.no_grad():
        _, attention = view.classifier.attend(images)
    expected = torch.stack(attention)[:, 0, 1:, 1:].numpy()
    np.testing.assert_allclose(pairs * tops[..., None] / 255, expected, atol=expected.max() / 500)
    assert len(line) % 4 == 3


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {}),
        ("/state", {}),
        ("/wrong/state", {}),
        ("state", {"Host": "evil.example"}),
        ("state", {"Host": "127.0.0.1"}),
        ("state", {"Origin": "https://evil.example"}),
        ("state", {"Origin": "null"}),
        ("state", {"Sec_Fetch_Site": "cross-site"}),
    ],
)
def test_strangers_are_refused(server: Server, path: str, headers: dict[str, str]) -> None:
    for method in ("GET", "POST"):
        status, body, _ = request(
            server, path, method, b"" if method == "POST" else None, **headers
        )
        assert status == 403
        assert server.token.encode() not in body


@pytest.mark.parametrize(
    "path",
    [
        *(
            "../state",
            "photo/../../config.toml",
            "photo/%2e%2e",
            "photo/-1",
            f"photo/{IMAGES}",
            "photo/1e3",
            "photo/%D9%A3",
        ),
        *(
            "photo/9999999999999",
            "mask/1/0",
            "mask/0/",
            "config.toml",
            "config/0/0",
            "web/../app.py",
            "web/%2e%2e%2fapp.py",
            "web/app.py",
            "web/types.d.ts",
            "download/..",
            "download/%2e%2e%2fconfig.toml",
            "pieces/huge/0",
            "correction/0/0",
            "state?x=1",
        ),
        "affinity/7/acr/0",
    ],
)
def test_there_is_nothing_beside_the_photos(server: Server, path: str) -> None:
    assert request(server, path)[0] == 404


def test_a_method_that_does_not_exist_is_named_in_a_sentence(server: Server) -> None:
    status, body, _ = request(server, "affinity/0/..%2f..%2fx/0")
    assert status == 422
    assert "there is no map method" in json.loads(body)["error"]


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("correct/0", b"x" * 10, {"X_Box": WHOLE}, 413),
        ("correct/0", b"\xff" * (HEIGHT * WIDTH + 1), {"X_Box": WHOLE}, 413),
        ("correct/0", None, {"X_Box": WHOLE, "Content_Length": "99999999999"}, 413),
        ("correct/0", None, {"X_Box": WHOLE, "Content_Length": "-1"}, 411),
        ("correct/0", None, {"X_Box": WHOLE, "Content_Length": "9" * 400}, 411),
        ("correct/0", None, {"X_Box": WHOLE, "Transfer_Encoding": "chunked"}, 411),
        # label 200 of 10 classes
        ("correct/0", b"\xc8" * (HEIGHT * WIDTH), {"X_Box": WHOLE}, 422),
        ("correct/0", b"\xff" * (HEIGHT * WIDTH), {"X_Box": WHOLE, "X_Before": "other"}, 409),
        ("correct/0", b"\0", {}, 400),
        ("correct/0", b"\0", {"X_Box": "0,0,0,0"}, 400),
        ("correct/0", b"\0", {"X_Box": "-1,0,1,1"}, 400),
        ("correct/0", b"\0", {"X_Box": f"{HEIGHT},0,1,1"}, 400),
        ("correct/0", b"\0", {"X_Box": "0,0,1,1", "X_Write": "../../x"}, 400),
        ("tags", b"[" * 5000, {}, 400),
        ("tags", b'{"a": 1}', {}, 400),
        ("tags", b"[true]", {}, 400),
        ("tags", b'[{"photo": -1, "tags": [], "before": ""}]', {}, 400),
        ("tags", b'[{"photo": 99, "tags": [], "before": ""}]', {}, 400),
        ("tags", b'[{"photo": 0, "tags": [1], "before": ""}]', {}, 400),
        ("tags", b'[{"photo": 0, "tags": ["a;b"], "before": ""}]', {}, 422),
        ("tags", None, {"Content_Length": "5000000"}, 413),
        ("checked", b'{"photos": [99], "good": true}', {}, 400),
        ("checked", b'{"photos": [0], "good": 1}', {}, 400),
        ("export", b'{"format": "../x", "checked": false}', {}, 422),
        ("version", b'{"number": 7}', {}, 422),
        ("draw", b'{"count": 0}', {}, 400),
        ("run", b"", {}, 409),
        ("accept", b"", {}, 200),  # in the background: nothing to accept
        ("photo/0", b"", {}, 404),
    ],
)
def test_hostile_bodies_change_nothing(
    server: Server, out: Path, path: str, body: bytes | None, headers: dict[str, str], status: int
) -> None:
    before = files(out)
    assert request(server, path, "POST", body, **headers)[0] == status
    time.sleep(0.1)
    assert files(out) == before


def test_two_hundred_at_once_and_closed_connections(server: Server) -> None:
    """Some close before the answer, some never finish their request; the others are all served."""
    answers: list[int] = []

    def ask(k: int) -> None:
        if k % 4 == 0:
            with socket.create_connection(("127.0.0.1", server.server_port)) as raw:
                raw.sendall(
                    f"GET /{server.token}/photo/0 HTTP/1.1\r\n".encode()
                )  # and nothing more
            return
        answers.append(request(server, f"thumb/{k % IMAGES}")[0])

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 150
    assert request(server, "state")[0] == 200


def test_corrections_are_saved_and_a_painted_class_becomes_a_tag(server: Server, out: Path) -> None:
    absent = next(c for c in range(len(CLASSES)) if c not in SCENES.tags(0))
    labels = np.full((HEIGHT, WIDTH), NOT_CORRECTED, np.uint8)
    labels[3:12, 5:9] = absent + 1
    part = bytes([absent + 1]) * 36
    status, body, _ = request(server, "correct/0", "POST", part, X_Box="3,5,9,4")
    answer = json.loads(body)
    assert status == 200
    assert answer["tags"] == names(sorted([*SCENES.tags(0), absent]))
    kept = read_labels(out / "corrections", SCENES.name(0), len(CLASSES))
    assert kept is not None
    assert (kept == labels).all()
    assert request(server, "correction/0")[2]["Digest"] == answer["digest"]
    assert json.loads(request(server, "state")[1])["corrected"] == [0]
    retag(server, 0, names(SCENES.tags(0)), answer["tags"])
    assert json.loads((out / "corrections/tags.json").read_text())["photos"] == {}


def test_a_write_that_is_sent_again_is_written_once(server: Server) -> None:
    first = request(server, "correct/0", "POST", b"\0", X_Box="0,0,1,1", X_Write="one")
    again = request(server, "correct/0", "POST", b"\0", X_Box="0,0,1,1", X_Write="one")
    other = request(server, "correct/0", "POST", b"\0", X_Box="0,0,1,1", X_Write="two")
    assert (first[0], again[0], other[0]) == (200, 200, 409)
    assert first[1] == again[1]


def test_tags_that_changed_meanwhile_are_not_overwritten(server: Server) -> None:
    before = names(SCENES.tags(0))
    free = [name for name in CLASSES if name not in before]
    assert retag(server, 0, [*before, free[0]], before)["conflicts"] == []
    answer = retag(server, 0, [*before, free[1]], before)
    assert answer["conflicts"] == [0]
    assert answer["photos"][0]["tags"] == sorted([*before, free[0]], key=CLASSES.index)


def test_a_dripping_request_is_closed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tagmask.studio.server.MOST_SECONDS", 0.3)
    with socket.create_connection(("127.0.0.1", server.server_port)) as raw:
        raw.settimeout(10)
        began = time.monotonic()
        with pytest.raises(OSError):  # noqa: PT012
            for letter in f"GET /{server.token}/state HTTP/1.1\r\n" * 50:
                raw.sendall(letter.encode())
                time.sleep(0.02)
        assert time.monotonic() - began < 5


def test_the_end_waits_for_answers(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that computes while the interpreter ends would abort it."""
    begun = threading.Event()
    ended: list[float] = []

    def slow() -> dict[str, Any]:
        begun.set()
        time.sleep(0.5)
        ended.append(time.monotonic())
        return {}

    with serving(open_explorer(ExploreSettings(out=out))) as server:
        monkeypatch.setattr(studio_of(server), "marks", slow)
        asking = threading.Thread(target=request, args=(server, "marks"))
        asking.start()
        assert begun.wait(10)
    assert ended
    assert ended[0] <= time.monotonic()
    asking.join()


def test_a_folder_that_leads_out_of_the_run_is_not_written(
    server: Server, out: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (out / "corrections").symlink_to(tmp_path / "elsewhere")
    answer = retag(server, 0, [CLASSES[0]], names(SCENES.tags(0)))
    assert "leads out of the run" in answer["error"]
    assert not list((tmp_path / "elsewhere").iterdir())


def save_forever(folder: str) -> None:
    labels = np.full((1500, 2000), NOT_CORRECTED, np.uint8)
    for turn in range(10_000):
        labels[:, ::2] = turn % 3
        write_labels(Path(folder), "photo", labels)


def test_a_kill_while_saving_leaves_the_last_whole_correction(tmp_path: Path) -> None:
    def is_writing() -> bool:
        return any(tmp_path.glob("*.partial")) and (tmp_path / "photo.png").is_file()

    for _ in range(3):
        kill_once(is_writing, save_forever, str(tmp_path))
        kept = read_labels(tmp_path, "photo", 3)
        assert kept is not None
        assert len(np.unique(kept[:, ::2])) == 1
        assert (kept[:, 1::2] == NOT_CORRECTED).all()


def test_the_command_prints_its_address_and_ends_with_a_sentence(out: Path) -> None:
    words = [sys.executable, "-m", "tagmask", "explore", "--out", str(out), "--no-browser"]
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # ignored in a shell's background, and inherited
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    signal.signal(signal.SIGINT, before)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "the explorer has ended" in printed
    assert "Traceback" not in errors


def test_a_photo_can_be_looked_at_but_not_corrected(out: Path, tmp_path: Path) -> None:
    from PIL import Image

    Image.fromarray(SCENES.load_image(0)).save(tmp_path / "photo.png")
    explorer = open_explorer(
        ExploreSettings(photo=tmp_path / "photo.png", model=out / "1_classifier", tags=CLASSES[0])
    )
    assert explorer.state()["tags"] == [[CLASSES[0]]]
    assert not explorer.state()["editable"]
    assert explorer.learner is not None
    assert "single photo" in explorer.learner.refusal()
    assert explorer.view.affinity(0, "acr")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "tagmask explore"),
        (["--out", "nowhere"], "does not exist"),
        (["--out", "."], "is no run"),
        (["photo.jpg"], "which network?"),
        (["--out", "RUN", "--tags", "dog"], "belong to a single photo"),
        (["--out", "RUN", "--port", "70000"], "at most 65535"),
    ],
)
def test_mistakes_on_the_command_line(
    out: Path, words: list[str], sentence: str, capsys: Any
) -> None:
    words = [str(out) if word == "RUN" else word for word in words]
    with pytest.raises(SystemExit):
        main(["explore", *words])
    assert sentence in capsys.readouterr().err


def test_the_studio_takes_a_folder_of_photos(tmp_path: Path, capsys: Any) -> None:
    """No run is needed: it is what the studio makes."""
    from PIL import Image

    from tagmask.cli.understand import understand
    from tagmask.config import StudioSettings
    from tagmask.studio.opening import open_studio

    photos = tmp_path / "photos"
    photos.mkdir()
    for i in range(3):
        Image.fromarray(SCENES.load_image(i)).save(photos / f"{i}.png")
    (photos / "copy.png").write_bytes((photos / "0.png").read_bytes())
    assert understand("studio", [str(photos)]) == ["--folder", str(photos)]
    studio = open_studio(StudioSettings(folder=photos))
    state = studio.state()
    assert state["photos"] == ["0", "1", "2", "copy"]
    assert state["notes"] == {3: "a copy of 0"}
    change = {"photo": 1, "tags": ["tabby cat", "mat"], "before": digest([])}
    studio.retag([change], "")
    table = tmp_path / "photos-tagmask/tags.csv"
    assert table.read_text() == "file,tags\n0.png,\n1.png,mat;tabby cat\n2.png,\ncopy.png,\n"
    again = open_studio(StudioSettings(folder=photos))
    assert again.tags(1) == ["mat", "tabby cat"]
    with pytest.raises(SystemExit):
        main(["studio", str(tmp_path / "nowhere")])
    assert "does not exist; check the path" in capsys.readouterr().err
