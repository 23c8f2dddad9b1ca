"""Three routes from seeds to maps that follow the objects (docs/method.md §4), one small class each.

``crf``        the maps as they are: the CRF that labels them does all the work.
``walk``       PSA: a random walk on the affinities that AffinityNet learnt from confident regions.
``attention``  a random walk on the classifier's own patch affinity: no second network to train.

Deviation: after either walk each map is stretched to 0 … 1, unless ``stretch`` is false; neither PSA nor
MCTformer's copy of it does this.
"""

from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F

from tagmask.acr.localize import affinity
from tagmask.config import MapSettings
from tagmask.data.datasets import to_tensor
from tagmask.masks.grid import stretch, to_cells, to_pixels
from tagmask.masks.walk import from_attention, random_walk, transition
from tagmask.models.affinity_net import STRIDE, AffinityNet
from tagmask.models.classifier import Classifier
from tagmask.stages.maps import Image, block_range, views

Maps = np.ndarray[Any, np.dtype[np.float32]]  # (k, H, W) in [0, 1]


class Route(Protocol):
    """Takes an image and its maps, returns maps of the same shape with values in 0 … 1."""

    def spread(self, image: Image, maps: Maps) -> Maps: ...


class Unchanged:
    """The maps as they are."""

    def spread(self, image: Image, maps: Maps) -> Maps:
        del image
        return maps


class NetWalk:
    """A random walk on the affinities of AffinityNet, on its grid of 8-pixel cells."""

    def __init__(self, net: AffinityNet, radius: float, beta: float, steps: int, stretch: bool = True) -> None:
        self.net, self.radius, self.beta, self.steps, self.stretch = net, radius, beta, steps, stretch

    def spread(self, image: Image, maps: Maps) -> Maps:
        if not len(maps):
            return maps
        picture = to_tensor(image).float()[None] / 255  # (1, 3, H, W)
        padding = [max(0, STRIDE - side) for side in picture.shape[-2:]]
        picture = F.pad(picture, (0, padding[1], 0, padding[0]), mode="replicate")
        with torch.inference_mode():
            features = self.net(self.net.normalize(picture))[0].numpy()  # (C, h, w)
        walked = random_walk(to_cells(maps, STRIDE), transition(features, self.radius, self.beta), self.steps)
        return _finished(to_pixels(walked, maps.shape[1:], STRIDE), self.stretch)


class AttentionWalk:
    """A random walk on the classifier's patch affinity."""

    def __init__(self, model: Classifier, settings: MapSettings, beta: float, steps: int, stretch: bool = True) -> None:
        self.model, self.settings, self.beta, self.steps, self.stretch = model, settings, beta, steps, stretch

    def spread(self, image: Image, maps: Maps) -> Maps:
        if not len(maps):
            return maps
        first = next(views(self.model, to_tensor(image).float()[None] / 255, self.settings))
        with torch.inference_mode():
            _, attention = self.model.attend(first.images, block_range(self.settings.affinity_blocks))
        pairs = affinity(attention, self.model.class_tokens)[0].numpy()  # (n, n)
        patch, size = self.model.patch_size, first.images.shape[-2:]
        resized = F.interpolate(torch.from_numpy(maps)[None], first.inner, mode="bilinear", antialias=True)[0]
        padded = F.pad(resized, (0, size[1] - first.inner[1], 0, size[0] - first.inner[0]))
        walked = random_walk(to_cells(padded.numpy(), patch, True), from_attention(pairs, self.beta), self.steps)
        pixels = torch.from_numpy(to_pixels(walked, (size[0], size[1]), patch, True))
        inner = pixels[None, :, : first.inner[0], : first.inner[1]]
        whole = F.interpolate(inner, maps.shape[1:], mode="bilinear", align_corners=False)[0]
        return _finished(whole.numpy(), self.stretch)


def _finished(walked: Maps, stretched: bool) -> Maps:
    """Walked maps, stretched to 0 … 1 or only freed of rounding errors beyond it."""
    return (stretch(walked) if stretched else np.clip(walked, 0, 1)).astype(np.float32)
