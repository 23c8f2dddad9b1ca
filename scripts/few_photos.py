"""How many photos are needed, and can the self-check be believed? Many small runs on photos of VOC.

Sets of tagged photos are drawn from a folder in VOC's layout as users have them: *exclusive*, one of two tags on every
photo, or *mixed*, several tags a photo. Each is run with the preset own-photos and scored on its own photos, tags
given. Every run is a row of the table; rows that are there are kept, so it can be stopped and started again. Features
are shared between runs by hard links.

    python scripts/few_photos.py curve --root VOC --weights vit_small.safetensors --work work --to curve.csv
    python scripts/few_photos.py broken --root VOC --weights vit_small.safetensors --work work --to broken.csv
    python scripts/few_photos.py trained --root VOC --weights vit_small.safetensors --work work --to trained.csv
    python scripts/few_photos.py options --root VOC --weights vit_small.safetensors --work work --to options.csv
    python scripts/few_photos.py company --root VOC --weights vit_small.safetensors --work work --to company.csv
    python scripts/few_photos.py judge curve.csv broken.csv
    python scripts/few_photos.py judge-tags company.csv
    python scripts/few_photos.py show curve.csv --to few-photos.png
"""

import argparse
import csv
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

NAMES = tuple(
    "aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike "  # noqa: SIM905
    "person pottedplant sheep sofa train tvmonitor".split()
)
SIX = ("cat", "cow", "dog", "horse", "person", "sheep")
PAIRS = (("cat", "dog"), ("cow", "horse"), ("dog", "sheep"))
COUNTS = (10, 20, 40, 80, 120, 160, 320, 764, 1527)
MOST_EXCLUSIVE = 320  # VOC's part has 386 photos that show cats alone or dogs alone
TRAINED_COUNTS = (80, 320, 764)
# the training that is compared is gentle: eight blocks frozen, from the fitted head, few small steps
TRAINING = (
    *("--train.train-from", "0", "--train.no-earn", "--train.size", "252"),
    *("--train.freeze", "8", "--train.steps", "40", "--train.lr", "1e-5"),
)
NO_TRAINING = ("--train.train-from", "1000000")
FEATURES = "0_tokens/head"
COLUMNS = (
    *("name", "kind", "classes", "count", "draw", "flags"),
    *("miou", "labels", "trust", "level", "signs"),
)
OTHERS = ("others", "others_without")  # mIoU of photos of the split val, with tags and without
TAG_SCORES = "ious"  # IoU of each tag
AFTERWARDS = 2  # the draw of sets that were run when the rule for tags in company stood
OTHER_PHOTOS = 40  # a prediction of one photo costs a second, and there are two for each


@dataclass(frozen=True)
class Trial:
    """One small run."""

    kind: str  # exclusive or mixed
    classes: tuple[str, ...]
    count: int
    draw: int
    title: str = "preset"
    flags: tuple[str, ...] = ()
    shuffled: bool = field(default=False)  # tags of other photos
    # for the kind company: tags that a photo has exactly, joined by +, and how many such photos
    parts: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        """Return the name of the run's folder."""
        return f"{self.kind}-{'+'.join(self.classes)}-{self.count}-{self.draw}-{self.title}"


def curve_trials() -> Iterator[Trial]:
    """Yield the preset over numbers of photos, three draws each."""
    for count in COUNTS:
        for draw in range(3):
            if count <= MOST_EXCLUSIVE:
                yield Trial("exclusive", ("cat", "dog"), count, draw, flags=NO_TRAINING)
            if count >= 20:
                yield Trial("mixed", SIX, count, draw, flags=NO_TRAINING)


def trained_trials() -> Iterator[Trial]:
    """Yield runs without a training, with one, and with one that has no consistency."""
    plain = (*TRAINING, "--train.alpha", "0", "--train.beta", "0")
    for count in TRAINED_COUNTS:
        for draw in range(3):
            for title, flags in (("none", NO_TRAINING), ("acr", TRAINING), ("plain", plain)):
                yield Trial("mixed", SIX, count, draw, title, flags)


def option_trials() -> Iterator[Trial]:
    """Yield options, three draws each: is one of them worth having?

    The preset's own choice is in the curve.
    """
    every_pixel = (*NO_TRAINING, "--pseudo.no-unsure")
    for draw in range(3):
        for kind, classes in (("exclusive", ("cat", "dog")), ("mixed", SIX)):
            yield Trial(kind, classes, 120, draw, "every-pixel", every_pixel)
    maps = (*NO_TRAINING, "--seeds.objects", "False")
    for draw in range(3):
        options = {
            "objects-pamr": (*NO_TRAINING, "--predict.pamr", "--predict.no-crf"),
            "maps": maps,
        }
        for title, flags in options.items():
            yield Trial("mixed", SIX, 80, draw, title, flags)


def broken_trials() -> Iterator[Trial]:
    """Yield other pairs of tags, and settings that break the masks in several ways."""
    for pair in PAIRS[1:]:
        for draw in range(3):
            yield Trial("exclusive", pair, 40, draw)
    for draw in range(4):
        for kind, classes in (("exclusive", ("cat", "dog")), ("mixed", SIX)):
            every_tag = ",".join(classes)
            broken = {
                "all-stuff": ("--train.stuff", every_tag),
                "one-stuff": ("--train.stuff", classes[0]),
                "low-background": ("--pseudo.background", "0.02"),
                "high-background": ("--pseudo.background", "0.98"),
                "component": ("--train.object-method", "component"),
            }
            for title, flags in broken.items():
                yield Trial(kind, classes, 40, draw, title, flags)
            yield Trial(kind, classes, 40, draw, "shuffled", (), True)


def company_trials() -> Iterator[Trial]:
    """Yield sets in which it is decided which tags are ever seen alone, and how often."""
    # the second tag comes with the first alone, of which there are photos by itself
    pairs = (
        *(("dog", "person"), ("horse", "person"), ("cat", "person")),
        *(("cow", "person"), ("sheep", "person"), ("dog", "sofa"), ("cat", "sofa")),
        *(("cat", "chair"), ("dog", "chair"), ("dog", "pottedplant"), ("cat", "tvmonitor")),
    )
    for first, second in pairs:
        both = f"{first}+{second}"
        yield _company("two tags", ((first, 20), (both, 20)))
    # the same with photos that have neither
    others = {"dog": "cat", "horse": "cow", "cat": "sheep", "cow": "dog", "sheep": "horse"}
    for first, second in pairs[:9]:
        parts = ((first, 15), (f"{first}+{second}", 15), (others[first], 15))
        yield _company("three tags", parts)
    # no tag is ever alone
    for draw in range(2):
        yield _company("none alone", (("dog+person", 20), ("horse+person", 20)), draw)
        parts = (("cat+person", 15), ("dog+sofa", 15), ("horse+person", 15))
        yield _company("none alone", parts, draw)
    # the first tag is alone on more and more photos
    yield from _more_and_more(0)
    for first in ("dog", "horse"):
        for alone in (5, 10, 30, 35):
            yield _company("everywhere", ((first, alone), (f"{first}+person", 40 - alone)))
    # with other photos, to see what a rule is worth that was chosen on those before
    for first, second in pairs[:9]:
        parts = ((first, 15), (f"{first}+{second}", 15), (others[first], 15))
        yield _company("three tags", parts, AFTERWARDS)
    yield from _more_and_more(AFTERWARDS)


def _more_and_more(draw: int) -> Iterator[Trial]:
    """Yield sets in which a tag is alone on more and more photos."""
    for first, other in (("dog", "horse"), ("horse", "dog")):
        for alone in (0, 1, 3, 8, 20):
            parts = ((f"{first}+person", 20), (f"{other}+person", 10), (other, 10), (first, alone))
            yield _company("more and more", parts, draw)


def _company(title: str, parts: tuple[tuple[str, int], ...], draw: int = 0) -> Trial:
    """Return a trial whose photos have exactly these tags."""
    classes = sorted({tag for tags, _ in parts for tag in tags.split("+")})
    count = sum(number for _, number in parts)
    shown = ",".join(f"{number} {tags}" for tags, number in parts)
    return Trial("company", tuple(classes), count, draw, f"{title}: {shown}", parts=parts)


def draw_photos(voc: Path, trial: Trial) -> list[tuple[str, list[str]]]:
    """Return the photos of a trial with their tags.

    Args:
        voc: folder with JPEGImages, SegmentationClassAug and ImageSets.
        trial: what to draw.
    """
    names = (voc / "ImageSets/Segmentation/train.txt").read_text().split()
    random.Random(trial.draw).shuffle(names)
    if trial.parts:
        return _draw_parts(voc, names, trial.parts)
    counts = dict.fromkeys(trial.classes, 0)
    share = 1.0 if trial.kind == "exclusive" else 1.5
    most = max(1, round(trial.count / len(trial.classes) * share))
    chosen: list[tuple[str, list[str]]] = []
    for name in names:
        tags = tags_of(voc, name)
        if not tags or not tags <= set(trial.classes):
            continue
        if trial.kind == "exclusive" and len(tags) > 1:
            continue
        if min(counts[tag] for tag in tags) >= most:
            continue
        for tag in tags:
            counts[tag] += 1
        chosen.append((name, sorted(tags)))
        if len(chosen) == trial.count:
            break
    if trial.shuffled:
        tags_only = [tags for _, tags in chosen]
        random.Random(trial.draw).shuffle(tags_only)
        chosen = [(name, tags) for (name, _), tags in zip(chosen, tags_only, strict=True)]
    return chosen


def _draw_parts(
    voc: Path, names: list[str], parts: tuple[tuple[str, int], ...]
) -> list[tuple[str, list[str]]]:
    """Return the first photos that have exactly the tags of one of the parts.

    Args:
        voc: the data.
        names: photos in the order of the draw.
        parts: tags joined by +, and how many photos; fewer where there are no more.
    """
    left = {"+".join(sorted(tags.split("+"))): count for tags, count in parts}
    chosen = []
    for name in names:
        tags = sorted(tags_of(voc, name))
        key = "+".join(tags)
        if left.get(key, 0):
            left[key] -= 1
            chosen.append((name, tags))
    return chosen


def tags_of(voc: Path, name: str) -> set[str]:
    """Return the classes that a mask shows.

    Args:
        voc: the data.
        name: of the photo.
    """
    mask = np.array(Image.open(mask_file(voc, name)))
    return {NAMES[number - 1] for number in np.unique(mask) if 0 < number < 255}


def mask_file(voc: Path, name: str) -> Path:
    """Return the file with the true mask of a photo."""
    return voc / f"SegmentationClassAug/{name}.png"


def label_numbers(classes: tuple[str, ...]) -> npt.NDArray[np.uint8]:
    """Return the label of a run for each of VOC's, (256,): 1, 2, … in the order of the alphabet."""
    lookup = np.zeros(256, np.uint8)
    lookup[255] = 255
    for number, tag in enumerate(sorted(classes), 1):
        lookup[NAMES.index(tag) + 1] = number
    return lookup


def write_set(voc: Path, trial: Trial, folder: Path) -> list[str]:
    """Write photos, tags and masks of a trial; returns the names of the photos.

    Args:
        voc: the data.
        trial: what to draw.
        folder: where to.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "photos").mkdir(parents=True)
    (folder / "masks").mkdir()
    lookup = label_numbers(trial.classes)
    rows = ["file,tags"]
    chosen = draw_photos(voc, trial)
    for name, tags in chosen:
        os.symlink((voc / f"JPEGImages/{name}.jpg").resolve(), folder / f"photos/{name}.jpg")
        mask = np.array(Image.open(mask_file(voc, name)))
        Image.fromarray(lookup[mask]).save(folder / f"masks/{name}.png")
        rows.append(f"{name}.jpg,{';'.join(tags)}")
    (folder / "tags.csv").write_text("\n".join(rows) + "\n")
    return [name for name, _ in chosen]


def link_features(source: Path, target: Path, names: list[str]) -> None:
    """Link kept features of photos from one folder into another.

    Args:
        source: holds made_by.json and a file per photo.
        target: likewise.
        names: of the photos.
    """
    if not (source / "made_by.json").is_file():
        return
    target.mkdir(parents=True, exist_ok=True)
    for file in ("made_by.json", *(f"{name}.safetensors" for name in names)):
        if (source / file).is_file() and not (target / file).exists():
            os.link(source / file, target / file)


def run_trial(
    trial: Trial, voc: Path, weights: Path, work: Path, with_others: bool
) -> dict[str, Any]:
    """Run a trial, and return its row.

    Args:
        trial: what to run.
        voc: the data.
        weights: of the backbone.
        work: folder for sets and runs.
        with_others: score other photos, too.
    """
    photos = work / "set"
    out = work / "run"
    shutil.rmtree(out, ignore_errors=True)
    names = write_set(voc, trial, photos)
    is_trained = "--train.steps" in trial.flags  # its features are of no use to others
    if not is_trained:
        link_features(work / "features", out / FEATURES, names)
    command = [sys.executable, "-m", "tagmask", "run", "--preset", "own-photos"]
    command += ["--images", str(photos / "photos"), "--tags", str(photos / "tags.csv")]
    command += ["--masks", str(photos / "masks"), "--out", str(out), "--no-estimate"]
    command += ["--rows", "0", "--train.no-pretrained", "--train.weights", str(weights)]
    command += ["--train.backbone", "vit_small_patch14_dinov2", *trial.flags]
    subprocess.run(command, check=True, capture_output=True)
    if not is_trained:
        link_features(out / FEATURES, work / "features", names)
    others: dict[str, Any] = {}
    scores = json.loads((out / "scores.json").read_text())
    if with_others:
        others = score_others(voc, out, trial.classes)
    if trial.parts:
        ious = scores["predictions"]["iou"]
        others = {TAG_SCORES: json.dumps({tag: round(100 * ious[tag], 1) for tag in trial.classes})}
    verdicts = json.loads((out / "check.json").read_text())["tags"]
    trust = float(np.mean([row["trust"] for row in verdicts.values()]))
    levels = [row["level"] for row in verdicts.values()]
    return {
        "name": trial.name,
        "kind": trial.kind,
        "classes": "+".join(trial.classes),
        "count": len(names),
        "draw": trial.draw,
        "flags": " ".join([trial.title, *trial.flags]),
        "miou": round(100 * scores["predictions"]["miou_present"], 1),
        "labels": round(100 * scores["pseudo"]["miou_present"], 1),
        "trust": round(trust, 3),
        "level": f"{sum(level != 'good' for level in levels)} of {len(levels)} doubtful",
        "signs": json.dumps({tag: row["signs"] for tag, row in verdicts.items()}),
        **others,
    }


def score_others(voc: Path, out: Path, classes: tuple[str, ...]) -> dict[str, float]:
    """Return the mIoU of photos of the split val that show these classes alone.

    Args:
        voc: the data.
        out: the run.
        classes: what the photos show.

    Returns:
        With their tags and without, background and classes.
    """
    import tagmask

    model = tagmask.load(out)
    counts = {name: np.zeros((len(classes) + 1,) * 2, np.int64) for name in OTHERS}
    names = (voc / "ImageSets/Segmentation/val.txt").read_text().split()
    shown = [(name, tags_of(voc, name)) for name in names]
    fitting = [(name, tags) for name, tags in shown if tags and tags <= set(classes)]
    for name, tags in fitting[:OTHER_PHOTOS]:
        mask = label_numbers(classes)[np.array(Image.open(mask_file(voc, name)))]
        photo = voc / f"JPEGImages/{name}.jpg"
        for column, known in zip(OTHERS, (sorted(tags), None), strict=True):
            predicted = model.predict(photo, tags=known).mask
            seen = mask != 255
            pairs = mask[seen].astype(np.int64) * (len(classes) + 1) + predicted[seen]
            counts[column] += np.bincount(pairs, minlength=counts[column].size).reshape(
                counts[column].shape
            )
    return {name: round(100 * mean_iou(table), 1) for name, table in counts.items()}


def mean_iou(table: npt.NDArray[np.int64]) -> float:
    """Return the mean IoU of a table of counts (truth, prediction)."""
    both = np.diag(table)
    union = table.sum(0) + table.sum(1) - both
    return float((both / union).mean())


def read_rows(file: Path) -> list[dict[str, str]]:
    """Return the rows of a table; none if there is no file."""
    if not file.is_file():
        return []
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def run_all(trials: Iterator[Trial], options: argparse.Namespace) -> None:
    """Run what is not in the table yet.

    Args:
        trials: what to run.
        options: of the command line.
    """
    options.work.mkdir(parents=True, exist_ok=True)
    done = {row["name"] for row in read_rows(options.to)}
    for trial in trials:
        if trial.name in done:
            continue
        with_others = options.command == "trained"
        row = run_trial(trial, options.root, options.weights, options.work, with_others)
        is_new = not options.to.is_file()
        more = {"trained": OTHERS, "company": (TAG_SCORES,)}.get(options.command, ())
        with options.to.open("a", newline="") as opened:
            writer = csv.DictWriter(opened, (*COLUMNS, *more))
            if is_new:
                writer.writeheader()
            writer.writerow(row)
        print(f"{row['name']:50} {row['miou']:5} trust {row['trust']:.2f}", flush=True)


def judge(files: list[Path]) -> None:
    """Print how well the self-check predicts the true score.

    Args:
        files: tables of runs.
    """
    from scipy.stats import spearmanr

    from tagmask.inference.selfcheck import Signs
    from tagmask.inference.selfcheck import judge as judge_tag

    truth, trust, called = [], [], []
    for file in files:
        for row in read_rows(file):
            signs = json.loads(row["signs"])
            verdicts = [judge_tag(tag, Signs(**values)) for tag, values in signs.items()]
            truth.append(float(row["miou"]))
            trust.append(float(np.mean([verdict.trust for verdict in verdicts])))
            bad = sum(verdict.level != "good" for verdict in verdicts)
            called.append(2 * bad >= len(verdicts))
    score = np.array(truth)
    doubtful = np.array(called)
    low = score < 40
    high = score > 70
    print(f"{len(score)} runs; rank correlation {spearmanr(score, trust).statistic:.3f}")
    print(f"below 40: {int(low.sum())}, called doubtful {100 * doubtful[low].mean():.0f} %")
    print(f"above 70: {int(high.sum())}, called doubtful {100 * doubtful[high].mean():.0f} %")


def judge_tags(file: Path) -> None:
    """Print the true scores of tags by how often they are alone, and what the self-check says.

    Args:
        file: a table of ``company``.
    """
    from tagmask.inference.selfcheck import Signs
    from tagmask.inference.selfcheck import judge as judge_tag

    groups: dict[str, list[Judged]] = {name: [] for name in COMPANIES}
    earlier: list[Judged] = []
    later: list[Judged] = []
    for row in read_rows(file):
        ious = json.loads(row[TAG_SCORES])
        signs = {tag: Signs(**values) for tag, values in json.loads(row["signs"]).items()}
        has_one_everywhere = any(own.is_everywhere for own in signs.values())
        for tag, own in signs.items():
            verdict = judge_tag(tag, own)
            judged = Judged(ious[tag], verdict.trust, verdict.level == "good")
            groups[company_of(own.alone or 0.0, own.is_everywhere, has_one_everywhere)].append(
                judged
            )
            (later if int(row["draw"]) == AFTERWARDS else earlier).append(judged)
    print("| the tag is | tags | IoU: lowest, middle, highest | called good |")
    print("|---|---:|---|---:|")
    for name, tags in groups.items():
        scores = sorted(tag.iou for tag in tags)
        spread = f"{scores[0]:.0f}, {np.median(scores):.0f}, {scores[-1]:.0f}"
        print(f"| {name} | {len(tags)} | {spread} | {sum(tag.is_good for tag in tags)} |")
    for title, tags in (("chosen on", earlier), ("afterwards", later)):
        print(f"{title}: {_agreement(tags)}")


@dataclass(frozen=True)
class Judged:
    """A tag of a run."""

    iou: float  # true, in per cent
    trust: float
    is_good: bool  # by the self-check


COMPANIES = (
    "never alone, and another is on every photo",
    "never alone",
    "alone on up to a third of its photos",
    "alone on up to two thirds",
    "always alone",
    "on every photo, alone on up to two thirds",
    "on every photo, alone on more",
)


def company_of(alone: float, is_everywhere: bool, has_one_everywhere: bool) -> str:
    """Return one of ``COMPANIES``.

    Args:
        alone: share of the photos of a tag on which it is alone.
        is_everywhere: every photo has it.
        has_one_everywhere: there is a tag that every photo has.
    """
    if is_everywhere:
        return COMPANIES[5 if alone < 2 / 3 else 6]
    if not alone:
        return COMPANIES[0 if has_one_everywhere else 1]
    if alone == 1:
        return COMPANIES[4]
    return COMPANIES[2 if alone < 1 / 3 else 3]


def _agreement(tags: list[Judged]) -> str:
    """Return how well the self-check predicts the scores of tags."""
    from scipy.stats import spearmanr

    scores = [tag.iou for tag in tags]
    ranks = spearmanr(scores, [tag.trust for tag in tags]).statistic
    good = [tag.iou for tag in tags if tag.is_good]
    return (
        f"{len(tags)} tags; rank correlation {ranks:.3f}; {len(good)} called good, "
        f"{sum(iou < 40 for iou in good)} of them with an IoU below 40"
    )


def show(file: Path, picture: Path) -> None:
    """Print the table of a curve, and draw it.

    Args:
        file: the rows.
        picture: where the figure goes.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    titles = {"exclusive": "two tags, one on every photo", "mixed": "six tags, several a photo"}
    rows = read_rows(file)
    figure, axes = plt.subplots(figsize=(6.6, 3.4), dpi=110)
    print("| photos | " + " | ".join(titles.values()) + " |")
    print("|---:|---|---|")
    measured = sorted({int(row["count"]) for row in rows})
    for count in measured:
        cells = []
        for kind in titles:
            scores = sorted(scores_of(rows, kind, count))
            if scores:
                cells.append(f"**{np.mean(scores):.1f}** ({', '.join(map(str, scores))})")
            else:
                cells.append("–")
        print(f"| {count} | {' | '.join(cells)} |")
    for kind, title in titles.items():
        counts = sorted({int(row["count"]) for row in rows if row["kind"] == kind})
        means = [float(np.mean(scores_of(rows, kind, count))) for count in counts]
        (line,) = axes.plot(counts, means, marker="o", label=title)
        for count in counts:
            scores = scores_of(rows, kind, count)
            axes.plot([count] * len(scores), scores, "x", color=line.get_color(), alpha=0.6)
    axes.set_xscale("log")
    axes.set_xticks(measured, [str(count) for count in measured])
    axes.minorticks_off()
    axes.set_xlabel("photos")
    axes.set_ylabel("mIoU of the masks, %")
    axes.set_ylim(0, 100)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", frameon=False)
    figure.tight_layout()
    figure.savefig(picture)


def scores_of(rows: list[dict[str, str]], kind: str, count: int) -> list[float]:
    """Return the scores of the masks of all draws.

    Args:
        rows: of the table.
        kind: exclusive or mixed.
        count: photos.
    """
    chosen = [row for row in rows if row["kind"] == kind and int(row["count"]) == count]
    return [float(row["miou"]) for row in chosen]


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("curve", "broken", "trained", "options", "company"):
        part = commands.add_parser(name)
        part.add_argument("--root", type=Path, required=True)
        part.add_argument("--weights", type=Path, required=True)
        part.add_argument("--work", type=Path, required=True)
        part.add_argument("--to", type=Path, required=True)
    commands.add_parser("judge").add_argument("files", type=Path, nargs="+")
    commands.add_parser("judge-tags").add_argument("file", type=Path)
    part = commands.add_parser("show")
    part.add_argument("file", type=Path)
    part.add_argument("--to", type=Path, required=True)
    options = parser.parse_args()
    if options.command == "show":
        show(options.file, options.to)
        return
    if options.command == "judge":
        judge(options.files)
        return
    if options.command == "judge-tags":
        judge_tags(options.file)
        return
    trials = {
        "curve": curve_trials,
        "broken": broken_trials,
        "trained": trained_trials,
        "options": option_trials,
        "company": company_trials,
    }
    run_all(trials[options.command](), options)


if __name__ == "__main__":
    main()
