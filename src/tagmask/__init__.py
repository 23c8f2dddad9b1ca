"""tagmask: images that carry only tags go in, segmentation masks come out."""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {  # name: module that defines it; imported on first use, so that `tagmask --help` is quick
    "Classifier": "tagmask.models.classifier",
    "Catalog": "tagmask.data.catalog",
    "TagmaskError": "tagmask.errors",
    "TrainSettings": "tagmask.config",
    "load": "tagmask.models.kinds",
    "localize": "tagmask.stages.photo",
    "train": "tagmask.training.classifier",
}

if TYPE_CHECKING:
    from tagmask.config import TrainSettings
    from tagmask.data.catalog import Catalog
    from tagmask.errors import TagmaskError
    from tagmask.models.classifier import Classifier
    from tagmask.models.kinds import load
    from tagmask.stages.photo import localize
    from tagmask.training.classifier import train

__all__ = ["Catalog", "Classifier", "TagmaskError", "TrainSettings", "__version__", "load", "localize", "train"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'tagmask' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
