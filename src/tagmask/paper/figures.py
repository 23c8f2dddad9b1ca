"""The paper's figures as sheets of pictures, of images that are scored (first come, first shown)."""

from collections.abc import Iterator

import numpy as np

from tagmask.data.catalog import Catalog
from tagmask.data.images import read_mask
from tagmask.errors import ImageError, TagmaskError
from tagmask.labels import UNSURE
from tagmask.models.classifier import Classifier
from tagmask.models.device import on_device
from tagmask.models.kinds import load_classifier
from tagmask.paper.bench import Bench, Run
from tagmask.paper.methods import TITLES, maps_by
from tagmask.paper.page import Figure
from tagmask.paper.seed_tables import ABLATION, ACR
from tagmask.pipeline import layout
from tagmask.show.affinity import affinity_matrix, affinity_of_pixel, default_points, marked
from tagmask.show.overlay import legend
from tagmask.show.seeds import shown_heat, shown_mask
from tagmask.show.sheet import Picture, resize, sheet, shown_size
from tagmask.stages.images import match_classes
from tagmask.stages.maps import Image, Maps
from tagmask.stages.seeds import patch_affinity

REGULARISED = {"none": "baseline", "act": "activation only", "both": "ACR"}
PAIRS = {"generic": ("Generic", "Generic + affinity"), "acr": ("ACR*", "ACR")}  # shown without and with affinity
Cells = list[tuple[str, Picture]]


def maps(bench: Bench) -> Figure:
    """One row per image and method's map of its first class, ACR's without and with affinity at the end."""
    run, catalog = bench.trained({"ACR": ACR}, seeds=1)["ACR"][0], bench.scored_images
    model, rows = on_device(load_classifier(run.classifier)), list[Cells]()
    for i, image in _pictures(bench, least=1):
        chosen = match_classes([catalog.classes[catalog.tags(i)[0]]], model)
        cells = [(catalog.classes[catalog.tags(i)[0]], _shown(image))]
        for method, title in TITLES.items():
            found = maps_by(model, method, image, chosen, run.settings.seeds)
            plain, refined = PAIRS.get(method, (title, ""))
            cells.append((plain, shown_heat(image, found.plain[0])))
            cells += [(refined, shown_heat(image, found.refined[0]))] if refined else []
        rows.append(cells + _truth(catalog, i, image))
    return Figure("maps", "Maps of each method, on the same classifier", sheet(rows), _notes(bench))


def multi_class(bench: Bench) -> Figure:
    """Images of several classes, each class's map with affinity."""
    run, catalog = bench.trained({"ACR": {}}, seeds=1)["ACR"][0], bench.scored_images
    model, rows = on_device(load_classifier(run.classifier)), list[Cells]()
    for i, image in _pictures(bench, least=2):
        found = _acr(model, catalog, i, image, run)
        names = [catalog.classes[c] for c in catalog.tags(i)]
        heats = [(name, shown_heat(image, one)) for name, one in zip(names, found.refined, strict=True)]
        rows.append([("image", _shown(image)), *heats, *_truth(catalog, i, image)])
    return Figure("multi-class", "Maps of images with several classes (ACR)", sheet(rows), _notes(bench))


def affinity(bench: Bench) -> Figure:
    """Affinity matrices of three trainings, side by side."""
    models = _regularised(bench)
    rows = list[Cells]()
    for i, image in _pictures(bench, least=1):
        cells = [(_name(bench, i), _shown(image))]
        for title, (model, run) in models.items():
            cells.append((title, affinity_matrix(patch_affinity(model, image, run.settings.seeds)[0])))
        rows.append(cells)
    note = "row = the patch that attends, column = the one attended to; bright columns: all attend to the same few."
    return Figure("affinity", "Affinity matrices", sheet(rows), (note, *_notes(bench)))


def source_pixels(bench: Bench) -> Figure:
    """One row per chosen pixel (red cross): what it attends to after three trainings."""
    models, rows = _regularised(bench), list[Cells]()
    last, run = models[REGULARISED["both"]]
    for i, image in _pictures(bench, least=1):
        found = {title: patch_affinity(model, image, own.settings.seeds) for title, (model, own) in models.items()}
        for point in default_points(_acr(last, bench.scored_images, i, image, run).refined):
            heats = [(title, affinity_of_pixel(image, *one, point)) for title, one in found.items()]
            rows.append([(_name(bench, i), marked(image, [point])), *heats])
    note = "one pixel in the strongest region of each class, then one in the background; each map has its own scale."
    return Figure("source-pixels", "Affinity of source pixels", sheet(rows), (note, *_notes(bench)))


def examples(bench: Bench) -> Figure:
    """Predictions of the segmenter beside the truth."""
    run, catalog = bench.trained({"ACR": {}}, seeds=1)["ACR"][0], bench.scored_images
    folder, rows, seen = bench.segmented(run), list[Cells](), set[int]()
    for i, image in _pictures(bench, least=1):
        mask = read_mask(layout.label_file(folder / layout.PREDICTIONS, catalog.name(i)), len(catalog.classes))
        names = ", ".join(catalog.classes[c] for c in catalog.tags(i))
        rows.append([(names, _shown(image)), ("prediction", shown_mask(image, mask)), *_truth(catalog, i, image)])
        seen |= {int(label) for label in np.unique(mask) if 0 < label < UNSURE} | {c + 1 for c in catalog.tags(i)}
    body = sheet(rows)
    names_of = {label: catalog.classes[label - 1] for label in sorted(seen)}
    picture = np.vstack([body, legend(names_of, width=body.shape[1])])
    return Figure("examples", "Segmentation examples", picture, _notes(bench))


def _regularised(bench: Bench) -> dict[str, tuple[Classifier, Run]]:
    runs = bench.trained({title: ABLATION[name] for name, title in REGULARISED.items()}, seeds=1)
    return {title: (on_device(load_classifier(some[0].classifier)), some[0]) for title, some in runs.items()}


def _acr(model: Classifier, catalog: Catalog, i: int, image: Image, run: Run) -> Maps:
    chosen = match_classes([catalog.classes[c] for c in catalog.tags(i)], model)
    return maps_by(model, "acr", image, chosen, run.settings.seeds)


def _pictures(bench: Bench, least: int) -> Iterator[tuple[int, Image]]:
    """The first readable images with at least so many classes, as many as a figure shows."""
    catalog, found = bench.scored_images, 0
    for i in range(len(catalog)):
        if found == bench.settings.pictures:
            return
        if len(catalog.tags(i)) < least:
            continue
        try:
            image = catalog.load_image(i)
        except ImageError:
            continue
        found += 1
        yield i, image
    if not found:
        raise TagmaskError(f"no image has {least} tags or more; score other images, e.g. with a larger --score-count.")


def _name(bench: Bench, i: int) -> str:
    return bench.scored_images.name(i).split("/")[-1]


def _shown(image: Image) -> Picture:
    return resize(image, shown_size(*image.shape[:2]))


def _truth(catalog: Catalog, i: int, image: Image) -> Cells:
    """The true mask, where there is one."""
    try:
        mask = catalog.load_mask(i)
    except ImageError:
        mask = None
    return [] if mask is None else [("truth", shown_mask(image, mask))]


def _notes(bench: Bench) -> tuple[str, ...]:
    return (
        f"the first {bench.settings.pictures} images that are scored and fit; random seed {bench.settings.train.seed}.",
    )
