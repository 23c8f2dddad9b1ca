"""The services for annotation tools, driven by CVAT's own client code and by requests of Label Studio's protocol."""

import base64
import json
import logging
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tagmask.config import ServeSettings, check
from tagmask.errors import TagmaskError
from tagmask.exchange import cvat_function, label_studio_server
from tagmask.exchange.label_studio import labelling_interface, unpack
from tagmask.models.deeplab import DeepLabV2
from tagmask.stages.predict import predict

CLASSES = ["dog", "sofa", "été"]
QUICK: dict[str, Any] = {"scales": (1.0,), "flip": False, "crf": False}


@pytest.fixture(scope="module")
def model() -> DeepLabV2:
    torch.manual_seed(1)
    model = DeepLabV2("test_resnet", num_classes=4, classes=CLASSES).eval()
    with torch.no_grad():
        for layer in model.modules():
            if (
                isinstance(layer, torch.nn.Conv2d)
                and layer.out_channels == 4
                and layer.bias is not None
            ):
                layer.bias[0] -= 1  # less background
    return model


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (33, 47, 3)).astype(np.uint8)
    (tmp_path / "photos/day 1").mkdir(parents=True)
    Image.fromarray(pixels).save(tmp_path / "photos/day 1/a #1.png")
    return tmp_path / "photos/day 1/a #1.png"


Ask = Any


@pytest.fixture
def ask(
    model: DeepLabV2, photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ask]:
    """Send a request; returns status and answer."""
    monkeypatch.setattr(label_studio_server, "load_segmenter", lambda folder: model)
    (tmp_path / "secret").write_text("me:pass word\n")
    settings = ServeSettings(
        out=tmp_path,
        label_studio=True,
        images=tmp_path / "photos",
        port=0,
        secret=tmp_path / "secret",
        **QUICK,
    )
    server = label_studio_server.build_server(settings)
    assert server.server_address[0] == "127.0.0.1"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def send(method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {
            "Content-Type": "application/json",
            "Authorization": "Basic " + base64.b64encode(b"me:pass word").decode(),
        } | {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, content if method == "POST" else None, sent)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    yield send
    server.shutdown()
    server.server_close()
    thread.join()


def request(
    address: str = "/data/local-files/?d=photos/day%201/a%20%231.png", **task: Any
) -> dict[str, Any]:
    """As Label Studio sends it: github.com/HumanSignal/label-studio-ml-backend, label_studio_ml/api.py."""
    return {
        "tasks": [{"id": 7, "data": {"image": address}, "annotations": [], **task}],
        "model_version": None,
        "project": "1.1700000000",
        "label_config": labelling_interface(CLASSES),
        "params": {"login": None, "password": None, "context": None},
    }


def drawn(results: list[dict[str, Any]]) -> np.ndarray:
    mask = np.zeros((33, 47), np.uint8)
    for result in results:
        assert (result["type"], result["from_name"], result["to_name"]) == (
            "brushlabels",
            "tag",
            "image",
        )
        region = unpack(
            result["value"]["rle"], (result["original_height"], result["original_width"])
        )
        mask[region] = CLASSES.index(result["value"]["brushlabels"][0]) + 1
    return mask


def test_label_studio_is_answered(ask: Ask, model: DeepLabV2, photo: Path) -> None:
    assert ask("GET", "/health") == (200, {"status": "UP", "model_class": "tagmask"})
    setup = {
        "project": "1.17",
        "schema": labelling_interface(CLASSES),
        "hostname": "http://x",
        "access_token": "t",
    }
    assert ask("POST", "/setup", setup) == (200, {"model_version": "tagmask"})
    status, answer = ask("POST", "/predict", request())
    assert status == 200
    (prediction,) = answer["results"]
    assert np.array_equal(drawn(prediction["result"]), predict(model, photo, **QUICK))


def test_the_tags_of_a_task_are_used(ask: Ask, model: DeepLabV2, photo: Path) -> None:
    choices = {"result": [{"type": "choices", "value": {"choices": ["été", "not a class"]}}]}
    expected = predict(model, photo, ["été"], **QUICK)
    assert not np.array_equal(expected, predict(model, photo, **QUICK))
    for task in ({"annotations": [choices]}, {"data": {"image": "a #1.png", "tags": ["été"]}}):
        _, answer = ask("POST", "/predict", request() | {"tasks": [request()["tasks"][0] | task]})
        assert np.array_equal(drawn(answer["results"][0]["result"]), expected)


def test_one_missing_photo_does_not_lose_the_others(
    ask: Ask, model: DeepLabV2, photo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (photo.parent / "damaged.png").write_bytes(b"no picture")
    asked = request()
    sent = [asked["tasks"][0] | {"id": 1, "data": {"image": "nowhere\x1b.png"}}]
    sent += asked["tasks"]
    sent += [asked["tasks"][0] | {"id": 3, "data": {"image": "damaged.png"}}]
    status, answer = ask("POST", "/predict", asked | {"tasks": sent})
    missing, found, damaged = answer["results"]
    assert status == 200
    assert np.array_equal(drawn(found["result"]), predict(model, photo, **QUICK))
    # Label Studio leaves out what has no "result", and asks for it again
    assert set(missing) == set(damaged) == {"error"}
    printed = capsys.readouterr().err
    assert "task 1: the image 'nowhere" in printed
    assert "task 3: " in printed
    assert "\x1b" not in printed


def test_a_photo_that_label_studio_renamed_is_found(
    ask: Ask, model: DeepLabV2, photo: Path
) -> None:
    """An upload loses blanks and marks: "a #1.png" becomes "320d2528-a_1.png"."""
    _, answer = ask("POST", "/predict", request("/data/upload/7/320d2528-a_1.png"))
    assert np.array_equal(drawn(answer["results"][0]["result"]), predict(model, photo, **QUICK))


def test_hostile_requests_are_refused(ask: Ask) -> None:
    assert ask("POST", "/predict", request(), Authorization="Basic bWU6eA==")[0] == 401
    assert ask("GET", "/health", Authorization="")[0] == 401
    assert ask("GET", "/../../etc/passwd")[0] == 404
    assert ask("POST", "/train", {})[0] == 404
    assert ask("POST", "/predict", request(), Content_Type="text/plain")[0] == 415
    assert ask("POST", "/predict", b"{", Content_Type="application/json")[0] == 400
    assert ask("POST", "/predict", b"[" * 100_000)[0] == 400
    for address in ("../../etc/passwd", "/etc/passwd", "http://elsewhere/a.png", 7, None):
        status, answer = ask("POST", "/predict", request(address))  # type: ignore[arg-type]
        (result,) = answer["results"]
        assert (status, list(result)) == (200, ["error"])
        assert "was not found in" in result["error"]
    bomb = '<!DOCTYPE a [<!ENTITY a "aa">]><View>&a;</View>'
    assert (
        "document type" in ask("POST", "/predict", request() | {"label_config": bomb})[1]["error"]
    )
    assert (
        "has no BrushLabels"
        in ask("POST", "/predict", request() | {"label_config": "<View/>"})[1]["error"]
    )
    assert ask("POST", "/predict", {"tasks": 3, "label_config": labelling_interface(CLASSES)}) == (
        200,
        {"results": []},
    )


def test_settings_of_the_service(tmp_path: Path) -> None:
    with pytest.raises(TagmaskError, match=r"is open to other machines; give --secret FILE"):
        check(ServeSettings(out=tmp_path, label_studio=True, images=tmp_path, host="0.0.0.0"))
    with pytest.raises(TagmaskError, match="--label-studio is missing"):
        check(ServeSettings(out=tmp_path, images=tmp_path))
    with pytest.raises(TagmaskError, match="--images is missing"):
        check(ServeSettings(out=tmp_path, label_studio=True))


class Context:
    frame_name = "day 1/a #1.png"
    conf_threshold = None
    conv_mask_to_poly = False


@pytest.mark.parametrize("tagged", [False, True])
def test_cvat_loads_the_function_and_takes_its_masks(
    model: DeepLabV2, photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tagged: bool
) -> None:
    pytest.importorskip("cvat_sdk", reason="cvat-sdk is not installed")
    from cvat_sdk.masks import decode_mask

    monkeypatch.setattr(cvat_function, "load_segmenter", lambda folder: model)
    monkeypatch.setattr(cvat_function, "predict", lambda *parts: predict(*parts, **QUICK))
    (tmp_path / "tags.csv").write_text("file,tags\nday 1/a #1.png,été\n")
    function = cvat_function.create("run/5_segmenter", str(tmp_path / "tags.csv") if tagged else "")
    assert [label.name for label in function.spec.labels] == CLASSES
    expected = predict(model, photo, ["été"] if tagged else None, **QUICK)
    mask = np.zeros_like(expected)
    for shape in function.detect(Context(), Image.open(photo)):
        assert shape.type.value == "mask"
        mask[decode_mask(shape.points, image_width=47, image_height=33)] = shape.label_id + 1
    assert np.array_equal(mask, expected)
    polygons = Context()
    polygons.conv_mask_to_poly = True
    assert {shape.type.value for shape in function.detect(polygons, Image.open(photo))} == {
        "polygon"
    }


def test_cvat_cli_finds_the_function_file(
    model: DeepLabV2, photo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cvat-cli's own loader, with the flags as they are typed, and its driver's check of what the function gives."""
    common: Any = pytest.importorskip(
        "cvat_cli._internal.common", reason="cvat-cli is not installed"
    )
    driver: Any = pytest.importorskip("cvat_sdk.auto_annotation.driver")
    monkeypatch.setattr("tagmask.models.kinds.load_segmenter", lambda folder: model)
    monkeypatch.setattr("tagmask.stages.predict.predict", lambda *parts: predict(*parts, **QUICK))
    function = common.FunctionLoader(
        None, Path(cvat_function.__file__), {"model": "run/5_segmenter"}
    ).load()
    shapes = function.detect(Context(), Image.open(photo))
    assert {shape.label_id for shape in shapes} <= {0, 1, 2}
    assert shapes
    there = [
        driver.models.Label(id=40 + n, name=name, type="mask", attributes=[], sublabels=[])
        for n, name in enumerate(reversed(CLASSES))
    ]
    mapper = driver._AnnotationMapper(
        logging.getLogger(),
        function.spec.labels,
        there,
        allow_unmatched_labels=False,
        conv_mask_to_poly=False,
    )
    _, mapped = mapper.validate_and_remap(shapes, 3)
    assert {shape.label_id for shape in mapped} <= {40, 41, 42}
    assert {shape.frame for shape in mapped} == {3}
