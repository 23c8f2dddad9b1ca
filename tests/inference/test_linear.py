"""Linear models on token vectors: scikit-learn's answers, and folds a reader can check by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tagmask.inference.linear import assign_folds, cross_validate, fit_logistic


def photos(count: int = 80, width: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return features and three tags that depend on them: a common, a middling and a rare one."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(count, width))
    scores = features @ random.normal(size=(width, 3)) + random.normal(size=(count, 3))
    targets = scores > np.quantile(scores, [0.4, 0.6, 0.93], axis=0).diagonal()
    return torch.tensor(features, dtype=torch.float32), torch.tensor(targets, dtype=torch.float32)


def of_scikit_learn(features: Tensor, target: Tensor, strength: float, balanced: bool) -> Any:
    from sklearn.linear_model import LogisticRegression

    weights = "balanced" if balanced else None
    model = LogisticRegression(C=strength, class_weight=weights, tol=1e-9, max_iter=5000)
    return model.fit(features.double().numpy(), target.numpy())


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("strength", [0.003, 0.1, 3.0])
def test_the_fit_is_scikit_learns(strength: float, balanced: bool) -> None:
    """For a tag on most photos, on some, and on one in fourteen."""
    features, targets = photos()
    assert 0 < targets[:, 2].mean() < 0.1
    weight, bias = fit_logistic(features, targets, strength, balanced)
    assert weight.shape == (3, 6)
    for k in range(3):
        expected = of_scikit_learn(features, targets[:, k], strength, balanced)
        np.testing.assert_allclose(weight[k], expected.coef_[0], atol=1e-3)
        np.testing.assert_allclose(bias[k], expected.intercept_[0], atol=2e-3)


def test_balance_by_hand() -> None:
    """One photo with the tag against three without, no features: the bias is the odds."""
    features = torch.zeros(4, 1)
    targets = torch.tensor([[1.0], [0], [0], [0]])
    _, bias = fit_logistic(features, targets, 1.0)
    assert bias.item() == pytest.approx(np.log(1 / 3), abs=1e-3)
    _, bias = fit_logistic(features, targets, 1.0, balanced=True)
    assert bias.item() == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_tag_on_no_photo_or_on_all_stays_finite(value: float, balanced: bool) -> None:
    features, targets = photos(30)
    targets[:, 1] = value
    weight, bias = fit_logistic(features, targets, 0.1, balanced)
    assert weight.isfinite().all()
    assert bias.isfinite().all()
    logits = features @ weight[1] + bias[1]
    assert ((logits > 0) == (value > 0)).all()
    alone = fit_logistic(features, targets[:, :1], 0.1, balanced)
    torch.testing.assert_close(weight[0], alone[0][0], atol=2e-3, rtol=0)  # the others do not mind


def test_it_can_be_fitted_where_gradients_are_off() -> None:
    features, targets = photos(20)
    with torch.no_grad():
        weight, _ = fit_logistic(features, targets, 0.1)
    assert weight.abs().max() > 0
    assert not weight.requires_grad


def test_folds_by_hand() -> None:
    """Six photos with tag 0, three with tag 1 (one of them has both), over three folds."""
    targets = torch.tensor([[1, 0], [1, 0], [1, 1], [0, 1], [0, 1], [1, 0], [1, 0], [1, 0.0]])
    folds = assign_folds(targets, 3)
    # The rare tag first: photos 2, 3, 4 go to folds 0, 1, 2. Then photos 0, 1, 5, 6, 7 of the
    # common tag: fold 0 has one of them already, so 1, 2, 0 (all have one: the first), 1, 2.
    assert folds.tolist() == [1, 2, 0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("folds", [2, 3, 5])
def test_every_tag_is_spread_over_the_folds(folds: int) -> None:
    """One tag a photo: the shares of two folds differ by one photo at most."""
    tags = torch.tensor([0] * 20 + [1] * 7 + [2] * 5 + [3])
    targets = torch.nn.functional.one_hot(tags).float()
    fold_of = assign_folds(targets, folds)
    assert set(fold_of.tolist()) == set(range(folds))
    for k in range(4):
        counts = torch.bincount(fold_of[tags == k], minlength=folds)
        assert counts.max() - counts.min() <= 1


def test_folds_are_the_same_every_time() -> None:
    _, targets = photos()
    assert torch.equal(assign_folds(targets, 5), assign_folds(targets.clone(), 5))


def test_a_photo_without_tags_gets_a_fold() -> None:
    targets = torch.tensor([[0, 0], [1, 0], [1, 0], [0, 1], [0, 0.0]])
    folds = assign_folds(targets, 2)
    assert folds.shape == (5,)
    assert ((folds >= 0) & (folds < 2)).all()
    assert folds[1] != folds[2]


def test_photos_without_tags_are_spread_too() -> None:
    targets = torch.zeros(43, 1)
    targets[:3] = 1
    sizes = torch.bincount(assign_folds(targets, 2), minlength=2)
    assert sizes.min() >= 15


@pytest.mark.parametrize("balanced", [False, True])
def test_held_out_scores_are_those_of_scikit_learn(balanced: bool) -> None:
    features, targets = photos(60)
    logits = cross_validate(features, targets, 0.1, balanced, folds=4)
    fold_of = assign_folds(targets, 4)
    for fold in range(4):
        out = fold_of == fold
        for k in range(3):
            model = of_scikit_learn(features[~out], targets[~out, k], 0.1, balanced)
            expected = model.decision_function(features[out].double().numpy())
            np.testing.assert_allclose(logits[out, k], expected, atol=5e-3)


def test_a_photo_is_scored_by_models_that_have_not_seen_its_tags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features, targets = photos(30)
    folds = torch.arange(30) % 5
    monkeypatch.setattr("tagmask.inference.linear.assign_folds", lambda *_: folds)
    before = cross_validate(features, targets, 0.1)
    changed = targets.clone()
    changed[7] = 1 - changed[7]
    after = cross_validate(features, changed, 0.1)
    same_fold = folds == folds[7]
    assert torch.equal(before[same_fold], after[same_fold])
    assert not torch.equal(before[~same_fold], after[~same_fold])


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_very_few_photos(count: int) -> None:
    features, targets = photos(10)
    logits = cross_validate(features[:count], targets[:count], 0.1, balanced=True)
    assert logits.shape == (count, 3)
    assert logits.isfinite().all()
    if count < 2:
        assert (logits == 0).all()
