"""Settings: all mistakes at once, to TOML and back, names of earlier versions."""

import inspect
import subprocess
import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from tagmask.config import (
    PRESETS,
    AffinitySettings,
    DeepLabSettings,
    ExportSettings,
    MapSettings,
    PhotoSettings,
    PredictPhotoSettings,
    PredictSettings,
    PseudoSettings,
    SeedSettings,
    SegmentSettings,
    TrainSettings,
    check,
    preset_of,
    read_toml,
    read_values,
    to_plain,
    write_sections,
)
from tagmask.config.limits import Limit
from tagmask.config.paper import PaperTop
from tagmask.config.run import RunSettings, write_config
from tagmask.config.segment import NETS
from tagmask.errors import TagmaskError
from tagmask.runs.settings import run_settings, run_values
from tagmask.runs.table import sections
from tests.alone import alone, alone_of


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    settings = alone(
        TrainSettings,
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
    for part in (
        "--images is missing",
        "--annotations is missing",
        "--accumulate 2",
        "--lr 0",
        "no view 'flip'",
    ):
        assert part in str(caught.value)
    for part in ("--ema 1", "--crop-scale 2", "no.pth does not exist"):
        assert part in str(caught.value)


def test_good_settings_pass(tmp_path: Path) -> None:
    check(alone(TrainSettings, out=tmp_path))


def test_toml_round_trip_keeps_other_sections(tmp_path: Path) -> None:
    settings = TrainSettings(consistency_blocks=(2, 5), weights=Path("w.pth"), lr=0.5, epochs=3)
    file = tmp_path / "config.toml"
    file.write_text("[seeds]\nlayers = 2\n")
    write_sections(file, {"train": to_plain(settings)})
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


def test_optional_choices_are_read_back(tmp_path: Path) -> None:
    settings = PseudoSettings(
        maps="plain", affinity_blocks=(0, 1), size=64, background=0.5, beta=2.0
    )
    write_sections(tmp_path / "config.toml", {"pseudo": to_plain(settings)})
    values = read_values(PseudoSettings, read_toml(tmp_path / "config.toml")["pseudo"], "pseudo")
    assert PseudoSettings(**values) == settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (alone(PredictSettings, out=Path("x"), tile=100), "--tile 100 must be a multiple of 8"),
        (alone(PredictSettings, out=Path("x"), halo=-3), "--halo -3 must be a multiple of 8"),
        (alone(TrainSettings, out=Path("x"), seed=-1), "--seed -1 must be at least 0"),
        (
            alone(TrainSettings, out=Path("x"), weight_decay=-0.1),
            "--weight-decay -0.1 must be at least 0",
        ),
        (
            alone(SeedSettings, out=Path("x"), affinity_blocks=(3, 1)),
            "--affinity-blocks 3 1 must be at least 0, the smaller",
        ),
        (
            alone(PseudoSettings, out=Path("x"), method="crf", maps="plain", unsure=True),
            "--unsure compares",
        ),
        (
            alone(TrainSettings, out=Path("x"), drop_path=2),
            "--drop-path 2 must be at least 0 and below 1",
        ),
        (
            alone(TrainSettings, out=Path("x"), lr=1e308),
            "--lr (too long to show) must be above 0 and at most 1e+09",
        ),
        (
            alone(TrainSettings, out=Path("x"), steps=10**5000),
            "--steps (too long to show) must be at least 1 and at most 1e+09",
        ),
        (
            alone(TrainSettings, out=Path("x"), size=10**6),
            "--size 1000000 must be at least 1 and at most 16384",
        ),
        (
            alone(PseudoSettings, out=Path("x"), processes=10**4),
            "--processes 10000 must be at least 1 and at most 256",
        ),
        (
            alone(TrainSettings, out=Path("x"), epochs=float("inf")),
            "--epochs inf must be above 0 and finite",
        ),
        (
            alone(TrainSettings, out=Path("x"), seed=10**400),
            "must be at least 0 and at most 9223372036854775807",
        ),
        (
            alone(TrainSettings, out=Path("x"), images=Path()),
            "--images belongs to --data folder or coco",
        ),
        (
            alone(TrainSettings, out=Path("run"), data="folder", images=Path()),
            "--out run is inside --images .",
        ),
        (alone(PredictSettings, out=Path("run"), photos=Path()), "--out run is inside --photos ."),
        (
            PhotoSettings(photo=Path("a.png"), model=Path("m"), show=Path("a.png")),
            "--show a.png is read itself (--photo)",
        ),
        (ExportSettings(out=Path("x"), format="label-studio", to=Path("a.xml")), "name a .json"),
        (
            PredictPhotoSettings(photo=Path("a"), model=Path("m"), mask=Path("a")),
            "--mask a is read itself (--photo)",
        ),
    ],
)
def test_settings_that_cannot_be_used(settings: Any, message: str) -> None:
    assert any(message in mistake for mistake in settings.mistakes())


def test_settings_outside_a_section(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("seeds = 7")
    with pytest.raises(TagmaskError, match=r"config\.toml: seeds is in no section"):
        read_toml(tmp_path / "config.toml")


def test_broken_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("= 3")
    with pytest.raises(TagmaskError, match=r"c\.toml is not valid TOML"):
        read_toml(tmp_path / "c.toml")
    with pytest.raises(TagmaskError, match="does not exist"):
        read_toml(tmp_path / "none.toml")


@pytest.mark.parametrize("name", PRESETS)
def test_presets_hold_known_settings(name: str, tmp_path: Path) -> None:
    assert PRESETS[name].keys() <= {"run", "paper", *sections()}
    read_values(PaperTop, PRESETS[name].get("paper", {}), name)
    for section, kind in sections().items():
        data = PRESETS[name]["run"]
        values = {key: value for key, value in preset_of(name, section).items() if key not in data}
        kind = kind.kind_for(values)
        plain = to_plain(kind(**read_values(kind, values, name)))
        for key, value in values.items():
            if isinstance(value, dict):
                assert value.items() <= plain[key].items()
            else:
                assert plain[key] == (list(value) if isinstance(value, tuple) else value)


def test_a_recipe_differs_from_its_base_where_it_says_so() -> None:
    assert PRESETS["voc-mct"]["train"] == {
        "backbone": "deit_small_patch16_224",
        "pretrained": True,
        "kind": "mct",
    }
    assert PRESETS["voc-mct"]["segment"] == PRESETS["voc"]["segment"]
    assert PRESETS["coco"]["run"]["data"] == "coco"
    assert "steps" not in PRESETS["voc"]["segment"]


@dataclass(frozen=True, kw_only=True)
class Outer:
    """Settings that hold those of another stage."""

    out: Path
    affinity: AffinitySettings = field(default_factory=lambda: AffinitySettings(size=64))
    steps: int | None = 7


def test_nested_settings_are_a_table_of_their_own(tmp_path: Path) -> None:
    settings = Outer(
        out=tmp_path, affinity=AffinitySettings(size=96, scales=(0.5, 2.0), weights=Path("w.pth"))
    )
    write_sections(tmp_path / "config.toml", {"outer": to_plain(settings)})
    assert "[outer.affinity]" in (tmp_path / "config.toml").read_text()
    whole = read_toml(tmp_path / "config.toml")
    assert Outer(**read_values(Outer, whole["outer"], "file")) == settings


def test_nested_values_lie_on_top_of_the_outer_default() -> None:
    values = read_values(Outer, {"affinity": {"radius": 3}}, "file")
    assert values["affinity"] == AffinitySettings(size=64, radius=3.0)
    assert (
        read_values(Outer, {"affinity": AffinitySettings()}, "file")["affinity"]
        == AffinitySettings()
    )


def test_mistakes_of_nested_settings_are_told_with_the_others() -> None:
    with pytest.raises(TagmaskError) as caught:
        read_values(Outer, {"affinity": {"radios": 3, "size": "big"}, "stepps": 1}, "my.toml")
    for part in (
        "my.toml: affinity: there is no setting 'radios'; did you mean 'radius'",
        "size = 'big'",
        "'stepps'",
    ):
        assert part in str(caught.value)
    with pytest.raises(TagmaskError, match="affinity = 3 is not of the form AffinitySettings"):
        read_values(Outer, {"affinity": 3}, "my.toml")


def test_a_default_that_was_unset_stays_unset(tmp_path: Path) -> None:
    settings = DeepLabSettings(steps=None, epochs=3)
    write_sections(tmp_path / "config.toml", {"segment": to_plain(settings)})
    section = read_toml(tmp_path / "config.toml")["segment"]
    assert DeepLabSettings(**read_values(DeepLabSettings, section, "file")) == settings
    assert "weights" not in section


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "--to is missing; name the file or folder"),
        ({"to": Path(__file__).parent}, "is a folder; --format coco writes a single file"),
        ({"to": Path(__file__), "format": "voc"}, "is a file; --format voc writes a folder"),
        (
            {"to": Path("x"), "format": "cvat", "polygons": True},
            "--polygons belongs to --format coco",
        ),
        ({"to": Path("x"), "format": "voc", "pieces": True}, "knows classes only"),
        ({"to": Path("x"), "photos": Path("nowhere")}, "--photos nowhere is not a folder"),
        ({"to": Path("x"), "data": "folder"}, "--images is missing"),
    ],
)
def test_export_settings_that_cannot_be_used(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(TagmaskError, match=message):
        check(ExportSettings(out=tmp_path, **changes))
    check(ExportSettings(out=tmp_path, onnx=tmp_path / "net.onnx"))


def test_settings_are_read_without_torch() -> None:
    code = "import sys, tagmask.config\nassert not {'torch', 'numpy'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_defaults_are_the_paper_s_recipe(tmp_path: Path) -> None:
    paper = alone(TrainSettings, out=tmp_path, **preset_of("voc", "train"))
    assert (paper.batch, paper.epochs, paper.optimizer, paper.lr, paper.weight_decay) == (
        4,
        15,
        "sgd",
        0.01,
        5e-4,
    )
    assert (paper.power, paper.momentum, paper.alpha, paper.beta, paper.view) == (
        0.9,
        0.9,
        100,
        100,
        "hflip",
    )
    assert paper.backbone == "vit_base_r50_s16_384"


def test_segmenter_defaults_are_the_community_s_recipe(tmp_path: Path) -> None:
    voc = alone(SegmentSettings, out=tmp_path, **preset_of("voc", "segment"))
    assert (voc.size, voc.scales, voc.batch, voc.steps, voc.head_lr) == (
        321,
        (0.5, 1.5),
        10,
        20_000,
        10,
    )
    assert (voc.lr, voc.momentum, voc.weight_decay, voc.power, voc.optimizer) == (
        2e-4,
        0.9,
        5e-4,
        0.9,
        "sgd",
    )
    assert alone(SegmentSettings, out=tmp_path).lr == 2.5e-4
    assert PRESETS["coco"]["segment"]["steps"] == 100_000
    assert alone(PredictSettings, out=tmp_path).scales == (0.5, 0.75, 1.0, 1.25, 1.5)


def test_every_method_can_be_chosen() -> None:
    """And has the options that the settings say, but for those that all methods have."""
    from tagmask.config.seeds import MAP_METHODS
    from tagmask.methods import METHODS

    # the maps of an MCTformer stand in the place of acr
    assert set(MAP_METHODS) == set(METHODS) - {"mct"}
    for name, options in MAP_METHODS.items():
        parameters = inspect.signature(METHODS[name].maps).parameters
        assert set(options) == parameters.keys() & {"layers", "centre"}


def test_a_method_of_your_own_can_be_chosen_once_it_is_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tagmask.methods import METHODS, Method

    def toy(model: Any, images: Any, classes: Any, blocks: range, *, layers: int = 1) -> Any:
        """Stand for a map method with one option."""

    for kind in (MapSettings, SeedSettings):
        (mistake,) = kind(method="toy", layers=2).mistakes()
        assert mistake.startswith("--method toy is no map method; choose from acr, weighted,")
        assert "tagmask.methods.METHODS" in mistake
        assert kind(method="mct").mistakes() != []  # of an MCTformer, for which acr means them
    monkeypatch.setitem(METHODS, "toy", Method(toy))
    for kind in (MapSettings, SeedSettings):
        assert kind(method="toy", layers=2).mistakes() == []
        (mistake,) = kind(method="toy", centre=True).mistakes()
        assert mistake.endswith("leave it out with toy.")
    assert read_values(SeedSettings, {"method": "toy"}, "config.toml") == {"method": "toy"}


@pytest.mark.parametrize(
    ("limit", "good", "bad", "words"),
    [
        (Limit(), (-1e9, 0, 10**9), (2e9, 10**5000), "finite"),
        (Limit(least=1), (1, 7), (0, 0.999), "at least 1"),
        (Limit(above=0, most=4), (1e-9, 4), (0, 4.1), "above 0 and at most 4"),
        (
            Limit(least=0, below=1, example="0.9"),
            (0, 0.999),
            (-0.1, 1),
            "at least 0 and below 1, e.g. 0.9",
        ),
        (Limit(above=0, multiple=8), (8, 64), (0, -8, 12), "a multiple of 8 and above 0"),
    ],
)
def test_limits(limit: Limit, good: tuple[float, ...], bad: tuple[float, ...], words: str) -> None:
    assert all(map(limit.admits, good))
    assert not any(map(limit.admits, (*bad, float("nan"), float("inf"), float("-inf"))))
    assert str(limit) == words


NUMBERS = [
    (kind, name)
    for kind in (
        *sections().values(),
        *NETS.values(),
        AffinitySettings,
        PhotoSettings,
        PredictPhotoSettings,
    )
    for name, hint in get_type_hints(kind).items()
    if hint in (float, float | None) and name not in ("section", "basic")
]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(("kind", "name"), NUMBERS)
def test_no_number_may_be_infinite_or_nan(kind: Any, name: str, value: float) -> None:
    required = {"out": Path("x"), "photo": Path("a"), "model": Path("m")}
    needed = {
        key: required[key] for key in required if key in {field.name for field in fields(kind)}
    }
    mistakes = kind(**{**needed, name: value}).mistakes()
    assert any(mistake.startswith(f"--{name.replace('_', '-')} {value}") for mistake in mistakes), (
        mistakes
    )


def test_the_first_of_two_numbers_is_the_smaller() -> None:
    assert Limit(rising=True).admits(1, 1)
    assert not Limit(rising=True).admits(2, 1)


def test_scales_are_numbers_within_a_range_and_not_empty() -> None:
    assert alone(PredictSettings, out=Path("x"), scales=(1.0, 9.0)).mistakes() == [
        "--scales 1.0 9.0 must be above 0 and at most 4."
    ]
    assert alone(PredictSettings, out=Path("x"), scales=()).mistakes() == [
        "--scales is empty; give numbers: above 0 and at most 4."
    ]
    assert alone(SegmentSettings, out=Path("x"), scales=(1.5, 0.5)).mistakes() == [
        "--scales 1.5 0.5 must be above 0 and at most 16, the smaller one first."
    ]


def test_one_mistake_is_one_sentence_and_several_have_a_heading() -> None:
    with pytest.raises(TagmaskError) as caught:
        check(alone(TrainSettings, out=Path("x"), lr=0))
    assert str(caught.value) == "--lr 0 must be above 0."
    with pytest.raises(TagmaskError) as caught:
        check(alone(TrainSettings, out=Path("x"), lr=0, batch=0))
    assert str(caught.value).splitlines()[0] == "2 settings cannot be used:"


def test_a_setting_that_is_gone_is_left_out() -> None:
    assert read_values(SeedSettings, {"compete": True, "affinity_steps": 2}, "here") == {
        "affinity_steps": 2
    }


@pytest.mark.parametrize("name", ["scenes", "scenes300", "photos-long", "photos-long-chain"])
def test_settings_of_published_results_can_be_read(name: str) -> None:
    values = run_values(None, Path(__file__).parents[1] / f"docs/results/{name}.toml")
    assert values["segment"].size > 0


def test_a_stage_gets_the_data_and_the_folder_of_the_run(tmp_path: Path) -> None:
    run = RunSettings(out=tmp_path, count=5).with_stages(TrainSettings(lr=0.5))
    assert alone_of(run, "train") == alone(TrainSettings, out=tmp_path, count=5, lr=0.5)
    for name in sections():
        assert (alone_of(run, name).out, alone_of(run, name).count) == (tmp_path, 5)


def test_where_tokens_are_kept_is_read_again(tmp_path: Path) -> None:
    settings = RunSettings(out=tmp_path, tokens=tmp_path / "shared", tokens_limit=3.0)
    write_config(settings)
    again = run_settings(run_values(None, tmp_path / "config.toml"))
    assert (again.tokens, again.tokens_limit) == (settings.tokens, 3.0)
    assert again.mistakes() == []
