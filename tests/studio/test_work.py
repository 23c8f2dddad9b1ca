"""What the studio computes for the page: previews, better or worse, scores by version, the plan, exports."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tagmask.config import ExploreSettings
from tagmask.data.images import read_mask, write_mask
from tagmask.data.scenes.catalog import CLASSES, Scenes
from tagmask.models.classifier import Classifier
from tagmask.models.head import HeadSegmenter
from tagmask.studio import instant, versions
from tagmask.studio.app import Studio
from tagmask.studio.colours import bright_colours
from tagmask.studio.job import Job
from tagmask.studio.opening import open_explorer
from tagmask.studio.tags import digest
from tests.runs.tiny import IMAGES

SCENES = Scenes(IMAGES)


@pytest.fixture
def studio(out: Path) -> Studio:
    return open_explorer(ExploreSettings(out=out))


def paint(studio: Studio, photo: int, label: int, side: int = 24) -> None:
    """Correct a square in the corner of a photo."""
    before = studio.view.catalog.correction_digest(photo)
    studio.correct(photo, (0, 0, side, side), bytes([label]) * side**2, before, "")


def test_exports_have_what_was_corrected(studio: Studio, out: Path) -> None:
    """Also before anything was learned: what the page shows is what is exported."""
    name = SCENES.name(0)
    mask = read_mask(out / f"6_predictions/{name}.png", len(CLASSES))
    label = 1 + (int(mask[0, 0]) == 1)
    paint(studio, 0, label)
    for only in (False, True):
        # a photo that a request names a million times is checked once
        assert studio.check([0] * 1_000_000, True, "")["photos"] == [0]
        written = Path(studio.export("index", only)["path"])
        exported = read_mask(next(written.rglob(f"{Path(name).name}.png")), len(CLASSES))
        assert (exported[:24, :24] == label).all()
        assert (exported[24:] == mask[24:]).all()
    assert not (out / "exports/.labels").exists()
    unchanged = read_mask(out / f"6_predictions/{name}.png", len(CLASSES))
    assert (unchanged == mask).all()


def test_a_step_in_closed_form_is_least_squares() -> None:
    """Against all rows written out and solved by numpy."""
    torch.manual_seed(0)
    classifier = Classifier("tagmask_tiny", 3, img_size=32, classes=("a", "b", "c"))
    head = HeadSegmenter(classifier, (1,), 32)
    width = head.linear.in_features + 1
    cells = torch.randn(300, width)
    cells[:, -1] = 1
    moments = cells.T @ cells / 300
    features = cells[:7]
    labels = torch.tensor([0, 1, 2, 3, 1, 1, 0])
    weight = torch.cat([head.linear.weight, head.linear.bias[:, None]], 1).detach()
    moved = instant.step(head, moments, features, labels).linear
    delta = torch.cat([moved.weight, moved.bias[:, None]], 1).detach() - weight
    wanted = np.zeros((7, 4))
    logits = (features @ weight.T).numpy()
    for row, label in enumerate(labels.tolist()):
        others = [k for k in range(4) if k != label]
        lacks = max(0.0, max(logits[row, others]) + instant.MARGIN - logits[row, label])
        wanted[row, label] = lacks / 2
        for k in others:
            excess = max(0.0, logits[row, k] - logits[row, label] + instant.MARGIN)
            wanted[row, k] = -min(excess, lacks) / 2
    ridge = 1e-3 * moments.diagonal().mean() * torch.eye(width)
    root = np.linalg.cholesky(instant.ANCHOR * (moments + ridge).double().numpy()).T
    rows = np.vstack([root, features.double().numpy()])
    targets = np.vstack([np.zeros((width, 4)), wanted])
    expected = np.linalg.lstsq(rows, targets, rcond=None)[0].T
    np.testing.assert_allclose(delta.numpy(), expected, atol=2e-4)
    after = features @ (weight + delta).T
    own = after.gather(1, labels[:, None])[:, 0]
    own_before = torch.from_numpy(logits).gather(1, labels[:, None])[:, 0]
    assert (own > own_before).all()


def test_a_preview_learns_from_the_strokes_and_keeps_nothing(studio: Studio, out: Path) -> None:
    tag = SCENES.tags(0)[0] + 1
    paint(studio, 0, tag, 40)
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    data, seconds = studio.preview(0)
    shape = SCENES.load_image(0).shape[:2]
    shown = np.frombuffer(data, np.uint8).reshape(shape)
    assert (shown[:40, :40] == tag).all()
    assert seconds < 60
    # more of the photo is like the stroke than before
    assert studio.learner is not None
    head = studio.view.head
    assert head is not None
    plain = studio.learner._mask_by(head, 0)
    assert (shown == tag).sum() >= (plain == tag).sum()
    kept = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    assert {file: data for file, data in kept.items() if "0_tokens" not in str(file)} == {
        file: data for file, data in before.items() if "0_tokens" not in str(file)
    }
    assert studio.learner.trial is None


def test_better_and_worse_by_hand(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what a person has labelled: half of the cells were right before, all are now."""
    tag = SCENES.tags(0)[0] + 1
    height, width = SCENES.load_image(0).shape[:2]
    body = bytes([tag]) * (height * width)
    studio.correct(0, (0, 0, height, width), body, "", "")
    learner = studio.learner
    assert learner is not None
    monkeypatch.setattr(learner.view.catalog, "load_mask", lambda _: None)
    right = torch.full((4, 4), studio.view.numbers[tag - 1] + 1)
    half = right.clone()
    half[:2] = 0
    assert learner._better(0, half, right) == pytest.approx(0.5)
    assert learner._better(0, right, half) == pytest.approx(-0.5)
    assert learner._better(1, half, right) is None


def test_scores_are_those_of_the_current_version(studio: Studio, out: Path) -> None:
    """Photos whose first mask an earlier version made are told apart."""
    versions.keep_version(out, "made by a run", 0)
    studio.draw(IMAGES)
    for i in range(IMAGES):
        studio.info(i)
    studio.check([*range(IMAGES)], True, "")
    scores = studio.scores()
    assert (scores["photos"], scores["earlier"], scores["version"]) == (IMAGES, 0, 1)
    assert scores["worst"] in ("", *CLASSES)
    background = scores["classes"][0]
    assert background["interval"]["value"] == 1
    # another version: what was measured says nothing about it
    mask = out / f"6_predictions/{SCENES.name(0)}.png"
    changed = read_mask(mask, len(CLASSES)).copy()
    changed[:] = 0
    mask.unlink()
    write_mask(mask, changed)
    assert versions.keep_version(out, "learned from corrections", 1) == 2
    scores = studio.scores()
    assert (scores["photos"], scores["drawn"], scores["earlier"]) == (0, 0, IMAGES)
    versions.go_back(out, 1)
    assert studio.scores()["photos"] == IMAGES
    again = open_explorer(ExploreSettings(out=out))
    assert again.scores()["photos"] == IMAGES


def test_the_plan_is_read_from_what_the_run_prints() -> None:
    job = Job(lambda _: None)
    lines = (
        "plan for run: 40 images, 4 classes",
        "    cat       10   dog       10",
        "  train    to do                                  40 images      about 2 min",
        "  predict  redo (segmenter changed)               40 images      about 24 s",
        "  check    to do                                  40 images",
        "  score    left out, these data have no masks",
        "  together about 4 min",
        "[1/7] train",
        "train:  45%|███▌  | 18/40 [00:10<00:12,  5.1image/s]",
        "  took 8 s, to do nothing else",
    )
    for line in lines:
        job._read(line)
    assert job.state["together"] == "4 min"
    assert job.state["plan"] == [
        {"name": "train", "amount": "40 images", "about": "2 min"},
        {"name": "predict", "amount": "40 images", "about": "24 s"},
        {"name": "check", "amount": "40 images", "about": ""},
    ]
    assert job.state["stages"][0] | {"done": 18, "total": 40} == job.state["stages"][0]


def test_a_correction_makes_what_photos_are_sorted_by_anew(studio: Studio) -> None:
    known: dict[str, Any] = {"unsure": 0.5}
    studio.view.facts = [known] * IMAGES
    studio.facts.wanted.clear()
    paint(studio, 3, 0)
    assert studio.view.facts[3] is None
    assert studio.facts.wanted.is_set()
    fresh = [*studio.view.gather_facts(lambda: False)]
    assert fresh == [3]
    assert "unsure" in (studio.view.facts[3] or {})


def test_other_windows_are_told_of_many_photos_at_once(studio: Studio) -> None:
    """A message for each would be more than may wait for a window."""
    messages = studio.events.listen(studio.stopped)
    assert next(messages).startswith(b"retry")
    changes = []
    for i in range(IMAGES):
        tags = studio.tags(i)
        wanted = [name for name in tags if name != tags[0]]
        changes.append({"photo": i, "tags": wanted, "before": digest(tags)})
    studio.retag(changes, "one")
    kind, data = next(messages).decode().strip().split("\n")
    told = json.loads(data.removeprefix("data: "))
    assert kind == "event: photos"
    assert told["page"] == "one"
    assert [row["photo"] for row in told["photos"]] == [*range(IMAGES)]
    assert told["photos"][0]["tags"] == studio.tags(0)


def test_colours_are_light_enough_to_show() -> None:
    """No colour is darker than a middle grey, and neighbours differ."""
    colours = bright_colours(40)[1:].astype(float)
    seen = colours @ [0.2126, 0.7152, 0.0722]
    assert seen.min() > 110
    first = colours[:10]
    apart = np.abs(first[:, None] - first[None]).sum(-1) + 1000 * np.eye(10)
    assert apart.min() > 60
