"""Which patches belong together? Affinities other than the attention, on the maps of a trained classifier.

Maps weighted by attention are spread by each affinity, alone and in products, in one and two steps. The photos of a VOC
list are dealt to two halves: what is best by the first half (threshold by `otsu`, without masks) is told on the second.

    python scripts/affinities.py --model run/1_classifier --root VOC --split val.txt --only dog person --to out.csv
"""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from tagmask.acr.localize import affinity, refine
from tagmask.config import DataSettings, MapSettings
from tagmask.data.open import open_catalog
from tagmask.inference.maps import stretch, views
from tagmask.masks.superpixels import superpixels
from tagmask.methods.baselines import weighted
from tagmask.models.kinds import load_classifier
from tagmask.scoring import Sweep, choosers
from tagmask.scoring.threshold import top_histogram

BLOCKS, POWERS, TEMPERATURE = range(6, 12), (4, 16), 0.1


def tokens_of(model: Any, picture: Tensor, prefix: int) -> dict[str, Tensor]:
    """Queries, keys and values of the last two blocks, and features after the final norm: each (n, D)."""
    kept: dict[str, list[Tensor]] = {name: [] for name in ("queries", "keys", "values", "features")}

    def keep(_: Any, __: Any, output: Tensor) -> None:
        for name, part in zip(
            ("queries", "keys", "values"), output[0, prefix:].chunk(3, dim=-1), strict=True
        ):
            kept[name].append(part)

    hooks = [block.attn.qkv.register_forward_hook(keep) for block in list(model.blocks)[-2:]]
    hooks.append(
        model.vit.norm.register_forward_hook(
            lambda _, __, out: kept["features"].append(out[0, prefix:])
        )
    )
    with torch.inference_mode():
        model(picture)
    for hook in hooks:
        hook.remove()
    return {name: torch.cat(parts, dim=-1) for name, parts in kept.items()}


def sharpened(tokens: Tensor, power: int) -> Tensor:
    """Cosine between tokens (n, D), cut at 0, to a power: (n, n)."""
    unit = F.normalize(tokens, dim=-1)
    return (unit @ unit.T).clamp(min=0) ** power


def same_pieces(image: Any, grid: tuple[int, int]) -> Tensor:
    """How much two patches share a superpixel (n, n): Σ over pieces of the product of their shares."""
    pieces = torch.from_numpy(superpixels(image))
    shares = F.one_hot(pieces).permute(2, 0, 1).float()  # (pieces, H, W)
    cells = F.adaptive_avg_pool2d(shares[None], grid)[0].flatten(1).T  # (n, pieces)
    return cells @ cells.T


def jensen_shannon(features: Tensor, weight: Tensor) -> Tensor:
    """exp(−JS/T) of the class distributions of patches, features (n, D) and head (C, D): (n, n)."""
    chances = (features @ weight.T).softmax(-1)  # (n, C)
    middle = (chances[:, None] + chances[None]) / 2  # (n, n, C)
    entropy = -(middle * middle.clamp(min=1e-12).log()).sum(-1)
    single = -(chances * chances.clamp(min=1e-12).log()).sum(-1)  # (n,)
    return (-(entropy - (single[:, None] + single[None]) / 2) / TEMPERATURE).exp()


def affinities(
    model: Any, image: Any, picture: Tensor, attention: Tensor
) -> Iterator[tuple[str, Tensor]]:
    """Every affinity (n, n) by name."""
    tokens = tokens_of(model, picture, model.prefix)
    alone = {"attention": attention}
    for name, values in tokens.items():
        alone |= {f"{name}, cosine^{power}": sharpened(values, power) for power in POWERS}
    alone["superpixels"] = same_pieces(image, model.grid(*picture.shape[-2:]))
    alone["class distribution"] = jensen_shannon(tokens["features"], model.vit.head.weight.detach())
    yield from alone.items()
    for name, matrix in alone.items():
        if name != "attention":
            yield f"attention × {name}", attention * matrix


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--split", default="val")
    parser.add_argument("--only", nargs="+", required=True)
    parser.add_argument("--to", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    catalog = open_catalog(DataSettings(data="voc", root=options.root, split=options.split))
    model = load_classifier(options.model).eval()
    tallies: dict[tuple[str, int], tuple[Sweep, Any]] = {}  # way, half: counts
    for i in tqdm(range(len(catalog)), unit="photo"):
        image, mask, classes = catalog.load_image(i), catalog.load_mask(i), list(catalog.tags(i))
        if mask is None or not classes:
            continue
        pixels = torch.from_numpy(image.copy()).permute(2, 0, 1)[None].float() / 255
        view = next(views(model, pixels, MapSettings(flip=False)))
        maps = weighted(model, view.images, torch.tensor([classes]), BLOCKS)
        plain, attention = maps.plain[0].detach(), affinity(maps.attention)[0].detach()
        spread = {"no affinity": plain}
        for name, matrix in affinities(model, image, view.images, attention):
            spread |= {f"{name}; {steps}": refine(plain, matrix, steps=steps) for steps in (1, 2)}
        grid = model.grid(*view.images.shape[-2:])
        for name, values in spread.items():
            shown = F.interpolate(
                values.unflatten(-1, grid)[None], view.images.shape[-2:], mode="bilinear"
            )
            shown = F.interpolate(
                shown[..., : view.inner[0], : view.inner[1]], mask.shape, mode="bilinear"
            )[0]
            codes = (255 * stretch(shown)).round().byte().numpy()
            sweep, rule = tallies.setdefault(
                (name, i % 2), (Sweep(len(catalog.classes) + 1), choosers()["otsu"])
            )  # fmt: skip
            sweep.add(classes, codes, mask)
            rule.counts += top_histogram(codes)
    wanted = [0, *(catalog.classes.index(name) + 1 for name in options.only)]
    lines = []
    for name in dict.fromkeys(name for name, _ in tallies):
        halves = [tallies[name, half] for half in (0, 1)]
        scores = [
            100 * np.nanmean(sweep.result().at(rule.result()).class_iou[wanted])
            for sweep, rule in halves
        ]
        lines.append([name, *(f"{score:.1f}" for score in scores)])
    lines.sort(key=lambda line: -float(line[1]))
    with options.to.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [["affinity; steps", "first half", "second half"], *lines]
        )
    print("\n".join(f"{name:46} {first:>6} {second:>6}" for name, first, second in lines))


if __name__ == "__main__":
    main()
