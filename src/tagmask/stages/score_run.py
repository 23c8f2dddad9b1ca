"""Scores of all that a run has made: seeds, pseudo labels and predictions in one table."""

from dataclasses import dataclass, field
from pathlib import Path

from tagmask.config import ScoreSettings, check
from tagmask.data.catalog import Catalog
from tagmask.data.made_by import check_classes
from tagmask.data.open import open_catalog
from tagmask.errors import TagmaskError
from tagmask.stages.score import SeedScores, add_scores, score_seeds
from tagmask.stages.score_labels import LABEL_FOLDERS, LabelScores, score_labels
from tagmask.stages.seeds import FOLDER as SEED_FOLDER

TITLES = {"seeds": "seeds", "pseudo": "pseudo labels", "predictions": "predictions"}


@dataclass
class RunScores:
    """Scores of the stages that are there."""

    seeds: SeedScores | None
    labels: dict[str, LabelScores] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)  # stages that hold nothing of these images

    def summary(self, out: Path) -> str:
        """One table, what was left out, and where the files are."""
        lines = [self.seeds.summary(out)] if self.seeds else []
        for kind, scores in self.labels.items():
            if not self.seeds and not lines:
                lines.append(f"{'masks':26} {'':22} {'mIoU':>6} {'FP':>6} {'FN':>6}")
            lines.append(scores.row(TITLES[kind]))
            shown = list(scores.missing.values())[:5]
            lines += [f"{len(scores.missing)} images were left out:", *(f"  {why}" for why in shown)] if shown else []
        lines += [f"{stage}: none of these images, left out." for stage in self.left_out]
        return "\n".join([*lines, *([] if self.seeds else [f"scores: {out / 'scores.json'}"])])


def score_run(settings: ScoreSettings) -> RunScores:
    """Score every stage of the run that holds something of these images against the masks; write scores.json.

    Pseudo labels are often of other images than predictions: those of one list are scored, the others left out.
    """
    check(settings)
    catalog = open_catalog(settings)
    made = {"seeds": (settings.out / SEED_FOLDER, ".npz")}
    made |= {kind: (settings.out / folder, ".png") for kind, folder in LABEL_FOLDERS.items()}
    there = {kind: folder for kind, (folder, suffix) in made.items() if _holds(folder, suffix, catalog)}
    for kind, folder in there.items():
        check_classes(folder, catalog.classes, TITLES[kind])
    seeds = score_seeds(settings) if "seeds" in there or not there else None  # which tells what is missing
    if not catalog.has_masks:
        raise TagmaskError("these data have no masks to compare with; give --masks, or another --data.")
    labels = {kind: score_labels(catalog, there[kind], settings.processes) for kind in LABEL_FOLDERS if kind in there}
    add_scores(settings.out, {kind: scores.to_json() for kind, scores in labels.items()})
    others = [TITLES[kind] for kind, (folder, _) in made.items() if folder.is_dir() and kind not in there]
    return RunScores(seeds, labels, others)


def _holds(folder: Path, suffix: str, catalog: Catalog) -> bool:
    """Whether a folder has a file of any of the images."""
    return folder.is_dir() and any((folder / f"{catalog.name(i)}{suffix}").is_file() for i in range(len(catalog)))
