"""The explorer's server: on this machine alone, for whoever knows the address.

It is the standard library's. Every path begins with a random token. Another Host (a page of the
internet that a name server leads here) and another Origin are refused, bodies have a limit that is
known before they are read, and numbers of photos are the only names.
"""

import gzip
import hmac
import importlib.resources
import json
import secrets
import threading
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tagmask import layout
from tagmask.config import ExploreSettings, MapSettings, check, settings_from
from tagmask.config.run import RunSettings, run_values
from tagmask.data.catalog import Catalog
from tagmask.data.images import read_image
from tagmask.data.open import read_catalog
from tagmask.errors import TagmaskError
from tagmask.explore.learn import Learner
from tagmask.explore.view import LAYERS, View
from tagmask.inference.maps import predicted_classes
from tagmask.inference.selfcheck import read_verdicts, verdict_lines
from tagmask.labels import voc_palette
from tagmask.models.kinds import load_classifier
from tagmask.runs.images import match_classes, split_tags

# bytes of a request's JSON
MOST_BYTES = 65_536
_POLICY = (
    "default-src 'none'; img-src 'self' data:; connect-src 'self'; "
    "script-src 'nonce-{0}'; style-src 'nonce-{0}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass
class Refused(Exception):
    """A request that gets no more than a status and a sentence."""

    status: HTTPStatus
    why: str


def _verdicts(out: Path | None) -> list[str]:
    """Return what the self-check of a run says, a sentence each; nothing without one."""
    if out is None:
        return []
    try:
        return verdict_lines(read_verdicts(out / layout.CHECK))
    except TagmaskError as error:
        return [str(error)]


class Explorer:
    """What the page asks for: each answer is JSON or bytes.

    Args:
        views: The run or photo, and perhaps a second run on the same photos.
        title: Title of the page.
    """

    def __init__(self, views: list[View], title: str) -> None:
        self.views = views
        self.title = title
        self.learner = Learner(views[0])
        self.stopped = threading.Event()
        self.saving = threading.Lock()
        # networks are loaded before the page is opened, not while it waits
        for view in views:
            view.numbers  # noqa: B018
        self.learner.refusal()

    def state(self) -> dict[str, Any]:
        """Return all that the page needs to be usable: classes, photos and their tags."""
        view = self.views[0]
        catalog = view.catalog
        names = [catalog.name(i) for i in range(len(catalog))]
        corrected: set[str] = set()
        made: dict[str, bool] = {}
        if view.out is not None:
            corrected = {*view.changes(), *view.names_in(layout.CORRECTIONS)}
            made = {kind: (view.out / folder).is_dir() for kind, folder in LAYERS.items()}
        palette = voc_palette()[: len(catalog.classes) + 1]  # (K, 3)
        return {
            "title": self.title,
            "runs": [str(v.out or "") for v in self.views],
            "classes": catalog.classes,
            "colours": palette.tolist(),
            "names": names,
            "tags": [catalog.tags(i) for i in range(len(catalog))],
            "corrected": [i for i, name in enumerate(names) if name in corrected],
            "made": made,
            "missing": {kind: view.missing(kind) for kind in LAYERS},
            "truth": catalog.has_masks,
            "editable": view.out is not None,
            "verdicts": _verdicts(view.out),
        }

    def info(self, i: int) -> dict[str, Any]:
        """Return size and map methods of a photo, and why the run cannot learn again."""
        return {
            "size": self.views[0].size(i),
            "methods": [v.methods for v in self.views],
            "refusal": self.learner.refusal(),
        }

    def photo_of(self, run: int, i: int) -> int:
        """Return the index of a photo in another run.

        Args:
            run: Index of the run.
            i: Index of the photo in the first run.

        Raises:
            Refused: The other run does not have the photo.
        """
        wanted = self.views[0].catalog.name(i)
        other = self.views[run].catalog
        # mostly it is the same index
        for k in chain(range(i, len(other)), range(min(i, len(other)))):
            if other.name(k) == wanted:
                return k
        raise Refused(HTTPStatus.NOT_FOUND, "the other run does not have this photo.")

    def layer(self, run: int, kind: str, i: int) -> bytes:
        """Return labels (H, W) as bytes; empty if there are none.

        Args:
            run: Index of the run.
            kind: "trial" for what was just learned, or a kind of ``View.layer``.
            i: Index of the photo in the first run.
        """
        if kind == "trial" and run == 0:
            labels = self.learner.mask(i)
        else:
            labels = self.views[run].layer(kind, self.photo_of(run, i))
        return b"" if labels is None else labels.tobytes()

    def correct(self, i: int, body: bytes, before: str) -> dict[str, Any]:
        """Save what is corrected in a photo, unless it has changed since the page read it.

        Args:
            i: Index of the photo.
            body: Its labels, one byte for each pixel.
            before: Digest of the corrections that the page has read.

        Returns:
            The tags and the new digest.
        """
        view = self.views[0]
        height, width = view.size(i)
        with self.saving:
            if before != self.digest(i):
                raise Refused(
                    HTTPStatus.CONFLICT,
                    "this photo was corrected elsewhere meanwhile; reload the page.",
                )
            labels = np.frombuffer(body, np.uint8).reshape(height, width)
            view.save_labels(i, labels)
            view.facts[i] = None
        return {"tags": view.catalog.tags(i), "digest": self.digest(i)}

    def digest(self, i: int) -> str:
        """Return a hash of what is corrected in a photo."""
        return self.views[0].catalog.correction_digest(i)

    def tag(self, i: int, tags: Any) -> dict[str, Any]:
        """Save the tags of a photo.

        Args:
            i: Index of the photo.
            tags: Numbers of its classes, as the page has sent them.

        Returns:
            The tags and the digest of the corrections.

        Raises:
            Refused: They are no list of numbers.
        """
        if not isinstance(tags, list) or not all(type(tag) is int for tag in tags):
            raise Refused(HTTPStatus.BAD_REQUEST, "tags are a list of numbers.")
        with self.saving:
            self.views[0].save_tags(i, set(tags))
        return {"tags": self.views[0].catalog.tags(i), "digest": self.digest(i)}

    def act(self, name: str) -> dict[str, Any]:
        """Do what a button says, and return how far it is."""
        learner = self.learner
        if name == "learn":
            learner.start(learner.learn, "learning")
        elif name == "accept":
            learner.start(learner.accept, "accepting")
        else:
            learner.take_back()
        return learner.progress


class Handler(BaseHTTPRequestHandler):
    """One request: is it allowed, what is it about, and the answer."""

    protocol_version = "HTTP/1.1"
    server_version = "tagmask"
    sys_version = ""
    # seconds that a connection may be silent
    timeout = 20
    server: "Server"

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, work: Callable[[list[str]], None]) -> None:
        """Answer a request with ``work``, or with a status and a sentence on what went wrong."""
        try:
            work(self._path())
        except Refused as refusal:
            self._refuse(refusal.status, refusal.why)
        except TagmaskError as error:
            self._refuse(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
        except (BrokenPipeError, ConnectionError, TimeoutError):
            self.close_connection = True
        except OSError as error:
            # another command may be changing the run
            self._refuse(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"a file of the run cannot be read ({error}); reload the page.",
            )
        except Exception as error:
            # the page says so, and the server goes on
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")

    def _path(self) -> list[str]:
        """Return the words behind the token, if the request comes from the page itself."""
        port = self.server.server_port
        host = self.headers.get("Host", "")
        origin = self.headers.get("Origin")
        site = self.headers.get("Sec-Fetch-Site", "none")
        is_own_host = host in (f"127.0.0.1:{port}", f"localhost:{port}")
        is_own_origin = origin in (None, f"http://{host}")
        is_own_site = site in ("none", "same-origin")
        if not (is_own_host and is_own_origin and is_own_site):
            raise Refused(HTTPStatus.FORBIDDEN, "this address serves its own page alone.")
        token, *words = self.path.removeprefix("/").split("/")
        if not hmac.compare_digest(token.encode(errors="replace"), self.server.token.encode()):
            raise Refused(
                HTTPStatus.FORBIDDEN, "the address is not complete; copy it from the terminal."
            )
        return words

    def _number(self, word: str, below: int) -> int:
        """Return the number that a word of the path is; refuse all but 0 to ``below`` - 1."""
        if not _is_count(word, 10) or int(word) >= below:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such photo or run.")
        return int(word)

    def _get(self, words: list[str]) -> None:
        explorer = self.server.explorer
        view = explorer.views[0]
        count = len(view.catalog)
        match words:
            case [""]:
                self._page()
            case ["state"]:
                self._send_json(explorer.state())
            case ["facts"]:
                self._send_json(view.facts)
            case ["progress"]:
                self._send_json(explorer.learner.progress)
            case ["info", photo]:
                self._send_json(explorer.info(self._number(photo, count)))
            case ["thumb" | "photo" as size, photo]:
                i = self._number(photo, count)
                picture = view.thumb(i) if size == "thumb" else view.image(i)
                self._send(picture, "image/jpeg")
            case ["pieces", photo]:
                self._send(view.pieces(self._number(photo, count)), packed=True)
            case ["correction", photo]:
                i = self._number(photo, count)
                data = explorer.layer(0, "correction", i)
                self._send(data, packed=True, headers={"Digest": explorer.digest(i)})
            case [("pseudo" | "mask" | "truth" | "trial") as kind, run, photo]:
                k = self._number(run, len(explorer.views))
                i = self._number(photo, count)
                data = explorer.layer(k, kind, i)
                self._send(data, packed=True)
            case ["affinity", run, method, photo]:
                k = self._number(run, len(explorer.views))
                i = explorer.photo_of(k, self._number(photo, count))
                self._send(explorer.views[k].affinity(i, method))
            case _:
                raise Refused(HTTPStatus.NOT_FOUND, "there is no such page.")

    def _post(self, words: list[str]) -> None:
        explorer = self.server.explorer
        view = explorer.views[0]
        match words:
            case ["correct", photo]:
                i = self._number(photo, len(view.catalog))
                height, width = view.size(i)
                body = self._body(height * width, exactly=True)
                self._send_json(explorer.correct(i, body, self.headers.get("X-Before", "")))
            case ["tags", photo]:
                i = self._number(photo, len(view.catalog))
                self._send_json(explorer.tag(i, self._json()))
            case ["learn" | "accept" | "take-back" as name]:
                self._body(MOST_BYTES)
                self._send_json(explorer.act(name))
            case _:
                raise Refused(HTTPStatus.NOT_FOUND, "there is no such page.")

    def _body(self, most: int, exactly: bool = False) -> bytes:
        """Read the body, whose length is known and within its limit before anything is read."""
        word = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not _is_count(word, 12):
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "the request does not say how long it is.")
        length = int(word)
        if length > most or (exactly and length != most):
            raise Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the request must have {most} bytes."
            )
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionError("closed before its end")
        return body

    def _json(self) -> Any:
        try:
            return json.loads(self._body(MOST_BYTES))
        except (ValueError, RecursionError):
            raise Refused(HTTPStatus.BAD_REQUEST, "the request is not JSON.") from None

    def _page(self) -> None:
        """Send the page; only the script and style with this answer's nonce are allowed in it."""
        nonce = secrets.token_urlsafe(16)
        file = importlib.resources.files("tagmask.explore").joinpath("page.html")
        page = file.read_text(encoding="utf-8")
        text = page.replace("NONCE", nonce).encode()
        headers = {"Content-Security-Policy": _POLICY.format(nonce)}
        self._send(text, "text/html; charset=utf-8", packed=True, headers=headers)

    def _send_json(self, value: Any) -> None:
        self._send(json.dumps(value).encode(), "application/json", packed=True)

    def _send(
        self,
        data: bytes,
        kind: str = "application/octet-stream",
        packed: bool = False,
        headers: Mapping[str, str] | None = None,
        status: HTTPStatus = HTTPStatus.OK,
    ) -> None:
        """Send data with its headers, compressed if ``packed`` and the browser takes it."""
        packed = packed and "gzip" in self.headers.get("Accept-Encoding", "")
        if packed:
            data = gzip.compress(data, 1)
        lines = {**_HEADERS, "Content-Type": kind, "Content-Length": str(len(data))}
        lines |= headers or {}
        if packed:
            lines["Content-Encoding"] = "gzip"
        self.send_response(status)
        for name, value in lines.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        """Send a sentence and close the connection; the rest of the request has not been read."""
        self.close_connection = True
        # perhaps nobody is there any more
        with suppress(OSError):
            data = json.dumps({"error": why}).encode()
            self._send(data, "application/json", headers={"Connection": "close"}, status=status)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the token would be in it.

        Args:
            format: Ignored.
            *args: Ignored.
        """


def _is_count(word: str, digits: int) -> bool:
    """Return True if a word is a whole number with fewer than ``digits`` digits."""
    return word.isascii() and word.isdigit() and len(word) < digits


class Server(ThreadingHTTPServer):
    """The server of one explorer.

    Args:
        explorer: What it serves.
        port: Port on this machine; default: any that is free.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, explorer: Explorer, port: int = 0) -> None:
        self.explorer = explorer
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__(("127.0.0.1", port), Handler)
        except OSError as error:
            raise TagmaskError(
                f"--port {port} cannot be used ({error.strerror}); leave it out."
            ) from None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a connection that was closed is no news.

        Args:
            request: Ignored.
            client_address: Ignored.
        """

    def server_close(self) -> None:
        self.explorer.stopped.set()
        super().server_close()


def open_explorer(settings: ExploreSettings) -> Explorer:
    """Open the explorer of a run, two runs, or a photo."""
    check(settings)
    if settings.out is not None:
        views = [_view_of(settings.out)]
        if settings.against is not None:
            views.append(_view_of(settings.against))
        return Explorer(views, settings.out.resolve().name)
    # without a run both are given: it was checked above
    photo = settings.photo or Path()
    folder = settings.model or Path()
    model = load_classifier(folder)
    image = read_image(photo)
    names = split_tags(settings.tags)
    if names is not None:
        tags = match_classes(names, model)
    else:
        tags = predicted_classes(model, image, settings_from(MapSettings, model.use, {}))
    catalog = Catalog(model.classes, [photo.stem], [tags], images=[photo.absolute()])
    return Explorer([View(catalog, folder)], photo.name)


def _view_of(out: Path) -> View:
    values = run_values(None, out / layout.CONFIG)
    settings = RunSettings(**{**values, "out": out})
    return View(read_catalog(settings), out / layout.CLASSIFIER, settings)


def explore(settings: ExploreSettings) -> str:
    """Serve the page until Ctrl-C, and return what to print then."""
    explorer = open_explorer(settings)
    gather = explorer.views[0].gather_facts
    with Server(explorer, settings.port) as server, suppress(KeyboardInterrupt):
        # facts to sort the photos by are gathered while the page is open
        threading.Thread(target=gather, args=(explorer.stopped.is_set,), daemon=True).start()
        print(f"{server.address}\nCtrl-C ends it; corrections are saved at once.", flush=True)
        if settings.browser:
            webbrowser.open(server.address)
        server.serve_forever(poll_interval=0.2)
    return "the explorer has ended; what was corrected is in the run."
