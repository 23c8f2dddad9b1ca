"""Where a training on kept tokens may begin: with the head that fits the untouched backbone best.

A head of random numbers pulls at the blocks before it knows the classes, and what they knew is lost on the way. Its
best start is a logistic regression of the tags on what the head reads, with a penalty on the weights: a convex
problem with one solution, found in seconds once every photo has been seen.
"""

from collections.abc import Iterable
from contextlib import suppress

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from tagmask.data.catalog import Catalog
from tagmask.errors import ImageError, TagmaskError
from tagmask.features.cache import TokenStore
from tagmask.models.classifier import Classifier
from tagmask.models.tail import tail

_PENALTY = 1e-3  # on the squared weights; the best of powers of ten with 120, 219 and 1,527 photos
_BIAS_PENALTY = (
    1e-6  # on the squared biases: that of a tag on no photo, or on all, would grow without end
)
_ITERATIONS = 100  # of L-BFGS


def fit_heads(classifier: Classifier, first: int, store: TokenStore, catalog: Catalog) -> None:
    """Set the linear heads of a classifier to the best fit of the tags, for the photos and their mirror images."""
    inputs, readable = read_heads(
        classifier, first, store, catalog, tqdm(range(len(catalog)), "head", unit="image")
    )
    targets = (
        torch.from_numpy(catalog.targets(readable))
        .repeat_interleave(2, 0)
        .to(classifier.mean.device)
    )
    for head, features in zip(_heads(classifier), inputs, strict=True):
        weight, bias = logistic_regression(features, targets)
        with torch.no_grad():
            head.weight.copy_(weight)
            head.bias.copy_(bias)


def logistic_regression(
    features: Tensor, targets: Tensor, penalty: float = _PENALTY
) -> tuple[Tensor, Tensor]:
    """Weight (C, D) and bias (C,) that minimise the class loss of features (N, D) plus ``penalty``·Σ weight²."""
    weight = torch.zeros(
        targets.shape[1], features.shape[1], device=features.device, requires_grad=True
    )
    bias = torch.zeros(targets.shape[1], device=features.device, requires_grad=True)
    solver = torch.optim.LBFGS([weight, bias], max_iter=_ITERATIONS, line_search_fn="strong_wolfe")

    def closure() -> float:
        solver.zero_grad()
        loss = F.multilabel_soft_margin_loss(F.linear(features, weight, bias), targets)
        loss = loss + penalty * weight.square().sum() + _BIAS_PENALTY * bias.square().sum()
        loss.backward()
        return float(loss.detach())

    solver.step(closure)
    return weight.detach(), bias.detach()


@torch.no_grad()
def read_heads(
    classifier: Classifier, first: int, store: TokenStore, catalog: Catalog, indices: Iterable[int]
) -> tuple[list[Tensor], list[int]]:
    """What each head reads (2N, D) of photos and their mirror images, and which photos could be read."""
    readable, heads = list[int](), _heads(classifier)
    inputs: list[list[Tensor]] = [[] for _ in heads]
    hooks = [
        head.register_forward_pre_hook(lambda _, given, into=into: into.append(given[0]))
        for head, into in zip(heads, inputs, strict=True)
    ]
    classifier.eval()
    for i in indices:
        with suppress(ImageError):  # named by the training
            tokens = store.get(catalog, i)
            tail(classifier, first, tokens.grid)(tokens.values.to(classifier.mean.device))
            readable.append(i)
    for hook in hooks:
        hook.remove()
    if not readable:
        raise TagmaskError("no image could be read; check the paths in the data settings.")
    return [torch.cat(parts) for parts in inputs], readable


def _heads(classifier: Classifier) -> list[nn.Linear]:
    """The linear head, and that of a distillation token."""
    heads = (classifier.vit.head, getattr(classifier.vit, "head_dist", None))
    return [head for head in heads if isinstance(head, nn.Linear)]
