"""Settings: all mistakes at once, TOML there and back."""

from pathlib import Path
from typing import Any

import pytest

from tagmask.config import TRAIN_PRESETS, TrainSettings, check, read_toml, read_values, to_plain, write_section
from tagmask.errors import TagmaskError


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    settings = TrainSettings(
        out=tmp_path,
        data="coco",
        batch=5,
        accumulate=2,
        lr=0,
        view="flip",
        ema=1,
        crop_scale=2,
        weights=tmp_path / "no.pth",
    )
    with pytest.raises(TagmaskError) as caught:
        check(settings)
    for part in ("--images is missing", "--annotations is missing", "--accumulate 2", "--lr 0", "no view 'flip'"):
        assert part in str(caught.value)
    for part in ("--ema 1", "--crop-scale 2", "no.pth does not exist"):
        assert part in str(caught.value)


def test_good_settings_pass(tmp_path: Path) -> None:
    check(TrainSettings(out=tmp_path))


def test_toml_round_trip_keeps_other_sections(tmp_path: Path) -> None:
    settings = TrainSettings(out=tmp_path, consistency_blocks=(2, 5), weights=Path("w.pth"), lr=0.5, epochs=3)
    file = tmp_path / "config.toml"
    file.write_text("[seeds]\nlayers = 2\n")
    write_section(file, "train", settings)
    whole = read_toml(file)
    assert whole["seeds"] == {"layers": 2}
    assert TrainSettings(**read_values(TrainSettings, whole["train"], "file")) == settings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"aplha": 3}, "no setting 'aplha'; did you mean 'alpha'"),
        ({"alpha": "much"}, "alpha = 'much' is not of the form float"),
        ({"distance": "l7"}, "'l1' | 'l2' | 'smooth_l1'"),
        ({"pretrained": 1}, "pretrained = 1"),
        ({"consistency_blocks": [1]}, "consistency_blocks"),
    ],
)
def test_wrong_values_in_a_file(values: dict[str, Any], message: str) -> None:
    with pytest.raises(TagmaskError) as caught:
        read_values(TrainSettings, values, "my.toml")
    assert message in str(caught.value)
    assert "my.toml" in str(caught.value)


def test_broken_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("= 3")
    with pytest.raises(TagmaskError, match=r"c\.toml is not valid TOML"):
        read_toml(tmp_path / "c.toml")
    with pytest.raises(TagmaskError, match="does not exist"):
        read_toml(tmp_path / "none.toml")


@pytest.mark.parametrize("name", list(TRAIN_PRESETS))
def test_presets_hold_known_settings(name: str, tmp_path: Path) -> None:
    values = read_values(TrainSettings, TRAIN_PRESETS[name], name)
    assert to_plain(TrainSettings(out=tmp_path, **values))["data"] == TRAIN_PRESETS[name]["data"]


def test_defaults_are_the_paper_s_recipe(tmp_path: Path) -> None:
    paper = TrainSettings(out=tmp_path, **TRAIN_PRESETS["voc"])
    assert (paper.batch, paper.epochs, paper.optimizer, paper.lr, paper.weight_decay) == (4, 15, "sgd", 0.01, 5e-4)
    assert (paper.power, paper.momentum, paper.alpha, paper.beta, paper.view) == (0.9, 0.9, 100, 100, "hflip")
    assert paper.backbone == "vit_base_r50_s16_384"
