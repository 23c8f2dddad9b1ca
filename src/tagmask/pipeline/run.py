"""All stages in order, from images and tags to masks: what each reads, makes, and skips because it is done.

    train ─► seeds ─► pseudo ─► segment ─► predict ─► score ─► report

Stopped anywhere and started again, a run goes on and ends with the same files. A finished stage is skipped while its
settings and inputs are those it was made from; otherwise the run says what changed and does it anew, with all that
is made from it.
"""

import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from tagmask.config import check
from tagmask.config.run import RunSettings, write_config
from tagmask.data.catalog import Catalog
from tagmask.data.open import open_catalog
from tagmask.errors import TagmaskError
from tagmask.files import read_json
from tagmask.pipeline.record import (
    MODEL,
    Parts,
    Record,
    Standing,
    image_parts,
    mask_parts,
    setting_parts,
    standing,
)
from tagmask.stages.resume import file_digest, launched_shard

PRODUCTS = {  # stage: folder, and the files that it makes
    "train": ("1_classifier", MODEL),
    "seeds": ("2_seeds", "**/*.npz"),
    "pseudo": ("4_pseudo", "**/*.png"),
    "segment": ("5_segmenter", MODEL),
    "predict": ("6_predictions", "**/*.png"),
    "score": ("", "scores.json"),
    "report": ("", "report.html"),
}
AFFINITY = ("3_affinity", MODEL)


@dataclass
class RunSummary:
    """What a run has made."""

    out: Path
    stages: dict[str, Standing] = field(default_factory=dict)  # as they were found
    scores: dict[str, Any] = field(default_factory=dict)  # content of scores.json; empty without masks
    rule: str = "cross_entropy"  # how the seeds' threshold in the table was chosen

    @property
    def made(self) -> tuple[str, ...]:
        """The stages that had something to do."""
        return tuple(name for name, found in self.stages.items() if found.state != "done")

    def summary(self) -> str:
        """One table, and where the files are."""
        lines = ["", *_table(self.scores, self.rule)] if self.scores else []
        lines += [] if self.made else ["nothing to do: every stage is done, with these settings and images."]
        paths = {"masks": "6_predictions", "scores": "scores.json", "report": "report.html", "settings": "config.toml"}
        there = {name: self.out / path for name, path in paths.items() if (self.out / path).exists()}
        return "\n".join([*lines, *(f"{name}: {path}" for name, path in there.items())])


def run(settings: RunSettings) -> RunSummary:
    """Do every stage that is not done; the plan comes first."""
    check(settings)
    if launched_shard()[1] > 1:
        raise TagmaskError(
            "tagmask run is one process; under accelerate launch, start the stages one by one "
            "(tagmask train, seeds, pseudo, segment, predict), then `tagmask run` does the rest."
        )
    catalog = open_catalog(settings)
    stages = stages_of(catalog)
    from tagmask.pipeline.plan import plan

    told = plan(settings, catalog, {name: _look(settings, catalog, name) for name in stages})
    print("\n".join([told, *(f"note: {note}" for note in catalog.notes)]), flush=True)
    write_config(settings)
    done = RunSummary(settings.out, rule=settings.pseudo.rule)
    threads = torch.get_num_threads()
    for place, name in enumerate(stages, 1):
        done.stages[name] = _do(settings, catalog, name, f"[{place}/{len(stages)}] {name}")
        torch.set_num_threads(threads)  # a training with loading processes takes fewer
    file = settings.out / "scores.json"
    done.scores = read_json(file) if "score" in stages and file.is_file() else {}
    return done


def stages_of(catalog: Catalog) -> tuple[str, ...]:
    """The stages of a run; without masks nothing is scored."""
    has_report = importlib.util.find_spec("tagmask.stages.report") is not None
    left_out = {*(() if catalog.has_masks else ("score",)), *(() if has_report else ("report",))}
    return tuple(name for name in PRODUCTS if name not in left_out)


def record_of(out: Path, name: str) -> Record:
    folder, products = PRODUCTS[name]
    return Record(out / folder, products) if folder else Record(out, products, f"{name}.")


def _look(settings: RunSettings, catalog: Catalog, name: str) -> Standing:
    """How far a stage is."""
    record = record_of(settings.out, name)
    try:
        parts, where = parts_of(settings, catalog, name)
    except TagmaskError:  # an input is not there yet
        return Standing("goes on" if record.folder.is_dir() and not record.prefix else "new")
    return standing(record, parts, where, settings.restart)


def _do(settings: RunSettings, catalog: Catalog, name: str, title: str) -> Standing:
    """Do one stage, unless it is done."""
    record = record_of(settings.out, name)
    record.clean()
    parts, where = parts_of(settings, catalog, name)
    found = standing(record, parts, where, settings.restart)
    if found.state == "done":
        print(f"{title}: done before", flush=True)
        return found
    told = {"new": "", "goes on": ": goes on", "anew": ": anew"}[found.state]
    print(title + told + (f" ({_few(found.why)})" if found.why else ""), flush=True)
    if found.state == "anew":
        record.discard()
    walk = name == "pseudo" and settings.pseudo.method == "walk"
    began = time.monotonic()
    with _affinity_net(settings, parts) if walk else nullcontext():
        record.begin({**parts, **where})
        try:
            summary = ACTIONS[name](settings)
        except TagmaskError:
            record.restore()
            raise
    record.finish(parts)
    record.clean()
    tqdm.write("\n".join(f"  {line}" for line in [*summary.splitlines(), f"took {time.monotonic() - began:.0f} s"]))
    return found


def _few(reasons: tuple[str, ...]) -> str:
    return "; ".join(reasons[:3]) + (f"; and {len(reasons) - 3} more" if len(reasons) > 3 else "")


@contextmanager
def _affinity_net(settings: RunSettings, parts: Parts) -> Iterator[None]:
    """AffinityNet outlives a change of what comes after it, such as the score of the background."""
    record = Record(settings.out / AFFINITY[0], AFFINITY[1])
    own = {name: value for name, value in parts.items() if name.startswith(("affinity.", "alpha_", "input "))}
    record.clean()
    found = standing(record, own, {}, settings.restart)
    if found.state == "anew":
        record.discard()
    if found.state != "done":
        record.begin(own)
    yield
    record.finish(own)
    record.clean()


def parts_of(settings: RunSettings, catalog: Catalog, name: str) -> tuple[Parts, Parts]:
    """What a stage is made from, by name, and where its inputs are."""
    parts: Parts = {}
    where: Parts = {}
    if name in ("train", "seeds", "pseudo", "segment", "predict"):
        unused = {"seeds": ["batch"], "pseudo": [] if settings.pseudo.method == "walk" else ["affinity."]}
        parts, where = setting_parts(name, settings.for_stage(name), unused.get(name, ()))
    parts |= image_parts(catalog)
    if name == "seeds" or (name == "pseudo" and settings.pseudo.method == "attention"):
        parts["input classifier"] = file_digest(settings.out / PRODUCTS["train"][0] / MODEL)
    if name == "predict":
        parts["input segmenter"] = file_digest(settings.out / PRODUCTS["segment"][0] / MODEL)
    if name == "score":
        parts |= mask_parts(settings, catalog)
    if name == "report":
        scores = settings.out / "scores.json"
        parts |= {"rows": settings.rows, "input scores": file_digest(scores) if scores.is_file() else "none"}
    reads = {"pseudo": ["seeds"], "segment": ["pseudo"]}.get(name, [])
    if name in ("score", "report"):
        reads = ["seeds", "pseudo", "predict"]
    return parts | {f"input {TITLES[one]}": record_of(settings.out, one).stamp() for one in reads}, where


TITLES = {"seeds": "seeds", "pseudo": "pseudo labels", "predict": "predictions"}


def _train(settings: RunSettings) -> str:
    from tagmask.training.classifier import train

    return train(settings.for_stage("train")).summary()


def _seeds(settings: RunSettings) -> str:
    from tagmask.stages.seeds import seed_catalog

    return seed_catalog(settings.for_stage("seeds")).summary()


def _pseudo(settings: RunSettings) -> str:
    from tagmask.stages.pseudo import make_pseudo

    return make_pseudo(settings.for_stage("pseudo")).summary()


def _segment(settings: RunSettings) -> str:
    from tagmask.training.segmenter import train_segmenter

    return train_segmenter(settings.for_stage("segment")).summary()


def _predict(settings: RunSettings) -> str:
    from tagmask.stages.predict import predict_catalog

    return predict_catalog(settings.for_stage("predict")).summary()


def _score(settings: RunSettings) -> str:
    from tagmask.config import ScoreSettings
    from tagmask.stages.score_run import score_run

    options = {"out": settings.out, "processes": settings.pseudo.processes, **settings.data_settings()}
    scores = score_run(ScoreSettings(**options))
    if scores.seeds is None:
        return "0 images scored"
    return "\n".join([f"{scores.seeds.images} images scored", *scores.seeds.left_out()])


def _report(settings: RunSettings) -> str:
    from tagmask.config import ReportSettings
    from tagmask.stages.report import write_report

    return f"report: {write_report(ReportSettings(out=settings.out, rows=settings.rows, **settings.data_settings()))}"


ACTIONS: Mapping[str, Callable[[RunSettings], str]] = {
    "train": _train,
    "seeds": _seeds,
    "pseudo": _pseudo,
    "segment": _segment,
    "predict": _predict,
    "score": _score,
    "report": _report,
}


def _table(scores: Mapping[str, Any], rule: str) -> list[str]:
    """Scores of the stages, one line each."""
    head = f"{'stage':28} {'mIoU':>6} {'FP':>6} {'FN':>6}"
    lines = [head, "-" * len(head)]
    for kind, title in (("plain", "seeds without affinity"), ("refined", "seeds with affinity")):
        rows = scores.get("seeds", {}).get(kind, {}).get("thresholds", {})
        chosen = rows.get(rule) or next((row for name, row in rows.items() if name != "oracle"), None)
        if chosen:
            oracle = rows["oracle"]["miou_present"]
            lines.append(f"{_row(title, chosen)}   (oracle {_percent(oracle).strip()})")
    for kind, title in (("pseudo", "pseudo labels"), ("predictions", "predictions")):
        lines += [_row(title, scores[kind])] if kind in scores else []
    if "seeds" in scores:
        lines.append(f"seeds: threshold by {rule}, chosen without masks; the oracle's is tuned on them.")
    return lines


def _row(title: str, values: Mapping[str, Any]) -> str:
    return f"{title:28} " + " ".join(_percent(values[name]) for name in ("miou_present", "fp", "fn"))


def _percent(value: float | None) -> str:
    return f"{'–':>6}" if value is None else f"{100 * value:6.1f}"
