"""Random walks from seeds to maps that follow the objects (docs/method.md §4).

Each takes an image (H, W, 3) and its maps (k, H, W), and returns maps of the same shape, each from 0 to 1.
"""

from typing import Any

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


def net_walk(image: Image, maps: Maps, *, net: AffinityNet, radius: float, beta: float, steps: int) -> Maps:
    """A random walk on the affinities of AffinityNet, on its grid of 8-pixel cells."""
    if not len(maps):
        return maps
    picture = to_tensor(image).float()[None] / 255  # (1, 3, H, W)
    padding = [max(0, STRIDE - side) for side in picture.shape[-2:]]
    picture = F.pad(picture, (0, padding[1], 0, padding[0]), mode="replicate")
    with torch.inference_mode():
        features = net(net.normalize(picture))[0].numpy()  # (C, h, w)
    walked = random_walk(to_cells(maps, STRIDE), transition(features, radius, beta), steps)
    return stretch(to_pixels(walked, maps.shape[1:], STRIDE)).astype(np.float32)


def attention_walk(
    image: Image, maps: Maps, *, model: Classifier, settings: MapSettings, beta: float, steps: int
) -> Maps:
    """A random walk on the classifier's own patch affinity."""
    if not len(maps):
        return maps
    first = next(views(model, to_tensor(image).float()[None] / 255, settings))
    with torch.inference_mode():
        _, attention = model.attend(first.images, block_range(settings.affinity_blocks))
    pairs = affinity(attention, model.class_tokens)[0].numpy()  # (n, n)
    patch, size = model.patch_size, first.images.shape[-2:]
    resized = F.interpolate(torch.from_numpy(maps)[None], first.inner, mode="bilinear", antialias=True)[0]
    padded = F.pad(resized, (0, size[1] - first.inner[1], 0, size[0] - first.inner[0]))
    walked = random_walk(to_cells(padded.numpy(), patch, True), from_attention(pairs, beta), steps)
    pixels = torch.from_numpy(to_pixels(walked, (size[0], size[1]), patch, True))
    inner = pixels[None, :, : first.inner[0], : first.inner[1]]
    whole = F.interpolate(inner, maps.shape[1:], mode="bilinear", align_corners=False)[0]
    return stretch(whole.numpy()).astype(np.float32)
