"""Kept tokens: what networks that stay as they are make of each photo, computed once.

For a classifier that is trained on fixed views: the tokens that enter its first trained block, of the photo and its
mirror image, resized to a long side of ``size`` pixels and to whole patches. For a head on tokens: what it reads. Both
are rounded to half precision. A file of ``0_tokens`` holds them as ``tokens`` (views, N, D), with the token grid, the
photo's size and a hash of the photo. They are a cache: a file of another photo, network or size is made again, and
what exceeds the limit or the disk is computed whenever it is needed, with the same result to the last bit.
"""

import errno
import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tagmask.data.catalog import Catalog
from tagmask.data.images import Picture
from tagmask.errors import TagmaskError
from tagmask.files import read_json, replacing, write_json
from tagmask.models.classifier import Classifier
from tagmask.models.head import HeadSegmenter
from tagmask.models.tail import check_cut, enter, frozen_digest
from tagmask.pipeline import layout

_SPARE = 1e9  # bytes that are left free on the disk


@dataclass(frozen=True)
class Tokens:
    """A photo as a network that stays as it is sees it."""

    values: Tensor  # (views, N, D) float32, rounded to half precision
    grid: tuple[int, int]  # (h, w)
    shape: tuple[int, int]  # (H, W) of the photo in pixels


def photo_tokens(model: Classifier, first: int, size: int, image: Picture) -> Tokens:
    """The tokens of one photo (H, W, 3) uint8, and of its mirror image, that enter block ``first``."""
    picture, grid = whole_patches(model, size, image)
    return _half(enter(model, torch.cat([picture, picture.flip(-1)]), first), grid, image)


def photo_features(model: HeadSegmenter, image: Picture, scale: float = 1.0) -> Tokens:
    """The tokens of one photo (H, W, 3) uint8 that a head reads, seen at a scale of the head's size."""
    picture, grid = whole_patches(model.classifier, round(scale * model.size), image)
    return _half(model.features(picture)[0], grid, image)


def whole_patches(model: Classifier, size: int, image: Picture) -> tuple[Tensor, tuple[int, int]]:
    """A photo resized to a long side and to whole patches, normalised (1, 3, H', W'), and its grid."""
    patch, factor = model.patch_size, size / max(image.shape[:2])
    grid = [max(1, round(side * factor / patch)) for side in image.shape[:2]]
    sides = [count * patch for count in grid]
    picture = (
        torch.from_numpy(image.copy()).permute(2, 0, 1)[None].to(model.mean.device).float() / 255
    )  # (1, 3, H, W)
    if sides != list(image.shape[:2]):
        picture = F.interpolate(
            picture, sides, mode="bilinear", align_corners=False, antialias=True
        )
    return model.normalize(picture), (grid[0], grid[1])


def _half(tokens: Tensor, grid: tuple[int, int], image: Picture) -> Tokens:
    values = tokens.half()
    if not values.isfinite().all():
        raise TagmaskError(
            "the tokens of this backbone exceed half precision; train without --fixed-views."
        )
    return Tokens(values.float(), grid, (image.shape[0], image.shape[1]))


@dataclass
class TokenStore:
    """The kept tokens of a run, for one network and size."""

    folder: Path
    maker: dict[str, Any]  # what makes them
    compute: Callable[[Picture], Tokens]
    model: Classifier | HeadSegmenter  # which a training moves to a GPU later
    limit: float  # bytes
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.is_current = self._is_noted()
        files = self.folder.glob("**/*.safetensors") if self.is_current else ()
        self.used = sum(file.stat().st_size for file in files)

    @classmethod
    def of(
        cls, model: Classifier, out: Path, limit: float, shared: Path | None = None
    ) -> "TokenStore":
        """What a classifier on fixed views is trained on; ``limit`` in gigabytes, ``shared`` with other runs."""
        assert model.fixed_views is not None
        check_cut(model)
        size, first = model.fixed_views
        maker = {"frozen": frozen_digest(model, first), "first": first, "size": size}
        digest = hashlib.blake2b(json.dumps(maker).encode(), digest_size=8).hexdigest()
        folder = out / layout.TOKENS / "train" if shared is None else shared / digest
        return cls(folder, maker, partial(photo_tokens, model, first, size), model, limit * 1e9)

    @classmethod
    def features_of(cls, model: HeadSegmenter, out: Path, limit: float) -> "TokenStore":
        """What a head reads; ``limit`` in gigabytes."""
        frozen = frozen_digest(model.classifier, max(model.blocks) + 1, norm=True)
        maker = {"frozen": frozen, "blocks": list(model.blocks), "size": model.size}
        return cls(
            out / layout.TOKENS / "head", maker, partial(photo_features, model), model, limit * 1e9
        )

    def _is_noted(self) -> bool:
        note = self.folder / layout.MADE_BY
        return note.is_file() and read_json(note) == self.maker

    def get(self, catalog: Catalog, i: int) -> Tokens:
        """The tokens of item ``i``, kept if there is room; ImageError if the photo cannot be read."""
        source = _fingerprint(catalog, i)
        tokens = self._read(catalog.name(i), source)
        if tokens is None:
            tokens = self.compute(catalog.load_image(i))
            self._keep(catalog.name(i), tokens, source)
        return tokens

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.safetensors"

    def _read(self, name: str, source: str) -> Tokens | None:
        """What is kept of a photo; None if nothing is, or if it is damaged or of another photo."""
        if not self.is_current:
            return None
        damage = (SafetensorError, OSError, KeyError, ValueError, TypeError)
        with suppress(*damage), safe_open(self._file(name), framework="pt") as file:
            about = json.loads((file.metadata() or {})["about"])
            values: Tensor = file.get_tensor("tokens")
            grid, shape = tuple(about["grid"]), tuple(about["shape"])
            is_whole = values.dtype == torch.float16 and list(values.shape) == about["values"]
            if about["photo"] == source and is_whole and len(grid) == 2 and len(shape) == 2:
                return Tokens(values.to(self.model.mean.device).float(), grid, shape)
        return None

    def _keep(self, name: str, tokens: Tokens, source: str) -> None:
        values = tokens.values.half().cpu().contiguous()
        needed = values.numel() * 2
        if self.used + needed > self.limit or self.notes:
            return
        about = {
            "photo": source,
            "grid": tokens.grid,
            "shape": tokens.shape,
            "values": list(values.shape),
        }
        try:
            if not self.is_current and not self._is_noted():  # another process may have begun
                shutil.rmtree(
                    self.folder, ignore_errors=True
                )  # of another network or size: it cannot be used
                write_json(self.folder / layout.MADE_BY, self.maker)
            self.is_current = True
            if shutil.disk_usage(self.folder).free < needed + _SPARE:
                raise OSError(errno.ENOSPC, "less than a gigabyte is free")
            with replacing(self._file(name)) as temporary:
                save_file({"tokens": values}, temporary, metadata={"about": json.dumps(about)})
        except OSError as error:
            self.notes.append(
                f"{self.folder}: no more tokens are kept ({error}); the others are computed when needed."
            )
            return
        self.used += needed


def _fingerprint(catalog: Catalog, i: int) -> str:
    """A hash of a photo's file, or of its pixels where there is no file."""
    path = catalog.item(i).image
    try:
        content = path.read_bytes() if path is not None else catalog.load_image(i).tobytes()
    except OSError:
        content = b""  # reading the image says what is wrong
    return hashlib.blake2b(content, digest_size=8).hexdigest()
