"""What a run folder records about itself: scores, training logs, settings and hashes of weights."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tagmask import __version__
from tagmask.config import read_toml
from tagmask.errors import TagmaskError
from tagmask.files import read_json, read_object
from tagmask.pipeline import layout
from tagmask.pipeline.record import file_digest, files_of, read_log

FOLDERS = {"seeds": layout.SEEDS, "pseudo": layout.PSEUDO, "predictions": layout.PREDICTIONS}
TRAININGS = {  # folder: network, command
    layout.CLASSIFIER: ("Classifier", "train"),
    layout.AFFINITY: ("AffinityNet", "pseudo"),  # only one way to pseudo labels trains it
    layout.SEGMENTER: ("Segmenter", "segment"),
}
ORACLE = "oracle"  # the threshold that is tuned on the masks
RULE = "cross_entropy"  # the default of `tagmask pseudo`
MAPS = {"plain": "seeds without affinity", "refined": "seeds with affinity"}
LABELS = {"pseudo": "pseudo labels", "predictions": "predictions"}
# Entries of made_by.json that are hashes of weights; the last two are those of earlier versions.
NETWORKS = ("input classifier", "input segmenter", "input network", "model", "network")
HASH_DIGITS = 16  # of a sha256 that stages write into made_by.json
Curves = Mapping[
    str, Mapping[str, Sequence[float]]
]  # kind of maps: {score: its values over T thresholds i/T}
PACKAGES = ("torch", "torchvision", "timm", "accelerate", "safetensors", "numpy", "scipy", "pillow")


@dataclass(frozen=True)
class StageScores:
    """How well the labels of one stage agree with the truth; fractions, None if unknown."""

    stage: str  # as shown, e.g. "pseudo labels"
    images: int
    miou_present: float | None
    miou_all: float | None
    fp: float | None
    fn: float | None
    iou: Mapping[str, float | None]
    rule: str = ""  # seeds: how the threshold was chosen
    threshold: float | None = None
    confusion: npt.NDArray[np.int64] | None = None  # (K, K+1) rows = truth, last column = unsure

    @property
    def rule_name(self) -> str:
        return self.rule.replace("_", " ")

    @property
    def title(self) -> str:
        return f"{self.stage}, {self.rule_name}" if self.rule else self.stage


@dataclass(frozen=True)
class Training:
    """The log of a network; each row holds a step and values."""

    title: str
    rows: Sequence[Mapping[str, float]]


@dataclass(frozen=True)
class Provenance:
    """What was run, with which programs, data and weights."""

    facts: Sequence[tuple[str, str]]
    versions: Mapping[str, str]
    weights: Sequence[tuple[str, int, str]]  # file, bytes, sha256
    makers: Mapping[str, Mapping[str, Any]]  # folder: its made_by.json
    settings: Mapping[str, Any]  # config.toml

    def weights_file(self, digest: object) -> str | None:
        """The weights file whose sha256 begins with ``digest``; None if the run has none."""
        if not isinstance(digest, str) or len(digest) < HASH_DIGITS:
            return None
        return next((file for file, _, sha256 in self.weights if sha256.startswith(digest)), None)


def read_scores(run: Path) -> tuple[list[StageScores], Curves]:
    """The scores of a run and the curves of its maps over the threshold; empty if it has no scores.json."""
    file = run / layout.SCORES
    if not file.exists():
        return [], {}
    content: Any = read_json(file)
    try:
        seeds = content.get("seeds", {})
        curves = {MAPS[kind]: _curve(seeds[kind]["curve"]) for kind in MAPS if kind in seeds}
        rows = [
            stage_scores(title, content[stage])
            for stage, title in LABELS.items()
            if stage in content
        ]
        return [*_seed_scores(seeds), *rows], curves
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TagmaskError(
            f"{file} was not written by `tagmask score` ({type(error).__name__}: {error}); "
            f"run `tagmask score --out {run}` again."
        ) from None


def _seed_scores(seeds: Mapping[str, Any]) -> list[StageScores]:
    """For each kind of maps the oracle first, then ``RULE``: the page highlights these two."""
    rows = []
    for kind, title in MAPS.items():
        rules = seeds.get(kind, {}).get("thresholds", {})
        for rule in sorted(rules, key=lambda rule: (rule != ORACLE, rule != RULE)):
            values = {"images": seeds["images"], **rules[rule]}
            rows.append(stage_scores(title, values, rule, rules[rule]["threshold"]))
    return rows


def stage_scores(
    title: str, values: Mapping[str, Any], rule: str = "", threshold: float | None = None
) -> StageScores:
    """One row of scores as scores.json holds it."""
    iou = values["iou"]
    matrix = None if values.get("confusion") is None else np.asarray(values["confusion"], np.int64)
    if matrix is not None and matrix.shape != (len(iou), len(iou) + 1):
        raise TagmaskError(
            f"{layout.SCORES} has a confusion matrix {matrix.shape} for {len(iou)} classes of the {title}; "
            "run `tagmask score` again."
        )
    miou_present, miou_all, fp, fn = (
        values.get(name) for name in ("miou_present", "miou_all", "fp", "fn")
    )
    return StageScores(
        title, int(values["images"]), miou_present, miou_all, fp, fn, iou, rule, threshold, matrix
    )


def _curve(values: Mapping[str, Sequence[float | None]]) -> dict[str, list[float]]:
    """The curves in per cent, nan if unknown."""
    return {
        name: (100 * np.array(values[name], np.float64)).tolist()
        for name in ("miou_present", "fp", "fn")
    }


def outdated_folders(run: Path, folders: Mapping[str, str]) -> list[str]:
    """Of ``folders`` (key in scores.json: folder) those whose files have changed since they were scored."""
    scores = read_object(run / layout.SCORES) if (run / layout.SCORES).exists() else {}
    noted = {folder: scores.get(stage, {}).get("files") for stage, folder in folders.items()}
    return [folder for folder, files in noted.items() if files and files != files_of(run / folder)]


def read_trainings(run: Path) -> tuple[list[Training], str]:
    """The logs of the networks, and a sentence on those that are missing."""
    trainings, missing = [], []
    for folder, (title, command) in TRAININGS.items():
        logs = [read_log(file) for file in sorted((run / folder).glob(f"**/{layout.LOG}"))]
        trainings += [Training(title, rows) for rows in logs if rows]
        optional = folder == layout.AFFINITY and (run / FOLDERS["pseudo"]).is_dir()
        if not any(logs) and not optional:
            missing.append(f"{folder} (`tagmask {command}`)")
    return trainings, f"No training log yet in {', '.join(missing)}." if missing else ""


def read_provenance(run: Path, facts: list[tuple[str, str]]) -> Provenance:
    """Settings, versions, hashes of the weights, and what made each folder."""
    settings = read_toml(run / layout.CONFIG) if (run / layout.CONFIG).exists() else {}
    seeds = [
        f"{name}: {part['seed']}"
        for name, part in settings.items()
        if isinstance(part, dict) and "seed" in part
    ]
    facts = [*facts, ("random seeds", ", ".join(seeds) or "not recorded")]
    # Of each network the weights of the last step, then those of the best.
    found = (
        sorted((run / folder).glob(f"**/{layout.MODEL}"), key=lambda f: (len(f.parts), f))
        for folder in TRAININGS
    )
    files = [file for of_network in found for file in of_network]
    weights = [
        (file.relative_to(run).as_posix(), file.stat().st_size, file_digest(file, None))
        for file in files
    ]
    notes = sorted(run.glob(f"[0-9]_*/**/{layout.MADE_BY}"))
    makers = {note.parent.relative_to(run).as_posix(): read_object(note) for note in notes}
    return Provenance(facts, _versions(), weights, makers, settings)


def _versions() -> dict[str, str]:
    versions = {
        "tagmask": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions
