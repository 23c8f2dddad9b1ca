"""Localisation maps by name: one registry for ACR, MCTformer and what they are compared with.

Every method is a function ``(model, images, classes, blocks, **options) -> Maps``, described at
``tagmask.acr.localize.MapMethod``. What follows is the same for all: views at test time, affinity,
normalisation.
"""

from dataclasses import dataclass
from typing import Any

from tagmask.acr.localize import MapMethod, acr
from tagmask.errors import TagmaskError
from tagmask.methods.baselines import cam, generic, grad_cam, legrad, rollout, ts_cam, weighted
from tagmask.methods.mctformer import mct
from tagmask.models.mct import MctClassifier


@dataclass(frozen=True)
class Method:
    """A registered map method."""

    maps: MapMethod
    batched: bool = True  # False: it keeps so much that images are better taken one at a time


METHODS: dict[str, Method] = {
    "acr": Method(acr),
    "weighted": Method(weighted),
    "generic": Method(generic),
    "grad_cam": Method(grad_cam),
    "cam": Method(cam),
    "ts_cam": Method(ts_cam),
    "legrad": Method(legrad, batched=False),
    "rollout": Method(rollout),
    "mct": Method(mct),
}


def method_for(model: Any, name: str) -> Method:
    """Return the map method called ``name``.

    Args:
        model: the classifier whose maps are wanted.
        name: a key of ``METHODS``. For an MCTformer, ``acr`` means MCTformer's own maps.

    Raises:
        TagmaskError: if there is no method of that name.
    """
    if name not in METHODS:
        raise TagmaskError(f"there is no map method {name!r}; choose from {', '.join(METHODS)}.")
    if name == "acr" and isinstance(model, MctClassifier):
        return METHODS["mct"]
    return METHODS[name]
