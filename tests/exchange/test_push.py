"""Predictions sent to Label Studio: what is sent, what is refused. A real server: scripts/label_studio_test.py."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tagmask.cli import main
from tagmask.data.images import write_mask
from tagmask.exchange.label_studio import labelling_interface, unpack

MASK = np.zeros((6, 8), np.uint8)
MASK[1:4, 2:5] = 2


class _Api(BaseHTTPRequestHandler):
    """The few addresses of Label Studio's API that are used, with the state of a project."""

    server: Any

    def _reply(self, status: int, value: Any, **headers: str) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _handle(self) -> None:
        state = self.server.state
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        path, _, _ = self.path.partition("?")
        state["asked"].append((self.command, path, self.headers.get("Authorization", "")))
        fault = state.get("faults", {}).get(len(state["asked"]))
        if fault == "refused":
            self._reply(500, {"detail": "broken"})
            return
        if fault == "closed":
            self.close_connection = True
            return
        if fault == "lost":  # it is done, but the answer does not arrive
            self._reply = lambda *_, **__: None  # type: ignore[method-assign]
            self.close_connection = True
        if fault == "odd":
            self._reply(200, [["x"], None, {"id": "1"}])
            return
        if path == "/api/token/refresh/":
            self._reply(200, {"access": f"short{len(state['asked'])}"})
        elif state.get("elsewhere"):
            self._reply(302, {}, Location=state["elsewhere"])
        elif self.headers.get("Authorization") not in state["accepted"]:
            self._reply(401, {"detail": "Invalid token."})
        elif path == "/api/projects/7/":
            self._reply(200, {"label_config": state["interface"]})
        elif path == "/api/tasks/":
            page = int(self.path.partition("&page=")[2].partition("&")[0])
            tasks = state["tasks"][page - 1 : page]  # one a page
            self._reply(200, {"tasks": tasks, "total": len(state["tasks"])})
        elif path == "/api/predictions/" and self.command == "GET":
            self._reply(200, state["predictions"])
        elif path == "/api/predictions/":
            state["predictions"].append(body | {"id": 100 + len(state["asked"])})
            self._reply(201, {})
        elif path.startswith("/api/predictions/"):
            number = int(path.split("/")[3])
            state["predictions"] = [p for p in state["predictions"] if p["id"] != number]
            self._reply(204, {})
        else:
            self._reply(404, {})

    do_GET = do_POST = do_DELETE = _handle

    def log_message(self, format: str, *values: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    for name in ("day 1/a b", "c"):
        path = Path(f"photos/{name}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6)).save(path)
        write_mask(Path(f"run/6_predictions/{name}.png"), MASK)
    Path("tags.json").write_text('{"day 1/a b": ["dog"], "c": ["cat"]}')
    Path("token").write_text("legacy\n")
    made = ThreadingHTTPServer(("127.0.0.1", 0), _Api)
    made.state = {  # type: ignore[attr-defined]
        "asked": [],
        "accepted": ["Token legacy"],
        "interface": labelling_interface(("cat", "dog")).replace('name="tag"', 'name="brush"'),
        "tasks": [
            {"id": 1, "data": {"image": "/data/upload/7/0a1b2c3d-a_b.png"}},
            {"id": 2, "data": {"image": "/data/local-files/?d=photos/c.png"}},
            {"id": 3, "data": {"image": "/data/local-files/?d=photos/other.png"}},
        ],
        "predictions": [
            {"id": 1, "task": 2, "model_version": "tagmask", "result": []},
            {"id": 2, "task": 2, "model_version": "another", "result": []},
        ],
    }
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def push(server: Any, *words: str) -> int:
    data = ("--data", "folder", "--images", "photos", "--tags", "tags.json", "--token", "token")
    address = f"http://127.0.0.1:{server.server_port}"
    with pytest.raises(SystemExit) as ended:
        main(["push", "--out", "run", *data, "--label-studio", address, "--project", "7", *words])
    return int(ended.value.code or 0)


def test_predictions_are_sent_once(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert push(server) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert "2 predictions sent to http://127.0.0.1" in printed
    assert "photos/other.png" in printed
    sent = {p["task"]: p for p in server.state["predictions"] if p["model_version"] == "tagmask"}
    assert sent.keys() == {1, 2}
    assert len(server.state["predictions"]) == 3, "the old one is gone, that of another model stays"
    (region,) = sent[1]["result"]
    assert (region["from_name"], region["to_name"]) == ("brush", "image")
    assert np.array_equal(unpack(region["value"]["rle"], (6, 8)), MASK == 2)
    assert push(server) == 0
    assert "2 tasks have these predictions already" in capsys.readouterr().out
    assert len(server.state["predictions"]) == 3


def test_a_personal_token_is_exchanged(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    Path("token").write_text("head.body.signature")
    server.state["accepted"] = ["Bearer short1"]
    assert push(server) == 0, capsys.readouterr().err
    # the long one is sent to its own address alone
    assert server.state["asked"][0] == ("POST", "/api/token/refresh/", "")
    assert {asked[2] for asked in server.state["asked"][1:]} == {"Bearer short1"}


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        ({"accepted": []}, [], "does not accept the token"),
        ({}, ["--project", "8"], "/api/projects/8/ does not exist; check --project"),
        ({"interface": "<View/>"}, [], "has no BrushLabels"),
        ({"interface": labelling_interface(("cat",))}, [], 'has no brush label "dog"'),
        ({"tasks": []}, [], "project 7 has no tasks; import those"),
        ({"elsewhere": "http://127.0.0.1:1/"}, [], "leads to another address"),
        ({}, ["--label-studio", "http://127.0.0.1:1"], "cannot be reached"),
        ({}, ["--label-studio", "ftp://x"], "--label-studio is missing or no address"),
        ({}, ["--token", "nothing"], "--token nothing does not exist; check the path"),
    ],
)
def test_what_is_refused(
    server: Any,
    change: dict[str, Any],
    words: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.state |= change
    before = list(server.state["predictions"])
    assert push(server, *words) == 1
    assert message in capsys.readouterr().err
    assert server.state["predictions"] == before


@pytest.mark.parametrize("fault", ["refused", "closed", "lost", "odd"])
@pytest.mark.parametrize("number", range(1, 9))
def test_every_request_fails_once(
    fault: str, number: int, server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sent again, each task has one prediction of ours, and those of others are untouched."""
    server.state["faults"] = {number: fault}
    code = push(server)
    printed = capsys.readouterr().err
    assert code in (0, 1)
    assert not code or printed.startswith("error: ")
    assert "legacy" not in printed
    server.state["faults"] = {}
    assert push(server) == 0
    found = server.state["predictions"]
    ours = [prediction for prediction in found if prediction["model_version"] == "tagmask"]
    assert sorted(prediction["task"] for prediction in ours) == [1, 2]
    assert all(prediction["result"] for prediction in ours)
    assert [p["id"] for p in found if p["model_version"] == "another"] == [2]


def test_pages_without_an_end(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A server that sends the same page again and again is not asked for ever."""
    server.state["tasks"] = [server.state["tasks"][0]] * 5_000
    assert push(server) == 0
    asked = [path for _, path, _ in server.state["asked"]]
    assert asked.count("/api/tasks/") == 2


@pytest.mark.parametrize("token", ["", "one\ntwo", "two words", "\u20ac"])
def test_a_file_without_a_token(
    token: str, server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("token").write_text(token)
    assert push(server) == 1
    printed = capsys.readouterr().err
    assert "--token token holds no token" in printed
    assert server.state["asked"] == []
