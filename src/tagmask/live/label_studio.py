"""A machine-learning backend for Label Studio: https://labelstud.io/guide/ml_create

GET  /health    that it is up
POST /setup     when it is connected to a project
POST /predict   masks of tasks, as brushes

Photos are read from --images and found by the ends of their paths; nothing is fetched. Requests must be JSON, which a
page of another site cannot send unasked, and carry the user name and password of --secret, if there is one.
"""

import base64
import hmac
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tagmask.config import MaskSettings, ServeSettings, check
from tagmask.data.folder import Tails, normal_path
from tagmask.data.images import list_files, read_image
from tagmask.data.tools import image_of, objects, pick, task_choices
from tagmask.errors import TagmaskError
from tagmask.export.items import regions
from tagmask.export.label_studio import brush
from tagmask.files import parse_xml, read_text
from tagmask.models.device import on_device
from tagmask.models.kinds import load_segmenter
from tagmask.pipeline import layout
from tagmask.stages.predict import predict

MOST_BYTES = 64 << 20  # of a request
_VERSION = "tagmask"
Reply = tuple[int, dict[str, Any]]  # status and content
_UNKNOWN: Reply = (404, {"error": "unknown"})


@dataclass(frozen=True)
class Controls:
    """Names in a labelling interface."""

    brush: str
    image: str
    key: str  # of the image in the data of a task
    labels: frozenset[str]


class Backend:
    """Answers requests, one prediction at a time."""

    def __init__(self, settings: ServeSettings) -> None:
        assert settings.images is not None
        self._model = on_device(load_segmenter(settings.model or settings.out / layout.SEGMENTER))
        self._images, self._files = settings.images, Tails(list_files(settings.images, []))
        self._options = {
            field.name: getattr(settings, field.name) for field in fields(MaskSettings)
        }
        self._lock = threading.Lock()

    def answer(self, path: str, request: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a request; None if there is no such address."""
        if path == "/setup":
            if schema := pick(request, str, "schema"):
                controls_of(schema)
            return {"model_version": _VERSION}
        if path == "/predict":
            controls = controls_of(pick(request, str, "label_config"))
            return {
                "results": [self._task(task, controls) for task in objects(request.get("tasks"))]
            }
        return None

    def _task(self, task: dict[str, Any], controls: Controls) -> dict[str, Any]:
        file = image_of(pick(task, dict, "data"), controls.key)
        paths = self._files.find(normal_path(file, self._images)) if file else []
        if len(paths) != 1:
            raise TagmaskError(
                f"the image {file!r} was not found in {self._images}, or is not the only one there."
            )
        told = [
            *task_choices(task),
            *(tag for tag in pick(task, list, "data", "tags") if isinstance(tag, str)),
        ]
        tags = [tag for tag in dict.fromkeys(told) if tag in self._model.classes]
        image = read_image(self._images / paths[0])
        with self._lock:
            mask = predict(self._model, image, tags or None, **self._options)
        found = [
            (self._model.classes[label - 1], region)
            for label, region in regions(mask, pieces=False)
        ]
        names = {"from_name": controls.brush, "to_name": controls.image}
        result = [
            brush(region, name, str(number)) | names
            for number, (name, region) in enumerate(found, 1)
            if name in controls.labels
        ]
        return {"model_version": _VERSION, "score": 1.0, "result": result}


def controls_of(interface: str) -> Controls:
    """The brush labels of a labelling interface."""
    root = parse_xml(interface, "the labelling interface")
    control = root.find(".//BrushLabels")
    name = control.get("toName", "") if control is not None else ""
    image = next((tag for tag in root.iter("Image") if tag.get("name") == name), None)
    if control is None or image is None:
        raise TagmaskError("the labelling interface has no BrushLabels of an Image; add them.")
    labels = frozenset(label.get("value", "") for label in control.iter("Label"))
    return Controls(control.get("name", ""), name, image.get("value", "").removeprefix("$"), labels)


def build_server(settings: ServeSettings) -> ThreadingHTTPServer:
    """The server, not yet started; ``server_port`` tells its port."""
    check(settings)
    secret = b""
    if settings.secret is not None:
        secret = b"Basic " + base64.b64encode(read_text(settings.secret).strip().encode())
    backend = Backend(settings)

    class Handler(BaseHTTPRequestHandler):
        timeout = 60

        def do_GET(self) -> None:
            known = self.path in ("/", "/health")
            self._answer(
                lambda: (200, {"status": "UP", "model_class": _VERSION}) if known else _UNKNOWN
            )

        def do_POST(self) -> None:
            self._answer(self._posted)

        def _posted(self) -> Reply:
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal() or len(length) > 12 or int(length) > MOST_BYTES:
                return 413, {"error": f"a request has 0 to {MOST_BYTES} bytes and says how many."}
            if self.headers.get_content_type() != "application/json":
                return 415, {"error": "a request must be application/json."}
            try:
                request = json.loads(self.rfile.read(int(length)))
                answer = backend.answer(self.path, request if isinstance(request, dict) else {})
            except TagmaskError as error:
                return 400, {"error": str(error)}
            except (ValueError, RecursionError):
                return 400, {"error": "the request is not valid JSON."}
            return _UNKNOWN if answer is None else (200, answer)

        def _answer(self, reply: Callable[[], Reply]) -> None:
            refused = secret and not hmac.compare_digest(
                self.headers.get("Authorization", "").encode(), secret
            )
            status, value = (
                (401, {"error": "user name or password is wrong."}) if refused else reply()
            )
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="tagmask"')
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *values: Any) -> None:
            """Quiet: paths may be private."""

    return ThreadingHTTPServer((settings.host, settings.port), Handler)


def serve(settings: ServeSettings) -> str:
    """Answer Label Studio until Ctrl-C."""
    with build_server(settings) as server, suppress(KeyboardInterrupt):
        address = f"http://{settings.host}:{server.server_port}"
        print(
            f"Label Studio: Settings, Model, Connect Model: {address}   (Ctrl-C ends it)",
            flush=True,
        )
        server.serve_forever()
    return "ended."
