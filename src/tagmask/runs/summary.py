"""What a run has made, as lines for the terminal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tagmask import layout
from tagmask.inference.selfcheck import read_verdicts, verdict_lines
from tagmask.runs.record import Status
from tagmask.runs.table import stage

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
    scores: dict[str, Any] = field(default_factory=dict)  # of scores.json; empty without masks
    rule: str = "cross_entropy"  # how the seeds' threshold in the table was chosen
    look_first: str = ""  # a sentence that names the images most in doubt; empty if unknown

    @property
    def made(self) -> tuple[str, ...]:
        """Return the stages that had something to do."""
        return tuple(name for name, status in self.stages.items() if status.state != "done")

    def summary(self) -> str:
        """Return one table, the verdicts of the self-check, and where the files are."""
        lines = ["", *score_table(self.scores, self.rule)] if self.scores else []
        verdicts = read_verdicts(self.out / layout.CHECK)
        if verdicts:
            lines += ["", "self-check:", *verdict_lines(verdicts)]
        if self.look_first:
            lines.append(self.look_first)
        if not self.made:
            lines.append("nothing to do: every stage is done with these settings and images.")
        for name, file in _FILES.items():
            path = self.out / file
            if path.exists():
                lines.append(f"{name}: {path}")
        return "\n".join(lines)


def score_table(scores: Mapping[str, Any], rule: str) -> list[str]:
    """Return the scores of the stages, one line each.

    Args:
        scores: Content of scores.json.
        rule: How the threshold of the seeds was chosen; if it is not there, the first that is.
    """
    head = f"{'stage':28} {'mIoU':>6} {'FP':>6} {'FN':>6}"
    lines = [head, "-" * len(head)]
    for kind, title in (("plain", "seeds without affinity"), ("refined", "seeds with affinity")):
        rows = scores.get("seeds", {}).get(kind, {}).get("thresholds", {})
        others = [row for name, row in rows.items() if name != "oracle"]
        chosen = rows.get(rule) or next(iter(others), None)
        if chosen:
            oracle = rows["oracle"]["miou_present"]
            lines.append(f"{_row(title, chosen)}   (oracle {_percent(oracle).strip()})")
    for kind, name in (("pseudo", "pseudo"), ("predictions", "predict")):
        if kind in scores:
            lines.append(_row(stage(name).title, scores[kind]))
    if "seeds" in scores:
        lines.append(
            f"seeds: threshold by {rule}, chosen without masks; the oracle's is tuned on them."
        )
    return lines


def _row(title: str, values: Mapping[str, Any]) -> str:
    numbers = [_percent(values[name]) for name in ("miou_present", "fp", "fn")]
    return f"{title:28} {' '.join(numbers)}"


def _percent(value: float | None) -> str:
    return f"{'–':>6}" if value is None else f"{100 * value:6.1f}"
