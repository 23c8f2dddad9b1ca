"""Seeds by any method of ``tagmask.acr.baselines``, fused over views and written as those of ACR are.

``Compared`` stands in for a classifier: it offers a method's maps as its evidence, so that views, padding, fusion and
normalisation are the ordinary ones, without and with affinity, from one pass.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from tqdm import tqdm

from tagmask.acr.baselines import METHODS
from tagmask.config import SeedSettings
from tagmask.data.open import open_catalog
from tagmask.errors import ImageError, TagmaskError
from tagmask.models.classifier import Classifier
from tagmask.models.device import on_device
from tagmask.stages.maps import Image, Maps, make_maps
from tagmask.stages.resume import check_identity, file_digest
from tagmask.stages.seeds import FOLDER, match_classes, read_seeds, seed_file, write_seeds

TITLES = {
    "cam": "CAM",
    "ts_cam": "TS-CAM",
    "grad_cam": "Grad-CAM",
    "generic": "Generic attention",
    "acr": "ACR",
}


@dataclass
class Evidence:
    """What localisation needs: a method's own maps, and the attention for the affinity."""

    maps: Tensor  # (B, K, n)
    attention: list[Tensor]  # each (B, n+1, n+1)

    def plain_maps(self, centre: bool = False) -> Tensor:
        del centre  # of class gradients only
        return self.maps


class Compared:
    """A classifier whose evidence is that of another method."""

    def __init__(self, model: Classifier, method: str) -> None:
        self.model, self.method = model, METHODS[method]
        self.class_tokens, self.map_layers = 1, 1
        self.mean, self.blocks = model.mean, model.blocks
        self.patch_size, self.crop_size = model.patch_size, model.crop_size
        self.grid, self.normalize = model.grid, model.normalize
        self.last: Any = None  # the trace that the latest maps were made from

    def evidence(self, images: Tensor, classes: Tensor, layers: int, affinity_blocks: range) -> Evidence:
        """The method's maps of ``classes`` (B, K); padding (−1) takes those of class 0, which nobody reads."""
        del layers  # of class gradients only
        maps = torch.stack(self.method(self, images, classes.clamp(min=0).tolist(), affinity=False))  # (B, K, h, w)
        heads = [self.last.attention[i].mean(dim=1) for i in affinity_blocks]  # (B, N, N)
        return Evidence(maps.flatten(2), [self.model.without_extra_tokens(head) for head in heads])

    def trace(self, images: Tensor, classes: Tensor, gradients: bool = True) -> Any:
        """The classifier's, kept for the affinity."""
        self.last = self.model.trace(images, classes, gradients)
        return self.last


def maps_by(model: Classifier, method: str, image: Image, classes: list[int], settings: Any) -> Maps:
    """Maps of one image at its own size, as ``make_maps`` gives them for ACR."""
    chosen = model if method == "acr" else cast(Classifier, Compared(model, method))
    return make_maps(chosen, [image], [classes], settings)[0]


def seed_by_method(settings: SeedSettings, method: str) -> Path:
    """A seed file of every tagged image that has none yet, into 2_seeds of ``settings.out``."""
    folder, source = settings.out / FOLDER, settings.model
    if source is None:
        raise TagmaskError("a comparison needs the folder of a trained classifier; give model.")
    model, catalog = on_device(Classifier.load(source)), open_catalog(settings)
    numbers = match_classes(catalog.classes, model)
    check_identity(folder, {"model": file_digest(source / "model.safetensors"), "method": method}, False, "maps")
    for i in tqdm(range(len(catalog)), desc=method, unit="image"):
        file = seed_file(folder, catalog.name(i))
        if not catalog.tags(i) or _is_whole(file):
            continue
        try:
            image = catalog.load_image(i)
        except ImageError:
            continue  # told by the score
        maps = maps_by(model, method, image, [numbers[c] for c in catalog.tags(i)], settings)
        write_seeds(file, Maps(catalog.tags(i), maps.plain, maps.refined), settings.dtype)
    return folder


def _is_whole(file: Path) -> bool:
    try:
        read_seeds(file)
    except TagmaskError:
        return False
    return True
