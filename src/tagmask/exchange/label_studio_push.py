"""Predictions sent to a Label Studio project through its API.

It is for servers that cannot reach ``tagmask serve``.

Tasks are matched with the photos of the run by the ends of their paths, as everywhere. A task gets
the mask of its photo as a prediction; one that tagmask sent before is removed once the new one is
there. Annotations are never touched. Nothing but these requests is sent, and only to the address
that was given: answers that lead elsewhere are refused.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tagmask import layout
from tagmask.config import PushSettings, check
from tagmask.data.folder import Tails, normal_path
from tagmask.data.images import read_mask, strip_suffix
from tagmask.data.open import open_catalog
from tagmask.data.report import missing_note
from tagmask.data.tools import image_of, objects, pick
from tagmask.errors import ImageError, TagmaskError
from tagmask.exchange.label_studio import MODEL_VERSION, brushes
from tagmask.exchange.label_studio_server import controls_of
from tagmask.files import read_text
from tagmask.runs.images import list_skipped
from tagmask.runs.record import check_classes

_PAGE = 100  # tasks of an answer
_SECONDS = 120  # for an answer
_MOST_BYTES = 256 << 20  # of an answer


@dataclass
class _Sent:
    """Counts of what was sent."""

    sent: int = 0
    same: int = 0  # tasks that have the prediction already
    missing: list[str] = field(default_factory=list)  # images of tasks that the run does not have
    damaged: dict[str, str] = field(default_factory=dict)  # name: why its mask cannot be sent


def push(settings: PushSettings) -> str:
    """Send the masks of a run to the tasks of a project.

    Args:
        settings: those of the command.

    Returns:
        A summary for the user.

    Raises:
        TagmaskError: Label Studio cannot be reached or refuses, or has no task of these photos.
    """
    check(settings)
    folder = settings.labels or settings.out / layout.PREDICTIONS
    catalog = open_catalog(settings)
    check_classes(folder, catalog.classes, "masks")
    project = settings.project
    server = Server(settings.label_studio, _token_in(settings.token))
    controls = controls_of(pick(server.get(f"/api/projects/{project}/"), str, "label_config"))
    unknown = sorted(set(catalog.classes) - controls.labels)
    if unknown:
        raise TagmaskError(
            f'project {project} has no brush label "{unknown[0]}"; '
            "use the interface that `tagmask export --format label-studio` writes."
        )
    names = Tails(item.name for item in catalog)
    before = _predictions_of(server, project)
    done = _Sent()
    shared = {"from_name": controls.brush, "to_name": controls.image}
    for task in _tasks_of(server, project):
        file = image_of(pick(task, dict, "data"), controls.key) or ""
        found = names.find(strip_suffix(normal_path(file, settings.images or Path())))
        if len(found) != 1:
            done.missing.append(file)
            continue
        mask_file = layout.label_file(folder, found[0])
        try:
            mask = read_mask(mask_file, len(catalog.classes))
        except ImageError as error:
            done.damaged[found[0]] = str(error)
            continue
        result = [region | shared for region in brushes(mask, catalog.classes, settings.pieces)]
        _send(server, project, task["id"], result, before.get(task["id"], []), done)
    if not done.sent and not done.same:
        raise TagmaskError(_nothing(project, done))
    lines = [*missing_note(done.missing), *list_skipped(done.damaged)]
    if done.same:
        lines.append(f"{done.same} tasks have these predictions already.")
    address = f"{settings.label_studio.rstrip('/')}/projects/{project}/"
    return "\n".join([*lines, f"{done.sent} predictions sent to {address}"])


def _token_in(file: Path) -> str:
    """Return the token that a file holds; no message ever quotes it."""
    token = read_text(file).strip()
    if not token.isascii() or not token.isprintable() or " " in token or not token:
        raise TagmaskError(
            f"--token {file} holds no token; copy the access token of your account page into it, "
            "alone on one line."
        )
    return token


def _nothing(project: int, done: _Sent) -> str:
    """Return a sentence on why nothing was sent."""
    if done.damaged:
        return f"no mask could be sent; {next(iter(done.damaged.values()))}"
    if done.missing:
        return (
            f"project {project} has no task of these photos; the first is {done.missing[0]!r}. "
            "Give the photos of that project."
        )
    return (
        f"project {project} has no tasks; import those that "
        "`tagmask export --format label-studio` writes, or the photos themselves."
    )


def _send(
    server: "Server",
    project: int,
    task: int,
    result: list[dict[str, Any]],
    before: list[dict[str, Any]],
    done: _Sent,
) -> None:
    """Send the prediction of a task, unless it is there, and then remove the earlier ones.

    One that is there may have been sent by a push that was stopped before it removed the others.
    """
    same = next((old for old in before if old.get("result") == result), None)
    if same is not None:
        done.same += 1
    else:
        prediction = {"task": task, "result": result, "model_version": MODEL_VERSION, "score": 1.0}
        server.post("/api/predictions/", prediction | {"project": project})
        done.sent += 1
    for old in before:
        if old is not same:
            server.delete(f"/api/predictions/{old['id']}/")


def _predictions_of(server: "Server", project: int) -> dict[int, list[dict[str, Any]]]:
    """Return the predictions of a project that tagmask sent, by the task."""
    found: dict[int, list[dict[str, Any]]] = {}
    answer = server.get("/api/predictions/", project=project)
    listed = answer.get("results") if isinstance(answer, dict) else answer
    for prediction in objects(listed):
        is_ours = prediction.get("model_version") == MODEL_VERSION
        if is_ours and isinstance(prediction.get("id"), int):
            found.setdefault(pick(prediction, int, "task"), []).append(prediction)
    return found


def _tasks_of(server: "Server", project: int) -> Iterator[dict[str, Any]]:
    """Yield the tasks of a project, page by page."""
    page = 1
    seen: set[int] = set()
    while True:
        answer = server.get("/api/tasks/", project=project, page=page, page_size=_PAGE)
        listed = objects(pick(answer, list, "tasks"))
        # a page that is sent again and again would never end
        tasks = {task["id"]: task for task in listed if isinstance(task.get("id"), int)}
        new = tasks.keys() - seen
        yield from (task for number, task in tasks.items() if number in new)
        seen |= new
        if not new or len(seen) >= pick(answer, int, "total"):
            return
        page += 1


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses answers that lead elsewhere: the token would be sent there."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Server:
    """Requests to Label Studio's API."""

    def __init__(self, address: str, token: str) -> None:
        """Keep the address and the token.

        Args:
            address: of Label Studio, such as http://localhost:8080.
            token: a legacy token, or a personal access token, which is exchanged for one of a few
                minutes where it is needed.
        """
        self._address = address.rstrip("/")
        self._token = token
        self._opener = urllib.request.build_opener(_NoRedirects, urllib.request.ProxyHandler({}))
        is_personal = token.count(".") == 2
        self._authorization = "" if is_personal else f"Token {token}"

    def get(self, path: str, **query: Any) -> Any:
        """Return the answer to a question."""
        return self._ask("GET", f"{path}?{urlencode(query)}" if query else path, None)

    def post(self, path: str, content: Any) -> Any:
        """Send an object, and return the answer.

        Args:
            path: Of the address, such as /api/projects.
            content: What is sent, as JSON.

        Raises:
            TagmaskError: Label Studio cannot be reached, or refuses.
        """
        return self._ask("POST", path, content)

    def delete(self, path: str) -> None:
        """Remove an object."""
        self._ask("DELETE", path, None)

    def _ask(self, method: str, path: str, content: Any) -> Any:
        """Send a request; a token that has run out is renewed once."""
        if not self._authorization:
            self._renew()
        try:
            return self._send(method, path, content, self._authorization)
        except PermissionError:
            if not self._authorization.startswith("Bearer"):
                raise TagmaskError(self._refused()) from None
        self._renew()
        try:
            return self._send(method, path, content, self._authorization)
        except PermissionError:
            raise TagmaskError(self._refused()) from None

    def _renew(self) -> None:
        """Exchange the personal access token for one that requests carry."""
        try:
            answer = self._send("POST", "/api/token/refresh/", {"refresh": self._token}, "")
        except PermissionError:
            raise TagmaskError(self._refused()) from None
        self._authorization = f"Bearer {pick(answer, str, 'access')}"

    def _refused(self) -> str:
        return (
            f"{self._address} does not accept the token in --token; create one on your account "
            "page and copy all of it from the window that shows it, alone on one line."
        )

    def _send(self, method: str, path: str, content: Any, authorization: str) -> Any:
        """Send a request and return the JSON of its answer; PermissionError for a wrong token."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if authorization:
            headers["Authorization"] = authorization
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self._address + path, body, headers, method=method)
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                text = answer.read(_MOST_BYTES)
        except urllib.error.HTTPError as error:
            if error.code == 401:
                raise PermissionError from None
            raise TagmaskError(self._fault(path, error)) from None
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise TagmaskError(
                f"{self._address} cannot be reached ({reason}); "
                "check the address and that Label Studio runs."
            ) from None
        try:
            return json.loads(text) if text.strip() else {}
        except (ValueError, RecursionError):
            raise TagmaskError(
                f"{self._address}{path} is no answer of Label Studio; check the address."
            ) from None

    def _fault(self, path: str, error: urllib.error.HTTPError) -> str:
        """Return a sentence on a refusal."""
        if error.code == 404:
            return f"{self._address}{path.split('?')[0]} does not exist; check --project."
        if 300 <= error.code < 400:
            return (
                f"{self._address} leads to another address; give that one, so that the token is "
                "sent nowhere else."
            )
        detail = error.read(300).decode("utf-8", "replace")
        return f"{self._address}{path.split('?')[0]} refuses ({error.code}): {detail}"
