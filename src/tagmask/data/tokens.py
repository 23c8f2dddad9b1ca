"""Kept tokens: what the frozen blocks of a classifier make of each photo and its mirror image, computed once.

A photo is resized to a long side of ``size`` pixels and to whole patches, seen as it is and mirrored, and the tokens
that enter the first trained block are rounded to half precision. ``0_tokens/NAME.safetensors`` holds them as ``tokens``
(2, N, D), with the token grid and a hash of the photo. They are a cache: a file of another photo, backbone or size is
made again, and what exceeds the limit or the disk is computed whenever it is needed, with the same result to the last
bit.
"""

import errno
import hashlib
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

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
from tagmask.models.tail import check_cut, enter, frozen_digest
from tagmask.pipeline import layout

_SPARE = 1e9  # bytes that are left free on the disk


@dataclass(frozen=True)
class Tokens:
    """A photo (first) and its mirror image as they enter the first trained block."""

    values: Tensor  # (2, N, D) float32, rounded to half precision
    grid: tuple[int, int]  # (h, w), h·w + prefix = N
    shape: tuple[int, int]  # (H, W) of the photo in pixels


def photo_tokens(model: Classifier, image: Picture, first: int, size: int) -> Tokens:
    """The tokens of one photo (H, W, 3) uint8."""
    patch, factor = model.patch_size, size / max(image.shape[:2])
    sides = [max(1, round(side * factor / patch)) * patch for side in image.shape[:2]]
    picture = torch.from_numpy(image.copy()).permute(2, 0, 1)[None].to(model.mean.device).float() / 255  # (1, 3, H, W)
    if sides != list(image.shape[:2]):
        picture = F.interpolate(picture, sides, mode="bilinear", align_corners=False, antialias=True)
    picture = model.normalize(picture)
    values = enter(model, torch.cat([picture, picture.flip(-1)]), first).half()  # (2, N, D)
    if not values.isfinite().all():
        raise TagmaskError(f"tokens of {model.backbone} exceed half precision; train without --fixed-views.")
    return Tokens(values.float(), (sides[0] // patch, sides[1] // patch), (image.shape[0], image.shape[1]))


@dataclass
class TokenStore:
    """The kept tokens of a run, for one classifier and size."""

    folder: Path
    model: Classifier  # whose blocks before ``first`` are frozen
    first: int
    size: int
    limit: float  # bytes
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_cut(self.model)
        self.model.grid(self.model.patch_size, self.model.patch_size)
        self.maker = {"frozen": frozen_digest(self.model, self.first), "first": self.first, "size": self.size}
        note = self.folder / layout.MADE_BY
        if self.folder.is_dir() and (not note.is_file() or read_json(note) != self.maker):
            shutil.rmtree(self.folder)  # of another backbone or size: nothing in it can be used
        self.used = sum(file.stat().st_size for file in self.folder.glob("**/*.safetensors"))

    def get(self, catalog: Catalog, i: int) -> Tokens:
        """The tokens of item ``i``, kept if there is room; ImageError if the photo cannot be read."""
        source = _fingerprint(catalog, i)
        tokens = self._read(catalog.name(i), source)
        if tokens is None:
            tokens = photo_tokens(self.model, catalog.load_image(i), self.first, self.size)
            self._keep(catalog.name(i), tokens, source)
        return tokens

    @classmethod
    def of(cls, model: Classifier, folder: Path, limit: float) -> "TokenStore":
        """The store of a classifier that was trained on fixed views; ``limit`` in gigabytes."""
        assert model.fixed_views is not None
        size, first = model.fixed_views
        return cls(folder, model, first, size, limit * 1e9)

    def bytes_for(self, catalog: Catalog) -> float:
        """About how much all photos take."""
        cells = (self.size / self.model.patch_size) ** 2 * 0.75  # most photos are 4:3
        return float(len(catalog) * 2 * (self.model.prefix + cells) * self.model.vit.embed_dim * 2)

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.safetensors"

    def _read(self, name: str, source: str) -> Tokens | None:
        """What is kept of a photo; None if nothing is, or if it is damaged or of another photo."""
        try:
            with safe_open(self._file(name), framework="pt") as file:
                about = json.loads((file.metadata() or {})["about"])
                if about["photo"] != source:
                    return None
                values: Tensor = file.get_tensor("tokens")
            (height, width), shape = about["grid"], tuple(about["shape"])
        except (SafetensorError, OSError, KeyError, ValueError, TypeError):
            return None
        if values.dtype != torch.float16 or values.shape[:2] != (2, self.model.prefix + height * width):
            return None
        return Tokens(values.to(self.model.mean.device).float(), (height, width), shape)

    def _keep(self, name: str, tokens: Tokens, source: str) -> None:
        values = tokens.values.half().cpu().contiguous()
        needed = values.numel() * 2
        if self.used + needed > self.limit or self.notes:
            return
        about = json.dumps({"photo": source, "grid": tokens.grid, "shape": tokens.shape})
        try:
            if not (self.folder / layout.MADE_BY).is_file():
                write_json(self.folder / layout.MADE_BY, self.maker)
            if shutil.disk_usage(self.folder).free < needed + _SPARE:
                raise OSError(errno.ENOSPC, "less than a gigabyte is free")
            with replacing(self._file(name)) as partial:
                save_file({"tokens": values}, partial, metadata={"about": about})
        except OSError as error:
            self.notes.append(f"{self.folder}: no more tokens are kept ({error}); the others are computed when needed.")
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
