"""The self-check of a run: what it writes, what it says, and what it leaves out."""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tagmask.config import CheckSettings
from tagmask.data.catalog import Catalog
from tagmask.data.images import read_mask, write_mask
from tagmask.data.scenes.catalog import Scenes
from tagmask.errors import ImageError, TagmaskError
from tagmask.inference.selfcheck import read_verdicts, verdict_lines
from tagmask.runs.run import Run
from tagmask.runs.summary import RunSummary
from tagmask.stages.check import Company, company_of_tags
from tests.alone import alone, check_run, run
from tests.runs.tiny import IMAGES, head_run

LEVELS = {"good", "doubtful", "probably the surroundings"}


def check_again(out: Path) -> Any:
    return check_run(alone(CheckSettings, out=out, count=IMAGES))


def signs_of(out: Path) -> dict[str, dict[str, Any]]:
    tags = json.loads((out / "check.json").read_text())["tags"]
    return {tag: verdict["signs"] for tag, verdict in tags.items()}


def photos_with(tag: int) -> list[str]:
    scenes = Scenes(IMAGES)
    return [scenes.name(i) for i in range(IMAGES) if tag in scenes.tags(i)]


def most_common() -> tuple[int, str]:
    """Return the tag that most scenes have, and its name."""
    scenes = Scenes(IMAGES)
    tag = int(scenes.class_counts().argmax())
    return tag, scenes.classes[tag]


def test_a_run_writes_verdicts_on_its_tags(headed: Path) -> None:
    written = json.loads((headed / "check.json").read_text())
    scenes = Scenes(IMAGES)
    counts = scenes.class_counts()
    assert written["photos"] == IMAGES
    assert set(written["tags"]) == {scenes.classes[k] for k in np.flatnonzero(counts)}
    for tag, verdict in written["tags"].items():
        assert verdict["level"] in LEVELS
        assert 0 <= verdict["trust"] <= 1
        assert verdict["signs"]["photos"] == counts[scenes.classes.index(tag)]
        for sign in ("border_ratio", "agreement", "stability", "empty", "full"):
            assert verdict["signs"][sign] is not None, sign
        assert verdict["signs"]["learned"] is None  # the training did not look at tags


def test_the_runs_summary_tells_the_verdicts(headed: Path) -> None:
    summary = RunSummary(headed).summary()
    assert "self-check:" in summary
    for tag, verdict in json.loads((headed / "check.json").read_text())["tags"].items():
        assert tag in summary
        assert verdict["reason"] in summary


def test_a_run_ends_with_what_to_look_at_first(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report knows it; its sentence follows the verdicts. A run that made none has none."""
    sentence = "look at these photos first: a (confidence 39.0 %)"
    monkeypatch.setattr("tagmask.report.stage.look_first", lambda _: sentence)
    assert sentence not in run(head_run(out)).summary()
    (out / "report.html").unlink()
    lines = run(head_run(out)).summary().splitlines()
    known = verdict_lines(read_verdicts(out / "check.json"))
    place = lines.index("self-check:")
    assert lines[place + 1 : place + 2 + len(known)] == [*known, sentence]


def test_lines_of_verdicts_by_hand() -> None:
    """The worst first, the good ones together at the end."""
    bad = {"level": "doubtful", "reason": "why", "remedy": "what to do"}
    rows = [
        {"tag": "cat", "level": "good", "trust": 0.9},
        {"tag": "dog", "trust": 0.5, **bad},
        {"tag": "cow", "trust": 0.25, **bad},
        *({"tag": f"tag {k}", "level": "good", "trust": 0.9} for k in range(9)),
    ]
    lines = verdict_lines(rows)
    assert lines[0] == '"cow": doubtful (trust 0.25): why; what to do.'
    assert lines[1].startswith('"dog": doubtful')
    assert lines[2].endswith(": cat, " + ", ".join(f"tag {k}" for k in range(7)) + " and 2 more")
    assert len(lines) == 3
    assert verdict_lines([]) == []


def test_checked_again_it_is_done_before(
    out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tagmask.stages.check.check_run", lambda *_: pytest.fail("checked again"))
    run(head_run(out))
    assert "check: done before" in capsys.readouterr().out


def test_it_is_the_same_every_time(out: Path) -> None:
    before = (out / "check.json").read_bytes()
    check_again(out)
    assert (out / "check.json").read_bytes() == before


def test_changed_masks_are_checked_again(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Masks of another setting; a run notices that by itself."""
    settings = head_run(out)
    run(settings.with_changes(segment={"steps": 60}))
    assert "check: redo" in capsys.readouterr().out


def test_masks_that_are_the_labels_are_stable(out: Path) -> None:
    shutil.rmtree(out / "6_predictions")
    shutil.copytree(out / "4_pseudo", out / "6_predictions")
    check_again(out)
    for signs in signs_of(out).values():
        assert signs["stability"] in (1.0, None)


def test_empty_and_full_masks_are_counted(out: Path) -> None:
    """Of one tag's photos the first is filled by it, all others lack it."""
    tag, name = most_common()
    photos = photos_with(tag)
    assert len(photos) > 1
    for number, photo in enumerate(photos):
        file = out / f"6_predictions/{photo}.png"
        mask = read_mask(file, 10)
        write_mask(file, np.full_like(mask, 0 if number else tag + 1))
    check_again(out)
    signs = signs_of(out)[name]
    assert signs["full"] == pytest.approx(1 / len(photos), abs=1e-3)
    assert signs["empty"] == pytest.approx(1 - 1 / len(photos), abs=1e-3)


@pytest.mark.parametrize("damage", [b"", b"no file of ours", None], ids=["empty", "other", "gone"])
@pytest.mark.parametrize(
    ("folder", "suffix", "sign"),
    [
        ("2_seeds", "npz", "border_ratio"),
        ("4_pseudo", "png", "stability"),
        ("6_predictions", "png", "empty"),
    ],
)
def test_damaged_or_missing_files_are_left_out(
    folder: str, suffix: str, sign: str, damage: bytes | None, out: Path
) -> None:
    """One file: its tags are judged by the others. All of them: the sign is left out."""
    tag, name = most_common()
    files = sorted((out / folder).glob(f"*.{suffix}"))
    assert len(files) == IMAGES

    def spoil(file: Path) -> None:
        file.unlink()
        if damage is not None:
            file.write_bytes(damage)

    spoil(out / folder / f"{photos_with(tag)[0]}.{suffix}")
    check_again(out)
    assert signs_of(out)[name][sign] is not None
    for file in files:
        if file.exists():
            spoil(file)
    done = check_again(out)
    assert done.verdicts
    for signs in signs_of(out).values():
        assert signs[sign] is None


def test_masks_of_another_size_or_other_classes_are_left_out(out: Path) -> None:
    tag, name = most_common()
    photos = photos_with(tag)
    write_mask(out / f"6_predictions/{photos[0]}.png", np.full((3, 5), tag + 1, np.uint8))
    write_mask(out / f"6_predictions/{photos[1]}.png", np.full((9, 9), 99, np.uint8))
    check_again(out)
    assert signs_of(out)[name]["photos"] == len(photos)


def test_without_anything_nothing_is_believed(tmp_path: Path) -> None:
    done = check_again(tmp_path)
    assert done.verdicts
    for verdict in done.verdicts:
        assert verdict.level != "good"
        assert verdict.reason == "nothing could be measured"
    assert "nothing could be measured" in done.summary()


def test_without_a_head_the_other_signs_remain(out: Path) -> None:
    """Masks may come from elsewhere; only the comparison with objects needs kept tokens."""
    shutil.rmtree(out / "5_segmenter")
    check_again(out)
    for signs in signs_of(out).values():
        assert signs["agreement"] is None
        assert signs["border_ratio"] is not None


def tagged(*tags: tuple[int, ...]) -> Catalog:
    names = [f"photo {i}" for i in range(len(tags))]
    return Catalog(("cat", "dog", "grass"), names, list(tags))


def test_company_by_hand() -> None:
    """Cats: alone on one of three photos; dogs on none; photos without tags do not count."""
    cat, dog, grass = company_of_tags(tagged((0,), (0, 1), (0, 1), ()), stuff=[])
    assert cat == Company(alone=1 / 3, is_everywhere=True)
    assert dog == Company(alone=0, is_everywhere=False)
    assert grass == Company(alone=None, is_everywhere=False)


def test_objects_do_not_compete_with_stuff() -> None:
    """A dog on grass is alone, if grass is known to be no object; so is the grass."""
    photos = tagged((1, 2), (1, 2), (0, 1, 2))
    cat, dog, grass = company_of_tags(photos, stuff=["grass"])
    assert (cat.alone, dog.alone, grass.alone) == (0, 2 / 3, 1)
    assert [own.alone for own in company_of_tags(photos, stuff=[])] == [0, 0, 0]


def test_the_tags_of_a_run_are_counted_over_all_its_photos(out: Path) -> None:
    """Counted again from the scenes; those tags that are never alone are not called good."""
    check_again(out)
    scenes = Scenes(IMAGES)
    tags = [scenes.tags(i) for i in range(IMAGES)]
    verdicts = json.loads((out / "check.json").read_text())["tags"]
    never = 0
    for name, verdict in verdicts.items():
        own = [words for words in tags if scenes.classes.index(name) in words]
        share = sum(len(words) == 1 for words in own) / len(own)
        assert verdict["signs"]["alone"] == pytest.approx(share, abs=1e-3)
        assert verdict["signs"]["is_everywhere"] == (len(own) == IMAGES)
        if not share:
            never += 1
            assert verdict["level"] != "good"
    assert never


def test_stuff_of_the_run_is_left_out_of_the_company(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `tagmask check run` reads it from the run's settings."""
    told: list[Any] = []

    def spy(catalog: Catalog, stuff: Any) -> list[Company]:
        told.append(list(stuff))
        return company_of_tags(catalog, stuff)

    monkeypatch.setattr("tagmask.stages.check.company_of_tags", spy)
    settings = head_run(out).with_changes(train={"objects": True, "stuff": "cow, boat"})
    Run.of(settings).do("check")
    check_again(out)
    assert told == [["cow", "boat"], []]


def test_good_masks_of_a_tag_in_company_are_doubtful(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The masks are the truth; alone they are good, always with another tag doubtful."""
    scenes = Scenes(IMAGES)
    for folder in ("4_pseudo", "6_predictions"):
        for i in range(IMAGES):
            mask = scenes.load_mask(i)
            assert mask is not None
            write_mask(out / f"{folder}/{scenes.name(i)}.png", mask)
    # maps and objects of the small network are not what this is about
    shutil.rmtree(out / "2_seeds")
    shutil.rmtree(out / "5_segmenter")
    for share, level in ((1.0, "good"), (0.0, "doubtful")):
        company = [Company(share, is_everywhere=False)] * len(scenes.classes)
        monkeypatch.setattr("tagmask.stages.check.company_of_tags", lambda *_, c=company: c)
        done = check_again(out)
        assert {verdict.level for verdict in done.verdicts} == {level}
    assert "no photo shows it without another tag" in done.summary()


def note_tags(out: Path, *rows: Any) -> None:
    (out / "1_classifier/tags.json").write_text(json.dumps({"tags": list(rows)}))


def test_what_was_learned_comes_from_the_training(out: Path) -> None:
    """From 0.5 by chance to 0.75 is half of the way; a tag on every photo says nothing."""
    names = list(signs_of(out))
    note_tags(
        out,
        {"tag": names[0], "average_precision": 0.75, "by_chance": 0.5},
        {"tag": names[1], "average_precision": 1.0, "by_chance": 1.0},
    )
    check_again(out)
    signs = signs_of(out)
    assert signs[names[0]]["learned"] == 0.5
    assert signs[names[1]]["learned"] is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tags": 3}', "[" * 100_000])
def test_a_damaged_note_on_tags_is_refused_with_a_sentence(text: str, out: Path) -> None:
    (out / "1_classifier/tags.json").write_text(text)
    with pytest.raises(TagmaskError, match=r"tags\.json"):
        check_again(out)


@pytest.mark.parametrize(
    "row",
    [
        {},
        3,
        {"tag": "cat", "by_chance": "x", "average_precision": 1},
        {"tag": "cat", "by_chance": None, "average_precision": 1},
    ],
    ids=str,
)
def test_damaged_rows_on_tags_give_no_traceback(row: Any, out: Path) -> None:
    note_tags(out, row)
    with suppress(TagmaskError):
        check_again(out)


def test_photos_that_cannot_be_read_are_left_out(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their tokens are gone too, so nothing can be compared with objects."""

    def fail(*_: Any) -> None:
        raise ImageError("damaged")

    shutil.rmtree(out / "0_tokens")
    monkeypatch.setattr(Scenes, "load_image", fail)
    check_again(out)
    for signs in signs_of(out).values():
        assert signs["agreement"] is None
        assert signs["stability"] is not None
