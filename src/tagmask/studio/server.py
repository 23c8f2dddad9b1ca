"""The studio's server: on this machine alone, for whoever knows the address.

It is the standard library's. Every path begins with a random token. Another Host (a page of the
internet that a name server leads here) and another Origin are refused, bodies have a limit that is
known before they are read, photos and folders are named by numbers that the server gave them, and a
connection that drips its request is closed. What is asked for is in ``routes``.
"""

import gzip
import hmac
import json
import secrets
import threading
import time
import webbrowser
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tagmask.config import ExploreSettings, StudioSettings
from tagmask.errors import TagmaskError
from tagmask.studio import routes
from tagmask.studio.app import Refused, Studio
from tagmask.studio.choose import Chooser
from tagmask.studio.opening import open_explorer, open_studio

# bytes of a request's JSON
MOST_BYTES = 4_000_000
# seconds in which a request must have arrived
MOST_SECONDS = 30.0
# seconds that answers have when the studio ends
LAST_SECONDS = 10.0
_POLICY = (
    "default-src 'none'; img-src 'self' data: blob:; connect-src 'self'; script-src 'self'; "
    "style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Handler(BaseHTTPRequestHandler):
    """One request: is it allowed, how long is it, and the answer."""

    protocol_version = "HTTP/1.1"
    server_version = "tagmask"
    sys_version = ""
    # answers are written in pieces: without this each waits for the last one's receipt
    disable_nagle_algorithm = True
    # seconds that a connection may be silent
    timeout = 20
    server: "Server"

    def handle_one_request(self) -> None:
        """Handle a request that arrives in time."""
        self.server.expect(self.connection)
        try:
            super().handle_one_request()
        finally:
            self.server.arrived(self.connection)

    def do_GET(self) -> None:
        """Answer a question."""
        self.server.arrived(self.connection)
        self._answer(lambda words: routes.get(self, self.server.studio, words))

    def do_POST(self) -> None:
        """Do what a page asks for."""
        self._answer(lambda words: routes.post(self, self.server.studio, words))

    def _answer(self, work: Callable[[list[str]], None]) -> None:
        """Answer a request with ``work``, or with a status and a sentence on what went wrong."""
        try:
            with self.server.working(self):
                work(self._path())
        except Refused as refusal:
            self._refuse(refusal.status, refusal.why)
        except TagmaskError as error:
            self._refuse(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
        except (BrokenPipeError, ConnectionError, TimeoutError):
            self.close_connection = True
        except OSError as error:
            # the disk is full, or another command is changing the run
            self._refuse(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"a file of the run cannot be read or written ({error}).",
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

    def body(self, most: int = MOST_BYTES, exactly: bool = False) -> bytes:
        """Read the body, whose length is known and within its limit before anything is read.

        Args:
            most: Largest number of bytes.
            exactly: It must be that number.

        Raises:
            Refused: The length is missing or another.
        """
        word = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not routes.is_count(word, 12):
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "the request does not say how long it is.")
        length = int(word)
        if length > most or (exactly and length != most):
            raise Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the request must have {most} bytes."
            )
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionError("closed before its end")
        self.server.arrived(self.connection)
        return body

    def json(self) -> Any:
        """Read the body as JSON.

        Raises:
            Refused: It is none.
        """
        try:
            return json.loads(self.body())
        except (ValueError, RecursionError):
            raise Refused(HTTPStatus.BAD_REQUEST, "the request is not JSON.") from None

    def send_json(self, value: Any) -> None:
        """Answer with JSON."""
        self.send_bytes(json.dumps(value).encode(), "application/json", packed=True)

    def send_bytes(
        self,
        data: bytes,
        kind: str = "application/octet-stream",
        packed: bool = False,
        headers: Mapping[str, str] | None = None,
        status: HTTPStatus = HTTPStatus.OK,
    ) -> None:
        """Answer with bytes.

        Args:
            data: The bytes.
            kind: Their media type.
            packed: Compress them if the browser takes it.
            headers: Further headers.
            status: Status of the answer.
        """
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

    def send_events(self, messages: Iterable[bytes]) -> None:
        """Answer with messages that come as things happen."""
        self.close_connection = True
        self.send_response(HTTPStatus.OK)
        for name, value in {**_HEADERS, "Content-Type": "text/event-stream"}.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        # this goes on for as long as the page is open, and computes nothing
        self.server.rest(self)
        for message in messages:
            self.wfile.write(message)
            self.wfile.flush()

    def show(self, studio: Studio) -> None:
        """Serve the studio of the folder that was chosen, from now on."""
        self.server.show(studio)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        """Send a sentence and close the connection; the rest of the request has not been read."""
        self.close_connection = True
        # perhaps nobody is there any more
        with suppress(OSError):
            data = json.dumps({"error": why}).encode()
            headers = {"Connection": "close"}
            self.send_bytes(data, "application/json", headers=headers, status=status)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the token would be in it.

        Args:
            format: Ignored.
            *args: Ignored.
        """


class Server(ThreadingHTTPServer):
    """The server of one studio.

    Args:
        studio: What it serves; a ``Chooser`` until a folder is chosen.
        port: Port on this machine; default: any that is free.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, studio: Studio | Chooser, port: int = 0) -> None:
        self.studio = studio
        self.token = secrets.token_urlsafe(24)
        self._due: dict[Any, float] = {}
        self._working: set[Handler] = set()
        self._rests = threading.Condition()
        try:
            super().__init__(("127.0.0.1", port), Handler)
        except OSError as error:
            raise TagmaskError(
                f"--port {port} cannot be used ({error.strerror}); leave it out."
            ) from None

    @property
    def address(self) -> str:
        """Return where the page is, with its token."""
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def show(self, studio: Studio) -> None:
        """Serve a studio instead of the choice of one, and let it begin its work."""
        self.studio = studio
        print(_where(studio), flush=True)
        studio.begin()

    @contextmanager
    def working(self, handler: Handler) -> Iterator[None]:
        """Note that a request is being worked on."""
        with self._rests:
            self._working.add(handler)
        try:
            yield
        finally:
            self.rest(handler)

    def rest(self, handler: Handler) -> None:
        """Note that nothing is computed for a request any more."""
        with self._rests:
            self._working.discard(handler)
            self._rests.notify_all()

    def expect(self, connection: Any) -> None:
        """Wait for a request on a connection, but not for ever."""
        self._due[connection] = time.monotonic() + MOST_SECONDS

    def arrived(self, connection: Any) -> None:
        """Stop waiting: the request is here."""
        self._due.pop(connection, None)

    def service_actions(self) -> None:
        """Close connections whose request drips."""
        now = time.monotonic()
        for connection, due in [*self._due.items()]:
            if now > due:
                self._due.pop(connection, None)
                with suppress(OSError):
                    connection.shutdown(2)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a connection that was closed is no news.

        Args:
            request: Ignored.
            client_address: Ignored.
        """

    def server_close(self) -> None:
        """Stop the studio and let go of the port."""
        self.studio.end()
        # a network that computes an answer while the interpreter ends would abort it
        with self._rests:
            self._rests.wait_for(lambda: not self._working, LAST_SECONDS)
        super().server_close()


def _serve(studio: Studio | Chooser, port: int, browser: bool, where: str) -> Studio | Chooser:
    """Serve the page until Ctrl-C, and return what it was about in the end."""
    with Server(studio, port) as server, suppress(KeyboardInterrupt):
        studio.begin()
        print(
            f"{server.address}\n{where}\nCtrl-C ends it; everything is saved at once.", flush=True
        )
        if browser:
            webbrowser.open(server.address)
        server.serve_forever(poll_interval=0.2)
    return server.studio


def _where(studio: Studio) -> str:
    """Say how many photos a studio of a folder has, and where it writes."""
    return f"{len(studio.photos)} photos; tags and masks go to {studio.out}"


def explore(settings: ExploreSettings) -> str:
    """Serve the page of a run or a photo until Ctrl-C, and return what to print then."""
    studio = open_explorer(settings)
    where = "one photo, nothing is written"
    if settings.out is not None:
        where = f"corrections go to {settings.out / 'corrections'}"
    _serve(studio, settings.port, settings.browser, where)
    return "the explorer has ended; what was corrected is in the run."


def studio(settings: StudioSettings) -> str:
    """Serve the studio until Ctrl-C, and return what to print then."""
    opened: Studio | Chooser
    if settings.folder is None:
        opened = Chooser(settings)
        where = "choose a folder of photos in the page, or drop one there"
    else:
        opened = open_studio(settings)
        where = _where(opened)
    ended = _serve(opened, settings.port, settings.browser, where)
    if isinstance(ended, Chooser):
        return "the studio has ended; no folder was chosen."
    return f"the studio has ended; everything is in {ended.out}."
