"""The addresses of the studio: which question each is, checked, and whom it goes to."""

import importlib.resources
import mimetypes
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import quote, unquote

from tagmask import layout
from tagmask.studio.app import Refused, Studio
from tagmask.studio.choose import MOST_PHOTO, Chooser
from tagmask.studio.numbers import numbers
from tagmask.studio.view import PIECES

_BOX = re.compile(r"(\d{1,6}),(\d{1,6}),(\d{1,6}),(\d{1,6})")
_FILE = re.compile(r"[a-z_]{1,40}\.(js|css)")
_KEY = re.compile(r"[A-Za-z0-9-]{0,60}")
# a picture does not change while the studio runs; its address has a token of this start
_KEPT = {"Cache-Control": "private, max-age=3600"}


class Request(Protocol):
    """What a route needs of a request; the server's ``Handler`` is one."""

    headers: Any

    def body(self, most: int = ..., exactly: bool = ...) -> bytes:
        """Read the body, within its limit.

        Args:
            most: The largest length in bytes.
            exactly: True to refuse a shorter one.
        """

    def json(self) -> Any:
        """Read the body as JSON."""

    def send_json(self, value: Any) -> None:
        """Answer with JSON."""

    def send_bytes(
        self,
        data: bytes,
        kind: str = ...,
        packed: bool = ...,
        headers: Mapping[str, str] | None = ...,
    ) -> None:
        """Answer with bytes.

        Args:
            data: The content.
            kind: Its media type.
            packed: True to compress it, if the browser takes that.
            headers: Further headers.
        """

    def send_events(self, messages: Iterable[bytes]) -> None:
        """Answer with messages that come as things happen."""

    def show(self, studio: Studio) -> None:
        """Serve the studio of the folder that was chosen, from now on."""


def is_count(word: str, digits: int) -> bool:
    """Return True if a word is a whole number with fewer than ``digits`` digits.

    Args:
        word: A part of a path or a query.
        digits: The limit.
    """
    return word.isascii() and word.isdigit() and len(word) < digits


def _number(word: str, below: int) -> int:
    """Return the number that a word of the path is; refuse all but 0 to ``below`` - 1."""
    if not is_count(word, 10) or int(word) >= below:
        raise Refused(HTTPStatus.NOT_FOUND, "there is no such photo or run.")
    return int(word)


def get(handler: Request, studio: Studio | Chooser, words: list[str]) -> None:
    """Answer a question.

    Args:
        handler: The request.
        studio: What it is about.
        words: Its path behind the token.
    """
    match words:
        case [""]:
            _send_file(handler, "index.html")
        case ["web", name] if _FILE.fullmatch(name):
            _send_file(handler, name)
        case _ if isinstance(studio, Chooser):
            _get_choosing(handler, studio, words)
        case _:
            _get(handler, studio, words)


def _get_choosing(handler: Request, chooser: Chooser, words: list[str]) -> None:
    """Answer a question while there is no folder yet."""
    match words:
        case ["state"]:
            handler.send_json(chooser.state())
        case ["folders", number] if is_count(number, 10):
            handler.send_json(chooser.look(int(number)))
        case _:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such page.")


def _get(handler: Request, studio: Studio, words: list[str]) -> None:
    """Answer a question about photos."""
    count = len(studio.photos)
    match words:
        case ["state"]:
            handler.send_json(studio.state())
        case ["marks"]:
            handler.send_json(studio.marks())
        case ["scores"]:
            handler.send_json(studio.scores())
        case ["numbers"]:
            handler.send_json(numbers(studio.view))
        case ["events"]:
            handler.send_events(studio.events.listen(studio.stopped))
        case ["report"]:
            _send_report(handler, studio)
        case ["download", name]:
            path = studio.exported(unquote(name))
            headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(path.name)}"}
            handler.send_bytes(path.read_bytes(), headers=headers)
        case ["info", photo]:
            handler.send_json(studio.info(_number(photo, count)))
        case ["thumb", photo]:
            handler.send_bytes(studio.thumb(_number(photo, count)), "image/jpeg", headers=_KEPT)
        case ["photo", photo]:
            handler.send_bytes(studio.image(_number(photo, count)), "image/jpeg", headers=_KEPT)
        case ["mask-thumb", photo, _]:
            handler.send_bytes(studio.mask_thumb(_number(photo, count)), "image/png")
        case ["pieces", size, photo] if size in PIECES:
            item = studio.item(_number(photo, count))
            handler.send_bytes(studio.view.pieces(item, size), packed=True)
        case ["doubt", photo]:
            item = studio.item(_number(photo, count))
            handler.send_bytes(studio.view.doubt(item), packed=True)
        case ["correction", photo]:
            item = studio.item(_number(photo, count))
            digest, labels = studio.view.correction(item)
            data = b"" if labels is None else labels.tobytes()
            handler.send_bytes(data, packed=True, headers={"Digest": digest})
        case [("pseudo" | "mask" | "truth" | "trial") as kind, run, photo]:
            k = _number(run, len(studio.views))
            handler.send_bytes(studio.layer(k, kind, _number(photo, count)), packed=True)
        case ["preview", photo]:
            data, seconds = studio.preview(_number(photo, count))
            handler.send_bytes(data, packed=True, headers={"Seconds": f"{seconds:.3f}"})
        case ["affinity", run, method, photo]:
            k = _number(run, len(studio.views))
            item = studio.item_in(k, _number(photo, count))
            handler.send_bytes(studio.views[k].affinity(item, method))
        case _:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such page.")


def _send_report(handler: Request, studio: Studio) -> None:
    """Answer with the report of the run."""
    file = studio.out / layout.REPORT
    if not file.is_file():
        raise Refused(HTTPStatus.NOT_FOUND, "there is no report yet.")
    # the report brings its own style and script, and may load nothing else
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    )
    headers = {"Content-Security-Policy": policy}
    handler.send_bytes(file.read_bytes(), "text/html; charset=utf-8", True, headers)


def post(handler: Request, studio: Studio | Chooser, words: list[str]) -> None:
    """Do what a page asks for.

    Args:
        handler: The request; ``X-Page`` names the page and ``X-Write`` the write.
        studio: What it is about.
        words: Its path behind the token.
    """
    if isinstance(studio, Chooser):
        _post_choosing(handler, studio, words)
    else:
        _post(handler, studio, words)


def _post_choosing(handler: Request, chooser: Chooser, words: list[str]) -> None:
    """Open a folder, or make one and copy photos into it."""
    match words:
        case ["choose"]:
            opened = chooser.open(_fields(handler).get("folder"))
            handler.show(opened)
            answer: dict[str, Any] = {"photos": len(opened.photos)}
        case ["make"]:
            value = _fields(handler)
            answer = chooser.make(value.get("folder"), value.get("name"), value.get("size"))
        case ["receive", number] if is_count(number, 10):
            name = unquote(handler.headers.get("X-File", ""))
            answer = chooser.receive(int(number), name, lambda: handler.body(MOST_PHOTO))
        case _:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such page.")
    handler.send_json(answer)


def _post(handler: Request, studio: Studio, words: list[str]) -> None:
    """Do something with photos."""
    page = _key(handler, "X-Page")
    write = _key(handler, "X-Write")
    match words:
        case ["correct", photo]:
            i = _number(photo, len(studio.photos))
            box = _box(handler.headers.get("X-Box", ""), studio.view.size(studio.item(i)))
            body = handler.body(box[2] * box[3], exactly=True)
            before = handler.headers.get("X-Before", "")
            answer = studio.once(write, lambda: studio.correct(i, box, body, before, page))
        case ["tags"]:
            changes = handler.json()
            answer = studio.once(write, lambda: studio.retag(changes, page))
        case ["checked"]:
            value = _fields(handler)
            answer = studio.once(
                write, lambda: studio.check(value.get("photos"), value.get("good"), page)
            )
        case ["draw"]:
            answer = studio.draw(_fields(handler).get("count"))
        case ["export"]:
            value = _fields(handler)
            answer = studio.export(value.get("format"), value.get("checked"))
        case ["version"]:
            answer = studio.go_back(_fields(handler).get("number"))
        case ["run"]:
            handler.body(0, exactly=True)
            answer = studio.start_run()
        case ["stop"]:
            handler.body(0, exactly=True)
            studio.job.stop()
            answer = studio.job.state
        case ["learn" | "accept" | "take-back" as name]:
            handler.body(0, exactly=True)
            answer = studio.act(name)
        case _:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such page.")
    handler.send_json(answer)


def _fields(handler: Request) -> dict[str, object]:
    """Return the body as an object."""
    value = handler.json()
    if not isinstance(value, dict):
        raise Refused(HTTPStatus.BAD_REQUEST, "the request is no object.")
    return value


def _key(handler: Request, name: str) -> str:
    """Return a header that names a page or a write."""
    value = handler.headers.get(name, "")
    if not _KEY.fullmatch(value):
        raise Refused(HTTPStatus.BAD_REQUEST, f"{name} is no such name.")
    return str(value)


def _box(text: str, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return top, left, height and width of a part of a photo."""
    match = _BOX.fullmatch(text)
    if match is None:
        raise Refused(HTTPStatus.BAD_REQUEST, "X-Box is top,left,height,width.")
    top, left, height, width = map(int, match.groups())
    fits = top + height <= size[0] and left + width <= size[1] and height > 0 and width > 0
    if not fits:
        raise Refused(HTTPStatus.BAD_REQUEST, "the box lies outside the photo.")
    return top, left, height, width


def _send_file(handler: Request, name: str) -> None:
    """Send a file of the page."""
    file = importlib.resources.files("tagmask.studio").joinpath("web").joinpath(name)
    if not file.is_file():
        raise Refused(HTTPStatus.NOT_FOUND, "there is no such page.")
    kind = mimetypes.types_map.get(f".{name.rpartition('.')[2]}", "text/plain")
    if name.endswith(".js"):
        kind = "text/javascript"
    handler.send_bytes(file.read_bytes(), f"{kind}; charset=utf-8", packed=True)
