"""What the page is shown of a run: pictures, layers of labels, and affinity with maps, as bytes."""

import io
import json
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from tagmask.acr.localize import pad_classes
from tagmask.config import MapSettings
from tagmask.config.base import within
from tagmask.config.run import RunSettings
from tagmask.data import corrections
from tagmask.data.catalog import Catalog
from tagmask.data.datasets import to_tensor
from tagmask.data.images import Picture, read_mask
from tagmask.errors import TagmaskError
from tagmask.features.cache import TokenStore
from tagmask.features.photo import photo_tokens
from tagmask.labels import UNSURE, Mask
from tagmask.masks.superpixels import superpixels
from tagmask.methods import METHODS, method_for
from tagmask.models.classifier import Classifier
from tagmask.models.device import on_device
from tagmask.models.head import HeadSegmenter
from tagmask.models.kinds import load_classifier, load_segmenter
from tagmask.models.mct import MctClassifier
from tagmask.models.tail import tail
from tagmask.pipeline import layout
from tagmask.scoring.confusion import confusion, iou
from tagmask.stages.images import match_classes
from tagmask.stages.maps import views

LAYERS = {"pseudo": layout.PSEUDO, "mask": layout.PREDICTIONS}
THUMB, SHOWN = 144, 1280  # longest sides in pixels
_STEP = 3  # every third pixel in both directions tells enough of how two masks differ


@dataclass
class View:
    """One run, or one photo with a classifier; everything that is slow is done once, when it is first asked for."""

    raw: Catalog  # as the data have it, without corrections
    classifier_folder: Path
    settings: RunSettings | None = None  # None: a single photo
    lock: threading.Lock = field(default_factory=threading.Lock)  # networks work one at a time

    def __post_init__(self) -> None:
        self.catalog = self.raw
        self._read_corrections()
        self.facts: list[dict[str, float] | None] = [None] * len(self.catalog)
        self.thumb = lru_cache(4096)(lambda i: self.image(i, THUMB))
        # superpixels of the photo, (H, W) little-endian uint16
        self.pieces = lru_cache(4)(
            lambda i: superpixels(self.catalog.load_image(i)).astype("<u2").tobytes()
        )

    @property
    def out(self) -> Path | None:
        return self.settings.out if self.settings is not None else None

    @property
    def run(self) -> RunSettings:
        if self.settings is None:
            raise TagmaskError(
                "this is a single photo; corrections and learning need a run: tagmask explore --out run."
            )
        return self.settings

    @cached_property
    def classifier(self) -> Classifier:
        return on_device(load_classifier(self.classifier_folder)).eval()

    @cached_property
    def numbers(self) -> list[int]:
        return match_classes(self.catalog.classes, self.classifier)

    @cached_property
    def head(self) -> HeadSegmenter | None:
        """The head of the run; None if its segmenter is another network, or not there."""
        folder = self.out / layout.SEGMENTER if self.out is not None else None
        model = (
            load_segmenter(folder)
            if folder is not None and (folder / layout.MODEL).is_file()
            else None
        )
        return on_device(model).eval() if isinstance(model, HeadSegmenter) else None

    @cached_property
    def features(self) -> TokenStore:
        if self.head is None:
            raise TagmaskError("the run has no head.")
        return TokenStore.features_of(
            self.head.classifier,
            self.head.blocks,
            self.head.size,
            self.run.out,
            self.run.tokens_limit,
        )

    @cached_property
    def tokens(self) -> TokenStore | None:
        if self.settings is None or self.classifier.fixed_views is None:
            return None
        return TokenStore.of(
            self.classifier, self.settings.out, self.settings.tokens_limit, self.settings.tokens
        )

    @property
    def methods(self) -> list[str]:
        """The map methods of the classifier, that of the run first."""
        if isinstance(self.classifier, MctClassifier):
            return ["mct"]
        first = self.settings.seeds.method if self.settings is not None else "acr"
        return [first, *(name for name in METHODS if name not in (first, "mct"))]

    def image(self, i: int, side: int = SHOWN) -> bytes:
        """The photo as a JPEG with a long side of at most ``side`` pixels."""
        picture, buffer = Image.fromarray(self.catalog.load_image(i)), io.BytesIO()
        picture.thumbnail((side, side))
        picture.save(buffer, "JPEG", quality=90 if side > THUMB else 80)
        return buffer.getvalue()

    def layer(self, kind: str, i: int) -> Mask | None:
        """Labels (H, W) of a stage, the truth, or what is corrected; None if there are none."""
        if kind == "truth":
            return self.catalog.load_mask(i)
        if kind == "correction":
            return self.catalog.load_correction(i)
        if self.out is None or kind not in LAYERS:  # another run has no trial
            return None
        file = layout.label_file(self.out / LAYERS[kind], self.catalog.name(i))
        return read_mask(file, len(self.catalog.classes)) if file.is_file() else None

    def missing(self, kind: str) -> list[int]:
        """The photos that a stage has no file of."""
        made = self.names_in(LAYERS[kind]) if self.out is not None else ()
        return [i for i in range(len(self.catalog)) if self.catalog.name(i) not in made]

    def names_in(self, folder: str) -> set[str]:
        """The photos that a folder of the run has labels of, by name."""
        root = self.run.out / folder
        return {
            file.relative_to(root).as_posix().removesuffix(".png") for file in root.rglob("*.png")
        }

    def affinity(self, i: int, method: str) -> bytes:
        """Attention between patches of every block, and the maps without affinity of the photo's tags.

        After a line of JSON: largest value of each row (L, n) float32, maps (K, n) float32, and A (L, n, n) as bytes
        of which 255 is the largest value of the row. ``span`` is how many cells the photo covers.
        """
        if method not in self.methods:
            raise TagmaskError(
                f"there is no map method {method!r} for this network; choose from {self.methods}."
            )
        tags = self.catalog.tags(i)
        with self.lock:
            model, images, first, span = self._seen(i)
            height, width = images.shape[-2:]
            numbers = pad_classes([[self.numbers[c] for c in tags]]).to(images.device)
            maps = method_for(model, method).maps(model, images, numbers, range(len(model.blocks)))
            grid = model.grid(height, width)
        skip, count = model.class_tokens, grid[0] * grid[1]
        pairs = np.stack(
            [mean[0, skip:, skip:].detach().cpu().numpy() for mean in maps.attention]
        )  # (L, n, n)
        tops = np.maximum(pairs.max(-1), 1e-12).astype("<f4")  # (L, n)
        plain = maps.plain[0, : len(tags)].detach().cpu().numpy().astype("<f4")  # (K, n)
        header = {
            "grid": grid,
            "span": span,
            "first": first,
            "blocks": len(pairs),
            "tags": tags,
            "cells": count,
        }
        line = json.dumps(header).encode()
        line += b" " * (-(len(line) + 1) % 4) + b"\n"  # so that the floats are aligned
        shares = np.rint(pairs / tops[..., None] * 255).astype(np.uint8)  # (L, n, n)
        return b"".join([line, tops.tobytes(), plain.tobytes(), shares.tobytes()])

    def _seen(self, i: int) -> tuple[Any, torch.Tensor, int, list[float]]:
        """A network, what it takes for photo ``i`` (1, …), its first block in the whole, and the photo's span."""
        model = self.classifier
        if model.fixed_views is not None:
            size, first = model.fixed_views
            kept = self.tokens.get(self.catalog, i) if self.tokens else None
            tokens = kept or photo_tokens(model, first, size, self.catalog.load_image(i))
            return (
                tail(model, first, tokens.grid),
                tokens.values[:1],
                first,
                [float(side) for side in tokens.grid],
            )
        picture = to_tensor(self.catalog.load_image(i)).float()[None].to(model.mean.device) / 255
        settings = self.settings.seeds if self.settings is not None else MapSettings()
        first_view = next(views(model, picture, settings))
        return model, first_view.images, 0, [side / model.patch_size for side in first_view.inner]

    def gather_facts(self, stopped: Callable[[], bool]) -> None:
        """How certain the head is of each photo, where stages disagree, and the score of its mask."""
        for i in range(len(self.catalog)):
            if stopped():
                return
            try:
                self.facts[i] = self.fact(i)
            except TagmaskError:
                self.facts[i] = {}

    def fact(self, i: int) -> dict[str, float]:
        """Numbers to sort photo ``i`` by; what cannot be told is left out."""
        mask, pseudo, truth = (self.layer(kind, i) for kind in ("mask", "pseudo", "truth"))
        fact = {}
        if mask is not None and pseudo is not None and mask.shape == pseudo.shape:
            made, label = mask[::_STEP, ::_STEP], pseudo[::_STEP, ::_STEP]
            fact["disagree"] = float(
                ((made != label) & (label != UNSURE)).sum() / max(1, (label != UNSURE).sum())
            )
        if mask is not None and truth is not None and mask.shape == truth.shape:
            counts = confusion(
                mask[::_STEP, ::_STEP], truth[::_STEP, ::_STEP], len(self.catalog.classes) + 1
            )
            score = iou(counts).miou_present
            fact |= {"score": score} if math.isfinite(score) else {}
        if self.head is not None:
            with self.lock:
                chances = self.cell_chances(self.head, i)
            fact["unsure"] = 1 - float(chances.max(0).values.mean())
        elif pseudo is not None:
            fact["unsure"] = float((pseudo == UNSURE).mean())
        return fact

    @torch.no_grad()
    def cell_chances(self, head: HeadSegmenter, i: int) -> torch.Tensor:
        """Probabilities (K, h, w) of the cells of a photo, told its tags."""
        tokens = self.features.get(self.catalog, i)
        logits = head.logits_of(tokens.values[0]).T.unflatten(-1, tokens.grid)  # (K, h, w)
        allowed = torch.zeros(head.num_classes, dtype=torch.bool, device=logits.device)
        allowed[[0, *(self.numbers[c] + 1 for c in self.catalog.tags(i))]] = True
        chances: torch.Tensor = (
            logits.masked_fill(~allowed[:, None, None], -torch.inf).softmax(0).cpu()
        )
        return chances

    @property
    def folder(self) -> Path:
        """Where corrections go; refused if that is outside the run."""
        folder = self.run.out / layout.CORRECTIONS
        if not within(folder, self.run.out):
            raise TagmaskError(f"{folder} leads out of the run; remove the link.")
        return folder

    def _read_corrections(self) -> None:
        if self.out is not None and self.folder.is_dir():
            self.catalog = self.raw.corrected(self.folder)

    def changes(self) -> dict[str, corrections.TagChange]:
        """How the tags differ from the data, by photo."""
        return corrections.read_tags(self.folder, self.raw.classes, self.raw.identity) or {}

    def save_tags(self, i: int, tags: set[int]) -> None:
        """Write down how the tags of photo ``i`` differ from the data."""
        before, names = set(self.raw.tags(i)), self.raw.classes
        wrong = [tag for tag in tags if not 0 <= tag < len(names)]
        if wrong:
            raise TagmaskError(f"there is no class {wrong[0]}; classes are 0 to {len(names) - 1}.")
        change = corrections.TagChange(
            tuple(names[c] for c in tags - before), tuple(names[c] for c in before - tags)
        )
        corrections.write_tags(
            self.folder, self.changes() | {self.raw.name(i): change}, names, self.raw.identity
        )
        self._read_corrections()

    def save_labels(self, i: int, labels: Mask) -> None:
        """Write what is corrected in photo ``i`` (H, W); a class that is painted becomes a tag."""
        if len(self.raw.classes) > corrections.MOST_CLASSES:
            raise TagmaskError(
                f"pixels can be corrected with at most {corrections.MOST_CLASSES} classes."
            )
        painted = {
            int(label) - 1 for label in np.unique(labels) if 0 < label < corrections.PERSON_UNSURE
        }
        self.save_tags(i, {*self.catalog.tags(i), *painted})
        file = layout.label_file(self.folder, self.raw.name(i))
        if not within(file, self.folder):
            raise TagmaskError(f"{file} leads out of the corrections; remove the link.")
        corrections.write_labels(self.folder, self.raw.name(i), labels)

    def size(self, i: int) -> tuple[int, int]:
        picture: Picture = self.catalog.load_image(i)
        return picture.shape[0], picture.shape[1]
