"""Linear models on token vectors, fitted exactly: what a set of photos can teach in seconds."""

import torch
import torch.nn.functional as F
from torch import Tensor

_ITERATIONS = 100  # of L-BFGS


def fit_logistic(
    features: Tensor, targets: Tensor, strength: float, balanced: bool = False
) -> tuple[Tensor, Tensor]:
    """Fit one logistic regression per class.

    It minimises ½·Σ weight² + ``strength``·Σ cross entropy for every class by itself: what
    scikit-learn calls C is ``strength`` here. The bias is not penalised.

    Args:
        features: (N, F), best standardised.
        targets: (N, K) of 0 and 1.
        strength: how much the data count against the penalty; smaller is smoother.
        balanced: give the two sides of every class the same total weight.

    Returns:
        The weight (K, F) and the bias (K,).
    """
    classes = targets.shape[1]
    importance = _balance(targets) if balanced else torch.ones_like(targets)
    # Divided by the number of rows, values and gradients stay near one, where L-BFGS works best.
    scale = 1 / (strength * max(1, len(features)))
    weight = torch.zeros(classes, features.shape[1], device=features.device, requires_grad=True)
    bias = torch.zeros(classes, device=features.device, requires_grad=True)
    solver = torch.optim.LBFGS(
        [weight, bias], max_iter=_ITERATIONS, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        solver.zero_grad()
        logits = F.linear(features, weight, bias)  # (N, K)
        errors = F.binary_cross_entropy_with_logits(
            logits, targets, weight=importance, reduction="sum"
        )
        loss = errors / max(1, len(features)) + scale * weight.square().sum() / 2
        loss.backward()
        return float(loss.detach())

    with torch.enable_grad():
        solver.step(closure)
    return weight.detach(), bias.detach()


def _balance(targets: Tensor) -> Tensor:
    """Return weights (N, K) with which positives and negatives of a class weigh the same in sum."""
    count = len(targets)
    positives = targets.sum(0)  # (K,)
    negatives = count - positives
    of_positive = count / (2 * positives.clamp(min=1))
    of_negative = count / (2 * negatives.clamp(min=1))
    return torch.where(targets > 0, of_positive, of_negative)


def assign_folds(targets: Tensor, folds: int) -> Tensor:
    """Share photos out over folds so that every tag is spread as evenly as possible.

    Photos with rare tags come first; each goes to the fold that has the fewest photos of its
    rarest tag, then the fewest photos. Nothing is random.

    Args:
        targets: (N, K) of 0 and 1.
        folds: how many parts; at least 2.

    Returns:
        The fold of every photo (N,), from 0.
    """
    counts = targets.sum(0)  # (K,)
    rarity = torch.where(targets > 0, counts, torch.inf)  # (N, K)
    rarest = rarity.argmin(1)  # (N,)
    order = sorted(range(len(targets)), key=lambda i: (float(rarity[i].min()), i))
    of_tag = torch.zeros(folds, targets.shape[1])
    sizes = torch.zeros(folds)
    result = torch.zeros(len(targets), dtype=torch.long)
    for i in order:
        tag = int(rarest[i])
        has_tags = bool(targets[i].any())
        fold = min(
            range(folds),
            key=lambda f: (float(of_tag[f, tag]) if has_tags else 0.0, float(sizes[f]), f),
        )
        result[i] = fold
        of_tag[fold] += targets[i]
        sizes[fold] += 1
    return result


def cross_validate(
    features: Tensor, targets: Tensor, strength: float, balanced: bool = False, folds: int = 5
) -> Tensor:
    """Return held-out logits (N, K): every photo is scored by a model that has not seen it.

    Args:
        features: (N, F).
        targets: (N, K) of 0 and 1.
        strength: as in ``fit_logistic``.
        balanced: as in ``fit_logistic``.
        folds: how many models are fitted; fewer if there are fewer photos.

    Returns:
        Logits (N, K); zeros if there are fewer than two photos.
    """
    folds = min(folds, len(features))
    logits = torch.zeros_like(targets)
    if folds < 2:
        return logits
    fold_of = assign_folds(targets, folds)
    for fold in range(folds):
        held_out = fold_of == fold
        weight, bias = fit_logistic(features[~held_out], targets[~held_out], strength, balanced)
        logits[held_out] = F.linear(features[held_out], weight, bias)
    return logits
