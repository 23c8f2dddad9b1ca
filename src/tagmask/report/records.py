"""What a run folder records about itself: scores, training logs, settings and hashes of weights."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tagmask import layout
from tagmask.config import read_toml
from tagmask.errors import TagmaskError, typed
from tagmask.files import read_json, read_object
from tagmask.runs.record import file_digest, files_of, read_log
from tagmask.version import __version__

FOLDERS = {"seeds": layout.SEEDS, "pseudo": layout.PSEUDO, "predictions": layout.PREDICTIONS}
# folder: network, command; only one way to pseudo labels trains AffinityNet
TRAININGS = {
    layout.CLASSIFIER: ("Classifier", "train"),
    layout.AFFINITY: ("AffinityNet", "pseudo"),
    layout.SEGMENTER: ("Segmenter", "segment"),
}
# the threshold that is tuned on the masks
ORACLE = "oracle"
MAPS = {"plain": "seeds without affinity", "refined": "seeds with affinity"}
LABELS = {"pseudo": "pseudo labels", "predictions": "predictions"}
# entries of made_by.json that are hashes of weights
NETWORKS = ("input classifier", "input segmenter", "input network")
# digits of a sha256 that stages write into made_by.json
HASH_DIGITS = 16
# kind of maps: {score: its values over T thresholds i/T}
Curves = Mapping[str, Mapping[str, Sequence[float]]]
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
        """Return the rule's name in words."""
        return self.rule.replace("_", " ")

    @property
    def title(self) -> str:
        """Return the stage, with the rule of its threshold."""
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
        """Return the weights file whose sha256 begins with ``digest``; None if the run has none."""
        if not isinstance(digest, str) or len(digest) < HASH_DIGITS:
            return None
        for file, _, sha256 in self.weights:
            if sha256.startswith(digest):
                return file
        return None


def read_scores(run: Path, rule: str) -> tuple[list[StageScores], Curves]:
    """Return the scores of a run and the curves of its maps over the threshold.

    Args:
        run: Folder of the run.
        rule: How the run chooses the threshold of the seeds.

    Returns:
        Scores of seeds, pseudo labels and predictions, and curves; empty without a scores.json.

    Raises:
        TagmaskError: The file was not written by `tagmask score`.
    """
    file = run / layout.SCORES
    if not file.exists():
        return [], {}
    content: Any = read_json(file)
    try:
        seeds = content.get("seeds", {})
        curves = {}
        for kind, title in MAPS.items():
            if kind in seeds:
                curves[title] = _curve(seeds[kind]["curve"])
        of_labels = []
        for stage, title in LABELS.items():
            if stage in content:
                of_labels.append(stage_scores(title, content[stage]))
        return [*_seed_scores(seeds, rule), *of_labels], curves
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TagmaskError(
            f"{file} was not written by `tagmask score` ({type(error).__name__}: {error}); "
            f"run `tagmask score --out {typed(run)}` again."
        ) from None


def _seed_scores(seeds: Mapping[str, Any], first: str) -> list[StageScores]:
    """Return the rows of each kind of maps, the oracle first, then the rule ``first``.

    The page highlights these two.
    """
    rows = []
    for kind, title in MAPS.items():
        rules = seeds.get(kind, {}).get("thresholds", {})
        for rule in sorted(rules, key=lambda rule: (rule != ORACLE, rule != first)):
            scores = rules[rule]
            values = {"images": seeds["images"], **scores}
            rows.append(stage_scores(title, values, rule, scores["threshold"]))
    return rows


def stage_scores(
    title: str, values: Mapping[str, Any], rule: str = "", threshold: float | None = None
) -> StageScores:
    """Return one row of scores.

    Args:
        title: The stage as shown.
        values: Scores as scores.json holds them.
        rule: Of seeds, how the threshold was chosen.
        threshold: Of seeds, the threshold from 0 to 1.

    Raises:
        TagmaskError: The confusion matrix does not have the number of classes.
    """
    iou = values["iou"]
    matrix = None
    if values.get("confusion") is not None:
        matrix = np.asarray(values["confusion"], np.int64)
        if matrix.shape != (len(iou), len(iou) + 1):
            raise TagmaskError(
                f"{layout.SCORES} has a confusion matrix {matrix.shape} "
                f"for {len(iou)} classes of the {title}; run `tagmask score` again."
            )
    return StageScores(
        stage=title,
        images=int(values["images"]),
        miou_present=values.get("miou_present"),
        miou_all=values.get("miou_all"),
        fp=values.get("fp"),
        fn=values.get("fn"),
        iou=iou,
        rule=rule,
        threshold=threshold,
        confusion=matrix,
    )


def _curve(values: Mapping[str, Sequence[float | None]]) -> dict[str, list[float]]:
    """Return the curves in per cent, nan if unknown."""
    curves = {}
    for name in ("miou_present", "fp", "fn"):
        shares = np.array(values[name], np.float64)  # (T,)
        curves[name] = (100 * shares).tolist()
    return curves


def outdated_folders(run: Path, folders: Mapping[str, str]) -> list[str]:
    """Return the folders whose files have changed since they were scored.

    Args:
        run: Folder of the run.
        folders: Key in scores.json to folder below the run.
    """
    if not (run / layout.SCORES).exists():
        return []
    scores = read_object(run / layout.SCORES)
    outdated = []
    for stage, folder in folders.items():
        files = scores.get(stage, {}).get("files")
        if files and files != files_of(run / folder):
            outdated.append(folder)
    return outdated


def read_trainings(run: Path) -> tuple[list[Training], str]:
    """Return the logs of the networks, and a sentence on those that are missing."""
    trainings = []
    missing = []
    has_pseudo = (run / FOLDERS["pseudo"]).is_dir()
    for folder, (title, command) in TRAININGS.items():
        files = sorted((run / folder).glob(f"**/{layout.LOG}"))
        logs = [rows for rows in map(read_log, files) if rows]
        trainings += [Training(title, rows) for rows in logs]
        # pseudo labels without a log of AffinityNet were made in another way
        is_optional = folder == layout.AFFINITY and has_pseudo
        if not logs and not is_optional:
            missing.append(f"{folder} (`tagmask {command}`)")
    if not missing:
        return trainings, ""
    return trainings, f"No training log yet in {', '.join(missing)}."


def read_provenance(run: Path, facts: list[tuple[str, str]]) -> Provenance:
    """Return settings, versions, hashes of the weights, and what made each folder.

    Args:
        run: Folder of the run.
        facts: Name and value of facts that come first.
    """
    config = run / layout.CONFIG
    settings = read_toml(config) if config.exists() else {}
    seeds = []
    for name, section in settings.items():
        if isinstance(section, dict) and "seed" in section:
            seeds.append(f"{name}: {section['seed']}")
    facts = [*facts, ("random seeds", ", ".join(seeds) or "not recorded")]
    weights = []
    for folder in TRAININGS:
        # the weights of the last step, then those of the best, which lie deeper
        files = (run / folder).glob(f"**/{layout.MODEL}")
        for file in sorted(files, key=lambda file: (len(file.parts), file)):
            name = file.relative_to(run).as_posix()
            size = file.stat().st_size
            weights.append((name, size, file_digest(file, None)))
    makers = {}
    for note in sorted(run.glob(f"[0-9]_*/**/{layout.MADE_BY}")):
        makers[note.parent.relative_to(run).as_posix()] = read_object(note)
    return Provenance(
        facts=facts,
        versions=_versions(),
        weights=weights,
        makers=makers,
        settings=settings,
    )


def _versions() -> dict[str, str]:
    """Return the versions of tagmask, Python, the system and the main packages."""
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
