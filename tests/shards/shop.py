"""Shards for tests: small pictures, tars of any kind, and a storage that fails."""

import io
import json
import tarfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
from fsspec.implementations.memory import MemoryFileSystem
from PIL import Image


def jpeg(number: int, size: tuple[int, int] = (12, 8)) -> bytes:
    """The file of a picture; another number, another picture."""
    pixels = np.random.default_rng(number).integers(0, 255, (*size, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="JPEG")
    return buffer.getvalue()


def tar(members: Iterable[tuple[str, bytes]]) -> bytes:
    """A tar as anybody would write it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def photos(count: int, first: int = 0, **tags: list[str]) -> list[tuple[str, bytes]]:
    """The members of a shard of photos; by default each has the tag dog or cat."""
    members = []
    for number in range(first, first + count):
        name = f"p{number:03}"
        about = {"tags": tags.get(name, ["dog" if number % 2 else "cat"])}
        members += [(f"{name}.jpg", jpeg(number)), (f"{name}.json", json.dumps(about).encode())]
    return members


def write_shards(folder: Path, shards: int = 3, images: int = 4) -> Path:
    """A folder of shards of photos."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(shards):
        content = tar(photos(images, first=number * images))
        (folder / f"s{number}.tar").write_bytes(content)
    return folder


def put_shards(address: str, shards: int = 3, images: int = 4) -> None:
    """The same at an address."""
    system, root = fsspec.core.url_to_fs(address)
    for number in range(shards):
        system.pipe(f"{root}/s{number}.tar", tar(photos(images, first=number * images)))


def files_at(address: str) -> dict[str, bytes]:
    """All files at an address, by relative path; stamps of inputs differ between places."""
    system, root = fsspec.core.url_to_fs(address, use_listings_cache=False)
    files: dict[str, bytes] = {}
    for path in system.find(root):
        name = path.removeprefix(root).lstrip("/")
        files[name] = system.cat_file(path)
    return without_stamps(files)


def without_stamps(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Files with notes that do not say when their input was written."""
    same: dict[str, bytes] = {}
    for name, content in files.items():
        if name.endswith(".note.json"):
            note = json.loads(content)
            note["input"].pop("stamp", None)
            content = json.dumps(note).encode()
        same[name] = content
    return same


def files_in(folder: Path) -> dict[str, bytes]:
    """All files of a folder, as ``files_at`` gives them."""
    found = {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
    return without_stamps(found)


class Flaky(MemoryFileSystem):
    """A storage in memory that fails as it is told: ``trouble(operation, path)`` may raise."""

    protocol = "flaky"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    cachable = False
    trouble: Callable[[str, str], None] = staticmethod(lambda operation, path: None)
    cut: Callable[[str], int | None] = staticmethod(lambda path: None)  # bytes of a read

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        text: str = MemoryFileSystem._strip_protocol(str(path).replace("flaky://", "memory://"))
        return text

    def info(self, path: str, **options: Any) -> Any:
        self.trouble("info", path)
        return super().info(path, **options)

    def find(self, path: str, *rest: Any, **options: Any) -> Any:
        self.trouble("list", path)
        return super().find(path, *rest, **options)

    def rm_file(self, path: str) -> None:
        self.trouble("remove", path)
        super()._rm(path)

    def cat_file(self, path: str, *rest: Any, **options: Any) -> bytes:
        self.trouble("read", path)
        content: bytes = super().cat_file(path, *rest, **options)
        return content[: self.cut(path)]

    def open(self, path: str, mode: str = "rb", *rest: Any, **options: Any) -> Any:
        self.trouble("read" if "r" in mode else "write", path)
        file = super().open(path, mode, *rest, **options)
        size = self.cut(path) if "r" in mode else None
        return file if size is None else io.BytesIO(file.read()[:size])


fsspec.register_implementation("flaky", Flaky, clobber=True)
