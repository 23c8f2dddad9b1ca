"""How close do thresholds chosen without masks come to the best one? A table from scored maps.

`tagmask paper` keeps the score of every kind of maps at the oracle threshold and at that of every rule. This reads them
from its folders, and writes a row for each kind of maps: the mean over the trainings.

    python scripts/thresholds.py "219 photos=paper-photos" "scenes=paper" --only dog cat --to thresholds.csv
"""

import argparse
import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

RULES = ("oracle", "otsu", "cross_entropy")
COLUMNS = ["maps", "data", "trainings"]


def main() -> None:
    """Read the folders, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", help="TITLE=FOLDER, a folder of tagmask paper")
    parser.add_argument("--only", nargs="*", default=[], help="mean over the background and these")
    parser.add_argument("--to", type=Path, required=True)
    options = parser.parse_args()
    rows = []
    for word in options.folders:
        title, _, folder = word.partition("=")
        rows += table(title, Path(folder), options.only)
    heads = list(COLUMNS)
    for rule in RULES:
        heads += [f"{rule} threshold", f"{rule} mIoU"]
    with options.to.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, heads, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def table(title: str, folder: Path, only: list[str]) -> list[dict[str, Any]]:
    """Return a row for each kind of maps in a folder.

    Args:
        title: what the data are called.
        folder: of `tagmask paper`.
        only: the mean is over the background and these classes; none: over all that occur.
    """
    found: dict[str, dict[Path, dict[str, tuple[float, float]]]] = {}
    for file in sorted(folder.glob("runs/*/maps-*/scored.json")):
        note = json.loads(file.read_text(encoding="utf-8"))
        training = file.parents[1]
        for kind, name in kinds(note["settings"]["maps"]):
            scores = note["result"][kind]["thresholds"]
            found.setdefault(name, {})[training] = of_rules(scores, only)
    return [_row(title, name, trainings) for name, trainings in sorted(found.items())]


def kinds(maps: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield the two kinds of maps that settings make, each with its name.

    Args:
        maps: the settings.
    """
    method = maps["method"]
    if maps.get("centre"):
        method += ", centred"
    steps = maps["affinity_steps"]
    yield "plain", f"{method}, without affinity"
    yield "refined", f"{method}, affinity, {steps} step{'s' if steps > 1 else ''}"


def of_rules(
    thresholds: dict[str, dict[str, Any]], only: list[str]
) -> dict[str, tuple[float, float]]:
    """Return the threshold of each rule, and mIoU there in per cent.

    Args:
        thresholds: scores by rule.
        only: classes of the mean.
    """
    values = {}
    for rule in RULES:
        scores = thresholds[rule]
        names = ["background", *only] if only else list(scores["iou"])
        present = [scores["iou"][name] for name in names if scores["iou"][name] is not None]
        values[rule] = (float(scores["threshold"]), 100 * float(np.mean(present)))
    return values


def _row(
    title: str, name: str, trainings: dict[Path, dict[str, tuple[float, float]]]
) -> dict[str, Any]:
    """Return the means of one kind of maps over its trainings."""
    row: dict[str, Any] = {"maps": name, "data": title, "trainings": len(trainings)}
    for rule in RULES:
        values = np.array([training[rule] for training in trainings.values()])  # (S, 2)
        row[f"{rule} threshold"] = round(float(values[:, 0].mean()), 3)
        row[f"{rule} mIoU"] = round(float(values[:, 1].mean()), 1)
    return row


if __name__ == "__main__":
    main()
