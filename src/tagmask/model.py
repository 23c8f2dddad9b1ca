"""A trained run in Python: load it, and ask it for maps and masks of photos."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, overload

import numpy as np
from PIL import Image as Pillow
from torch import nn

from tagmask import layout
from tagmask.config import MaskSettings, settings_from
from tagmask.data.images import write_mask
from tagmask.errors import TagmaskError
from tagmask.files import check_format, write_arrays
from tagmask.inference.photo_mask import fits_at_once, photo_mask, photo_probabilities
from tagmask.labels import Mask, Picture
from tagmask.models.classifier import Classifier
from tagmask.models.deeplab import DeepLabV2
from tagmask.models.device import on_device
from tagmask.models.head import HeadSegmenter
from tagmask.models.kinds import RunNetwork, Segmenter, load_classifier, load_segmenter
from tagmask.models.kinds import load as load_network
from tagmask.runs.images import match_classes
from tagmask.stages.seeds import localize, pixels

Photo = str | Path | Pillow.Image | Picture
Tags = Sequence[str] | None
AnyNetwork = TypeVar("AnyNetwork", bound=nn.Module)
Floats = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class Prediction:
    """The mask of a photo, and what it was made from."""

    image: Picture  # the photo, uint8 (H, W, 3)
    mask: Mask  # uint8 (H, W): 0 for background, c + 1 for classes[c]
    classes: tuple[str, ...]  # all that the model knows
    _find: Callable[[], Floats] = field(repr=False, compare=False)

    @cached_property
    def probabilities(self) -> Floats:
        """Return the probabilities (K + 1, H, W), the background first; they sum to 1.

        They are brought to the size of the photo when they are first asked for, which takes
        4 · (K + 1) bytes a pixel and more. Masks of large photos are made without them, in tiles,
        so there the most probable label can differ from the mask at single pixels.
        """
        return self._find()

    def overlay(self, strength: float = 0.5, *, legend: bool = False) -> Picture:
        """Return the photo with the colours of the classes over it, uint8 (H, W, 3).

        Args:
            strength: Share of the colours, from 0 (only the photo) to 1 (only the colours).
            legend: Name the classes in a strip below the photo; the picture is then higher than
                the photo, and wider than a very narrow one.
        """
        from tagmask.show.overlay import mask_overlay, overlay_with_legend

        if legend:
            return overlay_with_legend(self.image, self.mask, self.classes, strength)
        return mask_overlay(self.image, self.mask, strength)

    def save(
        self,
        path: str | Path,
        what: Literal["mask", "overlay", "probabilities"] = "mask",
    ) -> None:
        """Write the result to a file.

        Args:
            path: The file; it is replaced if it is there.
            what: mask: a palette PNG with the labels; overlay: a picture with a legend;
                probabilities: an .npz file with ``probabilities`` as float16.
        """
        file = Path(path)
        if what == "mask":
            write_mask(file, self.mask)
        elif what == "overlay":
            from tagmask.show.sheet import save_picture

            save_picture(file, self.overlay(legend=True))
        else:
            write_arrays(file, probabilities=self.probabilities.astype(np.float16))


class Model:
    """The networks of a run, ready to be used as the run decided.

    Args:
        classifier: Folder of the classifier, which makes maps; None: there is none.
        segmenter: Folder of the segmenter, which makes masks; None: there is none.
        device: What torch calls the device, e.g. "cpu" or "cuda"; default: a GPU if there is one.
    """

    def __init__(
        self, classifier: Path | None, segmenter: Path | None, device: str | None = None
    ) -> None:
        self._classifier = classifier
        self._segmenter = segmenter
        self._device = device

    def placed(self, network: AnyNetwork) -> AnyNetwork:
        """Return a network on the device of the model."""
        return network.to(self._device) if self._device else on_device(network)

    @cached_property
    def classifier(self) -> Classifier:
        """Return the network that makes maps."""
        if self._classifier is None:
            raise TagmaskError(
                f"{self._segmenter} holds a segmenter alone; maps need the classifier: load the "
                "folder of the run, or its 1_classifier."
            )
        return self.placed(load_classifier(self._classifier))

    @cached_property
    def segmenter(self) -> Segmenter:
        """Return the network that makes masks."""
        if self._segmenter is None:
            raise TagmaskError(
                f"{self._classifier} holds a classifier alone; masks need a segmenter: do all "
                "stages of the run (tagmask run, or tagmask segment), and load its folder."
            )
        return self.placed(load_segmenter(self._segmenter))

    @property
    def network(self) -> Classifier | Segmenter:
        """Return the segmenter or, if there is none, the classifier."""
        return self.classifier if self._segmenter is None else self.segmenter

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the names of the classes; label c + 1 of a mask is the c-th."""
        return tuple(self.network.classes)

    @property
    def use(self) -> dict[str, Any]:
        """Return what the run decided: settings of masks or maps that are not the defaults."""
        return self.network.use

    @overload
    def predict(self, photo: Photo, tags: Tags = None, **settings: Any) -> Prediction: ...
    @overload
    def predict(
        self, photo: Iterable[Photo], tags: Any = None, **settings: Any
    ) -> Iterator[Prediction]: ...
    def predict(
        self, photo: Photo | Iterable[Photo], tags: Any = None, **settings: Any
    ) -> Prediction | Iterator[Prediction]:
        """Predict the mask of a photo, or of each photo of a list or another iterable.

        Args:
            photo: A path, a PIL image, or uint8 (H, W, 3); or several of them.
            tags: What is on the photo; other classes are ruled out. Of several photos the same
                list for all, or a list for each. Default: all classes may occur.
            **settings: Those of ``tagmask predict``, e.g. ``crf=False``; default: what the run
                decided.

        Returns:
            The result; of several photos an iterator of results, in their order.

        Raises:
            TagmaskError: A photo cannot be read, a tag is unknown, or a setting cannot be used.
        """
        if _is_photo(photo):
            return self._predict(photo, tags, settings)
        return (self._predict(one, its, settings) for one, its in _paired(photo, tags))

    def _predict(self, photo: Any, tags: Tags, settings: dict[str, Any]) -> Prediction:
        model = self.segmenter
        options = settings_from(MaskSettings, model.use, settings)
        allowed = match_classes(tags, model) if tags is not None else None
        image = pixels(photo)
        classes = tuple(model.classes)
        if fits_at_once(model, image.shape[:2], allowed, options):
            found = photo_probabilities(model, image, allowed, options)
            return Prediction(image, found.mask(), classes, partial(found.dense, model.num_classes))
        mask = photo_mask(model, image, allowed, options)
        find = partial(_all_probabilities, model, image, allowed, options)
        return Prediction(image, mask, classes, find)

    @overload
    def localize(
        self, photo: Photo, tags: Tags = None, *, affinity: bool = True, **settings: Any
    ) -> dict[str, Floats]: ...
    @overload
    def localize(
        self, photo: Iterable[Photo], tags: Any = None, *, affinity: bool = True, **settings: Any
    ) -> Iterator[dict[str, Floats]]: ...
    def localize(
        self,
        photo: Photo | Iterable[Photo],
        tags: Any = None,
        *,
        affinity: bool = True,
        **settings: Any,
    ) -> dict[str, Floats] | Iterator[dict[str, Floats]]:
        """Make the localisation maps of a photo, or of each of several.

        Args:
            photo: A path, a PIL image, or uint8 (H, W, 3); or several of them.
            tags: The classes to localise; of several photos the same list for all, or a list for
                each. Default: those that the model itself sees.
            affinity: Refine the maps by patch affinity.
            **settings: Those of ``tagmask seeds``, e.g. ``scales=(0.75, 1.0)``; default: what the
                run decided.

        Returns:
            (H, W) float32 in [0, 1] by tag; of several photos an iterator, in their order.

        Raises:
            TagmaskError: A photo cannot be read, a tag is unknown, or a setting cannot be used.
        """
        model = self.classifier
        if _is_photo(photo):
            return localize(model, cast(Photo, photo), tags, affinity=affinity, **settings)
        return (
            localize(model, one, its, affinity=affinity, **settings)
            for one, its in _paired(photo, tags)
        )


def load(path: str | Path, device: str | None = None) -> Model:
    """Load a trained run, or one of its networks.

    Args:
        path: Folder of a run, or of a network such as run/1_classifier or run/5_segmenter.
        device: What torch calls the device, e.g. "cpu" or "cuda"; default: a GPU if there is one.

    Returns:
        The networks, which are read when they are first used.

    Raises:
        TagmaskError: The folder holds no network that makes maps or masks.
    """
    folder = Path(path)
    check_format(folder)
    if folder.name in layout.FOLDERS:
        check_format(folder.parent)
    if (folder / layout.MODEL_CONFIG).is_file() or not _has_networks(folder):
        return _of_network(folder, load_network(folder), device)
    classifier = folder / layout.CLASSIFIER
    segmenter = folder / layout.SEGMENTER
    return Model(
        classifier if _is_network(classifier) else None,
        segmenter if _is_network(segmenter) else None,
        device,
    )


def _all_probabilities(
    model: Segmenter, image: Picture, allowed: list[int] | None, settings: MaskSettings
) -> Floats:
    """Return the probabilities of all labels at all pixels, (K + 1, H, W)."""
    found = photo_probabilities(model, image, allowed, settings)
    return found.dense(model.num_classes)


def _of_network(folder: Path, network: RunNetwork, device: str | None) -> Model:
    """Return the model of one network."""
    if isinstance(network, Classifier):
        model = Model(folder, None, device)
        model.classifier = model.placed(network)
        return model
    if isinstance(network, DeepLabV2 | HeadSegmenter):
        model = Model(None, folder, device)
        model.segmenter = model.placed(network)
        return model
    raise TagmaskError(
        f"{folder} holds AffinityNet, which makes no maps and no masks; give the run's folder."
    )


def _is_network(folder: Path) -> bool:
    return (folder / layout.MODEL_CONFIG).is_file()


def _has_networks(folder: Path) -> bool:
    """Return True if a folder is that of a run with a network."""
    return any(_is_network(folder / name) for name in (layout.CLASSIFIER, layout.SEGMENTER))


def _is_photo(photo: Any) -> bool:
    return isinstance(photo, str | Path | Pillow.Image | np.ndarray)


def _paired(photos: Any, tags: Any) -> Iterator[tuple[Any, Tags]]:
    """Yield photos with their tags: none, the same for all, or a list for each."""
    are_shared = tags is None or all(isinstance(tag, str) for tag in tags)
    if are_shared:
        for photo in photos:
            yield photo, tags
    else:
        yield from zip(photos, tags, strict=True)
