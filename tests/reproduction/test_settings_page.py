"""docs/reference/paper-settings.md says what the presets set; the strict ones resolve to the paper's numbers."""

import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tagmask.cli.parse import parse_paper
from tagmask.config import PRESETS, to_plain
from tagmask.data.catalog import Catalog
from tagmask.runs.settings import run_values
from tagmask.training.loop import total_steps

PAGE = Path(__file__).parents[2] / "docs/reference/paper-settings.md"


def tables() -> dict[str, dict[str, str]]:
    """The column of every preset on the page: setting -> what stands there between backticks."""
    columns: dict[str, dict[str, str]] = {}
    presets: dict[int, str] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == "setting":
            presets = {
                place: cell.strip("`") for place, cell in enumerate(cells) if cell.startswith("`")
            }
        elif line.startswith("| `"):
            for place, preset in presets.items():
                columns.setdefault(preset, {})[cells[0].strip("`")] = cells[place].strip("`")
    return columns


def resolved(preset: str) -> dict[str, Any]:
    """Every setting of a preset by its dotted name."""
    values = run_values(preset, None)
    settings = {"run": {key: value for key, value in values.items() if isinstance(value, str)}}
    settings |= {
        name: to_plain(value) for name, value in values.items() if not isinstance(value, str | int)
    }
    settings["paper"] = dict(PRESETS[preset].get("paper", {}))
    return flat(settings)


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    names: dict[str, Any] = {}
    for name, value in values.items():
        names |= (
            flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
        )
    return names


@pytest.mark.parametrize(("preset", "column"), tables().items())
def test_the_page_says_what_the_preset_sets(preset: str, column: dict[str, str]) -> None:
    settings = resolved(preset)
    for name, cell in column.items():
        if cell == "":
            assert name not in settings, (
                f"{preset}: {name} is {settings.get(name)}, the page leaves it empty"
            )
            continue
        expected = (
            cell
            if re.fullmatch(r"[a-z]\w*", cell) and cell not in ("true", "false")
            else parsed(cell)
        )
        assert settings[name] == expected, f"{preset}: {name}"


def parsed(cell: str) -> Any:
    return tomllib.loads(f"value = {cell}")["value"]


@pytest.mark.parametrize("preset", [name for name in PRESETS if name.endswith("-paper")])
def test_every_setting_of_a_strict_preset_is_on_the_page(preset: str) -> None:
    columns = tables()
    sections = {name: dict(section) for name, section in PRESETS[preset].items()}
    missing = set(flat(sections)) - {"run.data", *columns[preset], *columns["voc-paper"]}
    assert missing == set()


def of_voc() -> Catalog:
    names = [f"2008_{i:06}" for i in range(10_582)]
    return Catalog(
        ["dog", "cat"], names, np.random.default_rng(0).integers(0, 2, (10_582, 1)).tolist()
    )


@pytest.mark.parametrize(
    ("preset", "steps"), [("voc-paper", 39_683), ("voc-deit-s-paper", 39_683), ("voc", 35_715)]
)
def test_images_and_steps(preset: str, steps: int) -> None:
    train = run_values(preset, None)["train"]
    training, val = of_voc().split(train.val_fraction, train.seed)
    is_strict = preset.endswith("-paper")
    assert (len(training), len(val)) == ((10_582, 0) if is_strict else (9_524, 1_058))
    assert total_steps(train, len(training)) == steps
    assert (train.alpha, train.beta, train.alpha_absolute) == (100, 100, is_strict)


def test_strict_presets_have_no_mistakes_and_score_train(tmp_path: Path) -> None:
    for preset in ("voc-paper", "voc-deit-s-paper", "voc-mct-paper"):
        settings = parse_paper(
            ["ablation", "--preset", preset, "--root", str(tmp_path), "--out", str(tmp_path / "x")]
        )
        assert settings.mistakes() == []
        assert settings.score_data()["split"] == "train"
        assert settings.mct_recipe
