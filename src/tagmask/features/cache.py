"""The feature cache of a run: what frozen networks make of each photo, in ``0_tokens``.

A file holds ``tokens`` (views, N, D) and, of features, ``class`` (D,), in half precision; its
metadata hold the token grid, the photo's size, a hash of the photo and one of the numbers. A file
of another photo, network or size, or a damaged one, is made again; what exceeds the limit or the
disk is computed whenever it is needed, with the same result to the last bit.

A photo's file is hashed when its tokens are computed. Later its size, times and inode are
compared, and its content only where these have changed.
"""

import errno
import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tagmask import layout
from tagmask.data.catalog import Catalog
from tagmask.data.images import Picture
from tagmask.errors import TagmaskError
from tagmask.features.photo import Tokens, photo_features, photo_tokens
from tagmask.files import (
    content_digest,
    file_size,
    is_a,
    is_regular,
    read_object,
    refuse_links,
    replacing,
    stamp_of,
    write_json,
)
from tagmask.models.classifier import Classifier
from tagmask.models.tail import check_cut, frozen_digest

_SPARE = 1e9  # bytes that are left free on the disk
_DAMAGE = (SafetensorError, OSError, KeyError, ValueError, TypeError, IndexError, RecursionError)


@dataclass(frozen=True)
class Form:
    """What tokens of a photo look like."""

    views: int
    width: int  # numbers in a token
    before: int = 0  # tokens before the patches
    has_class: bool = False  # the class token is kept beside them

    def fits(
        self, tensors: dict[str, Tensor], grid: tuple[Any, ...], shape: tuple[Any, ...]
    ) -> bool:
        """Return True if kept tensors have this form, on a grid and for a photo that can be.

        Args:
            tensors: by name.
            grid: (h, w).
            shape: (H, W) of the photo.
        """
        for sides in (grid, shape):
            are_lengths = all(is_a(side, int) and side > 0 for side in sides)
            if len(sides) != 2 or not are_lengths:
                return False
        count = self.before + grid[0] * grid[1]
        expected = {"tokens": (self.views, count, self.width)}
        if self.has_class:
            expected["class"] = (self.width,)  # type: ignore[assignment]
        if tensors.keys() != expected.keys():
            return False
        for name, tensor in tensors.items():
            if tensor.dtype != torch.float16 or tuple(tensor.shape) != expected[name]:
                return False
            if not bool(tensor.isfinite().all()):
                return False
        return True


@dataclass
class TokenStore:
    """The kept tokens of a run, for one network and size.

    Args:
        folder: where the files are.
        maker: what makes them; a folder of another maker is made anew.
        compute: the tokens of a photo (H, W, 3).
        form: what they look like.
        model: the network, which a training may move to a GPU later.
        limit: bytes that may be kept.
    """

    folder: Path
    maker: dict[str, Any]
    compute: Callable[[Picture], Tokens]
    form: Form
    model: Classifier
    limit: float
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.is_current = self._is_noted()
        self.used = 0
        refuse_links(self.folder)
        if self.is_current:
            for file in self.folder.glob("**/*.safetensors"):
                self.used += max(0, file_size(file))

    @classmethod
    def of(
        cls, model: Classifier, out: Path, limit: float, shared: Path | None = None
    ) -> "TokenStore":
        """Return the cache of what enters the first trained block of a classifier on fixed views.

        Args:
            model: the classifier.
            out: the folder of the run.
            limit: gigabytes that may be kept.
            shared: a folder for several runs; default: in the run.
        """
        assert model.fixed_views is not None
        check_cut(model)
        size, first = model.fixed_views
        maker = {"frozen": frozen_digest(model, first), "first": first, "size": size}
        digest = hashlib.blake2b(json.dumps(maker).encode(), digest_size=8).hexdigest()
        folder = out / layout.TOKENS / "train" if shared is None else shared / digest
        compute = partial(photo_tokens, model, first, size)
        form = Form(views=2, width=int(model.vit.embed_dim), before=model.prefix)
        return cls(folder, maker, compute, form, model, limit * 1e9)

    @classmethod
    def features_of(
        cls, model: Classifier, blocks: Sequence[int], size: int, out: Path, limit: float
    ) -> "TokenStore":
        """Return the cache of what leaves some blocks, which heads and object finders read.

        Args:
            model: the network.
            blocks: counted from 0.
            size: long side in pixels at which photos are seen.
            out: the folder of the run.
            limit: gigabytes that may be kept.
        """
        frozen = frozen_digest(model, max(blocks) + 1, norm=True)
        maker = {"frozen": frozen, "blocks": list(blocks), "size": size}
        compute = partial(photo_features, model, tuple(blocks), size)
        form = Form(views=1, width=len(blocks) * int(model.vit.embed_dim), has_class=True)
        return cls(out / layout.TOKENS / "head", maker, compute, form, model, limit * 1e9)

    def get(self, catalog: Catalog, i: int) -> Tokens:
        """Return the tokens of item ``i``, and keep them if there is room.

        Args:
            catalog: the photos.
            i: the item.

        Raises:
            ImageError: if the photo cannot be read.
        """
        photo = _Photo(catalog, i)
        tokens = self._read(catalog.name(i), photo)
        if tokens is None:
            tokens = self.compute(catalog.load_image(i))
            self._keep(catalog.name(i), tokens, photo)
        return tokens

    def begin(self) -> None:
        """Note who makes the tokens, before the first are kept; those of another maker go."""
        if self.limit <= 0:
            return
        if not self.is_current and not self._is_noted():  # another process may have begun
            _remove_kept(self.folder)  # of another network or size: it cannot be used
            write_json(self.folder / layout.MADE_BY, self.maker)
        self.is_current = True

    def _is_noted(self) -> bool:
        note = self.folder / layout.MADE_BY
        if not is_regular(note):
            return False
        try:
            return read_object(note) == self.maker
        except TagmaskError:  # damaged, so nobody knows what made the files
            return False

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.safetensors"

    def _read(self, name: str, photo: "_Photo") -> Tokens | None:
        """Return what is kept of a photo; None if nothing is, or something else."""
        if not self.is_current or not is_regular(self._file(name)):
            return None
        with suppress(*_DAMAGE), safe_open(self._file(name), framework="pt") as file:
            about = json.loads((file.metadata() or {})["about"])
            tensors: dict[str, Tensor] = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            grid = tuple(about["grid"])
            shape = tuple(about["shape"])
            is_whole = about["numbers"] == _digest_of(tensors) and self.form.fits(
                tensors, grid, shape
            )
            if is_whole and photo.is_that_of(about):
                device = self.model.mean.device
                class_token = tensors["class"].to(device).float() if self.form.has_class else None
                return Tokens(tensors["tokens"].to(device).float(), grid, shape, class_token)
        return None

    def _keep(self, name: str, tokens: Tokens, photo: "_Photo") -> None:
        tensors = {"tokens": tokens.values.half().cpu().contiguous()}
        if tokens.class_token is not None:
            tensors["class"] = tokens.class_token.half().cpu().contiguous()
        needed = sum(tensor.numel() * 2 for tensor in tensors.values())
        if self.used + needed > self.limit or self.notes:
            return
        about = {
            "photo": photo.content,
            "stamp": photo.stamp,
            "grid": tokens.grid,
            "shape": tokens.shape,
            "numbers": _digest_of(tensors),
        }
        try:
            self.begin()
            if shutil.disk_usage(self.folder).free < needed + _SPARE:
                raise OSError(errno.ENOSPC, "less than a gigabyte is free")
            with replacing(self._file(name)) as temporary:
                save_file(tensors, temporary, metadata={"about": json.dumps(about)})
        except (OSError, TagmaskError) as error:
            self.notes.append(
                f"{self.folder}: no more tokens are kept ({error}); "
                "the others are computed when needed."
            )
            return
        self.used += needed


class _Photo:
    """The file of an item, or its pixels where there is no file: is it the one of a note?"""

    def __init__(self, catalog: Catalog, i: int) -> None:
        self._catalog = catalog
        self._index = i
        self._path = catalog.item(i).image
        self.stamp = stamp_of(self._path)
        self._content: str | None = None

    @property
    def content(self) -> str:
        """Return a hash of the content, computed when it is first asked for."""
        if self._content is None:
            self._content = self._hash()
        return self._content

    def _hash(self) -> str:
        if self._path is not None:
            return content_digest(self._path)  # empty: reading the image says what is wrong
        content = self._catalog.load_image(self._index).tobytes()
        return hashlib.blake2b(content, digest_size=8).hexdigest()

    def is_that_of(self, about: dict[str, Any]) -> bool:
        """Return True if the note is about this photo as it is now."""
        if self.stamp is not None and about.get("stamp") == self.stamp:
            return True
        return bool(about["photo"] == self.content)


def _digest_of(tensors: dict[str, Tensor]) -> str:
    """Return a short hash of the numbers, their names and shapes."""
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} ".encode())
        digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _remove_kept(folder: Path) -> None:
    """Remove the tokens in a folder and its note; files of anybody else stay."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for file in sorted(folder.glob("**/*.safetensors")):
        if _is_ours(file):
            file.unlink(missing_ok=True)
    for below in sorted(folder.glob("**/"), reverse=True):
        with suppress(OSError):  # it is not empty
            below.rmdir()


def _is_ours(file: Path) -> bool:
    """Return True if a file holds kept tokens, whole or damaged."""
    if file.is_symlink():
        return False
    try:
        with safe_open(file, framework="pt") as opened:
            return "about" in (opened.metadata() or {})
    except (SafetensorError, OSError, RecursionError):
        return False
