"""Nothing is sent; only --pretrained asks for the network, and without one a sentence comes at once."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tagmask.errors import TagmaskError
from tagmask.models.classifier import Classifier
from tagmask.models.deeplab import DeepLabV2
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


def test_the_package_brings_the_weights_of_its_own_backbone() -> None:
    Classifier("tagmask_tiny", 3, img_size=32, pretrained=True)
    assert offline.tried == []
