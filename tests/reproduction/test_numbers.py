"""The paper's numbers: complete, consistent, and in every table."""

import csv
import io
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tagmask.data.voc import CLASSES
from tagmask.reproduction.command import run_paper
from tagmask.reproduction.names import EVERYTHING, NAMES, TABLES
from tagmask.reproduction.numbers import NUMBERS, footnotes, pairs
from tests.helpers import SHARED
from tests.reproduction.small import small

ROOT = Path(__file__).parents[2]
PAPER = next(iter(sorted((SHARED / "paper").glob("*.txt"))), None)


def flat(values: Any) -> list[float]:
    """Every number that is stated."""
    if isinstance(values, dict):
        return [number for value in values.values() for number in flat(value)]
    if isinstance(values, list):
        return [number for value in values for number in flat(value)]
    return [values] if isinstance(values, float) and not math.isnan(values) else []


def test_tables_have_all_their_rows() -> None:
    assert {
        name: len(NUMBERS[name]["rows"]) for name in NUMBERS if name.startswith("compare-")
    } == {
        "compare-coco": 15,
        "compare-seeds": 16,
        "compare-voc": 23,
    }
    assert list(NUMBERS["per-class-voc"])[2:-1] == list(CLASSES)
    assert (
        len(NUMBERS["per-class-coco"]) == 2 + 80 + 1
    )  # methods and background, the classes, the mean
    assert len(pairs("augmentations")) == 8


def test_printed_means_are_those_of_the_printed_classes() -> None:
    for name, digits in (
        ("per-class-voc", (67.8, 68.4, 71.1)),
        ("per-class-coco", (42.0, 43.8, 45.0)),
    ):
        classes = [row for key, row in NUMBERS[name].items() if key not in ("methods", "mean")]
        assert np.mean(classes, axis=0).round(1).tolist() == list(digits)
    assert (
        NUMBERS["per-class-voc"]["mean"][-1] == 71.2
    )  # the paper prints another mean than its classes have
    assert "71.1" in footnotes("per-class-voc")[0]
    assert footnotes("per-class-coco") == []


def test_a_method_of_several_venues_has_a_footnote_in_each_table() -> None:
    """One name, one paper: unless two works are of the same authors, whose venues differ."""
    tables = [name for name in NUMBERS if name.startswith("compare-")]
    venues: dict[str, dict[str, set[str]]] = {}
    for name in tables:
        for method, venue, *_ in NUMBERS[name]["rows"]:
            venues.setdefault(method, {}).setdefault(venue, set()).add(name)
    several = {method: where for method, where in venues.items() if len(where) > 1}
    assert set(several) == {"EPS", "Ru et al."}  # of Ru et al. there are two works in Table 1
    for venue, where in several["EPS"].items():
        for name in where:
            assert f"EPS is {venue} here" in footnotes(name)[0]
    assert "RIB is NeurIPS2020" in " ".join(footnotes("compare-coco"))
    assert "69.4 (EPS) and 70.5 (Du et al.)" in " ".join(footnotes("compare-seeds"))


def test_the_same_result_is_the_same_number_everywhere() -> None:
    acr, stages = pairs("ablation")["both"], NUMBERS["stages"]
    assert (
        acr == pairs("methods")["acr"] == (stages["seeds_plain"], stages["seeds"]) == (59.4, 67.3)
    )
    assert pairs("augmentations")["hflip"] == pairs("distances")["l1"] == (None, acr[1])
    assert pairs("augmentations")["none"] == (None, pairs("ablation")["none"][1])
    compared = {
        name: NUMBERS[name]["rows"] for name in ("compare-coco", "compare-seeds", "compare-voc")
    }
    assert (
        compared["compare-coco"][-1][3]
        == stages["coco_val"]
        == NUMBERS["per-class-coco"]["mean"][-1]
    )
    assert compared["compare-seeds"][-1][3:5] == [stages["seeds"], stages["pseudo"]]
    assert compared["compare-seeds"][-2][3] == stages["seeds_plain"]
    assert compared["compare-voc"][-1][3:] == [stages["voc_val"], stages["voc_test"]]
    assert compared["compare-seeds"][-3][3] == pairs("backbones")["mct"][1]


@pytest.mark.parametrize("name", [name for name in TABLES if name != EVERYTHING])
def test_every_table_prints_the_papers_numbers_complete(name: str, shared_out: Path) -> None:
    run_paper(small(shared_out, name))
    rows = list(csv.DictReader(io.StringIO((shared_out / f"{name}.csv").read_text())))
    printed = sorted(
        float(value)
        for row in rows
        for head, value in row.items()
        if head.endswith(" paper") and value
    )
    stages = NUMBERS["stages"]
    expected = {
        "pseudo": [stages[stage] for stage in ("seeds_plain", "seeds", "pseudo")],
        "segmentation": [stages["voc_val"]],  # the classes of scenes are not those of VOC
        "layers": list(pairs("ablation")["both"]),
        "per-class": flat(NUMBERS["per-class-voc"]),
        "gains": [],  # not in the paper
        "chain": [],
        "open-ends": [],
    }
    assert printed == sorted(expected[name] if name in expected else flat(NUMBERS[name]))
    notes = (shared_out / f"{name}.md").read_text()
    assert all(note in notes for note in footnotes(name))


def test_the_method_page_has_the_same_numbers() -> None:
    text = " ".join((ROOT / "docs/explanation/method.md").read_text(encoding="utf-8").split())
    expected = [f"{name} {plain}/{refined}" for name, (plain, refined) in pairs("ablation").items()]
    titles = {
        "cam": "CAM on patch tokens",
        "ts_cam": "TS-CAM",
        "grad_cam": "Grad-CAM",
        "generic": "Generic attention",
    }
    expected += [f"{title} {pairs('methods')[name][0]}" for name, title in titles.items()]
    expected += [f"Generic + affinity {pairs('methods')['generic'][1]}"]
    expected += ["{}/{}".format(*pair) for pair in pairs("backbones").values()]
    views = {
        "horizontal flip": "hflip",
        "hflip + patch hiding": "hflip+hide0.25",
        "hflip + grey scale": "hflip+gray",
        "hflip + vflip": "hflip+vflip",
        "hflip + resize": "hflip+resize0.5",
        "· rotation": "rotate",
        "· resize": "resize0.5",
        "none": "none",
    }
    expected += [f"{title} {pairs('augmentations')[view][1]}" for title, view in views.items()]
    expected += [
        f"l1 (best, {pairs('distances')['l1'][1]})",
        f"smooth_l1 ({pairs('distances')['l2'][1]} each)",
    ]
    stages = NUMBERS["stages"]
    expected += [f"seeds {stages['seeds']} → pseudo labels {stages['pseudo']}"]
    expected += [
        f"VOC val {stages['voc_val']}, test {stages['voc_test']}; COCO val {stages['coco_val']}"
    ]
    rows = NUMBERS["computation"]
    small_memory, large_memory, mct = (
        rows[name] for name in ("deit_small_patch16_224", "vit_base_r50_s16_384", "mct")
    )
    expected += [
        f"training memory {small_memory[2]:,.0f} MB DeiT-S/224, {large_memory[2]:,.0f} MB hybrid-B/384"
    ]
    expected += [f"maps {small_memory[3]} and {large_memory[3]} images/s, MCTformer {mct[3]:.2f}"]
    assert [sentence for sentence in expected if sentence not in text] == []


@pytest.mark.skipif(PAPER is None, reason="the paper's text is not at hand")
def test_every_number_stands_in_the_papers_tables() -> None:
    assert PAPER is not None
    text = PAPER.read_text(encoding="utf-8", errors="replace")
    tables = re.findall(r"\\begin\{tabular\}.*?\\end\{tabular\}", text, re.DOTALL)
    assert len(tables) == 11
    words = re.sub(r"\\cite\{[^}]*\}|[A-Z]\w*\d{4}", " ", " ".join(tables))  # no years of venues
    printed = [float(number) for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", words)]
    ours = flat(
        {name: value for name, value in NUMBERS.items() if name not in ("stages", "footnotes")}
    )
    missing = [number for number in printed if number not in ours]
    assert sorted(set(missing)) == [
        2.2,
        224.0,
        384.0,
    ]  # a gain in brackets; pixels are whole numbers here
    assert [number for number in ours if number not in printed] == []


def test_every_table_and_figure_of_the_paper_has_a_command() -> None:
    where = " ".join(
        entry.where.replace("Tables", "Table").replace("Figs.", "Fig.") for entry in NAMES.values()
    )
    numbers = {
        kind: {
            int(n)
            for part in re.findall(rf"{kind} ([\d, ]+)", where)
            for n in re.findall(r"\d+", part)
        }
        for kind in ("Table", "Fig.")
    }
    assert numbers["Table"] == set(range(1, 12))
    assert numbers["Fig."] == set(range(1, 15)) - {2, 3}  # diagrams of the method
