"""MCTformer through the ordinary doors: its loss, training, seeds, score, pseudo labels, one photo; SEAM*."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file

from tagmask.acr.views import HorizontalFlip, Resize, parse_view
from tagmask.config import (
    PRESETS,
    MapSettings,
    PhotoSettings,
    PseudoSettings,
    ScoreSettings,
    SeedSettings,
    TrainSettings,
    preset_of,
)
from tagmask.data.open import open_catalog
from tagmask.data.scenes.catalog import CLASSES, draw_scene
from tagmask.errors import TagmaskError
from tagmask.inference.maps import make_maps
from tagmask.models.kinds import load_classifier
from tagmask.models.mct import MctClassifier
from tagmask.stages.seeds import read_seeds, seed_photo
from tagmask.training.classifier import TwoViews, build_classifier
from tagmask.training.loop import Loop
from tests.alone import alone, make_pseudo, score_run, seed_catalog, train
from tests.helpers import tiny_settings
from tests.training.test_classifier import assert_gradient_predicts_loss


def tiny_mct(classes: int = 3) -> MctClassifier:
    torch.manual_seed(0)
    return MctClassifier("tagmask_tiny", classes, img_size=32).eval()


def test_loss_is_the_sum_of_its_parts_by_another_path(tmp_path: Path) -> None:
    model = tiny_mct()
    images, targets = torch.rand(2, 3, 32, 24), torch.tensor([[1.0, 0, 1], [0, 1, 0]])
    losses = TwoViews(model, HorizontalFlip(), tiny_settings(tmp_path, alpha=50, beta=70))(
        images, targets
    )
    normal, mirrored = model.normalize(images), model.normalize(images.flip(-1))
    attention, other = (
        torch.stack(model.attend(view)[1], dim=1) for view in (normal, mirrored)
    )  # (2, 4, 15, 15)
    rows = attention[..., :3, 3:].reshape(2, 4, 3, 4, 3) - other[..., :3, 3:].reshape(
        2, 4, 3, 4, 3
    ).flip(-1)
    pairs = attention[..., 3:, 3:].reshape(2, 4, 4, 3, 4, 3) - other[..., 3:, 3:].reshape(
        2, 4, 4, 3, 4, 3
    ).flip(3, 5)
    assert losses["activation"].item() == pytest.approx(rows.abs().mean().item(), rel=1e-4)
    assert losses["affinity"].item() == pytest.approx(pairs.abs().mean().item(), rel=1e-4)
    assert losses["affinity"].item() > 1e-5
    classes = torch.zeros(())
    for seen in (normal, mirrored):
        tokens = model.vit.forward_features(seen)
        patches = model.patch_head(tokens[:, 3:].mT.reshape(2, -1, 4, 3))
        for logits in (tokens[:, :3].mean(-1), patches.mean((2, 3))):
            classes = classes + F.binary_cross_entropy_with_logits(logits, targets)
    assert losses["classes"].item() == pytest.approx(classes.item(), rel=1e-5)
    expected = classes + 12 / 576 * (50 * rows.abs().mean() + 70 * pairs.abs().mean())
    assert losses["loss"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_views_of_another_size_run_apart(tmp_path: Path) -> None:
    model, view = tiny_mct(), Resize(0.5, patch=8)
    images = torch.rand(1, 3, 32, 48)
    losses = TwoViews(model, view, tiny_settings(tmp_path))(images, torch.zeros(1, 3))
    attention, other = (
        torch.stack(model.attend(model.normalize(view_images))[1])
        for view_images in (images, view.apply(images))
    )  # (4, 1, 27, 27), (4, 1, 9, 9)
    restored = view.restore(other, (4, 6), class_tokens=3)
    expected = (attention - restored)[..., :3, 3:].abs().mean().item()
    assert losses["activation"].item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("view", ["rotate", "hflip+resize0.5", "hflip+hide"])
def test_the_gradient_of_every_view_predicts_the_change_of_the_loss(
    view: str, tmp_path: Path
) -> None:
    model = tiny_mct().double().train()
    settings = tiny_settings(tmp_path, view=view, checkpoint_attention=True, alpha=50, beta=70)
    module = TwoViews(model, parse_view(view, 8), settings)
    assert_gradient_predicts_loss(
        module, torch.rand(2, 3, 32, 32).double(), torch.ones(2, 3).double()
    )


@pytest.mark.parametrize("strength", [0.0, 5.0])
def test_training_learns_and_leaves_a_model(strength: float, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "alpha": strength,
        "beta": strength,
        "lr": 3e-3,
        "steps": 16,
        "count": 8,
        "batch": 8,
    }
    trained = train(tiny_settings(tmp_path, kind="mct", val_fraction=0.0, **options))
    rows = [json.loads(line) for line in (trained.folder / "log.jsonl").read_text().splitlines()]
    losses = [row["classes"] for row in rows if "classes" in row]
    assert np.mean(losses[-5:]) < np.mean(losses[:3]) - 0.3
    assert ("activation" in rows[0] and rows[0]["activation"] > 0) == (strength > 0)
    assert type(load_classifier(trained.folder)) is MctClassifier


def test_stopped_and_resumed_is_bit_identical(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tiny_settings(tmp_path / "whole", kind="mct", steps=4))
    plain = Loop._one_step

    def dying(self: Loop, step: int, batches: Any) -> dict[str, float]:
        if step == 2:
            raise KeyboardInterrupt
        return plain(self, step, batches)

    monkeypatch.setattr(Loop, "_one_step", dying)
    with pytest.raises(KeyboardInterrupt):
        train(tiny_settings(tmp_path / "parts", kind="mct", steps=4, save_every=1))
    monkeypatch.setattr(Loop, "_one_step", plain)
    train(tiny_settings(tmp_path / "parts", kind="mct", steps=4, save_every=1))
    whole, parts = (
        load_file(tmp_path / name / "1_classifier/model.safetensors") for name in ("whole", "parts")
    )
    assert "patch_head.weight" in whole
    assert "vit.cls_token" in whole
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_frozen_blocks_leave_the_class_tokens_free(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, kind="mct", freeze=2)
    model = build_classifier(settings, open_catalog(settings))
    free = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert {"vit.cls_token", "patch_head.weight", "vit.blocks.2.attn.qkv.weight"} <= free
    early = ("vit.blocks.0.", "vit.blocks.1.", "vit.patch_embed", "vit.pos_embed")
    assert not any(name.startswith(early) for name in free)


def test_from_tags_to_labels_and_scores(tmp_path: Path) -> None:
    train(tiny_settings(tmp_path, kind="mct", steps=2))
    data: dict[str, Any] = {"out": tmp_path, "count": 4}
    assert seed_catalog(alone(SeedSettings, **data, size=40)).made == 4
    scene, model = draw_scene(2), load_classifier(tmp_path / "1_classifier")
    seeds = read_seeds(tmp_path / "2_seeds/scene_000002.npz")
    expected = make_maps(model, [scene.image], [scene.tags], MapSettings(size=40, layers=3))[0]
    for name in ("plain", "refined"):
        np.testing.assert_allclose(seeds[name] / 255, getattr(expected, name), atol=0.01)
    note = json.loads((tmp_path / "2_seeds/made_by.json").read_text())
    assert note["layers"] == 3  # the default of an MCTformer
    assert len(note["input classifier"]) == 16
    done = make_pseudo(alone(PseudoSettings, **data, method="attention", size=40, crf=False))
    assert done.made == 4
    scores = score_run(alone(ScoreSettings, **data))
    assert scores.seeds is not None
    assert 0 < scores.seeds.curves["refined"].at(0.5).miou_present < 1
    assert 0 < scores.labels["pseudo"].scores.miou_present < 1


def test_one_photo(tmp_path: Path) -> None:
    model = tiny_mct(len(CLASSES))
    model.classes = CLASSES
    model.save(tmp_path / "model")
    Image.fromarray(draw_scene(0).image).save(tmp_path / "photo.png")
    options: dict[str, Any] = {
        "photo": tmp_path / "photo.png",
        "model": tmp_path / "model",
        "size": 40,
    }
    printed = seed_photo(
        PhotoSettings(**options, out=tmp_path / "maps.npz", show_affinity=tmp_path / "affinity.png")
    )
    assert "seen by the model" in printed
    assert read_seeds(tmp_path / "maps.npz")["plain"].max() == 1
    assert (tmp_path / "affinity.png").is_file()


def test_presets() -> None:
    for name, base in (("voc-seam", "voc"), ("scenes-seam", "scenes")):
        seam, plain = (
            alone(TrainSettings, out=Path(), **preset_of(preset, "train"))
            for preset in (name, base)
        )
        assert (seam.alpha, seam.beta) == (plain.alpha, 0)
        assert seam.alpha > 0
        assert (seam.kind, seam.backbone) == ("acr", plain.backbone)
    for name, base in (("voc-mct", "voc-deit-s"), ("scenes-mct", "scenes")):
        mct, plain = (
            alone(TrainSettings, out=Path(), **preset_of(preset, "train"))
            for preset in (name, base)
        )
        assert (mct.kind, mct.backbone) == ("mct", plain.backbone)
        assert (mct.alpha, mct.beta) == (plain.alpha, plain.beta)


def test_tokens_before_the_final_norm(tmp_path: Path) -> None:
    """The logits are those of the same weights without the norm, and a saved network keeps it."""
    torch.manual_seed(0)
    model = MctClassifier("tagmask_tiny", 3, mct_read="before_norm").eval()
    images = torch.rand(2, 3, 32, 40)
    tokens: list[torch.Tensor] = []
    hook = model.blocks[-1].register_forward_hook(lambda *given: tokens.append(given[-1]))
    logits = model.branches(images)
    hook.remove()
    torch.testing.assert_close(logits[:, 0], tokens[0][:, :3].mean(-1))
    patches = tokens[0][:, 3:].transpose(1, 2).unflatten(-1, (4, 5))
    torch.testing.assert_close(logits[:, 1], model.patch_head(patches).mean((-2, -1)))
    model.save(tmp_path)
    again = MctClassifier.load(tmp_path)
    assert again.mct_read == "before_norm"
    torch.testing.assert_close(again.branches(images), logits)
    with pytest.raises(TagmaskError, match="mct_read is 'after'"):
        MctClassifier("tagmask_tiny", 3, mct_read="after")
    wrong = TrainSettings(mct_read="before_norm")
    assert wrong.mistakes() == ["--mct-read belongs to --kind mct; leave it out."]


def test_strict_tables_train_and_show_mctformer_its_own_way(tmp_path: Path) -> None:
    """The rows of `backbones` are those of voc-mct-paper but for the consistency, whatever ACR's preset sets."""
    from tagmask.cli.parse import parse_paper
    from tagmask.reproduction.bench import Bench
    from tagmask.reproduction.seed_tables import mct_maps, mct_variants
    from tests.reproduction.test_settings_page import of_voc

    flags = ("--preset", "voc-deit-s-paper", "--root", str(tmp_path), "--out", str(tmp_path))
    bench = Bench(parse_paper(["backbones", *flags]))
    # the warm-up depends on how many there are
    bench.training_images = of_voc()
    rows = mct_variants(bench)
    own = alone(TrainSettings, out=Path(), **preset_of("voc-mct-paper", "train"))
    train = bench.settings.run(tmp_path, 0, rows["mct"]).of(TrainSettings)
    for name, value in PRESETS["voc-mct-paper"]["train"].items():
        assert getattr(train, name) == value, name
    assert train.long_side is own.long_side is None
    assert (train.view, train.alpha, train.beta) == ("none", 0, 0)  # it sees every image once
    both = bench.settings.run(tmp_path, 0, rows["mct+acr"]).of(TrainSettings)
    assert (both.view, both.alpha, both.beta, both.crop_scale) == ("hflip", 100, 100, 0.08)
    plain = mct_variants(Bench(dataclasses.replace(bench.settings, mct_recipe=False)))
    assert "view" not in plain["mct"]  # ACR's recipe has two views, also without consistency
    acr = bench.settings.run(tmp_path, 0, rows["acr"]).of(TrainSettings)
    assert (acr.kind, acr.long_side, acr.mct_read) == ("acr", (201, 256), None)
    maps = dataclasses.replace(bench.settings.of(SeedSettings), **mct_maps(bench))
    theirs = preset_of("voc-mct-paper", "seeds")
    for name in ("layers", "shape", "scales", "flip"):
        assert getattr(maps, name) == theirs[name], name
    assert (maps.size, maps.transpose) == (None, False)
