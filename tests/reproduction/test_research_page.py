"""The answers on the research page are the numbers in docs/results."""

import csv
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "research/index.md").read_text(encoding="utf-8")
ROWS = {
    "seeds": "seeds, with affinity",
    "pseudo labels": "pseudo labels of the images trained on",
    "masks, with tags": "masks, told the tags",
    "masks, without tags": "masks, not told the tags",
}


def table(name: str) -> list[dict[str, str]]:
    with (DOCS / "results" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def answers(on: str) -> list[list[str]]:
    """The cells of a row of the page's two tables: the short trainings, then the long ones."""
    lines = [line for line in PAGE.splitlines() if line.startswith(f"| {on} |")]
    found = []
    for line in lines:
        cells = line.replace("**", "").replace("−", "-").strip("|").split("|")
        found.append([cell.strip() for cell in cells][1:])
    assert len(found) == 2
    return found


def gain(row: dict[str, str], title: str) -> str:
    """A gain with its interval, as the page writes it."""
    mean, low, high = (float(row[f"{title} {part}"]) for part in ("mean", "low", "high"))
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"


@pytest.mark.parametrize("on", ROWS)
def test_what_acr_objectness_and_both_bring_to_short_trainings(on: str) -> None:
    rows = {row["way"]: row for row in table("open-ends-crf.csv")}
    title = on.removeprefix("pseudo ")
    over = f"{title}, over none"
    trained = gain(rows["no consistency, where and which"], over)
    untrained = gain(rows["nothing trained, where and which"], over)
    assert answers(on)[0] == [
        f"{float(rows['none: no consistency'][f'{title} mean']):.1f}",
        gain(rows["ACR, the paper's chain"], over),
        f"{trained}; {untrained}",
        gain(rows["ACR, where and which"], over),
    ]


@pytest.mark.parametrize(("on", "stage"), ROWS.items())
def test_what_acr_brings_to_long_trainings(on: str, stage: str) -> None:
    (row,) = [row for row in table("photos-long-chain.csv") if row["stage"] == stage]
    before, brings, each = answers(on)[1]
    assert before == f"{float(row['none (baseline) mean']):.1f}"
    assert brings.startswith(gain(row, "gain"))
    assert each == ", ".join(f"{float(one):+.1f}" for one in row["gain each"].split())


def test_acrs_own_maps() -> None:
    (row,) = [
        row for row in table("photos-long-gains.csv") if row["maps"] == "ACR, affinity, 1 step"
    ]
    own = gain(row, "activation + affinity (ACR), blind")
    assert f"ACR's own maps {own}" in answers("seeds")[1][1]


def test_labels_by_objectness() -> None:
    labels = sorted(
        float(row["labels"])
        for row in table("few-photos-options.csv")
        if row["kind"] == "mixed" and "every-pixel" in row["name"]
    )
    told = f"{sum(labels) / len(labels):.1f} (three draws: {labels[0]} to {labels[-1]})"
    assert f"have {told}" in " ".join(PAGE.split())
