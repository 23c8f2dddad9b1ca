"""The methods that the paper compares, through the ordinary stages."""

from dataclasses import replace
from typing import Any, TypeVar

from tagmask.config import MapSettings
from tagmask.models.classifier import Classifier
from tagmask.stages.maps import Image, Maps, make_maps

Settings = TypeVar("Settings", bound=MapSettings)
TITLES = {
    "cam": "CAM",
    "ts_cam": "TS-CAM",
    "grad_cam": "Grad-CAM",
    "generic": "Generic attention",
    "acr": "ACR",
}


def by_method(settings: Settings, method: str) -> Settings:
    """Settings for another method, without those that are ACR's alone."""
    changes: dict[str, Any] = (
        {"method": method} if method == "acr" else {"method": method, "layers": None, "centre": False}
    )
    return replace(settings, **changes)


def maps_by(model: Classifier, method: str, image: Image, classes: list[int], settings: MapSettings) -> Maps:
    """Maps of one image at its own size."""
    return make_maps(model, [image], [classes], by_method(settings, method))[0]
