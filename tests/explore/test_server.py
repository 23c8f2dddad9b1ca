"""The server answers its page alone, and nothing that anyone sends reads or writes outside the run."""

import http.client
import json
import os
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
from tagmask.explore.server import Server, open_explorer
from tests.helpers import kill_once
from tests.runs.tiny import IMAGES

SCENES = Scenes(IMAGES)
HEIGHT, WIDTH = SCENES.load_image(0).shape[:2]


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
    assert b"http://" not in page and b"https://" not in page and b"NONCE" not in page  # noqa: PT018


def test_state_names_photos_tags_and_classes(server: Server) -> None:
    state = json.loads(request(server, "state")[1])
    assert state["classes"] == list(CLASSES)
    assert state["names"] == [SCENES.name(i) for i in range(IMAGES)]
    assert [tuple(tags) for tags in state["tags"]] == [SCENES.tags(i) for i in range(IMAGES)]
    assert state["missing"] == {"pseudo": [], "mask": []}


def test_layers_are_the_files_of_the_run(server: Server) -> None:
    truth = np.frombuffer(request(server, "truth/0/0")[1], np.uint8).reshape(HEIGHT, WIDTH)
    mask = SCENES.load_mask(0)
    assert mask is not None
    assert (truth == mask).all()
    assert request(server, "correction/0")[1] == b""
    assert request(server, "thumb/0")[2]["Content-Type"] == "image/jpeg"


def test_affinity_and_maps_are_those_of_the_classifier(server: Server) -> None:
    """Bytes of each row against attention recorded from the network itself."""
    view = server.explorer.views[0]
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
        ("correct/0", b"x" * 10, {}, 413),
        ("correct/0", b"\xff" * (HEIGHT * WIDTH + 1), {}, 413),
        ("correct/0", None, {"Content_Length": "99999999999"}, 413),
        ("correct/0", None, {"Content_Length": "-1"}, 411),
        ("correct/0", None, {"Content_Length": "9" * 400}, 411),
        ("correct/0", None, {"Transfer_Encoding": "chunked"}, 411),
        ("correct/0", b"\xc8" * (HEIGHT * WIDTH), {}, 422),  # label 200 of 10 classes
        ("correct/0", b"\xff" * (HEIGHT * WIDTH), {"X_Before": "other"}, 409),
        ("tags/0", b"[" * 5000, {}, 400),
        ("tags/0", b'{"a": 1}', {}, 400),
        ("tags/0", b"[true]", {}, 400),
        ("tags/0", b"[-1]", {}, 422),
        ("tags/0", b"[99]", {}, 422),
        ("tags/0", b" " * 70_000, {}, 413),
        ("tags/99", b"[0]", {}, 404),
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
    labels[:9, :9] = absent + 1
    status, body, _ = request(server, "correct/0", "POST", labels.tobytes())
    answer = json.loads(body)
    assert status == 200
    assert answer["tags"] == sorted([*SCENES.tags(0), absent])
    kept = read_labels(out / "corrections", SCENES.name(0), len(CLASSES))
    assert kept is not None
    assert (kept == labels).all()
    assert request(server, "correction/0")[2]["Digest"] == answer["digest"]
    assert json.loads(request(server, "state")[1])["corrected"] == [0]
    assert request(server, "tags/0", "POST", json.dumps(SCENES.tags(0)).encode())[0] == 200
    assert json.loads((out / "corrections/tags.json").read_text())["photos"] == {}


def test_a_folder_that_leads_out_of_the_run_is_not_written(
    server: Server, out: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (out / "corrections").symlink_to(tmp_path / "elsewhere")
    status, body, _ = request(server, "tags/0", "POST", b"[0]")
    assert status == 422
    assert "leads out of the run" in json.loads(body)["error"]
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
    assert explorer.state()["tags"] == [(0,)]
    assert not explorer.state()["editable"]
    assert "single photo" in explorer.learner.refusal()
    assert explorer.views[0].affinity(0, "acr")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "name either a run"),
        (["--out", "nowhere"], "does not exist; check the path"),
        (["--out", "."], "is no run"),
        (["photo.jpg"], "--model is missing"),
        (["--out", ".", "--tags", "dog"], "belong to a single photo"),
        (["--out", ".", "--port", "70000"], "at most 65535"),
    ],
)
def test_mistakes_on_the_command_line(words: list[str], sentence: str, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        main(["explore", *words])
    assert sentence in capsys.readouterr().err
