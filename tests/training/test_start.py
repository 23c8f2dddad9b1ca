"""The head a training begins with: the solution of a convex problem, for every head, whatever happens on the way."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tagmask.data.scenes.catalog import Scenes
from tagmask.errors import TagmaskError
from tagmask.models.classifier import Classifier
from tagmask.training.classifier import ClassifierTask
from tagmask.training.start import fit_heads, logistic_regression
from tests.alone import train
from tests.helpers import tiny_settings


def settings_for(out: Path, **changes: Any) -> Any:
    options = {
        "fixed_views": True,
        "head_first": True,
        "freeze": 2,
        "size": 48,
        "steps": 4,
        "count": 8,
    }
    return tiny_settings(out, **{**options, **changes})


@pytest.mark.parametrize("penalty", [1e-3, 3e-2])
def test_the_regression_is_scikit_learns(penalty: float) -> None:
    from sklearn.linear_model import LogisticRegression

    random = np.random.default_rng(0)
    features = random.normal(size=(60, 5)).astype(np.float32)
    targets = (features @ random.normal(size=(5, 3)) + random.normal(size=(60, 3)) > 0.5).astype(
        np.float32
    )
    weight, bias = logistic_regression(
        torch.from_numpy(features), torch.from_numpy(targets), penalty
    )
    for c in range(3):
        expected = LogisticRegression(C=1 / (2 * penalty * targets.size), tol=1e-8, max_iter=1000)
        expected.fit(features, targets[:, c])
        np.testing.assert_allclose(weight[c], expected.coef_[0], atol=2e-3)
        np.testing.assert_allclose(bias[c], expected.intercept_[0], atol=2e-3)


@pytest.mark.parametrize("backbone", ["tagmask_tiny", "deit_tiny_distilled_patch16_224"])
def test_every_head_is_fitted_to_what_it_reads(backbone: str, tmp_path: Path) -> None:
    """The gradient of the penalised loss, taken through the whole network, vanishes at the head's weights."""
    scenes = Scenes(6)
    settings = settings_for(tmp_path, backbone=backbone, pretrained=False)
    task = ClassifierTask(scenes, scenes.subset([]), settings.own, settings.run)
    fit_heads(task.classifier, 2, task.store, scenes)
    heads = [
        head for name, head in task.classifier.vit.named_children() if name in ("head", "head_dist")
    ]
    assert len(heads) == (2 if "distilled" in backbone else 1)
    loss = torch.zeros(())
    for i in range(6):
        sample = task.dataset[(i, i)]
        batch: Any = task.dataset.collate([sample])
        batch.pop("broken")
        loss = (
            loss + task.module(**batch)["classes"] / 12
        )  # a sum over two views, a mean over photos
    loss = loss + 1e-3 * sum(head.weight.square().sum() for head in heads)
    for gradient in torch.autograd.grad(loss, [head.weight for head in heads]):
        assert gradient.abs().max() < 1e-3


def test_a_stopped_training_does_not_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(settings_for(tmp_path / "whole"))
    from tagmask.training.loop import Loop

    original = Loop._one_step

    def stop(self: Loop, step: int, batches: Any) -> dict[str, float]:
        if step == 2:
            raise KeyboardInterrupt
        return original(self, step, batches)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_one_step", stop)
        with pytest.raises(KeyboardInterrupt):
            train(settings_for(tmp_path / "stopped", save_every=1))
    monkeypatch.setattr("tagmask.stages.train.fit_heads", lambda *_: pytest.fail("fitted again"))
    again = train(settings_for(tmp_path / "stopped", save_every=1))
    first, second = (load_file(done.folder / "model.safetensors") for done in (whole, again))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_first_loss_is_lower(tmp_path: Path) -> None:
    import json

    losses = {}
    for name in ("with", "without"):
        done = train(settings_for(tmp_path / name, head_first=name == "with", steps=1, log_every=1))
        losses[name] = json.loads((done.folder / "log.jsonl").read_text().splitlines()[0])[
            "classes"
        ]
    assert losses["with"] < 0.8 * losses["without"]
    assert isinstance(Classifier.load(tmp_path / "with/1_classifier"), Classifier)


def test_photos_that_cannot_be_read_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tagmask.errors import ImageError

    scenes = Scenes(4)
    settings = settings_for(tmp_path)
    task = ClassifierTask(scenes, scenes.subset([]), settings.own, settings.run)
    load = type(scenes).load_image
    broken = {2}

    def some(self: Scenes, i: int) -> Any:
        if i in broken:
            raise ImageError("damaged")
        return load(self, i)

    monkeypatch.setattr(Scenes, "load_image", some)
    fit_heads(task.classifier, 2, task.store, scenes)
    weight = task.classifier.vit.head.weight.clone()
    broken.clear()
    fit_heads(task.classifier, 2, task.store, scenes.subset([0, 1, 3]))
    torch.testing.assert_close(task.classifier.vit.head.weight, weight)
    broken |= {0, 1, 2, 3}
    other = settings_for(tmp_path / "fresh")
    fresh = ClassifierTask(scenes, scenes.subset([]), other.own, other.run)
    with pytest.raises(TagmaskError, match="no image could be read"):
        fit_heads(fresh.classifier, 2, fresh.store, scenes)


@pytest.mark.parametrize("reason", [KeyboardInterrupt, RuntimeError])
def test_no_hook_is_left_behind(
    reason: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenes = Scenes(2)
    settings = settings_for(tmp_path)
    task = ClassifierTask(scenes, scenes.subset([]), settings.own, settings.run)

    def stop(*_: Any) -> Any:
        raise reason

    monkeypatch.setattr(type(task.store), "get", stop)
    with pytest.raises(reason):
        fit_heads(task.classifier, 2, task.store, scenes)
    assert not task.classifier.vit.head._forward_pre_hooks


def test_it_needs_kept_tokens(tmp_path: Path) -> None:
    assert any(
        "--fixed-views" in mistake
        for mistake in settings_for(tmp_path, fixed_views=False).mistakes()
    )


def test_a_tag_on_no_photo_does_not_leave_the_fit_to_rounding() -> None:
    """Its bias would grow without end, and where it stops would differ from machine to machine."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(16, 6, generator=generator)
    targets = torch.zeros(16, 3)
    targets[:, 0], targets[:8, 1] = 1.0, 1.0  # on every photo, on half of them, on none
    weight, bias = logistic_regression(features, targets)
    noisy = features * (1 + 1e-7 * torch.randn(features.shape, generator=generator))
    for ours, other in zip((weight, bias), logistic_regression(noisy, targets), strict=True):
        torch.testing.assert_close(ours, other, rtol=0.01, atol=0.01)
    assert bias[0] > 5
    assert bias[2] < -5
    assert bias.abs().max() < 15
