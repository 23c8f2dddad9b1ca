"""tagmask: images that carry only tags go in, segmentation masks come out."""

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from tagmask.version import __version__

_PUBLIC = {  # name: where it is defined; imported on first use, so that `tagmask --help` is quick
    "Catalog": "tagmask.data.catalog:Catalog",
    "Classifier": "tagmask.models.classifier:Classifier",
    "TagmaskError": "tagmask.errors:TagmaskError",
    "TrainSettings": "tagmask.config:TrainSettings",
    "Model": "tagmask.model:Model",
    "Prediction": "tagmask.model:Prediction",
    "Progress": "tagmask.progress:Progress",
    "load": "tagmask.model:load",
    "localize": "tagmask.stages.seeds:localize",
    "predict": "tagmask.stages.predict:predict",
    "run": "tagmask.runs.run:run_images",
    "Run": "tagmask.runs.run:Run",
}

if TYPE_CHECKING:
    from tagmask.config import TrainSettings
    from tagmask.data.catalog import Catalog
    from tagmask.errors import TagmaskError
    from tagmask.model import Model, Prediction, load
    from tagmask.models.classifier import Classifier
    from tagmask.progress import Progress
    from tagmask.runs.run import Run
    from tagmask.runs.run import run_images as run
    from tagmask.stages.predict import predict
    from tagmask.stages.seeds import localize

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return resolve_name(_PUBLIC[name])
    raise AttributeError(f"module 'tagmask' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
