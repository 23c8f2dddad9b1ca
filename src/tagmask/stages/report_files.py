"""What a run folder says about itself: scores, logs, settings and hashes, read for the report."""

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from tagmask import __version__
from tagmask.config import read_toml
from tagmask.data.made_by import IDENTITY
from tagmask.errors import TagmaskError
from tagmask.files import read_json
from tagmask.show.report_data import ORACLE, LabelScores, Provenance, SeedCurve, Training

RULE = "cross_entropy"  # the default of `tagmask pseudo`
MAPS = {"plain": "seeds without affinity", "refined": "seeds with affinity"}
LABELS = {"pseudo": "pseudo labels", "predictions": "predictions"}
TRAININGS = {
    "1_classifier": ("Classifier", "train"),
    "3_affinity": ("AffinityNet", "pseudo"),
    "5_segmenter": ("Segmenter", "segment"),
}
PACKAGES = ("torch", "torchvision", "timm", "accelerate", "safetensors", "numpy", "scipy", "pillow")


@dataclass(frozen=True)
class Scored:
    """What scores.json of a run holds."""

    seeds: Sequence[LabelScores] = ()  # one for each kind of maps and way to choose the threshold
    curves: Sequence[SeedCurve] = ()
    labels: Mapping[str, LabelScores] = field(default_factory=dict)  # by key of LABELS

    @property
    def stages(self) -> set[str]:
        return {*self.labels, *(["seeds"] if self.seeds else [])}

    def threshold(self) -> float | None:
        """The threshold of the maps with affinity that ``RULE`` chose, without masks."""
        rows = [row for row in self.seeds if row.stage == MAPS["refined"] and row.rule == RULE]
        return rows[0].threshold if rows else None

    def other_classes(self, classes: Sequence[str]) -> bool:
        """Whether the scores are of other classes than these."""
        return any(list(row.iou)[1:] != list(classes) for row in (*self.seeds, *self.labels.values()))


def read_scores(run: Path) -> Scored:
    """scores.json of the run; nothing where there is none."""
    file = run / "scores.json"
    if not file.exists():
        return Scored()
    found: Any = read_json(file)
    try:
        seeds = found.get("seeds", {})
        labels = {stage: label_scores(stage, found[stage]) for stage in LABELS if stage in found}
        return Scored(_seed_scores(seeds), _seed_curves(seeds), labels)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TagmaskError(
            f"{file} is not as `tagmask score` writes it ({type(error).__name__}: {error}); "
            f"make it anew with `tagmask score --out {run}`."
        ) from None


def label_scores(stage: str, found: Mapping[str, Any]) -> LabelScores:
    """Scores of pseudo labels or predictions as scores.json holds them."""
    return _scores(LABELS[stage], found)


def _seed_scores(seeds: Mapping[str, Any]) -> list[LabelScores]:
    """Of each kind of maps the oracle's scores first, then those of ``RULE``: the page shows these two at large."""
    found = []
    for kind, title in MAPS.items():
        rules = seeds.get(kind, {}).get("thresholds", {})
        for rule in sorted(rules, key=lambda rule: (rule != ORACLE, rule != RULE)):
            found.append(_scores(title, {"images": seeds["images"], **rules[rule]}, rule, rules[rule]["threshold"]))
    return found


def _seed_curves(seeds: Mapping[str, Any]) -> list[SeedCurve]:
    curves = []
    for kind, title in MAPS.items():
        if kind in seeds:
            values = {name: [_float(v) for v in seeds[kind]["curve"][name]] for name in ("miou_present", "fp", "fn")}
            steps = len(values["miou_present"])
            rules = seeds[kind]["thresholds"]
            chosen = {rule: (one["threshold"], _float(one["miou_present"])) for rule, one in rules.items()}
            thresholds = [i / steps for i in range(steps)]
            curves.append(SeedCurve(title, thresholds, values["miou_present"], values["fp"], values["fn"], chosen))
    return curves


def _scores(title: str, found: Mapping[str, Any], rule: str = "", threshold: float | None = None) -> LabelScores:
    matrix = None if found.get("confusion") is None else np.asarray(found["confusion"], np.int64)
    if matrix is not None and matrix.shape != (len(found["iou"]), len(found["iou"]) + 1):
        raise TagmaskError(
            f"scores.json has a confusion matrix {matrix.shape} for {len(found['iou'])} classes of the {title}; "
            "make it anew with `tagmask score`."
        )
    return LabelScores(
        stage=title,
        images=int(found["images"]),
        miou_present=found.get("miou_present"),
        miou_all=found.get("miou_all"),
        fp=found.get("fp"),
        fn=found.get("fn"),
        iou=found["iou"],
        rule=rule,
        threshold=threshold,
        confusion=matrix,
    )


def _float(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def read_trainings(run: Path) -> tuple[list[Training], str]:
    """The logs of the networks, and a sentence on those that have none."""
    found, lacking = [], []
    for folder, (title, command) in TRAININGS.items():
        files = sorted((run / folder).glob("**/log.jsonl"))
        logs = [Training(title, str(file.relative_to(run)), read_log(file)) for file in files]
        found += [log for log in logs if log.rows]
        needless = folder == "3_affinity" and (run / "4_pseudo").is_dir()  # not every route has a network
        if not any(log.rows for log in logs) and not needless:
            lacking.append(f"{folder} (`tagmask {command}`)")
    return found, f"No training log yet in {', '.join(lacking)}." if lacking else ""


def read_log(file: Path) -> list[dict[str, float]]:
    """The rows of a log, numbers only; a line cut off by a kill is left out."""
    rows = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and "step" in row:
            rows.append({name: float(v) for name, v in row.items() if isinstance(v, (int, float))})
    return rows


def read_provenance(run: Path, facts: list[tuple[str, str]]) -> Provenance:
    """Settings, versions, hashes of the weights, and who made each folder."""
    config = run / "config.toml"
    settings = read_toml(config) if config.exists() else {}
    seeds = [f"{name}: {part['seed']}" for name, part in settings.items() if isinstance(part, dict) and "seed" in part]
    files = [file for folder in TRAININGS for file in _weights(run / folder)]
    weights = [(file.relative_to(run).as_posix(), file.stat().st_size, _sha256(file)) for file in files]
    makers = {f.parent.relative_to(run).as_posix(): read_json(f) for f in sorted(run.glob(f"[0-9]_*/**/{IDENTITY}"))}
    told = [*facts, ("random seeds", ", ".join(seeds) or "none noted")]
    return Provenance(told, _versions(), weights, makers, settings)


def older_than_files(run: Path, folders: Sequence[str]) -> list[str]:
    """A sentence where scores.json was written before files of the folders that it scores."""
    file = run / "scores.json"
    if not file.exists():
        return []
    written = file.stat().st_mtime
    late = [name for name in folders if (run / name).is_dir() and (run / name).stat().st_mtime > written]
    told = f"scores.json is older than files in {', '.join(late)}; run `tagmask score --out {run}` again."
    return [told] if late else []


def _weights(folder: Path) -> list[Path]:
    """The weights in a folder, those of the last step before those of the best one."""
    return sorted(folder.glob("**/model.safetensors"), key=lambda file: (len(file.parts), file))


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _versions() -> dict[str, str]:
    found = {"tagmask": __version__, "python": platform.python_version(), "system": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
