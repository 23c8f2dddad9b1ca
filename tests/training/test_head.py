"""A head on tokens: its numbers by hand, its training, and the same masks from kept and fresh tokens."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import tagmask
from tagmask.cli.parse import parse_run, parse_stage
from tagmask.config import PredictSettings, SegmentSettings
from tagmask.data.corrections import PERSON_UNSURE, write_labels
from tagmask.data.images import read_mask, write_mask
from tagmask.data.scenes.catalog import CLASSES, Scenes
from tagmask.errors import TagmaskError
from tagmask.features.cache import TokenStore
from tagmask.features.photo import Tokens, photo_features
from tagmask.inference.probabilities import predict_probabilities
from tagmask.models.classifier import Classifier
from tagmask.models.head import HeadSegmenter
from tagmask.runs.run import Run
from tagmask.stages.segment import made_from
from tagmask.training.head import PART, Cells, gather_cells, soft_labels, train_head
from tests.alone import alone, predict_catalog, train_segmenter
from tests.helpers import process_of, tiny_classifier

COUNT, SIZE = 6, 48


def head(classes: int = 3, **options: Any) -> HeadSegmenter:
    return HeadSegmenter(tiny_classifier(classes, **options), (1, 3), SIZE).eval()


def named_classifier() -> Classifier:
    model = tiny_classifier(len(CLASSES))
    model.classes = tuple(CLASSES)
    return model


def settings(out: Path, **changes: Any) -> Any:
    small: dict[str, Any] = {
        "net": "head",
        "head_blocks": (1, 3),
        "size": SIZE,
        "steps": 30,
        "lr": 1e-2,
        "cells": 64,
    }
    return alone(
        SegmentSettings,
        out=out,
        count=COUNT,
        **{**small, "weight_decay": 0.01, "log_every": 10, **changes},
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A classifier, and pseudo labels that are the truth."""
    scenes = Scenes(COUNT)
    model = named_classifier()
    model.save(tmp_path / "1_classifier")
    for i in range(COUNT):
        mask = scenes.load_mask(i)
        assert mask is not None
        write_mask(tmp_path / f"4_pseudo/{scenes.name(i)}.png", mask)
    return tmp_path


def test_soft_labels_are_shares_of_the_labelled_pixels() -> None:
    mask = np.array([[0, 0, 2, 2], [0, 1, 255, 2], [255, 255, 1, 1], [255, 0, 1, 1]], np.uint8)
    shares, known = soft_labels(mask, (2, 2), 3)
    expected = [[0.75, 0.25, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]]
    torch.testing.assert_close(shares, torch.tensor(expected, dtype=torch.float32))
    torch.testing.assert_close(known, torch.tensor([1, 0.75, 0.25, 1]))


def test_soft_labels_of_cells_that_cut_pixels() -> None:
    mask = np.array([[0, 1, 1]], np.uint8)
    shares, known = soft_labels(mask, (1, 2), 2)  # cells of one and a half pixels
    assert known.tolist() == [1, 1]
    assert shares[:, 1].tolist() == [0.5, 1.0]  # each pixel that a cell touches counts


def test_logits_by_hand() -> None:
    model = head()
    with torch.no_grad():
        model.shift.fill_(2.0)
        model.scale.fill_(4.0)
        model.linear.weight.zero_()
        model.linear.weight[1, 0], model.linear.weight[2, 5] = 3.0, -1.0
        model.linear.bias.copy_(torch.tensor([0.5, 0, 0, 1]))
    tokens = torch.zeros(1, model.shift.numel())
    tokens[0, 0], tokens[0, 5] = 6.0, 10.0
    assert model.logits_of(tokens)[0].tolist() == pytest.approx([0.5, 3.0, -2.0, 1.0])


def test_features_are_the_normed_tokens_of_the_blocks() -> None:
    """On a grid that is not square, against a pass block by block."""
    model, images = head(), torch.rand(2, 3, 24, 40)
    vit = model.classifier.vit
    features, grid = model.features(images)
    assert grid == model.classifier.grid(24, 40)
    tokens = vit.norm_pre(vit._pos_embed(vit.patch_embed(images)))
    kept = []
    with torch.no_grad():
        for i, block in enumerate(vit.blocks):
            tokens = block(tokens)
            if i in (1, 3):
                kept.append(vit.norm(tokens)[:, model.classifier.prefix :])
    torch.testing.assert_close(features, torch.cat(kept, dim=-1))


def test_probabilities_by_hand() -> None:
    """Two cells side by side: bilinear between their logits, and the classes that are not tagged are ruled out."""
    model = head()
    with torch.no_grad():
        model.linear.weight.zero_()
        model.linear.bias.zero_()
        model.linear.weight[1, 0] = 1.0
    values = torch.zeros(1, 2, model.shift.numel())
    values[0, 1, 0] = 4.0
    image = np.zeros((8, 16, 3), np.uint8)
    tokens = Tokens(values, (1, 2), (8, 16))
    chances = predict_probabilities(model, image, flip=False, tags=[0], tokens=tokens)  # (4, 8, 16)
    assert (chances[2:] == 0).all()
    logits = np.clip((np.arange(16) + 0.5) / 8 - 0.5, 0, 1) * 4
    np.testing.assert_allclose(chances[1, 3], 1 / (1 + np.exp(-logits)), rtol=1e-5)
    np.testing.assert_allclose(chances.sum(0), 1, rtol=1e-5)


def test_training_finds_the_least_loss(tmp_path: Path) -> None:
    """Against the closed form: with one constant feature the best logits are the logarithms of the label shares."""
    model = head(2)
    cells = 400
    labels = torch.zeros(cells, 3)
    labels[:200, 0], labels[200:300, 1], labels[300:, 2] = 1, 1, 1
    features = torch.zeros(cells, model.shift.numel()).half()
    allowed = torch.ones(cells, 3, dtype=torch.bool)
    options = settings(tmp_path, rounds=0, steps=400, lr=0.05, weight_decay=0, cells=400)
    train_head(
        model,
        Cells(features, labels.half(), allowed, torch.zeros(cells, dtype=torch.bool)),
        options,
        tmp_path,
    )
    shares = model.logits_of(features[:1].float()).softmax(-1)[0]
    torch.testing.assert_close(shares, torch.tensor([0.5, 0.25, 0.25]), atol=0.02, rtol=0)


def test_self_training_learns_the_answers_told_the_tags(tmp_path: Path) -> None:
    """Two kinds of cells; the labels confuse classes 1 and 2, the tags do not."""
    model = head(2)
    features = torch.randn(
        2, model.shift.numel(), generator=torch.Generator().manual_seed(0)
    ).repeat_interleave(200, 0)
    labels = torch.tensor([[0, 0.5, 0.5]]).repeat(400, 1)
    allowed = torch.zeros(400, 3, dtype=torch.bool)
    allowed[:200, 1] = allowed[200:, 2] = allowed[:, 0] = True
    for rounds, least, most in ((0, 0.4, 0.6), (1, 0.9, 1.0)):
        options = settings(tmp_path, rounds=rounds, steps=300, lr=0.02, weight_decay=0, cells=200)
        cells = Cells(features.half(), labels.half(), allowed, torch.zeros(400, dtype=torch.bool))
        train_head(model, cells, options, tmp_path)
        chances = model.logits_of(features[[0, 399]].half().float()).softmax(-1)
        assert least < chances[0, 1] < most
        assert least < chances[1, 2] < most


def test_a_corrected_cell_outweighs_many_others_and_is_not_relearnt(tmp_path: Path) -> None:
    """80 cells say class 1, one alike that a person has labelled says class 2: the closed form is their odds."""
    model, labels = head(2), torch.tensor([[0, 1.0, 0]]).repeat(81, 1)
    labels[0] = torch.tensor([0, 0, 1.0])
    corrected = torch.arange(81) == 0
    features = torch.zeros(81, model.shift.numel()).half()
    cells = Cells(features, labels.half(), torch.ones(81, 3, dtype=torch.bool), corrected)
    odds = cells.odds()
    assert odds is not None
    assert odds[0] / odds[-1] == pytest.approx(PART)  # 26.7 : 80
    options = settings(tmp_path, rounds=1, steps=400, lr=0.05, weight_decay=0, cells=400)
    train_head(model, cells, options, tmp_path)
    shares = model.logits_of(features[:1].float()).softmax(-1)[0]
    # the other cells then learn the answer of the first round, so that 0.25 becomes 0.25 + 0.75 · 0.25
    torch.testing.assert_close(shares, torch.tensor([0.0, 0.5625, 0.4375]), atol=0.04, rtol=0)


def test_corrected_pixels_are_gathered_whatever_the_pseudo_label_says(run: Path) -> None:
    scenes = Scenes(COUNT)
    height, width = scenes.load_image(1).shape[:2]
    labels = np.full((height, width), 255, np.uint8)
    labels[: height // 2, : width // 2], labels[height // 2 :, : width // 2] = 5, PERSON_UNSURE
    write_labels(run / "corrections", scenes.name(1), labels)
    catalog, model = (
        scenes.corrected(run / "corrections"),
        HeadSegmenter(named_classifier(), (1, 3), SIZE),
    )
    store = TokenStore.features_of(model.classifier, model.blocks, model.size, run, 1)
    cells, broken = gather_cells(
        lambda i: store.get(catalog, i), catalog, run / "4_pseudo", model, 0
    )
    assert not broken
    rows, columns = store.get(catalog, 1).grid
    assert (
        abs(int(cells.corrected.sum()) - rows * columns / 4) <= (rows + columns) / 2
    )  # a quarter of the photo
    assert (cells.labels[cells.corrected].argmax(-1) == 5).all()


def test_from_labels_to_masks(run: Path) -> None:
    done = train_segmenter(settings(run, steps=150))
    assert "cross entropy" in done.summary()
    log = [json.loads(row) for row in (run / "5_segmenter/log.jsonl").read_text().splitlines()]
    assert log[-1]["step"] == 300  # one round of self-training
    assert log[-1]["loss"] < log[0]["loss"]
    model = tagmask.load(run / "5_segmenter").segmenter
    assert isinstance(model, HeadSegmenter)
    options: dict[str, Any] = {"count": COUNT, "scales": (1.0,), "flip": False, "crf": False}
    predict_catalog(alone(PredictSettings, out=run, use_tags=True, **options))
    scenes = Scenes(COUNT)
    right = 0.0
    for i in range(COUNT):
        mask = read_mask(run / f"6_predictions/{scenes.name(i)}.png", len(scenes.classes))
        names = [scenes.classes[c] for c in scenes.tags(i)]
        photo = tagmask.predict(
            model, scenes.load_image(i), names, scales=(1.0,), flip=False, crf=False
        )
        np.testing.assert_array_equal(mask, photo)  # from fresh tokens
        truth = scenes.load_mask(i)
        right += (mask == truth).mean() / COUNT
    assert right > 0.8


def test_kept_features_are_fresh_features(run: Path, tmp_path: Path) -> None:
    model, scenes = head(), Scenes(2)
    store = TokenStore.features_of(model.classifier, model.blocks, model.size, tmp_path / "x", 1.0)
    for i in range(2):
        fresh = photo_features(
            model.classifier, model.blocks, model.size, scenes.load_image(i)
        ).values
        assert torch.equal(store.get(scenes, i).values, fresh)
        assert torch.equal(store.get(scenes, i).values, fresh)
    with torch.no_grad():
        model.classifier.vit.norm.weight.add_(0.5)
    assert not torch.equal(
        TokenStore.features_of(model.classifier, model.blocks, model.size, tmp_path / "x", 1.0)
        .get(scenes, 0)
        .values,
        fresh,
    )


def test_the_same_seed_gives_the_same_head_with_and_without_kept_tokens(run: Path) -> None:
    weights = []
    for changes in ({}, {"tokens_limit": 0.0}, {"seed": 1}):
        train_segmenter(settings(run, **changes))
        weights.append(load_file(run / "5_segmenter/model.safetensors")["linear.weight"])
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def train_again(options: SegmentSettings) -> None:
    torch.set_num_threads(1)
    train_segmenter(options)


def test_killed_and_started_again_it_ends_with_the_same_file(run: Path) -> None:
    train_segmenter(settings(run))
    whole = (run / "5_segmenter/model.safetensors").read_bytes()
    (run / "5_segmenter/model.safetensors").unlink()
    process = process_of(train_again, settings(run, steps=100_000))
    process.start()
    while process.is_alive() and not (run / "0_tokens/head").is_dir():
        process.join(0.01)
    process.kill()
    process.join()
    assert not (run / "5_segmenter/model.safetensors").exists()
    train_segmenter(settings(run))
    assert (run / "5_segmenter/model.safetensors").read_bytes() == whole


def test_photos_that_cannot_be_used_are_listed(run: Path) -> None:
    scenes = Scenes(COUNT)
    (run / f"4_pseudo/{scenes.name(2)}.png").write_bytes(b"no mask")
    done = train_segmenter(settings(run))
    assert list(done.broken) == [scenes.name(2)]
    assert f"{scenes.name(2)}: " in done.summary()


def test_of_many_photos_a_part_of_the_cells_is_learnt_from(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenes = Scenes(COUNT)
    model = HeadSegmenter(named_classifier(), (1, 3), SIZE)
    store = TokenStore.features_of(model.classifier, model.blocks, model.size, run, 1.0)
    monkeypatch.setattr("tagmask.training.head.MOST_BYTES", 20 * 2 * model.shift.numel() * COUNT)
    cells, _ = gather_cells(lambda i: store.get(scenes, i), scenes, run / "4_pseudo", model, seed=0)
    assert len(cells.features) == 20 * COUNT


@pytest.mark.parametrize("blocks", [(), (1, 9), (-1,)])
def test_blocks_that_do_not_exist_are_refused(blocks: tuple[int, ...], tmp_path: Path) -> None:
    with pytest.raises(TagmaskError, match="blocks 0 to 3"):
        HeadSegmenter(tiny_classifier(), blocks, SIZE)


def test_tiles_are_refused(run: Path) -> None:
    train_segmenter(settings(run))
    with pytest.raises(TagmaskError, match="--tile is for DeepLabV2"):
        predict_catalog(alone(PredictSettings, out=run, count=COUNT, tile=64))


def test_epochs_are_refused(tmp_path: Path) -> None:
    assert (
        "--net head counts steps, not epochs; give --steps, e.g. 600."
        in settings(tmp_path, steps=None).mistakes()
    )


@pytest.mark.parametrize("flag", ["--batch", "--momentum", "--backbone", "--val-fraction"])
def test_settings_that_a_head_has_not_are_refused(flag: str, tmp_path: Path) -> None:
    """They are DeepLab's."""
    words = ["--out", str(tmp_path), "--net", "head", flag, "1"]
    with pytest.raises(TagmaskError, match=f"{flag} belongs to --net deeplab, not to --net head"):
        parse_stage(SegmentSettings, words, "segment", "")
    words = ["--out", str(tmp_path), "--segment.net", "head", f"--segment.{flag[2:]}", "1"]
    with pytest.raises(
        TagmaskError, match=rf"--segment\{flag[1:].replace('-', '.', 1)} belongs to"
    ):
        parse_run(words)


def test_settings_that_only_a_head_has_are_refused_with_deeplab(tmp_path: Path) -> None:
    words = ["--out", str(tmp_path), "--rounds", "2"]
    with pytest.raises(TagmaskError, match="--rounds belongs to --net head, not to --net deeplab"):
        parse_stage(SegmentSettings, words, "segment", "")


def test_settings_that_a_head_has_make_a_difference(run: Path) -> None:
    def parts(**changes: Any) -> Any:
        asked = settings(run, **changes)
        return made_from(Run.of(asked.run), asked.own)

    same = parts()
    for changes in (
        {"lr": 0.5},
        {"rounds": 3},
        {"size": 64},
        {"head_blocks": (3,)},
        {"seed": 1},
        {"cells": 9},
    ):
        assert parts(**changes) != same
