"""The paper's figures as sheets of pictures, of the first scored images that fit."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

import numpy as np
import torch
from PIL import Image as Pillow
from PIL import ImageDraw

from tagmask.acr.views import HorizontalFlip
from tagmask.data.catalog import Catalog
from tagmask.data.images import read_mask
from tagmask.errors import ImageError, TagmaskError
from tagmask.labels import UNSURE, Mask, voc_palette
from tagmask.models.classifier import Classifier
from tagmask.models.device import on_device
from tagmask.models.kinds import load_classifier
from tagmask.paper.bench import Bench, Changes, Run, by_method
from tagmask.paper.page import Figure
from tagmask.paper.seed_tables import ABLATION, ACR, METHODS, mct_variants
from tagmask.pipeline import layout
from tagmask.scoring.sweep import sweep
from tagmask.show.affinity import Point, affinity_matrix, affinity_of_pixel, default_points, marked
from tagmask.show.overlay import legend
from tagmask.show.seeds import shown_heat, shown_mask
from tagmask.show.sheet import INK, Picture, font_for, resize, sheet, shown_size
from tagmask.stages.images import Image, match_classes
from tagmask.stages.maps import Maps, make_maps
from tagmask.stages.seeds import patch_affinity

REGULARISED = {"none": "baseline", "act": "SEAM*", "both": "ACR"}
PAIRS = {
    "generic": ("Generic", "Generic + affinity"),
    "acr": ("ACR*", "ACR"),
}  # shown without and with affinity
CANDIDATES = 40  # images among which the failure case is sought
POINTS = 3  # source pixels of an image
Cells = list[tuple[str, Picture]]


def maps(bench: Bench) -> Figure:
    """One row per image: each method's map of its first class, then MCTformer's and ACR's without and with affinity."""
    (run, model), (mct_run, mct) = _loaded(
        bench, {"ACR": ACR, "MCTformer": mct_variants(bench)["mct"]}
    ).values()
    catalog, rows = bench.scored_images, list[Cells]()
    for i, image in _pictures(bench, least=1):
        tag = catalog.tags(i)[:1]
        cells = [(catalog.classes[tag[0]], _shown(image))]
        for method, title in METHODS.items():
            if method == "acr":
                multi_class = maps_by(mct, "acr", image, catalog, tag, mct_run)
                cells.append(("MCTformer", shown_heat(image, multi_class.refined[0])))
            made = maps_by(model, method, image, catalog, tag, run)
            plain, refined = PAIRS.get(method, (title, ""))
            cells.append((plain, shown_heat(image, made.plain[0])))
            cells += [(refined, shown_heat(image, made.refined[0]))] if refined else []
        rows.append(cells + _truth(catalog, i, image))
    note = "all methods on the same classifier but MCTformer, which has its own (with affinity)."
    return Figure("maps", "Maps of each method", sheet(rows), (note, _note(bench)))


def multi_class(bench: Bench) -> Figure:
    """Images of several classes, each class's map without and with affinity; the last row is a failure case."""
    ((run, model),) = _loaded(bench, {"ACR": {}}).values()
    catalog, rows = bench.scored_images, list[Cells]()
    chosen = _pictures(bench, least=2)
    failure = _failure(bench, model, run, {i for i, _ in chosen})
    for i, image in chosen + failure:
        made = maps_by(model, "acr", image, catalog, catalog.tags(i), run)
        title = "failure" if failure and i == failure[0][0] else "image"
        cells = [(title, _shown(image))]
        for name, plain, refined in zip(_names(catalog, i), made.plain, made.refined, strict=True):
            cells += [
                (name, shown_heat(image, plain)),
                (f"{name} + affinity", shown_heat(image, refined)),
            ]
        rows.append(cells + _truth(catalog, i, image))
    note = f"failure: the lowest mIoU at its own best threshold among the first {CANDIDATES} images of several classes."
    notes = (*([note] if failure else []), _note(bench))
    return Figure("multi-class", "Maps of images with several classes (ACR)", sheet(rows), notes)


def affinity(bench: Bench) -> Figure:
    """Localisation maps and affinity matrices of three trainings, side by side."""
    models, catalog, rows = _regularised(bench), bench.scored_images, list[Cells]()
    for i, image in _pictures(bench, least=1):
        cells = [(_name(bench, i), _shown(image))]
        for title, (run, model) in models.items():
            made = maps_by(model, "acr", image, catalog, catalog.tags(i)[:1], run)
            cells.append(
                (
                    f"{title}: {catalog.classes[catalog.tags(i)[0]]}",
                    shown_heat(image, made.refined[0]),
                )
            )
            cells.append(
                ("affinity", affinity_matrix(patch_affinity(model, image, run.settings.seeds)[0]))
            )
        rows.append(cells)
    note = "row = the patch that attends, column = the one attended to; bright columns: all attend to the same few."
    return Figure("affinity", "Maps and affinity matrices", sheet(rows), (note, _note(bench)))


def source_pixels(bench: Bench) -> Figure:
    """Three rows per image, one for each chosen pixel (red cross): what it attends to after three trainings."""
    models, catalog, rows = _regularised(bench), bench.scored_images, list[Cells]()
    run, acr = models[REGULARISED["both"]]
    for i, image in _pictures(bench, least=1):
        affinities = {
            title: patch_affinity(model, image, other.settings.seeds)
            for title, (other, model) in models.items()
        }
        for point in three_points(
            maps_by(acr, "acr", image, catalog, catalog.tags(i), run).refined
        ):
            heats = [
                (title, affinity_of_pixel(image, *matrix, point))
                for title, matrix in affinities.items()
            ]
            rows.append([(_name(bench, i), marked(image, [point])), *heats])
    note = "two pixels in the strongest regions of the classes, one in the background; each map has its own scale."
    return Figure("source-pixels", "Affinity of source pixels", sheet(rows), (note, _note(bench)))


def examples(bench: Bench) -> Figure:
    """Predictions of the segmenter beside the truth."""
    run, catalog = bench.trained({"ACR": {}}, seeds=1)["ACR"][0], bench.scored_images
    folder, rows, labels = bench.predicted(run)[0], list[Cells](), set[int]()
    for i, image in _pictures(bench, least=1):
        mask = read_mask(
            layout.label_file(folder / layout.PREDICTIONS, catalog.name(i)), len(catalog.classes)
        )
        names = ", ".join(_names(catalog, i))
        rows.append(
            [
                (names, _shown(image)),
                ("prediction", shown_mask(image, mask)),
                *_truth(catalog, i, image),
            ]
        )
        labels |= {int(label) for label in np.unique(mask) if 0 < label < UNSURE} | {
            c + 1 for c in catalog.tags(i)
        }
    body = sheet(rows)
    names_of = {label: catalog.classes[label - 1] for label in sorted(labels)}
    picture = np.vstack([body, legend(names_of, width=body.shape[1])])
    return Figure("examples", "Segmentation examples", picture, (_note(bench),))


def patch_order(bench: Bench) -> Figure:
    """A picture of 4×4 numbered pixels in 2×2 patches: as it is, flipped, and with its patches back in order."""
    del bench
    pixels, view = torch.arange(1, 17).view(4, 4), HorizontalFlip()
    flipped = view.apply(pixels)
    restored = _patches(flipped)[view.index((2, 2))].view(2, 2, 2, 2).transpose(1, 2).reshape(4, 4)
    rows = [
        [
            (title, numbered(grid)),
            ("tokens", numbered(_patches(grid).transpose(0, 1).reshape(2, 8))),
        ]
        for title, grid in (("image", pixels), ("flipped", flipped), ("order restored", restored))
    ]
    notes = (
        "colour = the patch of the original that the pixels belong to. A flip changes the order of the patches and "
        "mirrors the pixels inside each; restoring the order leaves the inside of the patches as it is.",
    )
    return Figure("patch-order", "The order of patches in a flipped view", sheet(rows), notes)


def numbered(grid: torch.Tensor, side: int = 48) -> Picture:
    """Numbers 1 to 16 of 4×4 pixels as squares, in the colour of the 2×2 patch that each belongs to in the original."""
    canvas = Pillow.new("RGB", (side * grid.shape[1], side * grid.shape[0]), "white")
    draw = ImageDraw.Draw(canvas)
    for (y, x), number in np.ndenumerate(grid.numpy()):
        row, column = divmod(int(number) - 1, 4)
        red, green, blue = (
            255 - (255 - voc_palette()[1 + 2 * (row // 2) + column // 2]) // 2
        ).tolist()
        draw.rectangle(
            (x * side, y * side, (x + 1) * side - 2, (y + 1) * side - 2), fill=(red, green, blue)
        )
        middle = ((x + 0.5) * side, (y + 0.5) * side)
        draw.text(middle, str(number), fill=INK, font=font_for(str(number), side // 2), anchor="mm")
    return np.asarray(canvas)


def maps_by(
    model: Classifier, method: str, image: Image, catalog: Catalog, tags: Sequence[int], run: Run
) -> Maps:
    """Maps of some classes of one image at its own size."""
    classes = match_classes([catalog.classes[c] for c in tags], model)
    return make_maps(model, [image], [classes], by_method(run.settings.seeds, method))[0]


def three_points(maps: np.ndarray) -> list[Point]:
    """Two pixels in the strongest regions of the classes, or of the only class, and one in the background."""
    *points, background = default_points(maps)
    if len(points) == 1:
        (x, y), rest = points[0], maps.copy()
        reach = max(1, min(rest.shape[1:]) // 4)
        rest[:, max(0, y - reach) : y + reach + 1, max(0, x - reach) : x + reach + 1] = 0
        points.append(default_points(rest)[0])
    return [*points[: POINTS - 1], background]


def _patches(grid: torch.Tensor) -> torch.Tensor:
    """4×4 pixels as four patches, (4, 2, 2)."""
    return grid.view(2, 2, 2, 2).transpose(1, 2).reshape(4, 2, 2)


def _failure(bench: Bench, model: Classifier, run: Run, shown: set[int]) -> list[tuple[int, Image]]:
    """The image of several classes whose maps fit its mask worst; none where there are no further masks."""
    catalog, scores = bench.scored_images, dict[int, float]()
    others = (pair for pair in _readable(catalog, least=2) if pair[0] not in shown)
    for i, image in islice(others, CANDIDATES) if catalog.has_masks else ():
        mask = _mask(catalog, i)
        if mask is not None:
            refined = maps_by(model, "acr", image, catalog, catalog.tags(i), run).refined
            scores[i] = sweep(
                [(catalog.tags(i), refined, mask)], len(catalog.classes) + 1
            ).best.miou_present
    worst = min(scores, key=lambda i: scores[i], default=None)
    return [] if worst is None else [(worst, catalog.load_image(worst))]


def _loaded(bench: Bench, variants: dict[str, Changes]) -> dict[str, tuple[Run, Classifier]]:
    """Each variant trained with the first random seed, and its network."""
    runs = bench.trained(variants, seeds=1)
    return {
        title: (run, on_device(load_classifier(run.classifier))) for title, (run,) in runs.items()
    }


def _regularised(bench: Bench) -> dict[str, tuple[Run, Classifier]]:
    return _loaded(bench, {title: ABLATION[name] for name, title in REGULARISED.items()})


def _readable(catalog: Catalog, least: int) -> Iterator[tuple[int, Image]]:
    """The images with at least so many classes that can be read."""
    for i in range(len(catalog)):
        if len(catalog.tags(i)) >= least:
            with suppress(ImageError):
                yield i, catalog.load_image(i)


def _pictures(bench: Bench, least: int) -> list[tuple[int, Image]]:
    """The first of them, as many as a figure shows."""
    chosen = list(islice(_readable(bench.scored_images, least), bench.settings.pictures))
    if not chosen:
        raise TagmaskError(
            f"no image has {least} tags or more; score other images, e.g. with a larger --score-count."
        )
    return chosen


def _name(bench: Bench, i: int) -> str:
    return bench.scored_images.name(i).split("/")[-1]


def _names(catalog: Catalog, i: int) -> list[str]:
    return [catalog.classes[c] for c in catalog.tags(i)]


def _shown(image: Image) -> Picture:
    return resize(image, shown_size(*image.shape[:2]))


def _truth(catalog: Catalog, i: int, image: Image) -> Cells:
    """The true mask, where there is one."""
    mask = _mask(catalog, i)
    return [] if mask is None else [("truth", shown_mask(image, mask))]


def _mask(catalog: Catalog, i: int) -> Mask | None:
    with suppress(ImageError):
        return catalog.load_mask(i)
    return None


def _note(bench: Bench) -> str:
    count, seed = bench.settings.pictures, bench.settings.train.seed
    return f"the first {count} images that are scored and fit; random seed {seed}."
