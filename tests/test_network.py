"""Nothing is sent; only --pretrained asks for the network, and without one a sentence comes at once."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from tagmask.config import StudioSettings
from tagmask.errors import TagmaskError
from tagmask.models.classifier import Classifier
from tagmask.models.deeplab import DeepLabV2
from tagmask.studio.opening import open_studio
from tests.offline import sitecustomize as offline


def test_the_guard_stops_connections() -> None:
    with pytest.raises(OSError, match="tests do not connect"):
        socket.create_connection(("example.org", 80))
    with pytest.raises(OSError, match="tests do not connect"):
        socket.socket().connect(("192.0.2.1", 80))
    with (
        socket.socket(type=socket.SOCK_DGRAM) as sender,
        pytest.raises(OSError, match="tests do not connect"),
    ):
        sender.sendto(b"x", ("192.0.2.1", 53))
    assert offline.tried == ["example.org", "192.0.2.1", "192.0.2.1"]
    offline.tried.clear()
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()


def test_processes_are_guarded_too() -> None:
    code = "import socket; socket.create_connection(('example.org', 80))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "tests do not connect to example.org" in result.stderr


def _build(name: str) -> None:
    if name.startswith("vit"):
        Classifier(name, 3, img_size=224, pretrained=True)
    else:
        DeepLabV2(name, num_classes=4, pretrained=True)


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "resnet18"])
def test_published_weights_without_a_network(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    for proxy in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    began = time.monotonic()
    with pytest.raises(TagmaskError) as told:
        _build(name)
    sentence = str(told.value)
    assert "there is no connection" in sentence
    assert f"--weights: model.safetensors of https://huggingface.co/timm/{name}." in sentence
    assert time.monotonic() - began < 20  # asking in vain takes half a minute
    assert offline.tried == ["huggingface.co"]  # once, and nothing else
    offline.tried.clear()


def test_a_proxy_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
    began = time.monotonic()
    with pytest.raises(TagmaskError, match="there is no connection"):
        _build("resnet18")
    assert time.monotonic() - began < 20
    assert offline.tried == []  # not even the name of the host is looked up


def test_the_studio_says_what_to_bring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It compares photos with published weights; without a network it works, and says so."""
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    for proxy in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    photos = tmp_path / "photos"
    photos.mkdir()
    for name in "ab":
        Image.new("RGB", (40, 30)).save(photos / f"{name}.png")
    studio = open_studio(StudioSettings(folder=photos))
    comparison = studio.comparison
    assert comparison is not None
    studio.begin()
    try:
        end = time.monotonic() + 60
        while comparison.state["state"] != "failed" and time.monotonic() < end:
            time.sleep(0.05)
    finally:
        studio.end()
    sentence = comparison.state["why"]
    assert "there is no connection" in sentence
    assert "--weights: model.safetensors of https://huggingface.co/timm/vit_small" in sentence
    assert not any(thread.is_alive() for thread in studio._threads)
    assert offline.tried == ["huggingface.co"]
    offline.tried.clear()


def test_the_package_brings_the_weights_of_its_own_backbone() -> None:
    Classifier("tagmask_tiny", 3, img_size=32, pretrained=True)
    assert offline.tried == []
