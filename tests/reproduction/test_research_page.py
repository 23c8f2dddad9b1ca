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


def answer(on: str) -> list[str]:
    """The cells of a row of the page: ACR, objectness, both."""
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {on} |")]
    return [cell.strip().replace("**", "") for cell in line.strip("|").split("|")][1:]


@pytest.mark.parametrize(("on", "stage"), ROWS.items())
def test_what_acr_brings(on: str, stage: str) -> None:
    (row,) = [row for row in table("photos-long-chain.csv") if row["stage"] == stage]
    gain, low, high = (float(row[f"gain {part}"]) for part in ("mean", "low", "high"))
    before = float(row["none (baseline) mean"])
    after = float(row["activation + affinity (ACR) mean"])
    told = f"{gain:+.1f} [{low:+.1f}, {high:+.1f}] ({before:.1f} to {after:.1f})"
    assert answer(on)[0].startswith(told)


def test_the_seeds_that_disagree() -> None:
    row = table("photos-long-chain.csv")[-1]
    each = ", ".join(f"{float(gain):+.1f}" for gain in row["gain each"].split())
    assert each.replace("-", "−") in answer("masks, without tags")[0]


def test_acrs_own_maps() -> None:
    (row,) = [
        row for row in table("photos-long-gains.csv") if row["maps"] == "ACR, affinity, 1 step"
    ]
    title = "activation + affinity (ACR), blind"
    gain, low, high = (float(row[f"{title} {part}"]) for part in ("mean", "low", "high"))
    assert f"ACR's own maps {gain:+.1f} [{low:+.1f}, {high:+.1f}]" in answer("seeds")[0]


def test_labels_by_objectness() -> None:
    labels = sorted(
        float(row["labels"])
        for row in table("few-photos-options.csv")
        if row["kind"] == "mixed" and "every-pixel" in row["name"]
    )
    told = f"{sum(labels) / len(labels):.1f} (three draws: {labels[0]} to {labels[-1]})"
    assert answer("pseudo labels")[1].startswith(told)
