"""What a few clicks bring: mean IoU over the number of clicks of a simulated person, with and without the seeds' head.

    python benchmarks/clicks.py --run run --masks masks --show clicks.png
    python benchmarks/clicks.py --run run --root VOC --split val.txt --show clicks.png

The first line is about the photos of the run itself, whose masks are in a folder, the second about other photos.

The person looks at ``--of`` random photos, takes the one whose mask is worst, finds the largest region with a wrong
label, and clicks into its middle: the superpixel there gets its true label. Then the head learns again as the explorer
does. Beside it: the same clicks given to a head that has seen nothing but clicks. Both are told the tags; masks are
those before the CRF. Needs a finished run with a head, and photos with masks; nothing is written into the run.
"""

import argparse
import copy
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import ndimage

from tagmask import layout
from tagmask.config import HeadSettings
from tagmask.data.catalog import Catalog
from tagmask.data.corrections import NOT_CORRECTED, fix
from tagmask.data.images import write_mask
from tagmask.data.open import read_catalog
from tagmask.features.cache import TokenStore
from tagmask.features.photo import Tokens
from tagmask.inference.probabilities import predict_probabilities
from tagmask.labels import UNSURE, Mask
from tagmask.masks.superpixels import superpixels
from tagmask.models.head import HeadSegmenter
from tagmask.models.kinds import load_segmenter
from tagmask.runs.settings import run_settings, run_values
from tagmask.scoring.confusion import confusion, iou
from tagmask.studio.learn import refit
from tagmask.training.head import Cells, fit, gather_cells, person_labels

MARKS = (0, 1, 5, 20, 50)


class Person:
    """A simulated person, and the head that learns from the clicks."""

    def __init__(
        self,
        catalog: Catalog,
        tokens: list[Tokens],
        head: HeadSegmenter,
        cells: Cells,
        settings: Any,
    ) -> None:
        self.catalog, self.tokens, self.first, self.settings = catalog, tokens, head, settings
        self.head, self.cells, self.corrections = head, copy.deepcopy(cells), dict[int, Mask]()
        self.starts = np.cumsum([0, *(kept.values.shape[1] for kept in tokens)])

    def mask(self, i: int, head: HeadSegmenter) -> Mask:
        tags, image = list(self.catalog.tags(i)), self.catalog.load_image(i)
        chances = predict_probabilities(head, image, flip=False, tags=tags, tokens=self.tokens[i])
        return fix(
            chances.argmax(0).astype(np.uint8),
            self.corrections.get(i),
            self.catalog.name(i),
            unsure=False,
        )

    def truth(self, i: int) -> Mask:
        mask = self.catalog.load_mask(i)
        assert mask is not None
        return mask

    def click(self, looked_at: list[int]) -> None:
        """Correct the largest wrong region of the worst photo."""
        masks = {i: self.mask(i, self.head) for i in looked_at}
        classes = len(self.catalog.classes) + 1
        worst = min(
            looked_at, key=lambda i: iou(confusion(masks[i], self.truth(i), classes)).miou_present
        )
        truth = self.truth(worst)
        y, x = middle_of_the_largest((masks[worst] != truth) & (truth != UNSURE), truth)
        pieces = superpixels(self.catalog.load_image(worst))
        correction = self.corrections.setdefault(worst, np.full_like(truth, NOT_CORRECTED))
        correction[pieces == pieces[y, x]] = truth[y, x]
        labels, touched = person_labels(correction, self.tokens[worst].grid, classes)
        part = slice(self.starts[worst], self.starts[worst + 1])
        self.cells.labels[part] = torch.where(
            touched[:, None], labels.half(), self.cells.labels[part]
        )
        self.cells.corrected[part] = touched

    def learn(self) -> None:
        self.head = refit(self.first, self.cells, self.settings)

    def from_clicks_alone(self) -> HeadSegmenter:
        """A head that starts from nothing and sees corrected cells only."""
        twin = copy.copy(self.first)
        twin._modules = {**self.first._modules, "linear": copy.deepcopy(self.first.linear)}
        with torch.no_grad():
            twin.linear.weight.zero_()
            twin.linear.bias.zero_()
        mine, chosen = self.cells, self.cells.corrected
        if chosen.any():
            none = torch.zeros(int(chosen.sum()), dtype=torch.bool)
            cells = Cells(mine.features[chosen], mine.labels[chosen], mine.allowed[chosen], none)
            for _ in fit(twin, cells, cells.labels, self.settings, 100, 0):
                pass
        return twin

    def score(self, head: HeadSegmenter, photos: list[int]) -> float:
        counts = sum(
            confusion(self.mask(i, head), self.truth(i), len(self.catalog.classes) + 1)
            for i in photos
        )
        return 100 * iou(np.asarray(counts)).miou_present


def middle_of_the_largest(
    wrong: np.ndarray[Any, np.dtype[np.bool_]], truth: Mask
) -> tuple[int, int]:
    """The innermost pixel of the largest connected region of wrong pixels (H, W) that have one true label."""
    best, region = 0, wrong
    for label in np.unique(truth[wrong]):
        parts, _ = ndimage.label(wrong & (truth == label))
        sizes = np.bincount(parts.ravel())[1:]
        if sizes.size and sizes.max() > best:
            best, region = int(sizes.max()), parts == 1 + sizes.argmax()
    depth = ndimage.distance_transform_edt(np.pad(region, 1))[1:-1, 1:-1]
    y, x = np.unravel_index(int(depth.argmax()), depth.shape)
    return int(y), int(x)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    values = run_values(None, args.run / layout.CONFIG) | {"out": args.run}
    if args.masks is not None:
        values |= {"masks": args.masks}
    else:
        values |= {"data": "voc", "root": args.root, "split": str(args.split)}
    run = run_settings(values)
    settings = run.of(HeadSettings)
    catalog = read_catalog(run)
    head = load_segmenter(args.run / layout.SEGMENTER)
    assert isinstance(head, HeadSegmenter), "the run has no head"
    store = TokenStore.features_of(
        head.classifier, head.blocks, head.size, args.run, 0
    )  # keeps nothing new
    tokens = [store.get(catalog, i) for i in range(len(catalog))]
    print(f"{len(catalog)} photos, {len(catalog.classes)} classes")
    rows: dict[int, list[tuple[float, float, float]]] = {
        mark: [] for mark in MARKS if mark <= args.clicks
    }
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        start = Person(catalog, tokens, head, Cells(*[torch.zeros(0)] * 4), settings)
        for i in range(len(catalog)):
            write_mask(layout.label_file(Path(folder), catalog.name(i)), start.mask(i, head))
        cells, _ = gather_cells(lambda i: tokens[i], catalog, Path(folder), head, 0)
    for seed in range(args.seeds):
        person, random = Person(catalog, tokens, head, cells, settings), np.random.default_rng(seed)
        photos = list(range(len(catalog)))
        for clicks in range(args.clicks + 1):
            if clicks:
                person.click(random.choice(len(catalog), args.of, replace=False).tolist())
            if clicks and (clicks in MARKS or clicks % args.every == 0):
                began = time.monotonic()
                person.learn()
                seconds.append(time.monotonic() - began)
            if clicks in rows:
                before = person.score(
                    person.first, photos
                )  # the corrected pixels alone, nothing learnt
                scores = (
                    person.score(person.head, photos),
                    before,
                    person.score(person.from_clicks_alone(), photos),
                )
                rows[clicks].append(scores)
                print(
                    f"seed {seed}, {clicks:2} clicks: "
                    + "  ".join(f"{value:5.1f}" for value in scores),
                    flush=True,
                )
    return {
        "photos": len(catalog),
        "clicks": rows,
        "learning_seconds": round(float(np.median(seconds)), 2),
    }


def show(result: dict[str, Any], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.6), dpi=110)
    marks = list(result["clicks"])
    titles = (
        "learned again from the clicks",
        "corrected pixels only",
        "the same clicks without the maps",
    )
    for k, title in enumerate(titles):
        scores = np.array(
            [[row[k] for row in result["clicks"][mark]] for mark in marks]
        )  # (marks, seeds)
        axes.plot(marks, scores.mean(1), "o-", label=title)
        axes.fill_between(marks, scores.min(1), scores.max(1), alpha=0.2)
    axes.set(xlabel="clicks", ylabel="mIoU of all masks, %", xticks=marks)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("run", "masks", "root", "split", "show", "json"):
        parser.add_argument(f"--{name}", type=Path)
    for name, value in (("clicks", 50), ("of", 20), ("every", 10), ("seeds", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    has_photos = args.masks is not None or (args.root is not None and args.split is not None)
    if args.run is None or not has_photos:
        print(
            "clicks: needs a finished run with a head and photos with masks; give --run, and --masks or "
            "--root and --split."
        )
        return
    torch.set_num_threads(1)
    result = measure(args)
    print(f"{'clicks':>6} {'learnt':>7} {'fixed':>7} {'no seeds':>9}")
    for clicks, rows in result["clicks"].items():
        learnt, fixed, alone = np.mean(rows, axis=0)
        print(f"{clicks:6} {learnt:7.1f} {fixed:7.1f} {alone:9.1f}")
    print(f"learning again: {result['learning_seconds']} s (median, one thread)")
    if args.show is not None:
        show(result, args.show)
    if args.json is not None:
        args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
