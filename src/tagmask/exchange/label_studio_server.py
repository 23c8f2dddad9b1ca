"""Serve a segmenter to Label Studio as its machine-learning backend.

The interface: https://labelstud.io/guide/ml_create

GET  /health    that it is up
POST /setup     when it is connected to a project
POST /predict   masks of tasks, as brushes

Photos are read from --images and found by the ends of their paths; nothing is fetched. Requests
must be JSON, which a page of another site cannot send unasked, and carry the user name and password
of --secret, if there is one.

A task whose photo cannot be found or read gets an answer without a result, which Label Studio
leaves out and asks for again; the other tasks of the request get their masks, and the fault is
printed.
"""

import base64
import hmac
import json
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tagmask import layout
from tagmask.config import MaskSettings, ServeSettings, check
from tagmask.data.folder import Tails, normal_path
from tagmask.data.images import list_files, read_image
from tagmask.data.tools import image_of, objects, pick, task_choices
from tagmask.errors import TagmaskError, is_out_of_memory, message_of, shortened
from tagmask.exchange.items import regions
from tagmask.exchange.label_studio import MODEL_VERSION, brush
from tagmask.files import parse_xml, read_text
from tagmask.labels import Mask
from tagmask.models.device import on_device
from tagmask.models.kinds import load_segmenter
from tagmask.stages.predict import predict

MOST_BYTES = 64 << 20  # of a request
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

    def __init__(self, settings: ServeSettings, log: Callable[[str], None] | None = None) -> None:
        """Load the network and list the photos.

        Args:
            settings: those of the command.
            log: gets a sentence for each task that cannot be answered; printed by default.
        """
        assert settings.images is not None
        folder = settings.model or settings.out / layout.SEGMENTER
        self._model = on_device(load_segmenter(folder))
        self._images = settings.images
        self._files = Tails(list_files(settings.images, []))
        self._options = {
            field.name: getattr(settings, field.name) for field in fields(MaskSettings)
        }
        self._lock = threading.Lock()
        self._log = log or _print_fault

    def answer(self, path: str, request: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer to a request; None if there is no such address.

        Args:
            path: the address without the host, e.g. "/predict".
            request: the JSON object that Label Studio sent.

        Raises:
            TagmaskError: the labelling interface has no brush.
        """
        if path == "/setup":
            schema = pick(request, str, "schema")
            if schema:
                # refuses an interface without brushes
                controls_of(schema)
            return {"model_version": MODEL_VERSION}
        if path == "/predict":
            controls = controls_of(pick(request, str, "label_config"))
            tasks = objects(request.get("tasks"))
            return {"results": [self._answer_task(task, controls) for task in tasks]}
        return None

    def _answer_task(self, task: dict[str, Any], controls: Controls) -> dict[str, Any]:
        """Return the prediction for one task, or what is wrong with the task."""
        try:
            return self._predict_task(task, controls)
        except TagmaskError as error:
            fault = str(error)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            fault = "there is not enough memory for its photo; serve smaller photos."
        self._log(f"task {task.get('id')!r}: {fault}")
        return {"error": fault}

    def _predict_task(self, task: dict[str, Any], controls: Controls) -> dict[str, Any]:
        """Return Label Studio's prediction for one task."""
        path = self._find_image(task, controls)
        tags = self._known_tags(task)
        image = read_image(path)  # (H, W, 3)
        with self._lock:
            mask = predict(self._model, image, tags or None, **self._options)
        return {
            "model_version": MODEL_VERSION,
            "score": 1.0,
            "result": self._brushes(mask, controls),
        }

    def _find_image(self, task: dict[str, Any], controls: Controls) -> Path:
        """Return the one photo whose path ends as the task says."""
        file = image_of(pick(task, dict, "data"), controls.key)
        paths = self._files.find(normal_path(file, self._images)) if file else []
        if len(paths) != 1:
            raise TagmaskError(
                f"the image {file!r} was not found in {self._images}, or is not the only one there."
            )
        return self._images / paths[0]

    def _known_tags(self, task: dict[str, Any]) -> list[str]:
        """Return the classes that a person chose or that the task's data name, each once."""
        chosen = task_choices(task)
        named = [tag for tag in pick(task, list, "data", "tags") if isinstance(tag, str)]
        tags = dict.fromkeys([*chosen, *named])
        return [tag for tag in tags if tag in self._model.classes]

    def _brushes(self, mask: Mask, controls: Controls) -> list[dict[str, Any]]:
        """Return a result for each class of a mask (H, W) that the labelling interface offers."""
        names = {"from_name": controls.brush, "to_name": controls.image}
        results = []
        for number, (label, region) in enumerate(regions(mask, pieces=False), start=1):
            name = self._model.classes[label - 1]
            if name in controls.labels:
                results.append(brush(region, name, str(number)) | names)
        return results


def controls_of(interface: str) -> Controls:
    """Return the brush labels of a labelling interface; TagmaskError if it has none."""
    root = parse_xml(interface, "the labelling interface")
    control = root.find(".//BrushLabels")
    name = control.get("toName", "") if control is not None else ""
    images = (element for element in root.iter("Image") if element.get("name") == name)
    image = next(images, None)
    if control is None or image is None:
        raise TagmaskError("the labelling interface has no BrushLabels of an Image; add them.")
    labels = frozenset(label.get("value", "") for label in control.iter("Label"))
    key = image.get("value", "").removeprefix("$")
    return Controls(control.get("name", ""), name, key, labels)


class _Server(ThreadingHTTPServer):
    """A server with its backend, and the Authorization that requests must carry; empty for none."""

    def __init__(
        self,
        settings: ServeSettings,
        backend: Backend,
        authorization: bytes,
    ) -> None:
        self.backend = backend
        self.authorization = authorization
        super().__init__((settings.host, settings.port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell what went wrong in a sentence; a connection that was closed is no news.

        Args:
            request: Ignored.
            client_address: Ignored.
        """
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError | TimeoutError):
            print(f"a request was not answered: {message_of(error)}", file=sys.stderr, flush=True)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: _Server
    timeout = 60

    def do_GET(self) -> None:
        self._answer(self._health)

    def do_POST(self) -> None:
        self._answer(self._posted)

    def _health(self) -> Reply:
        if self.path not in ("/", "/health"):
            return _UNKNOWN
        return 200, {"status": "UP", "model_class": MODEL_VERSION}

    def _posted(self) -> Reply:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > 12 or int(length) > MOST_BYTES:
            return 413, {"error": f"a request has 0 to {MOST_BYTES} bytes and says how many."}
        if self.headers.get_content_type() != "application/json":
            return 415, {"error": "a request must be application/json."}
        try:
            request = json.loads(self.rfile.read(int(length)))
            if not isinstance(request, dict):
                request = {}
            answer = self.server.backend.answer(self.path, request)
        except TagmaskError as error:
            return 400, {"error": str(error)}
        except (ValueError, RecursionError):
            return 400, {"error": "the request is not valid JSON."}
        if answer is None:
            return _UNKNOWN
        return 200, answer

    def _answer(self, reply: Callable[[], Reply]) -> None:
        """Send a reply, or 401 to those who are not allowed to ask for it."""
        if self._is_allowed():
            status, value = reply()
        else:
            status = 401
            value = {"error": "user name or password is wrong."}
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="tagmask"')
        self.end_headers()
        self.wfile.write(content)

    def _is_allowed(self) -> bool:
        expected = self.server.authorization
        if not expected:
            return True
        given = self.headers.get("Authorization", "").encode()
        return hmac.compare_digest(given, expected)

    def log_message(self, format: str, *values: Any) -> None:
        """Stay quiet: paths may be private."""


def _print_fault(sentence: str) -> None:
    """Tell the person who started the server."""
    shown = "".join(mark if mark.isprintable() else "?" for mark in shortened(sentence))
    print(shown, file=sys.stderr, flush=True)


def build_server(settings: ServeSettings) -> ThreadingHTTPServer:
    """Return the server, not yet started; ``server_port`` tells its port."""
    check(settings)
    authorization = b""
    if settings.secret is not None:
        user_and_password = read_text(settings.secret).strip()
        authorization = b"Basic " + base64.b64encode(user_and_password.encode())
    return _Server(settings, Backend(settings), authorization)


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
