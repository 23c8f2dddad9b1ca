"""What the page is shown of a run: layers of labels, corrections, and affinity with maps."""

import json
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tagmask import layout
from tagmask.acr.localize import pad_classes
from tagmask.config import MapSettings, SeedSettings, read_values, settings_from
from tagmask.config.base import within
from tagmask.config.run import RunSettings, RunTop, data_of, read_config
from tagmask.data import corrections
from tagmask.data.catalog import Catalog
from tagmask.data.datasets import to_tensor
from tagmask.data.images import read_mask, walk
from tagmask.data.open import read_catalog
from tagmask.errors import TagmaskError
from tagmask.features.cache import TokenStore
from tagmask.features.photo import photo_tokens
from tagmask.files import read_object, stamp_of
from tagmask.inference.maps import views
from tagmask.labels import UNSURE, Mask
from tagmask.masks.superpixels import superpixels
from tagmask.methods import METHODS, method_for
from tagmask.models.classifier import Classifier
from tagmask.models.device import on_device
from tagmask.models.head import HeadSegmenter
from tagmask.models.kinds import load_classifier, load_segmenter
from tagmask.models.mct import MctClassifier
from tagmask.models.tail import tail
from tagmask.runs.images import match_classes
from tagmask.runs.settings import run_settings, run_values
from tagmask.runs.table import sections
from tagmask.scoring.confusion import confusion, iou

LAYERS = {"pseudo": layout.PSEUDO, "mask": layout.PREDICTIONS}
# about how many superpixels a photo has, by their size on the page
PIECES = {"small": 1200, "medium": 400, "large": 120}
# every third pixel in both directions tells enough of how two masks differ
_STEP = 3


@dataclass
class RunView:
    """One run, or one photo with a classifier.

    Everything that is slow is done once, when it is first asked for.
    """

    raw: Catalog  # as the data have it, without corrections
    classifier_folder: Path
    settings: RunSettings | None = None  # None: a single photo
    lock: threading.Lock = field(default_factory=threading.Lock)  # networks work one at a time

    def __post_init__(self) -> None:
        self.catalog = self.raw
        self._read_corrections()
        self.facts: list[dict[str, float] | None] = [None] * len(self.catalog)
        self.pieces = lru_cache(12)(self._superpixels)
        self.size = lru_cache(None)(self._size)
        self._corrected: tuple[int, str, Mask] | None = None  # photo, digest and labels
        self._read: tuple[Path, list[int], Mask] | None = None  # file, its stamp and labels

    @property
    def out(self) -> Path | None:
        """Return the folder of the run; None for a single photo."""
        return self.settings.out if self.settings is not None else None

    @property
    def run(self) -> RunSettings:
        """Return the settings of the run; refuse a single photo."""
        if self.settings is None:
            raise TagmaskError(
                "this is a single photo; "
                "corrections and learning need a run: tagmask explore --out run."
            )
        return self.settings

    @cached_property
    def classifier(self) -> Classifier:
        """Return the classifier, ready to be used."""
        return on_device(load_classifier(self.classifier_folder)).eval()

    @cached_property
    def numbers(self) -> list[int]:
        """Return for each class of the photos its number in the classifier."""
        return match_classes(self.catalog.classes, self.classifier)

    @cached_property
    def head(self) -> HeadSegmenter | None:
        """Return the head of the run; None if its segmenter is another network, or not there."""
        if self.out is None:
            return None
        folder = self.out / layout.SEGMENTER
        if not (folder / layout.MODEL).is_file():
            return None
        model = load_segmenter(folder)
        if not isinstance(model, HeadSegmenter):
            return None
        return on_device(model).eval()

    @cached_property
    def features(self) -> TokenStore:
        """Return the feature cache of the head."""
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
        """Return the feature cache of the classifier; None if it has none."""
        settings = self.settings
        if settings is None or self.classifier.fixed_views is None:
            return None
        return TokenStore.of(self.classifier, settings.out, settings.tokens_limit, settings.tokens)

    @property
    def _map_settings(self) -> MapSettings:
        """Return how maps are made: as in the run or, for one photo, as its network was told."""
        if self.settings is not None:
            return self.settings.of(SeedSettings)
        return settings_from(MapSettings, self.classifier.use, {})

    @property
    def methods(self) -> list[str]:
        """Return the map methods of the classifier, that of the run first."""
        if isinstance(self.classifier, MctClassifier):
            return ["mct"]
        first = self._map_settings.method
        others = [name for name in METHODS if name not in (first, "mct")]
        return [first, *others]

    def _superpixels(self, i: int, size: str) -> bytes:
        """Return the superpixels of a photo, (H, W) little-endian uint16."""
        pieces = superpixels(self.catalog.load_image(i), count=PIECES[size])  # (H, W)
        return pieces.astype("<u2").tobytes()

    def _size(self, i: int) -> tuple[int, int]:
        """Return height and width of a photo in pixels."""
        image = self.catalog.load_image(i)  # (H, W, 3)
        return image.shape[0], image.shape[1]

    def layer(self, kind: str, i: int) -> Mask | None:
        """Return labels (H, W) of a photo; None if there are none.

        Args:
            kind: "truth", "correction", or a key of ``LAYERS``.
            i: Index of the photo.
        """
        if kind == "truth":
            return self.catalog.load_mask(i)
        if kind == "correction":
            return self.correction(i)[1]
        # a trial is of the first run alone
        if self.out is None or kind not in LAYERS or self.foreign(kind):
            return None
        folder = self.out / LAYERS[kind]
        file = layout.label_file(folder, self.catalog.name(i))
        if not file.is_file():
            return None
        stamp = stamp_of(file) if kind == "mask" else None
        if stamp is None:
            return read_mask(file, len(self.catalog.classes))
        # the last one is kept: a checked photo asks for it again after every stroke
        kept = self._read
        if kept is None or kept[:2] != (file, stamp):
            kept = (file, stamp, read_mask(file, len(self.catalog.classes)))
            kept[2].flags.writeable = False
            self._read = kept
        return kept[2]

    def foreign(self, kind: str) -> str:
        """Say why the labels of a stage are not of these photos; empty if they are.

        Pictures that are drawn have the same names whatever their seed, and a class has another
        number in another table.
        """
        if self.out is None:
            return ""
        folder = self.out / LAYERS[kind]
        file = folder / layout.MADE_BY
        if not file.is_file():
            return ""
        note = read_object(file)
        expected: dict[str, Any] = {**self.raw.identity, "classes": list(self.raw.classes)}
        differing = [name for name in expected if note.get(name, expected[name]) != expected[name]]
        if not differing:
            return ""
        return (
            f"{folder} was made for other pictures or classes ({', '.join(differing)} differ) "
            "and is not shown; name the run it belongs to."
        )

    def missing(self, kind: str) -> list[int]:
        """Return the photos that a stage has no file of."""
        indices = list(range(len(self.catalog)))
        if self.out is None or self.foreign(kind):
            return indices
        made = self.names_in(LAYERS[kind])
        return [i for i in indices if self.catalog.name(i) not in made]

    def names_in(self, folder: str) -> set[str]:
        """Return the names of the photos that a folder of the run has labels of."""
        files = walk(self.run.out / folder)
        return {file.removesuffix(".png") for file in files if file.endswith(".png")}

    def affinity(self, i: int, method: str) -> bytes:
        """Return attention between patches of every block, and maps without affinity.

        Args:
            i: Index of the photo; its tags get a map.
            method: One of ``methods``.

        Returns:
            After a line of JSON: largest value of each row (L, n) float32, maps (K, n) float32,
            and A (L, n, n) as bytes of which 255 is the largest value of the row. "span" in the
            JSON is how many cells the photo covers.
        """
        if method not in self.methods:
            raise TagmaskError(
                f"there is no map method {method!r} for this network; choose from {self.methods}."
            )
        tags = self.catalog.tags(i)
        with self.lock:
            model, images, first, span = self._seen(i)
            height, width = images.shape[-2:]
            classes = [self.numbers[c] for c in tags]
            numbers = pad_classes([classes]).to(images.device)
            blocks = range(len(model.blocks))
            maps = method_for(model, method).maps(model, images, numbers, blocks)
            grid = model.grid(height, width)
        skip = model.class_tokens
        patches = [mean[0, skip:, skip:] for mean in maps.attention]  # (n, n) each
        pairs = np.stack([block.detach().cpu().numpy() for block in patches])  # (L, n, n)
        tops = np.maximum(pairs.max(-1), 1e-12).astype("<f4")  # (L, n)
        of_tags = maps.plain[0, : len(tags)].detach().cpu().numpy()
        plain = of_tags.astype("<f4")  # (K, n)
        header = {
            "grid": grid,
            "span": span,
            "first": first,
            "blocks": len(pairs),
            "tags": tags,
            "cells": grid[0] * grid[1],
        }
        line = json.dumps(header).encode()
        # so that the floats are aligned
        padding = -(len(line) + 1) % 4
        line += b" " * padding + b"\n"
        shares = pairs / tops[..., None]  # (L, n, n), from 0 to 1
        levels = np.rint(shares * 255).astype(np.uint8)
        return b"".join([line, tops.tobytes(), plain.tobytes(), levels.tobytes()])

    def _seen(self, i: int) -> tuple[Any, torch.Tensor, int, list[float]]:
        """Return what a network sees of photo ``i``.

        Returns:
            The network, or its last blocks where the first ones are cached; its input (1, …); the
            index of its first block in the whole; how many cells the photo covers (height, width).
        """
        model = self.classifier
        if model.fixed_views is not None:
            size, first = model.fixed_views
            kept = self.tokens.get(self.catalog, i) if self.tokens else None
            tokens = kept or photo_tokens(model, first, size, self.catalog.load_image(i))
            last_blocks = tail(model, first, tokens.grid)
            span = [float(side) for side in tokens.grid]
            return last_blocks, tokens.values[:1], first, span
        pixels = to_tensor(self.catalog.load_image(i)).float()[None]  # (1, 3, H, W)
        picture = pixels.to(model.mean.device) / 255
        first_view = next(views(model, picture, self._map_settings))
        span = [side / model.patch_size for side in first_view.inner]
        return model, first_view.images, 0, span

    def gather_facts(self, stopped: Callable[[], bool]) -> Iterator[int]:
        """Find out for each photo how certain the head is, how stages disagree, and its score.

        Args:
            stopped: Returns True to end.

        Yields:
            The index of each photo whose facts are known now.
        """
        for i in range(len(self.catalog)):
            if stopped():
                return
            if self.facts[i] is None:
                try:
                    self.facts[i] = self.fact(i)
                except (TagmaskError, OSError):
                    self.facts[i] = {}
                yield i

    def doubt(self, i: int) -> bytes:
        """Return how unsure the head is of every cell: a line of JSON with the grid, then bytes."""
        if self.head is None:
            raise TagmaskError("only a run with a head (--segment.net head) knows how sure it is.")
        with self.lock:
            probabilities = self.cell_chances(self.head, i)  # (K, h, w)
        unsure = 1 - probabilities.max(0).values  # (h, w)
        levels = (255 * unsure).round().byte().numpy()
        line = json.dumps({"grid": list(unsure.shape)}).encode()
        return line + b"\n" + bytes(levels.tobytes())

    def correction(self, i: int) -> tuple[str, Mask | None]:
        """Return a digest of what is corrected in a photo, and the labels (H, W) if there are any.

        Those of the last photo are kept in memory while their file is the same.
        """
        digest = self.catalog.correction_digest(i)
        if self._corrected is None or self._corrected[:2] != (i, digest):
            labels = self.catalog.load_correction(i)
            if labels is None:
                return digest, None
            self._corrected = (i, digest, labels)
        return digest, self._corrected[2]

    def fact(self, i: int) -> dict[str, float]:
        """Return numbers to sort photo ``i`` by; what is not known is left out."""
        mask = self.layer("mask", i)
        pseudo = self.layer("pseudo", i)
        truth = self.layer("truth", i)
        fact = {}
        if mask is not None and pseudo is not None and mask.shape == pseudo.shape:
            predicted = mask[::_STEP, ::_STEP]
            label = pseudo[::_STEP, ::_STEP]
            sure = label != UNSURE
            differing = (predicted != label) & sure
            fact["disagree"] = float(differing.sum() / max(1, sure.sum()))
        if mask is not None and truth is not None and mask.shape == truth.shape:
            predicted = mask[::_STEP, ::_STEP]
            target = truth[::_STEP, ::_STEP]
            counts = confusion(predicted, target, len(self.catalog.classes) + 1)
            score = iou(counts).miou_present
            if math.isfinite(score):
                fact["score"] = score
        if self.head is not None:
            with self.lock:
                probabilities = self.cell_chances(self.head, i)  # (K, h, w)
            fact["unsure"] = 1 - float(probabilities.max(0).values.mean())
        elif pseudo is not None:
            fact["unsure"] = float((pseudo == UNSURE).mean())
        return fact

    @torch.no_grad()
    def cell_chances(self, head: HeadSegmenter, i: int) -> torch.Tensor:
        """Return the probabilities (K, h, w) of the cells of a photo, with tags.

        Args:
            head: The head that predicts.
            i: Index of the photo; classes that are not among its tags get probability 0.
        """
        tokens = self.features.get(self.catalog, i)
        flat = head.logits_of(tokens.values[0])  # (n, K)
        logits = flat.T.unflatten(-1, tokens.grid)  # (K, h, w)
        allowed = torch.zeros(head.num_classes, dtype=torch.bool, device=logits.device)
        tagged = [self.numbers[c] + 1 for c in self.catalog.tags(i)]
        allowed[[0, *tagged]] = True
        restricted = logits.masked_fill(~allowed[:, None, None], -torch.inf)  # (K, h, w)
        probabilities: torch.Tensor = restricted.softmax(0).cpu()
        return probabilities

    @property
    def folder(self) -> Path:
        """Return where corrections go; refuse a folder outside the run."""
        folder = self.run.out / layout.CORRECTIONS
        if not within(folder, self.run.out):
            raise TagmaskError(f"{folder} leads out of the run; remove the link.")
        return folder

    def _read_corrections(self) -> None:
        if self.out is not None and self.folder.is_dir():
            self.catalog = self.raw.corrected(self.folder)

    def changes(self) -> dict[str, corrections.TagChange]:
        """Return how the tags differ from the data, by name of the photo."""
        return corrections.read_tags(self.folder, self.raw.classes, self.raw.identity) or {}

    def save_tags(self, wanted: Mapping[int, Iterable[int]]) -> None:
        """Write down how the tags of photos differ from the data.

        Args:
            wanted: Numbers of the classes by the index of the photo.

        Raises:
            TagmaskError: A number is not that of a class.
        """
        names = self.raw.classes
        changes = self.changes()
        for i, numbers in wanted.items():
            tags = set(numbers)
            before = set(self.raw.tags(i))
            wrong = [tag for tag in tags if not 0 <= tag < len(names)]
            if wrong:
                raise TagmaskError(
                    f"there is no class {wrong[0]}; classes are 0 to {len(names) - 1}."
                )
            added = tuple(names[c] for c in tags - before)
            removed = tuple(names[c] for c in before - tags)
            changes[self.raw.name(i)] = corrections.TagChange(added, removed)
        corrections.write_tags(self.folder, changes, names, self.raw.identity)
        self._read_corrections()

    def renumber(self, numbers: Mask, classes: Sequence[str]) -> None:
        """Give corrected pixels other labels, for a run on other classes.

        Args:
            numbers: The new label of each label (256,).
            classes: Names of the new classes.
        """
        named = self.names_in(layout.CORRECTIONS)
        for name in sorted(named):
            labels = corrections.read_labels(self.folder, name, len(self.raw.classes))
            if labels is not None:
                corrections.write_labels(self.folder, name, numbers[labels])
        if self.folder.is_dir():
            # the table of tags has all changes of tags in it
            corrections.write_tags(self.folder, {}, classes, self.raw.identity)

    def save_labels(self, i: int, labels: Mask, part: Mask | None = None) -> None:
        """Write what is corrected in a photo; a class that is painted becomes a tag.

        Args:
            i: Index of the photo.
            labels: Its corrected labels (H, W).
            part: The labels that were painted just now; default: all.

        Raises:
            TagmaskError: There are too many classes, or a link leads out of the corrections.
        """
        if len(self.raw.classes) > corrections.MOST_CLASSES:
            raise TagmaskError(
                f"pixels can be corrected with at most {corrections.MOST_CLASSES} classes."
            )
        fresh = labels if part is None else part
        painted = [label for label in np.unique(fresh).tolist() if label > 0]
        classes = {label - 1 for label in painted if label < corrections.PERSON_UNSURE}
        tags = {*self.catalog.tags(i)}
        if not classes <= tags:
            self.save_tags({i: tags | classes})
        file = layout.label_file(self.folder, self.raw.name(i))
        if not within(file, self.folder):
            raise TagmaskError(f"{file} leads out of the corrections; remove the link.")
        corrections.write_labels(self.folder, self.raw.name(i), labels)
        self._read_corrections()
        self._corrected = (i, self.catalog.correction_digest(i), labels)


def view_of(out: Path) -> RunView:
    """Open a run as it is shown: with the images that its last stage was run on."""
    file = out / layout.CONFIG
    tables = read_config(file)
    stages = [name for name in sections() if name in tables]
    data = data_of(tables, stages[-1] if stages else None)
    values = run_values(None, file) | read_values(RunTop, data, str(file))
    settings = run_settings({**values, "out": out})
    return RunView(read_catalog(settings), out / layout.CLASSIFIER, settings)
