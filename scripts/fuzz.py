"""Random damage for everything that reads a file or a request: `make torture`, or --help.

Each reader starts from small files that it understands. They are changed at random: bytes are
flipped, cut, repeated, exchanged between files and replaced by numbers and words that have done
harm elsewhere. A change that reaches lines of tagmask that no other has reached is kept and
changed further. With --atheris the same readers are driven by atheris (the extra `fuzz`), which
knows the branches of the libraries too.

A reader may return or raise a TagmaskError with a sentence. Anything else is a finding, and so is
taking longer than ten seconds; the bytes are kept in --keep, from where the tests repeat them.
"""

import argparse
import atexit
import base64
import hashlib
import importlib
import importlib.util
import io
import json
import os
import random
import shutil
import socket
import struct
import sys
import tempfile
import threading
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

import numpy as np
import torch
from PIL import Image, PngImagePlugin
from safetensors.torch import save

import tagmask
from tagmask.config import (
    CorrectionSettings,
    ExploreSettings,
    PushSettings,
    ServeSettings,
    StudioSettings,
    read_toml,
)
from tagmask.data.about import read_about
from tagmask.data.catalog import Catalog
from tagmask.data.coco import read_coco
from tagmask.data.corrections import read_labels, read_tags
from tagmask.data.folder import read_folder
from tagmask.data.images import read_image, read_mask, write_mask
from tagmask.data.keywords import keywords
from tagmask.data.voc import read_voc
from tagmask.errors import TagmaskError
from tagmask.exchange import label_studio_push, label_studio_server
from tagmask.exchange.corrections import import_corrections
from tagmask.exchange.label_studio import labelling_interface, pack
from tagmask.files import read_arrays, read_json
from tagmask.models.classifier import Classifier
from tagmask.models.kinds import load
from tagmask.models.weights import read_weights
from tagmask.runs.record import Record, read_log
from tagmask.studio.app import Studio
from tagmask.studio.opening import open_explorer, open_studio
from tagmask.studio.server import Server
from tagmask.training.checkpoint import read_state

SECONDS = 10.0  # that a reader may take
SOURCE = str(Path(tagmask.__file__).parent)
KEPT = Path(__file__).parents[1] / "tests/hostile_files"
WORDS = [
    b"9223372036854775807", b"-9223372036854775808", b"4294967296", b"1e309", b"NaN", b"-1", b"0",
    b"null", b"true", b"[]", b"{}", b'""', b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b"..", b"/etc/x",
    b"\xed\xa0\x80", b"<![CDATA[", b"<!DOCTYPE", b"&amp;", b"9" * 400, b"[" * 400, b"\x1b[2J",
    b"\xe2\x80\xa8", b"Infinity", b"\\ud800", b"%00", b"\r\n\r\n", b"Content-Length: -1\r\n",
]  # fmt: skip
NUMBERS = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]


@dataclass(frozen=True)
class Target:
    """A reader: what it starts from, and how bytes reach it."""

    seeds: tuple[bytes, ...]
    read: Callable[[bytes, Path], None]  # bytes, and a folder of its own
    prepare: Callable[[], object] = lambda: None  # done once, before the time counts


def _photos(folder: Path) -> Path:
    """Return a folder of two small photos."""
    photos = folder / "photos"
    if not photos.is_dir():
        photos.mkdir()
        for name in "ab":
            Image.new("RGB", (8, 6)).save(photos / f"{name}.png")
    return photos


def _file(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _table(suffix: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        read_folder(_photos(folder), _file(folder, f"tags{suffix}", data))

    return read


def _coco(data: bytes, folder: Path) -> None:
    catalog = read_coco(_photos(folder), _file(folder, "c.json", data))
    for i in range(len(catalog)):
        catalog.load_mask(i)


def _voc(data: bytes, folder: Path) -> None:
    for part in ("JPEGImages", "Annotations", "ImageSets/Segmentation"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for name in "ab":
        Image.new("RGB", (8, 6)).save(folder / f"JPEGImages/{name}.jpg")
    _file(folder, "Annotations/a.xml", data)
    _file(folder, "Annotations/b.xml", _VOC)
    _file(folder, "ImageSets/Segmentation/train.txt", b"a\nb\n")
    read_voc(folder, "train")


def _voc_list(data: bytes, folder: Path) -> None:
    _voc(_VOC, folder)
    _file(folder, "ImageSets/Segmentation/train.txt", data)
    read_voc(folder, "train")


def _back(suffix: str) -> Callable[[bytes, Path], None]:
    """Return a reader of corrections from another tool."""

    def read(data: bytes, folder: Path) -> None:
        photos = _photos(folder)
        tags = _file(folder, "tags.csv", b"file,tags\na.png,cat\nb.png,dog\n")
        source = _file(folder, f"back{suffix}", data)
        import_corrections(
            CorrectionSettings(
                out=folder / "run", data="folder", images=photos, tags=tags, source=source
            )
        )

    return read


def _picture(suffix: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        path = _file(folder, f"a{suffix}", data)
        keywords(path)
        read_image(path)

    return read


def _mask(data: bytes, folder: Path) -> None:
    path = _file(folder, "a.png", data)
    read_labels(folder, "a", 3)
    read_mask(path, 3)


def _toml(data: bytes, folder: Path) -> None:
    read_toml(_file(folder, "c.toml", data))


def _notes(data: bytes, folder: Path) -> None:
    record = Record(folder, "*.npz")
    _file(folder, "done.json", data)
    _file(folder, "log.jsonl", data)
    read_log(folder / "log.jsonl")
    Catalog(["cat"], ["a"], [[0]]).fingerprint()
    _file(folder, "tags.json", data)
    try:
        read_tags(folder, ["cat"], {})
    finally:
        record.status({}, {})
        read_json(folder / "done.json")


def _arrays(data: bytes, folder: Path) -> None:
    read_arrays(_file(folder, "a.npz", data), ("classes", "size"), "tagmask seeds")


def _tensors(data: bytes, folder: Path) -> None:
    _file(folder, "resume.safetensors", data)
    try:
        read_state(folder)
    finally:
        read_weights(_file(folder, "w.safetensors", data))


@cache
def _saved_network() -> tuple[bytes, bytes]:
    """Return config.json and model.safetensors of a small network."""
    folder = Path(tempfile.mkdtemp(prefix="network-"))
    try:
        Classifier("tagmask_tiny", 3, img_size=32).save(folder)
        files = [folder / name for name in ("config.json", "model.safetensors")]
        return files[0].read_bytes(), files[1].read_bytes()
    finally:
        shutil.rmtree(folder)


def _network(data: bytes, folder: Path) -> None:
    _file(folder, "config.json", data)
    _file(folder, "model.safetensors", _saved_network()[1])
    load(folder)


def _weights(data: bytes, folder: Path) -> None:
    """The head of the file is what is changed: its length, names, kinds, shapes and places."""
    _file(folder, "config.json", _saved_network()[0])
    _file(folder, "model.safetensors", data + _saved_network()[1][len(_weights_head()) :])
    load(folder)


def _weights_head() -> bytes:
    whole = _saved_network()[1]
    length = int.from_bytes(whole[:8], "little")
    return whole[: 8 + length]


class _Echo:
    """Stands for a backend with a network."""

    def answer(self, path: str, request: dict[str, Any]) -> dict[str, Any] | None:
        if path == "/setup":
            label_studio_server.controls_of(str(request.get("schema", "")))
        return {} if path in ("/setup", "/predict") else None


_server: Any = None


def _http(data: bytes, folder: Path) -> None:
    """Send bytes to the server for Label Studio; it must stay up and print no traceback."""
    global _server
    if _server is None:
        backend: Any = _Echo()
        settings = ServeSettings(out=folder, label_studio=True, port=0)
        _server = label_studio_server._Server(settings, backend, b"")
        threading.Thread(target=_server.serve_forever, daemon=True).start()
    printed = io.StringIO()
    with redirect_stderr(printed):
        _send(data, _server.server_port)
        answer = _send(b"GET /health HTTP/1.0\r\n\r\n", _server.server_port)
    if b"UP" not in answer or "Traceback" in printed.getvalue():
        raise RuntimeError(f"the server is gone or prints {printed.getvalue()[-300:]}")


def _send(data: bytes, port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS / 2) as client:
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            answer = b""
            while chunk := client.recv(65536):
                answer += chunk
            return answer
        except (ConnectionError, BrokenPipeError):
            return b""


def _camtrap(table: str) -> Callable[[bytes, Path], None]:
    """Return a reader of one of the two tables of a camera-trap package; the other is whole."""

    def read(data: bytes, folder: Path) -> None:
        package = folder / "package"
        tables = {"media.csv": _MEDIA, "observations.csv": _OBSERVATIONS, table: data}
        for name, content in tables.items():
            _file(package, name, content)
        read_folder(_photos(folder), package)

    return read


def _sidecar(data: bytes, folder: Path) -> None:
    photos = _photos(folder)
    _file(photos, "a.png.xmp", data)
    _file(photos, "b.xmp", _XMP)
    read_folder(photos, Path("embedded"))


def _labelme_folder(data: bytes, folder: Path) -> None:
    photos = _photos(folder)
    tags = _file(folder, "tags.csv", b"file,tags\na.png,cat\nb.png,dog\n")
    source = folder / "back"
    _file(source, "a.json", data)
    _file(source, "b.json", _LABELME.replace(b"a.png", b"b.png"))
    values: dict[str, Any] = {"data": "folder", "images": photos, "tags": tags}
    import_corrections(CorrectionSettings(out=folder / "run", source=source, **values))


def _about(data: bytes, folder: Path) -> None:
    read_about(_file(folder, "about.csv", data), ["a", "b"], _photos(folder))


def _push(data: bytes, folder: Path) -> None:
    """Let Label Studio answer anything to each of the requests in turn."""
    photos = _photos(folder)
    tags = _file(folder, "tags.csv", b"file,tags\na.png,cat\nb.png,dog\n")
    token = _file(folder, "token", b"secret")
    for name in "ab":
        write_mask(folder / f"run/6_predictions/{name}.png", np.ones((6, 8), np.uint8))
    whole: dict[str, Any] = {
        "/api/projects/7/": {"label_config": labelling_interface(("cat", "dog"))},
        "/api/predictions/": [{"id": 1, "task": 1, "model_version": "tagmask", "result": []}],
        "/api/tasks/": {"tasks": [{"id": 1, "data": {"image": "a.png"}}], "total": 1},
    }
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise TagmaskError("it is no JSON, which the client says itself") from None
    settings = PushSettings(
        out=folder / "run",
        data="folder",
        images=photos,
        tags=tags,
        label_studio="http://127.0.0.1:1",
        token=token,
        project=7,
    )

    def send(self: Any, method: str, path: str, content: Any, authorization: str) -> Any:
        del self, content, authorization
        asked = path.partition("?")[0]
        return value if asked == changed[0] and method == "GET" else whole.get(asked, {})

    before = label_studio_push.Server._send
    label_studio_push.Server._send = send  # type: ignore[method-assign]
    changed = [""]  # the request that gets the odd answer
    fault: TagmaskError | None = None
    try:
        for changed[0] in whole:
            try:
                label_studio_push.push(settings)
            except TagmaskError as error:
                fault = error
    finally:
        label_studio_push.Server._send = before  # type: ignore[method-assign]
    if fault is not None:
        raise fault


@cache
def _studio(kind: str) -> Server:
    """Return a server of the studio: of a folder of photos, or of a small run."""
    folder = Path(tempfile.mkdtemp(prefix="studio-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    photos = _photos(folder)
    if kind == "folder":
        opened: Studio = open_studio(StudioSettings(folder=photos))
    else:
        tags = _file(folder, "tags.csv", b"file,tags\na.png,cat\nb.png,dog\n")
        out = folder / "run"
        head = f"[data]\ndata = 'folder'\nimages = '{photos}'\ntags = '{tags}'\n"
        _file(out, "config.toml", f"{head}[run]\nout = '{out}'\n".encode())
        model = Classifier("tagmask_tiny", 2, img_size=32)
        model.classes = ("cat", "dog")
        model.save(out / "1_classifier")
        for name in "ab":
            for stage in ("4_pseudo", "6_predictions"):
                write_mask(out / f"{stage}/{name}.png", np.ones((6, 8), np.uint8))
        opened = open_explorer(ExploreSettings(out=out))
    # nothing is to be started by a request
    opened.job.start = lambda words: None  # type: ignore[method-assign]
    server = Server(opened)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    return server


def _ask_studio(kind: str) -> Callable[[bytes, Path], None]:
    """Return a reader of requests to the studio; TOKEN and PORT stand for those of the server."""

    def read(data: bytes, _: Path) -> None:
        server = _studio(kind)
        port = str(server.server_port).encode()
        whole = data.replace(b"TOKEN", server.token.encode()).replace(b"PORT", port)
        printed = io.StringIO()
        with redirect_stderr(printed):
            answer = _send(whole, server.server_port)
            head = f"GET /{server.token}/state HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n"
            state = _send(f"{head}Connection: close\r\n\r\n".encode(), server.server_port)
        if not state.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the studio is gone: {state[:300]!r}")
        if b" 500 " in answer[:20] or b"Traceback" in answer:
            raise RuntimeError(f"a fault of its own: {answer[-300:]!r}")
        if "Traceback" in printed.getvalue():
            raise RuntimeError(f"it prints {printed.getvalue()[-300:]}")

    return read


def _requests(*lines: bytes) -> tuple[bytes, ...]:
    """Return requests to the studio from lines such as b"POST tags [{}]"."""
    found = []
    for line in lines:
        method, _, rest = line.partition(b" ")
        path, _, body = rest.partition(b" ")
        head = method + b" /TOKEN/" + path + b" HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n"
        head += b"X-Page: p\r\nX-Write: w\r\nX-Box: 0,0,2,3\r\nX-Before: \r\n"
        length = str(len(body)).encode()
        found.append(head + b"Content-Length: " + length + b"\r\n\r\n" + body)
    return tuple(found)


def _saved(form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image = Image.fromarray(np.arange(8 * 6 * 3, dtype=np.uint8).reshape(6, 8, 3))
    image.save(buffer, format=form, **options)
    return buffer.getvalue()


def _palette() -> bytes:
    buffer = io.BytesIO()
    texts = PngImagePlugin.PngInfo()
    texts.add_text("correction", "x")
    image = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(6, 8) % 3)
    image.putpalette(bytes(range(30)))
    image.save(buffer, format="PNG", pnginfo=texts)
    return buffer.getvalue()


def _zipped(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("annotations.xml", content)
    return buffer.getvalue()


def _npz() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, classes=np.arange(3), size=np.array([4, 5]))
    return buffer.getvalue()


def _brushes() -> bytes:
    rle = pack(np.eye(6, 8, dtype=bool))
    sizes = {"original_width": 8, "original_height": 6}
    brush = {"type": "brushlabels", "value": {"rle": rle, "brushlabels": ["cat"]}, **sizes}
    corners = {"points": [[10, 10], [60, 10], [60, 70]], "polygonlabels": ["dog"]}
    polygon = {"type": "polygonlabels", "value": corners, **sizes}
    tasks = [{"data": {"image": "/data/a.png"}, "annotations": [{"result": [brush, polygon]}]}]
    return json.dumps(tasks).encode()


_VOC = b"<annotation><object><name>cat</name></object></annotation>"
_XMP = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF '
    b'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description '
    b'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:subject><rdf:Bag><rdf:li>cat</rdf:li>'
    b"</rdf:Bag></dc:subject></rdf:Description></rdf:RDF></x:xmpmeta>"
)
_CVAT = (
    b'<annotations><image id="0" name="a.png" width="8" height="6"><mask label="cat" left="1" '
    b'top="1" width="3" height="2" rle="1,4,1" z_order="0"/><polygon label="dog" '
    b'points="1,1;5,1;5,5" z_order="1"/><box label="cat" xtl="1" ytl="1" xbr="3" ybr="4"/>'
    b'<tag label="cat"/></image></annotations>'
)
_COCO = json.dumps(
    {
        "images": [{"id": 1, "file_name": "a.png", "height": 6, "width": 8}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [
            {"image_id": 1, "category_id": 1, "segmentation": [[0, 0, 4, 0, 4, 4]], "iscrowd": 0},
            {"image_id": 1, "category_id": 1, "iscrowd": 1,
             "segmentation": {"size": [6, 8], "counts": [10, 20, 18]}},
            {"image_id": 1, "category_id": 1, "segmentation": {"size": [6, 8], "counts": "o0`1"}},
            {"image_id": 1, "category_id": 1, "bbox": [1, 1, 3, 3]},
        ],
    }
).encode()  # fmt: skip
_LABELME = json.dumps(
    {
        "version": "5", "imagePath": "a.png", "imageHeight": 6, "imageWidth": 8,
        "shapes": [
            {"label": "cat", "points": [[1, 1], [5, 1], [5, 5]], "shape_type": "polygon"},
            {"label": "dog", "points": [[1, 1], [3, 3]], "shape_type": "rectangle"},
            {"label": "cat", "points": [[3, 3], [4, 4]], "shape_type": "circle"},
        ],
    }
).encode()  # fmt: skip
_SHAPE = {
    "label": "cat",
    "points": [[1, 1], [3, 2]],
    "shape_type": "mask",
    "mask": "MASK",
}
_MEDIA = (
    b"mediaID,deploymentID,timestamp,filePath,fileMediatype\n"
    b"m1,d1,2024-01-02T03:04:05Z,photos/a.png,image/png\n"
    b"m2,d1,2024-01-02T03:04:06+0100,b.png,image/png\n"
)
_OBSERVATIONS = (
    b"mediaID,deploymentID,eventStart,eventEnd,observationLevel,observationType,scientificName\n"
    b"m1,d1,2024-01-02T03:04:05Z,2024-01-02T03:05:05Z,media,animal,Vulpes vulpes\n"
    b",d1,2024-01-02T03:04:05Z,2024-01-02T03:05:05Z,event,human,\n"
)
_STATE = {"step": 1, "best": {}, "broken": [], "identity": {}}


def _deep_tiff() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.arange(48, dtype=np.uint16).reshape(6, 8) * 900).save(buffer, format="TIFF")
    return buffer.getvalue()


def _masked_labelme() -> bytes:
    """Return a file of LabelMe with a mask, which is a PNG in the text."""
    buffer = io.BytesIO()
    Image.fromarray(np.eye(2, 3, dtype=np.uint8) * 255).save(buffer, format="PNG")
    value = json.loads(_LABELME)
    value["shapes"].append(_SHAPE | {"mask": base64.b64encode(buffer.getvalue()).decode()})
    return json.dumps(value).encode()


_GETS = (
    b"GET ", b"GET state", b"GET marks", b"GET scores", b"GET web/start.js", b"GET report",
    b"GET info/0", b"GET thumb/1", b"GET photo/0", b"GET mask-thumb/0/1", b"GET pieces/small/0",
    b"GET doubt/0", b"GET correction/0", b"GET mask/0/1", b"GET trial/0/0", b"GET download/x",
    b"GET affinity/0/acr/0",
)  # fmt: skip
_POSTS = (
    b"POST correct/0 \0\1\2\0\1\2",
    b'POST tags [{"photo": 0, "tags": ["cat"], "before": ""}]',
    b'POST checked {"photos": [0], "good": true}',
    b'POST draw {"count": 2}',
    b'POST export {"format": "coco", "checked": false}',
    b'POST version {"number": 1}',
    b"POST learn",
    b"POST accept",
    b"POST take-back",
    b"POST stop",
)


def _studio_target(kind: str) -> Target:
    return Target(_requests(*_GETS, *_POSTS), _ask_studio(kind), lambda: _studio(kind))


def targets() -> dict[str, Target]:
    """Return every reader by name."""
    exif = Image.Exif()
    exif[0x0112] = 6
    jpeg = _saved("JPEG", exif=exif, xmp=_XMP)
    tensors = save({"a": torch.ones(2, 3)}, metadata={"state": json.dumps(_STATE)})
    request = (
        b"POST /setup HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
    rows = [{"file": "a.png", "tags": ["cat"]}, {"file": "b.png", "tags": ["dog"]}]
    lines = b"\n".join(json.dumps(row).encode() for row in rows)
    return {
        "csv": Target((b"file,tags\na.png,cat;dog\nb.png,dog\n", b"file,cat,dog\na.png,1,0\n"),
                      _table(".csv")),
        "json table": Target((json.dumps(rows).encode(), b'{"a.png": ["cat"]}', _brushes()),
                             _table(".json")),
        "jsonl table": Target((lines, b'{"file_name": "a.png", "tags": ["cat"]}'),
                              _table(".jsonl")),
        "cvat tags": Target((_CVAT,), _table(".xml")),
        "coco": Target((_COCO,), _coco),
        "voc": Target((_VOC,), _voc),
        "voc list": Target((b"a\nb\n", b"/JPEGImages/a.jpg /SegmentationClass/a.png\n"), _voc_list),
        "cvat masks": Target((_CVAT,), _back(".xml")),
        "cvat zip": Target((_zipped(_CVAT),), _back(".zip")),
        "label studio masks": Target((_brushes(),), _back(".json")),
        "coco masks": Target((_COCO,), _back(".json")),
        "labelme": Target((_LABELME,), _back(".json")),
        "labelme folder": Target((_masked_labelme(), _LABELME), _labelme_folder),
        "camtrap media": Target((_MEDIA,), _camtrap("media.csv")),
        "camtrap observations": Target((_OBSERVATIONS,), _camtrap("observations.csv")),
        "xmp file": Target((_XMP,), _sidecar),
        "about": Target((b"file,pixel_size,place\na.png,0.5,here\nb.png,1,there\n",), _about),
        "label studio answers": Target(
            (b'{"tasks": [{"id": 1, "data": {"image": "a.png"}}], "total": 1}',
             b'[{"id": 1, "task": 1, "model_version": "tagmask", "result": []}]',
             b'{"label_config": "<View><Image name=\\"i\\" value=\\"$image\\"/></View>"}'), _push),
        "jpeg": Target((jpeg,), _picture(".jpg")),
        "png": Target((_saved("PNG"), _palette()), _picture(".png")),
        "tiff": Target((_saved("TIFF"), _saved("TIFF", compression="tiff_lzw")), _picture(".tif")),
        "deep tiff": Target((_deep_tiff(),), _picture(".tif")),
        "gif, bmp, webp": Target((_saved("GIF"), _saved("BMP"), _saved("WEBP")), _picture(".gif")),
        "mask": Target((_palette(),), _mask),
        "toml": Target((b'[run]\ncount = 3\nout = "x"\n[train]\nlr = 0.1\n',), _toml),
        "notes": Target((b'{"made_from": {"a": 1}, "files": "x"}',
                         b'{"classes": ["cat"], "photos": {}, "identity": {}}'), _notes),
        "npz": Target((_npz(),), _arrays),
        "safetensors": Target((tensors,), _tensors),
        "network": Target((_saved_network()[0],), _network),
        "weights": Target((_weights_head(),), _weights),
        "http": Target((request, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"), _http),
        "studio of a folder": _studio_target("folder"),
        "studio of a run": _studio_target("run"),
        **_heic(),
    }  # fmt: skip


def _heic() -> dict[str, Target]:
    """Return the reader of phones' photos, if its package is installed and can write one."""
    if importlib.util.find_spec("pillow_heif") is None:
        return {}  # pi-heif reads them only
    importlib.import_module("pillow_heif").register_heif_opener()
    return {"heic": Target((_saved("HEIF"),), _picture(".heic"))}


def mutate(data: bytes, others: list[bytes], numbers: random.Random) -> bytes:
    """Return a changed copy."""
    changed = bytearray(data)
    for _ in range(numbers.choice((1, 1, 1, 2, 4, 8))):
        place = numbers.randrange(len(changed) + 1)
        length = numbers.choice((1, 1, 2, 4, 16, 200))
        kind = numbers.randrange(9)
        if kind == 0 and changed:
            changed[place % len(changed)] ^= 1 << numbers.randrange(8)
        elif kind == 1 and changed:
            changed[place % len(changed)] = numbers.randrange(256)
        elif kind == 2:
            del changed[place : place + length]
        elif kind == 3:
            del changed[place:]
        elif kind == 4:
            changed[place:place] = changed[place : place + length] * numbers.choice((1, 2, 50))
        elif kind == 5:
            changed[place : place + numbers.choice((0, length))] = numbers.choice(WORDS)
        elif kind == 6:
            other = numbers.choice(others)
            start = numbers.randrange(len(other) + 1)
            changed[place:place] = other[start : start + 4 * length]
        elif kind == 7:
            form = numbers.choice(("<B", "<H", ">H", "<I", ">I", "<Q"))
            number = numbers.choice(NUMBERS) & ((1 << 8 * struct.calcsize(form)) - 1)
            packed = struct.pack(form, number)
            changed[place : place + len(packed)] = packed
        else:
            digits = [i for i, byte in enumerate(changed) if 48 <= byte < 58]
            if digits:
                where = numbers.choice(digits)
                changed[where : where + 1] = numbers.choice(WORDS[:7])
    return bytes(changed[: 1 << 16])


def attempt(target: Target, data: bytes) -> str:
    """Let a reader read; return what was wrong, empty if nothing was."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    began = time.monotonic()
    try:
        with redirect_stdout(io.StringIO()):
            target.read(data, folder)
    except TagmaskError as error:
        if not str(error).strip():
            return "an empty message"
        if len(str(error)) > 100_000:
            return f"a message of {len(str(error))} characters"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    took = time.monotonic() - began
    return f"it takes {took:.0f} s" if took > SECONDS else ""


def traced(target: Target, data: bytes) -> tuple[str, set[tuple[str, int]]]:
    """Return what was wrong, and the lines of tagmask that were reached."""
    reached: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(SOURCE):
            return None
        if event == "line":
            reached.add((file, frame.f_lineno))
        return trace

    sys.settrace(trace)
    threading.settrace(trace)  # a server answers in threads
    try:
        fault = attempt(target, data)
    finally:
        sys.settrace(None)
        threading.settrace(None)
    return fault, reached


def fuzz(name: str, target: Target, seconds: float, seed: int, most: int = 1 << 60) -> Any:
    """Change the seeds of a reader for some time.

    Args:
        name: the reader's name, for the random numbers.
        target: the reader.
        seconds: how long.
        seed: of the random numbers.
        most: changes that are tried at most.

    Returns:
        How many were tried, how many lines were reached, and the findings: bytes by fault.
    """
    target.prepare()
    numbers = random.Random(f"{seed}/{name}")
    corpus = list(target.seeds)
    reached: set[tuple[str, int]] = set()
    findings: dict[str, bytes] = {}
    tried = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end and tried < most:
        is_seed = tried < len(target.seeds)
        data = corpus[tried] if is_seed else mutate(numbers.choice(corpus), corpus, numbers)
        fault, lines = traced(target, data)
        tried += 1
        if fault:
            kind = fault.partition(":")[0]
            findings.setdefault(kind, data)
            if len(data) < len(findings[kind]):
                findings[kind] = data
        if not lines <= reached:
            reached |= lines
            if not is_seed:
                corpus.append(data)
    return tried, len(reached), findings


# packages that read what the fuzzers change
_GUIDING = {"PIL", "csv", "json", "safetensors", "tagmask", "tomllib", "xml", "zipfile"}


def fuzz_with_atheris(name: str, target: Target, seconds: float, keep: Path) -> None:
    """Drive a reader with atheris, which ends this process at the first finding."""
    import atheris

    corpus = Path(tempfile.mkdtemp(prefix="corpus-"))
    for number, seed in enumerate(target.seeds):
        (corpus / str(number)).write_bytes(seed)

    def once(data: bytes) -> None:
        fault = attempt(target, data)
        if fault:
            _keep(keep, name, data)
            raise RuntimeError(fault)

    for function in _readers_functions():
        atheris.instrument_func(function)
    words = [sys.argv[0], str(corpus), f"-max_total_time={seconds:.0f}", "-max_len=4096"]
    atheris.Setup([*words, "-rss_limit_mb=4096", "-verbosity=0", "-print_final_stats=1"], once)
    atheris.Fuzz()


def _readers_functions() -> Iterator[FunctionType]:
    """Yield the functions whose branches guide atheris; with torch's it would take minutes."""
    for module in list(sys.modules.values()):
        if module.__name__.partition(".")[0] not in _GUIDING:
            continue
        for value in list(vars(module).values()):
            parts = vars(value).values() if isinstance(value, type) else [value]
            for part in parts:
                if isinstance(part, FunctionType) and part.__module__ == module.__name__:
                    yield part


def _keep(folder: Path, name: str, data: bytes) -> Path:
    """Keep bytes under the name of their reader."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.{hashlib.sha256(data).hexdigest()[:8]}"
    path.write_bytes(data)
    return path


def start() -> None:
    """Fuzz all readers, or those that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10, help="for all readers together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", help="by name; default: all")
    parser.add_argument("--keep", type=Path, default=Path("fuzz"), help="folder for findings")
    parser.add_argument("--atheris", action="store_true", help="drive one --target with atheris")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # as for users
    chosen = {
        name: target
        for name, target in targets().items()
        if not options.target or name in options.target
    }
    if not chosen:
        parser.error(f"--target is one of: {', '.join(targets())}")
    seconds = 60 * options.minutes / max(1, len(chosen))
    if options.atheris:
        name, target = next(iter(chosen.items()))
        fuzz_with_atheris(name, target, seconds, options.keep)
    print("| reader | changes | lines reached | findings |\n|---|---|---|---|", flush=True)
    total = 0
    found = 0
    for name, target in chosen.items():
        tried, lines, findings = fuzz(name, target, seconds, options.seed)
        print(f"| {name} | {tried} | {lines} | {len(findings)} |", flush=True)
        for fault, data in findings.items():
            print(f"{name}: {fault}: {_keep(options.keep, name, data)}", flush=True)
        total += tried
        found += len(findings)
    print(f"| together | {total} | | {found} |")
    sys.exit(found > 0)


if __name__ == "__main__":
    start()
