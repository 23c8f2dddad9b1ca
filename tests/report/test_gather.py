"""The report of a run folder: right numbers, any stage missing, with and without truth."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tagmask.config import ReportSettings
from tagmask.data.images import write_mask
from tagmask.data.scenes.catalog import CLASSES, Scenes
from tagmask.errors import TagmaskError
from tagmask.inference.maps import PhotoMaps
from tagmask.report import stage
from tagmask.report.images import RunLabels, classes_in, evenly, fitted, pick
from tagmask.report.page import Report
from tagmask.report.stage import gather, made_from
from tagmask.runs.run import Run
from tagmask.stages.seeds import write_seeds
from tests.alone import alone, write_report
from tests.report.test_page import check_page

COUNT = 5
SCENES = Scenes(COUNT, 0)


def written(asked: Any) -> Path:
    return Path(write_report(asked).file)


def settings(run: Path, **changes: Any) -> Any:
    return alone(ReportSettings, **{"out": run, "count": COUNT, "rows": 3, **changes})


def gathered(given: Any) -> Report:
    return gather(Run.of(given.run), given.own)


def add_seeds(run: Path) -> None:
    for i in range(COUNT):
        mask = SCENES.load_mask(i)
        maps = np.stack([np.where(mask == c + 1, 0.8, 0.1) for c in SCENES.tags(i)]).astype(
            np.float32
        )
        write_seeds(
            run / "2_seeds" / f"{SCENES.name(i)}.npz",
            PhotoMaps(SCENES.tags(i), maps, maps),
            "uint8",
        )


def add_labels(run: Path, folder: str, shift: int) -> dict[int, Any]:
    """Labels that are the truth, moved the farther the higher the index."""
    made = {}
    for i in range(COUNT):
        mask = SCENES.load_mask(i)
        assert mask is not None
        made[i] = np.roll(mask, shift * i, 1)
        write_mask(run / folder / f"{SCENES.name(i)}.png", made[i])
    return made


def plain_iou(guess: Any, truth: Any) -> dict[int, float]:
    """IoU of each class that occurs, by sets of pixels."""
    kept = truth != 255
    guess, truth = guess[kept], truth[kept]
    scores = {}
    for label in sorted({*guess.tolist(), *truth.tolist()}):
        scores[label] = ((guess == label) & (truth == label)).sum() / (
            (guess == label) | (truth == label)
        ).sum()
    return scores


def test_whole_run_in_one_page(tmp_path: Path) -> None:
    add_seeds(tmp_path)
    add_labels(tmp_path, "4_pseudo", 2)
    guesses = add_labels(tmp_path, "6_predictions", 1)
    (tmp_path / "1_classifier").mkdir()
    (tmp_path / "1_classifier" / "model.safetensors").write_bytes(b"weights")
    log = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}, {"step": 2, "map": 0.625}]
    (tmp_path / "1_classifier" / "log.jsonl").write_text(
        "\n".join(map(json.dumps, log)) + '\n{"step": 3, "lo'
    )
    (tmp_path / "config.toml").write_text('[train]\nseed = 41\nout = "x"\n')
    file = written(settings(tmp_path))
    text = file.read_text(encoding="utf-8")
    assert file == tmp_path / "report.html"
    check_page(text)
    assert text.count("<img") == 15  # image, map, pseudo label, prediction, truth in three rows
    assert "<b>62.5</b>" in text
    assert "train: 41" in text
    assert f"<code>{hashlib.sha256(b'weights').hexdigest()}</code>" in text
    truths = [truth for i in range(COUNT) if (truth := SCENES.load_mask(i)) is not None]
    whole = plain_iou(
        np.concatenate([g.ravel() for g in guesses.values()]),
        np.concatenate([t.ravel() for t in truths]),
    )
    assert f"<b>{100 * np.mean(list(whole.values())):.1f}</b>" in text
    assert file.stat().st_size < 3_000_000
    assert not list(tmp_path.glob("*.partial"))


def test_cases_are_ranked_by_the_last_stage(tmp_path: Path) -> None:
    add_labels(tmp_path, "4_pseudo", 0)
    guesses = add_labels(tmp_path, "6_predictions", 3)
    report = gathered(settings(tmp_path))
    expected = {}
    for i, guess in guesses.items():
        expected[SCENES.name(i)] = float(
            np.mean(list(plain_iou(guess, SCENES.load_mask(i)).values()))
        )
    assert {f.name: f.iou for f in report.survey.facts} == pytest.approx(expected)
    ranked = sorted(expected, key=lambda name: expected[name])
    assert {group: case.facts.name for group, (case,) in report.survey.cases.items()} == {
        "worst": ranked[0],
        "median": ranked[COUNT // 2],
        "best": ranked[-1],
    }
    assert [s.stage for s in report.scores] == ["pseudo labels", "predictions"]
    assert report.scores[0].miou_present == 1
    names = [caption for caption, _ in report.survey.cases["best"][0].pictures]
    assert names == ["image", "pseudo labels", "predictions", "truth"]
    assert "seeds" in report.missing["gallery"]


def test_seeds_alone_and_their_threshold(tmp_path: Path) -> None:
    add_seeds(tmp_path)
    report = gathered(settings(tmp_path))
    assert all(f.iou == 1 for f in report.survey.facts)  # Otsu's threshold lies between 0.1 and 0.8
    assert [caption for caption, _ in report.survey.cases["best"][0].pictures] == [
        "image",
        "map",
        "seeds",
        "truth",
    ]
    assert "tagmask score" in report.missing["threshold"]
    text = written(settings(tmp_path)).read_text()
    assert "by cross_entropy, chosen for this page" in text


def test_no_gallery_without_a_readable_image(tmp_path: Path) -> None:
    add_labels(tmp_path, "4_pseudo", 0)
    add_seeds(tmp_path)
    report = gathered(settings(tmp_path, rows=0))
    assert len(report.survey.facts) == COUNT
    assert report.survey.cases == {}


def test_only_a_training(tmp_path: Path) -> None:
    (tmp_path / "5_segmenter").mkdir()
    log = '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.4}\n'
    (tmp_path / "5_segmenter" / "log.jsonl").write_text(log)
    text = written(settings(tmp_path)).read_text()
    check_page(text)
    assert "Segmenter" in text
    assert "No training log yet in 1_classifier (<code>tagmask train</code>), 3_affinity" in text
    assert "There are no maps, pseudo labels or predictions of these images" in text
    assert "<img" not in text


def scored(stage: dict[str, Any]) -> dict[str, Any]:
    names = ["background", *CLASSES]
    values = {
        "miou_present": 0.5,
        "miou_all": 0.5,
        "fp": 0.1,
        "fn": None,
        "iou": dict.fromkeys(names, 0.25),
    }
    rule = {"threshold": 0.31, **values}
    kind: dict[str, Any] = {
        "thresholds": {"otsu": rule, "oracle": rule, "cross_entropy": {**rule, "threshold": 0.9}}
    }
    kind["curve"] = {name: [0.1, None, 0.3, 0.2] for name in ("miou_present", "fp", "fn")}
    return {
        "seeds": {"images": 9, "plain": kind, "refined": kind},
        "predictions": {"images": 9, **values, **stage},
    }


def test_scores_are_taken_from_the_file(tmp_path: Path) -> None:
    add_seeds(tmp_path)
    add_labels(tmp_path, "6_predictions", 1)
    matrix = np.eye(len(CLASSES) + 1, len(CLASSES) + 2, dtype=int).tolist()
    (tmp_path / "scores.json").write_text(json.dumps(scored({"confusion": matrix})))
    report = gathered(settings(tmp_path))
    assert [(s.rule, s.threshold, s.images) for s in report.scores] == [
        *[("oracle", 0.31, 9), ("cross_entropy", 0.9, 9), ("otsu", 0.31, 9)] * 2,
        ("", None, 9),
    ]
    curve = report.curves["seeds with affinity"]
    np.testing.assert_array_equal(curve["fp"], [10, np.nan, 30, 20])
    assert report.notes == []
    labels = RunLabels(tmp_path, SCENES, 0.9)
    assert not labels.read(
        "seeds", 0
    ).any()  # 0.8 does not exceed the threshold that the file holds
    text = written(settings(tmp_path)).read_text()
    check_page(text)
    assert "0.90 by cross_entropy, from scores.json" in text


def test_old_scores_and_foreign_weights_are_pointed_out(tmp_path: Path) -> None:
    add_labels(tmp_path, "6_predictions", 1)
    (tmp_path / "6_predictions" / "made_by.json").write_text(
        '{"input segmenter": "0123456789abcdef"}'
    )
    (tmp_path / "6_predictions" / f"{SCENES.name(2)}.png").write_bytes(b"")
    scores = scored({})
    scores["predictions"]["files"] = "a hash of other files"
    (tmp_path / "scores.json").write_text(json.dumps(scores).replace(CLASSES[0], "yak"))
    notes = " ".join(gathered(settings(tmp_path)).notes)
    assert "made by weights (0123456789abcdef) that are not in this run folder" in notes
    assert "older than the files in 6_predictions" in notes
    assert "other classes" in notes
    assert "1 images could not be used in full" in notes
    assert f"{SCENES.name(2)}.png is empty" in notes


def photos(tmp_path: Path) -> dict[str, Any]:
    """The scenes as photos with tags and without masks."""
    folder = tmp_path / "photos"
    folder.mkdir()
    rows = ["file," + ",".join(CLASSES)]
    for i in range(COUNT):
        Image.fromarray(SCENES.load_image(i)).save(folder / f"{SCENES.name(i)}.png")
        rows.append(
            f"{SCENES.name(i)}.png,"
            + ",".join("01"[c in SCENES.tags(i)] for c in range(len(CLASSES)))
        )
    (tmp_path / "tags.csv").write_text("\n".join(rows))
    return {"data": "folder", "images": folder, "tags": tmp_path / "tags.csv"}


def test_without_truth_stages_are_compared(tmp_path: Path) -> None:
    run = tmp_path / "run"
    pseudo = add_labels(run, "4_pseudo", 1)
    guesses = add_labels(run, "6_predictions", -1)
    guesses[3][:] = 0
    write_mask(run / "6_predictions" / f"{SCENES.name(3)}.png", guesses[3])
    chances = np.full((2, 4, 4), 0.25, np.float16)
    chances[1] = 0.75
    np.savez(run / "6_predictions" / f"{SCENES.name(0)}.npz", probabilities=chances)
    given = settings(run, **photos(tmp_path))
    report = gathered(given)
    assert not report.survey.truth
    assert report.classes == tuple(sorted(CLASSES))
    facts = {f.name: f for f in report.survey.facts}
    for i in (0, 3, 4):
        expected = np.mean(list(plain_iou(guesses[i], pseudo[i]).values()))
        assert facts[SCENES.name(i)].agreement == pytest.approx(expected)
    assert facts[SCENES.name(0)].confidence == 0.75
    assert facts[SCENES.name(3)].missing == tuple(sorted(CLASSES[c] for c in SCENES.tags(3)))
    first = min(facts.values(), key=lambda f: f.agreement or 0)
    assert report.survey.cases["worst"][0].facts.name == first.name
    shown = written(given).read_text()
    check_page(shown)
    assert "Check first" in shown
    assert "These data have no masks" in shown
    assert 'id="confusion"' not in shown
    assert "look inside and correct: <code>tagmask explore " in shown


def test_the_images_most_in_doubt_are_named_in_the_terminal(tmp_path: Path) -> None:
    """One lost its tags, and another looks like another tag; with true masks nothing is said."""
    run = tmp_path / "run"
    name, odd = SCENES.name(3), SCENES.name(4)
    # a table of tags has the classes in alphabetical order
    numbers = np.array([0, *(sorted(CLASSES).index(word) + 1 for word in CLASSES)], np.uint8)
    for i in range(COUNT):
        truth = SCENES.load_mask(i)
        assert truth is not None
        mask = np.zeros_like(truth) if i == 3 else numbers[truth]
        write_mask(run / "6_predictions" / f"{SCENES.name(i)}.png", mask)
    (run / "1_classifier").mkdir()
    found = {"tag": "yak", "photos": 3, "average_precision": 0.5, "by_chance": 0.2, "wrong": []}
    rows = [{**found, "missing": [[odd, 0.95]]}]
    (run / "1_classifier/tags.json").write_text(json.dumps({"tags": rows}))
    given = settings(run, **photos(tmp_path))
    project = Run.of(given.run)
    done = stage.write_report(project, given.own)
    assert project.look_first.startswith("look at these photos first: ")
    assert f"{name} (" in project.look_first
    assert f"{odd} (looks like yak, which is no tag of it)" in project.look_first
    assert done.summary() == f"{project.look_first}\nreport: {run / 'report.html'}"
    assert "looks like yak" in done.file.read_text()
    scored = settings(run)
    project = Run.of(scored.run)
    assert stage.write_report(project, scored.own).summary() == f"report: {run / 'report.html'}"
    assert project.look_first == ""


def test_confidence_of_maps_by_hand(tmp_path: Path) -> None:
    add_seeds(tmp_path / "run")
    report = gathered(settings(tmp_path / "run", **photos(tmp_path)))
    limit = float(
        next(value for name, value in report.provenance.facts if name.startswith("threshold"))[:4]
    )
    mask = SCENES.load_mask(1)
    assert mask is not None
    inside = np.isin(mask, [c + 1 for c in SCENES.tags(1)]).mean()
    high, low = (0.8 - limit) / (1 - limit), (limit - 26 / 255) / limit  # 0.1 is stored as 26/255
    assert report.survey.facts[1].confidence == pytest.approx(
        inside * high + (1 - inside) * low, abs=1e-6
    )
    assert report.survey.before == ""


def test_specks_do_not_count_as_found() -> None:
    labels = np.zeros((100, 100), np.uint8)
    labels[0, :9] = 3
    labels[1, :10] = 4
    labels[2:4] = 255
    assert classes_in(labels) == {3}


@pytest.mark.parametrize(
    ("count", "rows", "expected"),
    [
        (10, 3, ([0], [4], [9])),
        (9, 3, ([0], [4], [8])),
        (10, 5, ([0, 1], [4, 5], [9])),
        (4, 12, ([0, 1], [2], [3])),
        (1, 12, ([0], [], [])),
        (0, 12, ([], [], [])),
        (9, 0, ([], [], [])),
    ],
)
def test_picked_are_first_middle_and_last(
    count: int, rows: int, expected: tuple[list[int], ...]
) -> None:
    assert tuple(map(list, pick(count, rows))) == expected


def test_pictures_are_reduced_or_enlarged_by_a_whole_number() -> None:
    assert fitted(576, 288) == (288, 144)
    assert fitted(96, 64) == (288, 192)
    assert fitted(200, 150) == (200, 150)
    assert fitted(1, 5000) == (1, 288)


def test_evenly_spread() -> None:
    assert evenly([3, 4, 5], 5) == [3, 4, 5]
    assert evenly(list(range(10)), 4) == [0, 2, 5, 7]


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(TagmaskError, match="rows 99 must be at least 0 and at most 24"):
        written(settings(tmp_path, rows=99))
    with pytest.raises(TagmaskError, match="does not exist; give the folder of a run"):
        written(settings(tmp_path / "none"))
    with pytest.raises(TagmaskError, match="contains no training, maps or masks"):
        written(settings(tmp_path))
    add_labels(tmp_path, "6_predictions", 0)
    (tmp_path / "scores.json").write_text('{"predictions": {"iou": {}}}')
    with pytest.raises(TagmaskError, match="was not written by `tagmask score`"):
        written(settings(tmp_path))
    (tmp_path / "scores.json").write_text(json.dumps(scored({"confusion": [[1, 2]]})))
    with pytest.raises(TagmaskError, match=r"confusion matrix \(1, 2\) for 11 classes"):
        written(settings(tmp_path))
    (tmp_path / "scores.json").unlink()
    (tmp_path / "6_predictions" / "made_by.json").write_text('{"classes": ["yak", "emu"]}')
    with pytest.raises(
        TagmaskError,
        match=r"made for 2 classes \(yak, emu\), but the images have 10 \(cow, car, boat, …\)",
    ):
        written(settings(tmp_path))
    assert not (tmp_path / "report.html").exists()


def test_pseudo_labels_need_no_affinity_network(tmp_path: Path) -> None:
    add_labels(tmp_path, "4_pseudo", 0)
    (tmp_path / "4_pseudo" / "made_by.json").write_text(
        '{"method": "crf", "input network": "0123456789abcdef"}'
    )
    report = gathered(settings(tmp_path))
    assert "3_affinity" not in report.missing["training"]
    assert "4_pseudo was made by weights (0123456789abcdef)" in report.notes[0]


def labelled(i: int) -> Any:
    """A mask with 10 pixels of the first class, 20 of the second, or none; some are unsure."""
    truth = SCENES.load_mask(i)
    assert truth is not None
    mask = np.zeros(truth.shape, np.uint8)
    mask[5, :10] = 1 if i == 0 else 0
    mask[6:8, 3:13] = 2 if i == 1 else 0
    mask[0, 0] = 255
    return mask


def test_how_much_each_class_covers(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for i in range(3):
        write_mask(run / "6_predictions" / f"{SCENES.name(i)}.png", labelled(i))
    about = tmp_path / "about.csv"
    known = [("a", 2), ("b", 3), ("a", 1)]
    rows = [f"{SCENES.name(i)},{site},{scale}" for i, (site, scale) in enumerate(known)]
    about.write_text("\n".join(["photo,<site>,mm_per_pixel", *rows]) + "\n")
    asked = settings(run, about=about, by=("<site>",))
    cover = gathered(asked).cover
    assert cover is not None
    assert cover.has_scale
    found = {row.name: row for row in cover.classes}
    first, second, third = (found[CLASSES[k]] for k in range(3))
    sizes = [labelled(i).size for i in range(3)]
    assert first.mean_share == pytest.approx(10 / sizes[0] / 3)
    assert first.where_found == pytest.approx(10 / sizes[0])
    assert third.where_found is None
    assert first.share_of_all == pytest.approx(10 / sum(sizes))
    assert (first.with_it, first.photos, first.area) == (1, 3, 10 * 2**2)
    assert second.mean_share == pytest.approx(20 / sizes[1] / 3)
    assert second.area == 20 * 3**2
    assert (third.with_it, third.mean_share, third.area) == (0, 0, 0)
    (table,) = cover.tables
    assert [(value, photos) for value, photos, _ in table.rows] == [("a", 2), ("b", 1)]
    shares = {value: dict(zip(table.classes, row, strict=True)) for value, _, row in table.rows}
    assert shares["a"][CLASSES[0]] == pytest.approx(10 / sizes[0] / 2)
    assert shares["b"][CLASSES[1]] == pytest.approx(20 / sizes[1])
    text = written(asked).read_text(encoding="utf-8")
    check_page(text)
    assert "By &lt;site&gt;: % of a photo, over all photos of each row" in text
    # another table makes another page
    before = made_from(Run.of(asked.run), asked.own)
    about.write_text(about.read_text().replace(",a,", ",c,"))
    assert made_from(Run.of(asked.run), asked.own) != before
    with pytest.raises(TagmaskError, match="--by date is no column of --about"):
        gathered(settings(run, about=about, by=("date",)))
