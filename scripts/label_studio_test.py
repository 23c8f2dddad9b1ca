"""The whole way through a real Label Studio server, in its default setting and with its guard off.

    python scripts/label_studio_test.py --work build/label-studio

A small run is made from built-in pictures with odd names. Then, in both settings, with a server of its
own on 127.0.0.1 (SQLite, a new folder): a project gets the exported interface and tasks; every photo
is shown; the imported predictions are the run's, pixel for pixel; the live backend is connected
(refused in the default setting); predictions arrive by it, or by ``tagmask push``, and equal the
run's; uploaded photos, which Label Studio renames, are found again; a person's annotation is exported,
imported as a correction, and kept by the next run.

Label Studio is installed into an environment of its own below --work, or taken from --server. Where it
cannot be installed, the test says so and ends with code 77, as a skipped test.
"""

import argparse
import csv
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from PIL import Image

from tagmask.data.corrections import read_labels
from tagmask.data.images import read_mask
from tagmask.data.scenes.catalog import Scenes
from tagmask.data.tools import image_of
from tagmask.exchange.label_studio import unpack
from tagmask.labels import Mask

VERSION = "1.23.2"
SKIPPED = 77
NAMES = ("Żółw kot", "day 1/a #1", "day 1/b+c", "plain", "sub/100% (2)", "x", "y", "é & ü")
TRIAL = (
    "--train.backbone tagmask_tiny --train.freeze 2 --train.size 64 --train.object-blocks 1 3 "
    "--train.object-size 64 --seeds.affinity-blocks 2 3 --segment.head-blocks 1 3 "
    "--segment.size 64 --segment.steps 20"
)
GUARD_OFF = {"ML_BLOCK_LOCAL_IP": "false", "SSRF_PROTECTION_ENABLED": "false"}


def main() -> int:
    """Run the test; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--work", type=Path, default=Path("build/label-studio"))
    parser.add_argument("--server", type=Path, help="an installed label-studio program")
    parser.add_argument("--again", action="store_true", help="keep its database of the last time")
    options = parser.parse_args()
    work: Path = options.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    program = options.server or install(work / "venv")
    if program is None:
        print(f"skipped: label-studio {VERSION} cannot be installed here")
        return SKIPPED
    make_run(work)
    # making its database takes Label Studio minutes, so both settings share it
    data = work / "data"
    if not options.again or not data.is_dir():
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir()
        (work / "token.txt").write_text(secrets.token_hex(20))
    for setting, environment in {"default": {}, "guard off": GUARD_OFF}.items():
        print(f"== Label Studio, {setting}", flush=True)
        shutil.rmtree(work / "run/corrections", ignore_errors=True)
        tagmask(work, "run", *run_words())
        with label_studio(program, data, work, environment) as api:
            whole_way(api, work, is_guarded=not environment)
    print("passed in both settings")
    return 0


def install(folder: Path) -> Path | None:
    """Install Label Studio into an environment of its own; None if that cannot be."""
    program = folder / "bin/label-studio"
    if program.is_file():
        return program
    venv.create(folder, with_pip=True, clear=True)
    words = [str(folder / "bin/pip"), "install", "--quiet", f"label-studio=={VERSION}"]
    done = subprocess.run(words, check=False)
    return program if done.returncode == 0 else None


def tagmask(work: Path, *words: str) -> str:
    """Run a command as a user types it, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "tagmask", *words],
        cwd=work,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, f"tagmask {' '.join(words)}: {done.stderr}"
    return done.stdout


def run_words() -> list[str]:
    """Return the flags of the small run."""
    data = "--preset own-photos --images root/photos --tags tags.csv --out run"
    return [*data.split(), *TRIAL.split()]


def make_run(work: Path) -> None:
    """Draw photos and learn from their tags; a run that is there already is continued."""
    scenes = Scenes(len(NAMES), seed=5)
    rows = [["file", "tags"]]
    for i, name in enumerate(NAMES):
        file = work / f"root/photos/{name}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            Image.fromarray(scenes.load_image(i)).save(file, quality=95)
        rows.append([f"{name}.jpg", ";".join(scenes.classes[c] for c in scenes.tags(i))])
    with (work / "tags.csv").open("w", newline="", encoding="utf-8") as table:
        csv.writer(table).writerows(rows)


class Api:
    """Requests to the server under test, written apart from the package's own client."""

    def __init__(self, address: str, token: str) -> None:
        self.address = address
        self.token = token

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Send a request; returns status and content."""
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {"Authorization": f"Token {self.token}", "Content-Type": kind}
        request = urllib.request.Request(self.address + path, content, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        with suppress(ValueError):
            return status, json.loads(text)
        return status, text

    def ok(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Send a request that must succeed; returns its content."""
        status, content = self.ask(method, path, body, kind)
        assert status < 300, f"{method} {path}: {status} {str(content)[:500]}"
        return content


@contextmanager
def label_studio(
    program: Path, data: Path, work: Path, environment: dict[str, str]
) -> Iterator[Api]:
    """Start a server in a new folder, and end it."""
    port = free_port()
    token = (work / "token.txt").read_text()
    settings = {
        "LABEL_STUDIO_BASE_DATA_DIR": str(data),
        "LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED": "true",
        "LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT": str(work / "root"),
        "COLLECT_ANALYTICS": "false",
        "LATEST_VERSION_CHECK": "false",
        "SENTRY_DSN": "",
        "FRONTEND_SENTRY_DSN": "",
    }
    words: Sequence[str] = (
        *(str(program), "start", "--no-browser", "--internal-host", "127.0.0.1"),
        *("--port", str(port), "--username", "me@localhost", "--password", secrets.token_hex(8)),
        *("--user-token", token, "--enable-legacy-api-token"),
    )
    # a path of Python's own would make it import this package's environment
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with (data / "log.txt").open("a") as log:
        process = subprocess.Popen(
            words, env=clean | settings | environment, stdout=log, stderr=log, cwd=data
        )
    try:
        api = Api(f"http://127.0.0.1:{port}", token)
        wait_for(f"{api.address}/health", process, data / "log.txt")
        yield api
    finally:
        end(process)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def wait_for(address: str, process: "subprocess.Popen[Any]", log: Path) -> None:
    """Wait until a server answers."""
    last = time.monotonic() + 900
    while time.monotonic() < last:
        assert process.poll() is None, f"the server ended; see {log}"
        with suppress(OSError), urllib.request.urlopen(address, timeout=10):
            return
        time.sleep(1)
    raise AssertionError(f"the server did not start; see {log}")


def end(process: "subprocess.Popen[Any]") -> None:
    """End a process that was started here."""
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def whole_way(api: Api, work: Path, *, is_guarded: bool) -> None:
    """Walk through all steps on one server."""
    for old in (work / "tasks.json", work / "tasks.xml"):
        old.unlink(missing_ok=True)
    tagmask(work, "export", "--out", "run", "--format", "label-studio", "--to", "tasks.json")
    project = new_project(api, work)
    tasks = json.loads((work / "tasks.json").read_text())
    assert all(task["data"]["tags"] for task in tasks)
    api.ok("POST", f"/api/projects/{project}/import", tasks)
    check_photos(api, project, work)
    check_predictions(api, project, work, "imported")
    remove_predictions(api, project)
    connect(api, project, work, is_guarded)
    if not is_guarded:
        remove_predictions(api, project)
    push(api, project, work)
    check_predictions(api, project, work, "pushed")
    assert "8 tasks have these predictions already" in push(api, project, work)
    upload(api, work)
    correct(api, project, work)


def new_project(api: Api, work: Path) -> int:
    """Make a project with the exported interface and the folder of the photos as its storage."""
    interface = (work / "tasks.xml").read_text()
    project: int = api.ok(
        "POST", "/api/projects/", {"title": "local files", "label_config": interface}
    )["id"]
    storage = {"project": project, "path": str(work / "root/photos"), "use_blob_urls": True}
    api.ok("POST", "/api/storages/localfiles", storage)
    refused, _ = api.ask("POST", "/api/storages/localfiles", storage | {"path": str(work / "root")})
    assert refused == 400, "a storage that is the document root itself"
    return project


def tasks_of(api: Api, project: int) -> list[dict[str, Any]]:
    """Return the tasks of a project."""
    found: list[dict[str, Any]] = api.ok("GET", f"/api/tasks/?project={project}&page_size=100")[
        "tasks"
    ]
    return found


def name_of(task: dict[str, Any]) -> str:
    """Return the name of a task's photo, which begins with the folder of the photos."""
    file = image_of(task["data"]) or ""
    return file.removeprefix("photos/").removesuffix(".jpg")


def check_photos(api: Api, project: int, work: Path) -> None:
    """Every photo that a task names is shown, byte for byte."""
    tasks = tasks_of(api, project)
    assert {name_of(task) for task in tasks} == set(NAMES)
    for task in tasks:
        content = api.ok("GET", task["data"]["image"])
        assert content == (work / f"root/photos/{name_of(task)}.jpg").read_bytes(), name_of(task)
    print(f"  photos shown: {len(tasks)}", flush=True)


def drawn(result: list[dict[str, Any]], classes: Sequence[str], shape: tuple[int, int]) -> Mask:
    """Return the mask (H, W) of a prediction."""
    mask = np.zeros(shape, np.uint8)
    for region in result:
        assert (region["original_height"], region["original_width"]) == shape
        name = region["value"]["brushlabels"][0]
        mask[unpack(region["value"]["rle"], shape)] = classes.index(name) + 1
    return mask


def check_predictions(api: Api, project: int, work: Path, how: str) -> None:
    """Every task has one prediction, which is the run's mask."""
    classes = Scenes(1).classes
    used = sorted({tag for row in (work / "tags.csv").read_text().splitlines()[1:]
                   for tag in row.rpartition(",")[2].split(";")})  # fmt: skip
    assert set(used) <= set(classes)
    predictions = api.ok("GET", f"/api/predictions/?project={project}")
    by_task = {prediction["task"]: prediction["result"] for prediction in predictions}
    tasks = tasks_of(api, project)
    assert len(predictions) == len(by_task) == len(tasks), how
    for task in tasks:
        mask = read_mask(work / f"run/6_predictions/{name_of(task)}.png", 254)
        assert np.array_equal(drawn(by_task[task["id"]], used, mask.shape), mask), name_of(task)
    print(f"  predictions {how}, equal to the run's: {len(tasks)}", flush=True)


def remove_predictions(api: Api, project: int) -> None:
    """Remove all predictions of a project."""
    for prediction in api.ok("GET", f"/api/predictions/?project={project}"):
        api.ok("DELETE", f"/api/predictions/{prediction['id']}/")


def connect(api: Api, project: int, work: Path, is_guarded: bool) -> None:
    """Connect the live backend: refused by the guard, or used for predictions."""
    port = free_port()
    words = [sys.executable, "-m", "tagmask", "serve", "--label-studio", "--out", "run"]
    words += ["--images", "root/photos", "--port", str(port)]
    with (work / "serve.txt").open("w") as log:
        backend = subprocess.Popen(words, cwd=work, stdout=log, stderr=log)
    try:
        wait_for(f"http://127.0.0.1:{port}/health", backend, work / "serve.txt")
        asked = {"url": f"http://127.0.0.1:{port}", "project": project, "title": "tagmask"}
        status, answer = api.ask("POST", "/api/ml/", asked)
        print(f"  connecting the backend: {status} {str(answer)[:160]}", flush=True)
        if is_guarded:
            assert status == 403, status
            assert "reserved network address" in str(answer)
            return
        assert status == 201, answer
        # a task whose photo is missing must not lose the others
        lost = {"data": {"image": "/data/local-files/?d=photos/nowhere.jpg", "tags": []}}
        api.ok("POST", f"/api/projects/{project}/import", [lost])
        ids = {"selectedItems": {"all": True, "excluded": []}}
        action = f"/api/dm/actions?id=retrieve_tasks_predictions&project={project}"
        api.ok("POST", action, ids)
        for task in tasks_of(api, project):
            if name_of(task) == "nowhere":
                api.ok("DELETE", f"/api/tasks/{task['id']}/")
        check_predictions(api, project, work, "by the live backend")
        assert "nowhere.jpg" in (work / "serve.txt").read_text(), "the fault is printed"
    finally:
        end(backend)


def push(api: Api, project: int, work: Path) -> str:
    """Send the predictions by the command."""
    words = ["push", "--out", "run", "--label-studio", api.address, "--token", "token.txt"]
    return tagmask(work, *words, "--project", str(project))


def upload(api: Api, work: Path) -> None:
    """Upload the photos, which Label Studio renames; all are found again."""
    interface = (work / "tasks.xml").read_text()
    project = api.ok("POST", "/api/projects/", {"title": "uploads", "label_config": interface})[
        "id"
    ]
    for name in NAMES:
        content = (work / f"root/photos/{name}.jpg").read_bytes()
        file = name.rpartition("/")[2] + ".jpg"
        mark = secrets.token_hex(16)
        head = f'--{mark}\r\nContent-Disposition: form-data; name="f"; filename="{file}"\r\n'
        head += "Content-Type: image/jpeg\r\n\r\n"
        body = head.encode() + content + f"\r\n--{mark}--\r\n".encode()
        kind = f"multipart/form-data; boundary={mark}"
        api.ok("POST", f"/api/projects/{project}/import", body, kind)
    renamed = [quote(str(task["data"]["image"])) for task in tasks_of(api, project)]
    printed = push(api, project, work)
    assert f"{len(NAMES)} predictions sent" in printed, (printed, renamed)
    print(f"  uploads found under their new names: {len(renamed)}", flush=True)


def correct(api: Api, project: int, work: Path) -> None:
    """Annotate as a person does, export, import, and run again."""
    task = next(task for task in tasks_of(api, project) if name_of(task) == "day 1/a #1")
    mask = read_mask(work / "run/6_predictions/day 1/a #1.png", 254)
    height, width = mask.shape
    label = (work / "tags.csv").read_text().splitlines()[2].rpartition(",")[2].split(";")[0]
    box = {"x": 25, "y": 25, "width": 50, "height": 50, "rotation": 0, "rectanglelabels": [label]}
    region = {"id": "r1", "type": "rectanglelabels", "from_name": "box", "to_name": "image"}
    size = {"original_width": width, "original_height": height, "image_rotation": 0}
    # a project whose interface has boxes too
    interface = (work / "tasks.xml").read_text()
    tags = f'<RectangleLabels name="box" toName="image"><Label value="{label}"/></RectangleLabels>'
    changed = interface.replace("</View>", f"{tags}</View>")
    api.ok("PATCH", f"/api/projects/{project}/", {"label_config": changed})
    api.ok(
        "POST",
        f"/api/tasks/{task['id']}/annotations/",
        {"result": [region | size | {"value": box}]},
    )
    exported = api.ok("GET", f"/api/projects/{project}/export?exportType=JSON")
    (work / "export.json").write_text(json.dumps(exported))
    printed = tagmask(work, "corrections", "--out", "run", "--from", "export.json")
    assert "1 photos corrected" in printed, printed
    labels = read_labels(work / "run/corrections", "day 1/a #1", 253)
    assert labels is not None
    expected = np.zeros(mask.shape, bool)
    expected[height // 4 : height * 3 // 4, width // 4 : width * 3 // 4] = True
    assert np.array_equal(labels > 0, expected)
    tagmask(work, "run", *run_words())
    again = read_mask(work / "run/6_predictions/day 1/a #1.png", 254)
    assert np.array_equal(again, labels), "the next run keeps the correction"
    print("  annotated, exported, imported, and kept by the next run", flush=True)


if __name__ == "__main__":
    sys.exit(main())
