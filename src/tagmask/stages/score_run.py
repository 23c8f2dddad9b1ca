"""Scores of all that a run has made: seeds, pseudo labels and predictions in one table."""

from dataclasses import dataclass, field
from pathlib import Path

from tagmask.config import ScoreSettings, check
from tagmask.data.open import open_catalog
from tagmask.errors import TagmaskError
from tagmask.stages.score import SeedScores, add_scores, score_seeds
from tagmask.stages.score_labels import LABEL_FOLDERS, LabelScores, score_labels
from tagmask.stages.seeds import FOLDER as SEED_FOLDER

TITLES = {"pseudo": "pseudo labels", "predictions": "predictions"}


@dataclass
class RunScores:
    """Scores of the stages that are there."""

    seeds: SeedScores | None
    labels: dict[str, LabelScores] = field(default_factory=dict)

    def summary(self, out: Path) -> str:
        """One table, what was left out, and where the files are."""
        lines = [self.seeds.summary(out)] if self.seeds else []
        for kind, scores in self.labels.items():
            if not self.seeds and not lines:
                lines.append(f"{'masks':26} {'':22} {'mIoU':>6} {'FP':>6} {'FN':>6}")
            lines.append(scores.row(TITLES[kind]))
            shown = list(scores.missing.values())[:5]
            lines += [f"{len(scores.missing)} images were left out:", *(f"  {why}" for why in shown)] if shown else []
        return "\n".join([*lines, *([] if self.seeds else [f"scores: {out / 'scores.json'}"])])


def score_run(settings: ScoreSettings) -> RunScores:
    """Score every stage of the run against the masks; write scores.json."""
    check(settings)
    there = {kind: settings.out / folder for kind, folder in LABEL_FOLDERS.items() if (settings.out / folder).is_dir()}
    seeds = score_seeds(settings) if (settings.out / SEED_FOLDER).is_dir() or not there else None
    catalog = open_catalog(settings)
    if not catalog.has_masks:
        raise TagmaskError("these data have no masks to compare with; give --masks, or another --data.")
    labels = {kind: score_labels(catalog, folder, settings.processes) for kind, folder in there.items()}
    add_scores(settings.out, {kind: scores.to_json() for kind, scores in labels.items()})
    return RunScores(seeds, labels)
