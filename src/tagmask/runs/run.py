"""A whole run: every stage of the table that is not done, one after the other.

Stopped anywhere and started again, a run resumes and ends with the same files. A finished stage is skipped while its
settings and inputs are those it was made from; otherwise the run says what changed and redoes it, and then all that
is made from it.
"""

import dataclasses
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from tagmask import layout
from tagmask.config import check, read_values, use_of
from tagmask.config.run import SECTIONS, RunSettings, RunTop, run_values, write_config
from tagmask.data.catalog import Catalog
from tagmask.data.open import open_catalog
from tagmask.data.survey import tag_notes
from tagmask.errors import TagmaskError
from tagmask.files import only_one, read_json
from tagmask.inference.selfcheck import read_verdicts, verdict_lines
from tagmask.models.storage import write_network_use
from tagmask.notes import INPUT, Parts, shorten
from tagmask.runs.plan import plan
from tagmask.runs.processes import launched_shard
from tagmask.runs.record import CORRECTIONS, Record, Status, places
from tagmask.runs.table import STAGES, Inputs, Stage, stage

_FILES = {
    "masks": layout.PREDICTIONS,
    "scores": layout.SCORES,
    "report": layout.REPORT,
    "settings": layout.CONFIG,
}


@dataclass
class RunSummary:
    """What a run has made."""

    out: Path
    stages: dict[str, Status] = field(default_factory=dict)  # as they were before
    scores: dict[str, Any] = field(
        default_factory=dict
    )  # content of scores.json; empty without masks
    rule: str = "cross_entropy"  # how the seeds' threshold in the table was chosen

    @property
    def made(self) -> tuple[str, ...]:
        """The stages that had something to do."""
        return tuple(name for name, status in self.stages.items() if status.state != "done")

    def _verdicts(self) -> list[str]:
        """Say whether the masks can be believed."""
        verdicts = read_verdicts(self.out / layout.CHECK)
        return ["", "self-check:", *verdict_lines(verdicts)] if verdicts else []

    def summary(self) -> str:
        """One table, the verdicts of the self-check, and where the files are."""
        lines = ["", *score_table(self.scores, self.rule)] if self.scores else []
        lines += self._verdicts()
        if not self.made:
            lines.append("nothing to do: every stage is done with these settings and images.")
        for name, file in _FILES.items():
            path = self.out / file
            if path.exists():
                lines.append(f"{name}: {path}")
        return "\n".join(lines)


def run(settings: RunSettings, catalog: Catalog | None = None) -> RunSummary:
    """Do every stage that is not done; the plan comes first."""
    check(settings)
    if launched_shard()[1] > 1:
        raise TagmaskError(
            "tagmask run is a single process; with accelerate launch, run the stages one by one "
            "(tagmask train, seeds, pseudo, segment, predict), then `tagmask run` for the rest."
        )
    with only_one(settings.out):
        return _run(settings, open_catalog(settings) if catalog is None else catalog)


def _run(settings: RunSettings, catalog: Catalog) -> RunSummary:
    inputs = Inputs(settings, catalog)
    rows = [row for row in STAGES if catalog.has_masks or not row.scores]
    statuses = {row.name: status_of(inputs, row) for row in rows}
    notes = [
        *catalog.notes,
        *(tag_notes(catalog) if any(s.state != "done" for s in statuses.values()) else []),
    ]
    print(
        "\n".join([plan(settings, catalog, statuses), *(f"note: {note}" for note in notes)]),
        flush=True,
    )
    write_config(settings)
    threads, changed = torch.get_num_threads(), False
    for place, row in enumerate(rows, 1):
        if changed:  # what it is made from may have changed since the plan
            statuses[row.name] = status_of(inputs, row)
        changed |= do_stage(inputs, row, statuses[row.name], f"[{place}/{len(rows)}] {row.name}")
        tell_network(settings, row)
        torch.set_num_threads(threads)  # a training with loading processes takes fewer
    file = settings.out / layout.SCORES
    scores = read_json(file) if catalog.has_masks and file.is_file() else {}
    return RunSummary(settings.out, statuses, scores, settings.pseudo.rule)


def run_images(
    *, preset: str | None = None, config: Path | str | None = None, **settings: Any
) -> RunSummary:
    """From images and tags to masks, like `tagmask run`; finished stages are skipped.

    Args:
        preset: a named recipe to start from; default: own-photos, unless ``config`` is given.
        config: the config.toml of a run to start from.
        settings: the run's, e.g. ``images="photos", tags="tags.csv", out="run"``, and those of stages as dictionaries,
            e.g. ``train={"steps": 200}``.
    """
    if preset is None and config is None:
        preset = "own-photos"
    values = run_values(preset, Path(config) if config is not None else None)
    top = {name: value for name, value in settings.items() if name not in SECTIONS}
    values |= read_values(RunTop, top, "tagmask.run")
    for name, kind in SECTIONS.items():
        changes = read_values(kind, settings.get(name, {}), f"tagmask.run: {name}")
        values[name] = dataclasses.replace(values[name], **changes)
    if "out" not in values:
        raise TagmaskError("tagmask.run: out is missing; name the folder of the run.")
    return run(RunSettings(**values))


def tell_network(settings: RunSettings, row: Stage) -> None:
    """Tell the network that a stage made how a later stage of the run uses it.

    Args:
        settings: those of the run.
        row: the stage; nothing happens if it makes no network.
    """
    if row.products != layout.MODEL:
        return
    for reader in STAGES:
        if reader.use is not None and row.name in reader.reads:
            use = use_of(reader.use, reader.settings_of(settings))
            write_network_use(settings.out / row.folder, use)


def status_of(inputs: Inputs, row: Stage) -> Status:
    """How far a stage has come."""
    settings = inputs.settings
    return row.record(settings.out).status(
        inputs.parts(row), places(row.settings_of(settings)), settings.restart
    )


def do_stage(inputs: Inputs, row: Stage, status: Status, title: str) -> bool:
    """Run a stage unless it is done; returns whether there was something to do."""
    record, settings = row.record(inputs.settings.out), row.settings_of(inputs.settings)
    if status.state == "done":
        print(f"{title}: done before", flush=True)
        return False
    state = "" if status.state == "new" else f": {status.state}"
    print(title + state + (f" ({shorten(status.why)})" if status.why else ""), flush=True)
    parts, began = inputs.parts(row), time.monotonic()
    walk = row.name == "pseudo" and settings.method == "walk"
    network = _affinity_net(inputs.settings, parts) if walk else nullcontext()
    with _noted(record, status, parts, places(settings)), network:
        summary = row.run(settings, inputs.catalog).summary()
    inputs.forget(row)
    tqdm.write(
        "\n".join(
            f"  {line}"
            for line in [*summary.splitlines(), f"took {time.monotonic() - began:.0f} s"]
        )
    )
    return True


@contextmanager
def _noted(record: Record, status: Status, parts: Parts, where: Parts) -> Iterator[None]:
    """Note what is begun, and what is done; a redo first moves aside what it is to replace.

    If it fails, that is taken back; a redo that is stopped or lacks disk space resumes later.
    """
    record.sweep()
    if status.state == "redo":
        record.discard()
    if status.state != "done":
        record.begin({**parts, **where})
    try:
        yield
    except OSError:
        raise
    except Exception:
        record.restore()
        raise
    record.finish(parts)
    record.clean()


def _affinity_net(settings: RunSettings, parts: Parts) -> AbstractContextManager[None]:
    """Keep AffinityNet when only later settings change, such as the score of the background."""
    record = Record(settings.out / layout.AFFINITY, layout.MODEL)
    used = ("affinity.", "alpha_", INPUT)
    network = {
        name: value
        for name, value in parts.items()
        if name.startswith(used) and name != CORRECTIONS
    }
    return _noted(record, record.status(network, {}, settings.restart), network, {})


def score_table(scores: Mapping[str, Any], rule: str) -> list[str]:
    """Scores of the stages, one line each."""
    head = f"{'stage':28} {'mIoU':>6} {'FP':>6} {'FN':>6}"
    lines = [head, "-" * len(head)]
    for kind, title in (("plain", "seeds without affinity"), ("refined", "seeds with affinity")):
        rows = scores.get("seeds", {}).get(kind, {}).get("thresholds", {})
        chosen = rows.get(rule) or next(
            (row for name, row in rows.items() if name != "oracle"), None
        )
        if chosen:
            oracle = rows["oracle"]["miou_present"]
            lines.append(f"{_row(title, chosen)}   (oracle {_percent(oracle).strip()})")
    for kind, name in (("pseudo", "pseudo"), ("predictions", "predict")):
        lines += [_row(stage(name).title, scores[kind])] if kind in scores else []
    if "seeds" in scores:
        lines.append(
            f"seeds: threshold by {rule}, chosen without masks; the oracle's is tuned on them."
        )
    return lines


def _row(title: str, values: Mapping[str, Any]) -> str:
    return f"{title:28} " + " ".join(
        _percent(values[name]) for name in ("miou_present", "fp", "fn")
    )


def _percent(value: float | None) -> str:
    return f"{'–':>6}" if value is None else f"{100 * value:6.1f}"
