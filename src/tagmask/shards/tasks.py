"""What is done with the images of a shard: copied, or turned into masks or maps; a tar comes out.

A task is sent to processes and actors without its network; each of them loads it once.
"""

import io
import json
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np

from tagmask import layout
from tagmask.config.shards import PredictShardsSettings, SeedShardsSettings
from tagmask.data.images import palette_image
from tagmask.errors import ImageError, enough_memory
from tagmask.exchange.items import png
from tagmask.inference.maps import photo_maps
from tagmask.inference.photo_mask import photo_mask, photo_probabilities
from tagmask.models.classifier import Classifier
from tagmask.models.device import on_device
from tagmask.models.kinds import Segmenter, load_classifier
from tagmask.notes import INPUT, Parts
from tagmask.runs import record
from tagmask.shards.samples import Failures, Sample
from tagmask.shards.source import Shard
from tagmask.shards.tars import TarWriter
from tagmask.stages.predict import load_for_masks
from tagmask.stages.seeds import seed_arrays

Tell = Callable[[], None]  # called after each image
_SMALLER = "make it smaller, or add --tile 1024 and --crf-size 1024."
# settings that say where and by whom, not what
ELSEWHERE = ("shards", "to", "engine", "ray_address", "rows", "root", "probabilities")


class ImageTask:
    """Make files of the same key from each image."""

    what: ClassVar[str] = "images"
    suffix: ClassVar[str] = ".tar"

    def members(self, sample: Sample) -> list[tuple[str, bytes]]:
        """Return suffix and content of each file that is made from an image.

        Raises:
            ImageError: the image cannot be used.
        """
        made = [(sample.suffix, sample.content)]
        if sample.about is not None:
            made.append((".json", sample.about))
        return made

    def prepare(self) -> None:
        """Load what is needed once."""

    def about(self) -> dict[str, Any]:
        """Return what a note says besides what all notes say."""
        return {}

    def check(self, shard: Shard) -> None:
        """Take any shard."""

    def write(
        self, name: str, samples: Iterator[Sample], failed: Failures, file: IO[bytes], tell: Tell
    ) -> int:
        """Write what is made from a shard.

        Args:
            name: that of the shard.
            samples: its images.
            failed: gets those that cannot be used.
            file: where to write.
            tell: called after each image.

        Returns:
            How many images were used.
        """
        writer = TarWriter(file)
        count = 0
        for sample in samples:
            try:
                with enough_memory(sample.key, _SMALLER):
                    made = self.members(sample)
            except ImageError as error:
                failed.add_error(sample.key, error)
            else:
                for suffix, content in made:
                    writer.add(sample.key + suffix, content)
                count += 1
            tell()
        writer.close()
        return count


class NetworkTask(ImageTask):
    """Use a network on each image."""

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the network: another process loads its own."""
        state = self.__dict__.copy()
        state.pop("model", None)
        return state

    @property
    def model(self) -> Classifier | Segmenter:
        """Return the network."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Load the network."""
        self.model.eval()

    def about(self) -> dict[str, Any]:
        """Return the names of the labels."""
        return {"classes": list(self.model.classes)}

    def numbers(self, tags: tuple[str, ...]) -> list[int]:
        """Return the network's numbers of tags; it need not know all of them."""
        known = {name: number for number, name in enumerate(self.model.classes)}
        return sorted(known[tag] for tag in tags if tag in known)


class MaskTask(NetworkTask):
    """Predict masks: KEY.png, and KEY.npz with probabilities on request.

    Args:
        settings: those of the command.
    """

    what = "masks"

    def __init__(self, settings: PredictShardsSettings) -> None:
        self.settings = settings

    @cached_property
    def model(self) -> Segmenter:
        """Return the segmenter."""
        return load_for_masks(self.settings.model, self.settings)

    def made_from(self) -> Parts:
        """Return the settings and weights that masks depend on."""
        parts = _made_from(self.settings, self.settings.model, "segmenter")
        return {**parts, "probabilities": self.settings.probabilities}

    def members(self, sample: Sample) -> list[tuple[str, bytes]]:
        """Return the mask, what it is the mask of, and perhaps probabilities."""
        allowed = self.numbers(sample.tags()) if self.settings.use_tags else None
        picture = sample.picture()
        if not self.settings.probabilities:
            mask = photo_mask(self.model, picture, allowed, self.settings)
            return [(".png", png(palette_image(mask))), (".json", _about(sample))]
        found = photo_probabilities(self.model, picture, allowed, self.settings)
        dense = found.dense(self.model.num_classes).astype(np.float16)  # (K, H, W)
        return [
            (".png", png(palette_image(found.mask()))),
            (".json", _about(sample)),
            (".npz", _npz({"probabilities": dense})),
        ]


class MapTask(NetworkTask):
    """Make localisation maps of tagged images: KEY.npz.

    Args:
        settings: those of the command.
    """

    what = "maps"

    def __init__(self, settings: SeedShardsSettings) -> None:
        self.settings = settings

    @cached_property
    def model(self) -> Classifier:
        """Return the classifier."""
        return on_device(load_classifier(self.settings.model))

    def made_from(self) -> Parts:
        """Return the settings and weights that maps depend on."""
        return _made_from(self.settings, self.settings.model, "classifier")

    def members(self, sample: Sample) -> list[tuple[str, bytes]]:
        """Return the maps, and what they are the maps of."""
        classes = self.numbers(sample.tags())
        if not classes:
            raise ImageError("it has no tags that the network knows; add tags to make maps.")
        maps = photo_maps(self.model, sample.picture(), classes, self.settings)
        arrays = seed_arrays(maps, self.settings.dtype)
        return [(".npz", _npz(arrays)), (".json", _about(sample))]


def _made_from(settings: Any, model: Path, title: str) -> Parts:
    """Return the settings that change the files, and the weights."""
    parts = record.made_from(settings, unused=[*ELSEWHERE, "batch"])
    files = (model / layout.MODEL, model / layout.MODEL_CONFIG)
    return {**parts, f"{INPUT}{title}": record.contents_of(files)}


def _about(sample: Sample) -> bytes:
    """Return the content of KEY.json: file and tags of the image."""
    value = {"file": sample.file(), "tags": sorted(sample.known_tags())}
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogateescape")


def _npz(arrays: dict[str, Any]) -> bytes:
    """Return the content of a .npz file."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()
