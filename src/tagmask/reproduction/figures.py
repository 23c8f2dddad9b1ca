"""The paper's figures as sheets of pictures, of the first scored images that fit."""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

import numpy as np
import torch
from PIL import Image as Pillow
from PIL import ImageDraw

from tagmask import layout
from tagmask.acr.views import HorizontalFlip
from tagmask.config import SeedSettings, TrainSettings
from tagmask.data.catalog import Catalog
from tagmask.data.images import read_mask
from tagmask.errors import ImageError, TagmaskError
from tagmask.inference.maps import PhotoMaps, make_maps
from tagmask.labels import UNSURE, Mask, voc_palette
from tagmask.models.classifier import Classifier
from tagmask.models.device import on_device
from tagmask.models.kinds import load_classifier
from tagmask.reproduction.bench import Bench, Changes, Training, by_method
from tagmask.reproduction.measures import unlike_acr
from tagmask.reproduction.page import Figure
from tagmask.reproduction.seed_tables import ABLATION, ACR, METHODS, mct_maps, mct_variants
from tagmask.runs.images import match_classes
from tagmask.scoring.sweep import sweep
from tagmask.show.affinity import Point, affinity_matrix, affinity_of_pixel, default_points, marked
from tagmask.show.overlay import legend
from tagmask.show.seeds import shown_heat, shown_mask
from tagmask.show.sheet import INK, Picture, font_for, resize, sheet, shown_size
from tagmask.stages.seeds import patch_affinity

REGULARISED = {"none": "baseline", "act": "SEAM*", "both": "ACR"}
# methods whose maps are shown without and with affinity
PAIRS = {"generic": ("Generic", "Generic + affinity"), "acr": ("ACR*", "ACR")}
# images among which the failure case is sought
CANDIDATES = 40
# source pixels of an image
POINTS = 3
Cells = list[tuple[str, Picture]]


def maps(bench: Bench) -> Figure:
    """Show the maps of each method, with a row for each image.

    The maps are of the image's first class; MCTformer's are with affinity, generic attention's and
    ACR's without and with it.
    """
    variants = {"ACR": ACR, "MCTformer": mct_variants(bench)["mct"]}
    loaded = _loaded(bench, variants)
    run, model = loaded["ACR"]
    mct_run, mct = loaded["MCTformer"]
    catalog = bench.scored_images
    rows = []
    for i, image in _pictures(bench, least=1):
        tag = catalog.tags(i)[:1]
        name = catalog.classes[tag[0]]
        cells = [(name, _shown(image))]
        for method, title in METHODS.items():
            if method == "acr":
                made = maps_by(mct, "acr", image, catalog, tag, mct_run, mct_maps(bench))
                heat = shown_heat(image, made.refined[0])
                cells.append(("MCTformer", heat))
            made = maps_by(model, method, image, catalog, tag, run)
            plain, refined = PAIRS.get(method, (title, ""))
            heat = shown_heat(image, made.plain[0])
            cells.append((plain, heat))
            if refined:
                heat = shown_heat(image, made.refined[0])
                cells.append((refined, heat))
        rows.append(cells + _truth(catalog, i, image))
    note = (
        "all maps were made here, none is the paper's: every method on the same classifier, but "
        "MCTformer on its own (with affinity)."
    )
    return Figure(
        name="maps",
        title="Maps of each method",
        picture=sheet(rows),
        notes=(note, *_notes(bench)),
    )


def multi_class(bench: Bench) -> Figure:
    """Show images of several classes, each class's map without and with affinity.

    The last row is a failure case.
    """
    run, model = _loaded(bench, {"ACR": {}})["ACR"]
    catalog = bench.scored_images
    chosen = _pictures(bench, least=2)
    shown = {i for i, _ in chosen}
    failure = _failure(bench, model, run, shown)
    titled = [("image", i, image) for i, image in chosen]
    notes = [*_notes(bench)]
    if failure is not None:
        titled.append(("failure", failure, catalog.load_image(failure)))
        note = (
            "failure: the lowest mIoU at its own best threshold among the first "
            f"{CANDIDATES} images of several classes."
        )
        notes.insert(0, note)
    rows = []
    for title, i, image in titled:
        made = maps_by(model, "acr", image, catalog, catalog.tags(i), run)
        cells = [(title, _shown(image))]
        for name, plain, refined in zip(_names(catalog, i), made.plain, made.refined, strict=True):
            cells.append((name, shown_heat(image, plain)))
            cells.append((f"{name} + affinity", shown_heat(image, refined)))
        rows.append(cells + _truth(catalog, i, image))
    title = "Maps of images with several classes (ACR)"
    return Figure(
        name="multi-class",
        title=title,
        picture=sheet(rows),
        notes=tuple(notes),
    )


def affinity(bench: Bench) -> Figure:
    """Show localisation maps and affinity matrices of three trainings, side by side."""
    models = _regularised(bench)
    catalog = bench.scored_images
    rows = []
    for i, image in _pictures(bench, least=1):
        cells = [(_name(bench, i), _shown(image))]
        tag = catalog.tags(i)[:1]
        name = catalog.classes[tag[0]]
        for title, (run, model) in models.items():
            made = maps_by(model, "acr", image, catalog, tag, run)
            heat = shown_heat(image, made.refined[0])
            cells.append((f"{title}: {name}", heat))
            matrix = patch_affinity(model, image, run.settings.of(SeedSettings))[0]
            cells.append(("affinity", affinity_matrix(matrix)))
        rows.append(cells)
    note = (
        "row = the patch that attends, column = the one attended to; "
        "bright columns: all attend to the same few."
    )
    return Figure(
        name="affinity",
        title="Maps and affinity matrices",
        picture=sheet(rows),
        notes=(note, *_notes(bench)),
    )


def source_pixels(bench: Bench) -> Figure:
    """Show what three pixels of each image attend to after three trainings.

    Each pixel has a row of its own, which begins with the image and a red cross on the pixel.
    """
    models = _regularised(bench)
    catalog = bench.scored_images
    run, acr = models[REGULARISED["both"]]
    rows = []
    for i, image in _pictures(bench, least=1):
        affinities = {}
        for title, (other, model) in models.items():
            affinities[title] = patch_affinity(model, image, other.settings.of(SeedSettings))
        made = maps_by(acr, "acr", image, catalog, catalog.tags(i), run)
        for point in three_points(made.refined):
            cells = [(_name(bench, i), marked(image, [point]))]
            for title, matrix in affinities.items():
                cells.append((title, affinity_of_pixel(image, *matrix, point)))
            rows.append(cells)
    note = (
        "two pixels in the strongest regions of the classes, one in the background; "
        "each map has its own scale."
    )
    return Figure(
        name="source-pixels",
        title="Affinity of source pixels",
        picture=sheet(rows),
        notes=(note, *_notes(bench)),
    )


def examples(bench: Bench) -> Figure:
    """Show predictions of the segmenter beside the truth."""
    run = bench.trained({"ACR": {}}, seeds=1)["ACR"][0]
    catalog = bench.scored_images
    folder, _ = bench.predicted(run)
    rows = []
    labels = set()
    for i, image in _pictures(bench, least=1):
        file = layout.label_file(folder / layout.PREDICTIONS, catalog.name(i))
        mask = read_mask(file, len(catalog.classes))
        title = ", ".join(_names(catalog, i))
        cells = [(title, _shown(image))]
        cells.append(("prediction", shown_mask(image, mask)))
        rows.append(cells + _truth(catalog, i, image))
        labels |= {int(label) for label in np.unique(mask) if 0 < label < UNSURE}
        labels |= {c + 1 for c in catalog.tags(i)}
    body = sheet(rows)
    names = {label: catalog.classes[label - 1] for label in sorted(labels)}
    below = legend(names, width=body.shape[1])
    picture = np.vstack([body, below])
    return Figure(
        name="examples",
        title="Segmentation examples",
        picture=picture,
        notes=_notes(bench),
    )


def patch_order(bench: Bench) -> Figure:
    """Show 4×4 numbered pixels in 2×2 patches: as they are, flipped, and with patches in order."""
    del bench
    pixels = torch.arange(1, 17).view(4, 4)
    view = HorizontalFlip()
    flipped = view.apply(pixels)
    in_order = _patches(flipped)[view.index((2, 2))]  # (4, 2, 2)
    restored = in_order.view(2, 2, 2, 2).transpose(1, 2).reshape(4, 4)
    rows = []
    for title, grid in (("image", pixels), ("flipped", flipped), ("order restored", restored)):
        tokens = _patches(grid).transpose(0, 1).reshape(2, 8)
        rows.append([(title, numbered(grid)), ("tokens", numbered(tokens))])
    notes = (
        "colour = the patch of the original that the pixels belong to. A flip changes the order of "
        "the patches and mirrors the pixels inside each; "
        "restoring the order leaves the inside of the patches as it is.",
    )
    return Figure(
        name="patch-order",
        title="The order of patches in a flipped view",
        picture=sheet(rows),
        notes=notes,
    )


def numbered(grid: torch.Tensor, side: int = 48) -> Picture:
    """Draw the numbers of pixels as squares, in the colour of the patch that each belongs to.

    Args:
        grid: Numbers 1 to 16 (h, w); they count the 4×4 pixels of the original row by row.
        side: Side of a square in pixels.
    """
    height, width = grid.shape
    canvas = Pillow.new("RGB", (side * width, side * height), "white")
    draw = ImageDraw.Draw(canvas)
    palette = voc_palette()
    for (y, x), number in np.ndenumerate(grid.numpy()):
        row, column = divmod(int(number) - 1, 4)
        patch = 2 * (row // 2) + column // 2
        colour = palette[1 + patch]
        # halfway to white, so that the number can be read
        red, green, blue = (255 - (255 - colour) // 2).tolist()
        left = x * side
        top = y * side
        # a gap of a pixel separates the squares
        inner = side - 2
        square = (left, top, left + inner, top + inner)
        draw.rectangle(square, fill=(red, green, blue))
        middle = ((x + 0.5) * side, (y + 0.5) * side)
        font = font_for(str(number), side // 2)
        draw.text(middle, str(number), fill=INK, font=font, anchor="mm")
    return np.asarray(canvas)


def maps_by(
    model: Classifier,
    method: str,
    image: Picture,
    catalog: Catalog,
    tags: Sequence[int],
    run: Training,
    changes: Changes | None = None,
) -> PhotoMaps:
    """Make maps of some classes of one image at its own size.

    Args:
        model: The network.
        method: Name of a map method.
        image: The image (H, W, 3).
        catalog: Names the classes.
        tags: Numbers of the classes in the catalog.
        run: The training, for its settings of maps.
        changes: Settings of maps that are changed; default: none.
    """
    names = [catalog.classes[c] for c in tags]
    settings = by_method(
        dataclasses.replace(run.settings.of(SeedSettings), **(changes or {})), method
    )
    classes = match_classes(names, model)
    return make_maps(model, [image], [classes], settings)[0]


def three_points(maps: np.ndarray) -> list[Point]:
    """Return two pixels in the strongest regions of the classes, and one in the background.

    Of a single class (maps (1, H, W)) the second pixel lies in its second strongest region.
    """
    *points, background = default_points(maps)
    if len(points) == 1:
        x, y = points[0]
        rest = maps.copy()
        reach = max(1, min(rest.shape[1:]) // 4)
        rows = slice(max(0, y - reach), y + reach + 1)
        columns = slice(max(0, x - reach), x + reach + 1)
        rest[:, rows, columns] = 0
        points.append(default_points(rest)[0])
    return [*points[: POINTS - 1], background]


def _patches(grid: torch.Tensor) -> torch.Tensor:
    """Cut 4×4 pixels into four patches, (4, 2, 2)."""
    return grid.view(2, 2, 2, 2).transpose(1, 2).reshape(4, 2, 2)


def _failure(bench: Bench, model: Classifier, run: Training, shown: set[int]) -> int | None:
    """Return the image of several classes whose maps fit its mask worst, none of those shown.

    Returns:
        Its index; None where there are no further masks.
    """
    catalog = bench.scored_images
    if not catalog.has_masks:
        return None
    scores: dict[int, float] = {}
    others = (pair for pair in _readable(catalog, least=2) if pair[0] not in shown)
    for i, image in islice(others, CANDIDATES):
        mask = _mask(catalog, i)
        if mask is not None:
            tags = catalog.tags(i)
            refined = maps_by(model, "acr", image, catalog, tags, run).refined
            swept = sweep([(tags, refined, mask)], len(catalog.classes) + 1)
            scores[i] = swept.best.miou_present
    return min(scores, key=lambda i: scores[i], default=None)


def _loaded(bench: Bench, variants: dict[str, Changes]) -> dict[str, tuple[Training, Classifier]]:
    """Train each variant with the first random seed, and load its network."""
    loaded = {}
    for title, (run,) in bench.trained(variants, seeds=1).items():
        loaded[title] = (run, on_device(load_classifier(run.classifier)))
    return loaded


def _regularised(bench: Bench) -> dict[str, tuple[Training, Classifier]]:
    variants = {title: ABLATION[name] for name, title in REGULARISED.items()}
    return _loaded(bench, variants)


def _readable(catalog: Catalog, least: int) -> Iterator[tuple[int, Picture]]:
    """Yield the images with at least ``least`` classes that can be read, with their indices."""
    for i in range(len(catalog)):
        if len(catalog.tags(i)) >= least:
            with suppress(ImageError):
                yield i, catalog.load_image(i)


def _pictures(bench: Bench, least: int) -> list[tuple[int, Picture]]:
    """Return the first readable images with ``least`` classes, as many as a figure shows."""
    readable = _readable(bench.scored_images, least)
    chosen = list(islice(readable, bench.settings.pictures))
    if not chosen:
        raise TagmaskError(
            f"no image has {least} tags or more; "
            "score other images, e.g. with a larger --score-count."
        )
    return chosen


def _name(bench: Bench, i: int) -> str:
    return bench.scored_images.name(i).split("/")[-1]


def _names(catalog: Catalog, i: int) -> list[str]:
    return [catalog.classes[c] for c in catalog.tags(i)]


def _shown(image: Picture) -> Picture:
    return resize(image, shown_size(*image.shape[:2]))


def _truth(catalog: Catalog, i: int, image: Picture) -> Cells:
    """Return a cell with the true mask; none where there is no mask."""
    mask = _mask(catalog, i)
    return [] if mask is None else [("truth", shown_mask(image, mask))]


def _mask(catalog: Catalog, i: int) -> Mask | None:
    with suppress(ImageError):
        return catalog.load_mask(i)
    return None


def _notes(bench: Bench) -> tuple[str, ...]:
    count = bench.settings.pictures
    seed = bench.settings.of(TrainSettings).seed
    which = f"the first {count} images that are scored and fit; random seed {seed}."
    return (which, *unlike_acr(bench))
