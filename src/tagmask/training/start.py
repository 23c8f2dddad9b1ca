"""Start of a training on cached features: the head that fits the untouched backbone best.

A head of random numbers pulls at the blocks before it knows the classes, and what they knew is lost
on the way. Its best start is a logistic regression of the tags on what the head reads, with a
penalty on the weights: a convex problem with one solution, found in seconds once every photo has
been seen.
"""

from collections.abc import Iterable
from contextlib import ExitStack, suppress
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tagmask.data.catalog import Catalog
from tagmask.errors import ImageError, TagmaskError
from tagmask.features.cache import TokenStore
from tagmask.models.classifier import Classifier
from tagmask.models.tail import tail
from tagmask.progress import track

# on the squared weights; the best of powers of ten with 120, 219 and 1,527 photos
_PENALTY = 1e-3
# on the squared biases: that of a tag on no photo, or on all, would grow without end
_BIAS_PENALTY = 1e-6
_ITERATIONS = 100  # of L-BFGS


def fit_heads(classifier: Classifier, first: int, store: TokenStore, catalog: Catalog) -> None:
    """Set the linear heads of a classifier to the best fit of the tags.

    The photos and their mirror images are fitted.

    Args:
        classifier: Classifier whose heads are changed in place.
        first: Number of frozen blocks, whose output the store holds.
        store: Feature cache.
        catalog: Photos and tags.

    Raises:
        TagmaskError: If no photo can be read.
    """
    indices = track(range(len(catalog)), "head", len(catalog))
    inputs, readable = read_heads(classifier, first, store, catalog, indices)
    tags = torch.from_numpy(catalog.targets(readable))  # (N, C)
    # a photo and its mirror image follow each other
    targets = tags.repeat_interleave(2, 0).to(classifier.mean.device)  # (2N, C)
    for head, features in zip(_heads(classifier), inputs, strict=True):
        weight, bias = logistic_regression(features, targets)
        with torch.no_grad():
            head.weight.copy_(weight)
            head.bias.copy_(bias)


def logistic_regression(
    features: Tensor, targets: Tensor, penalty: float = _PENALTY
) -> tuple[Tensor, Tensor]:
    """Minimise the class loss of a linear layer plus ``penalty`` · Σ weight².

    Args:
        features: What the layer reads (N, D).
        targets: Tags (N, C), 0 or 1.
        penalty: Strength of the penalty on the weights.

    Returns:
        Weight (C, D) and bias (C,).
    """
    classes = targets.shape[1]
    device = features.device
    weight = torch.zeros(classes, features.shape[1], device=device, requires_grad=True)
    bias = torch.zeros(classes, device=device, requires_grad=True)
    solver = torch.optim.LBFGS([weight, bias], max_iter=_ITERATIONS, line_search_fn="strong_wolfe")

    def closure() -> float:
        solver.zero_grad()
        logits = F.linear(features, weight, bias)  # (N, C)
        loss = F.multilabel_soft_margin_loss(logits, targets)
        loss = loss + penalty * weight.square().sum()
        loss = loss + _BIAS_PENALTY * bias.square().sum()
        loss.backward()
        return float(loss.detach())

    solver.step(closure)
    return weight.detach(), bias.detach()


@torch.no_grad()
def read_heads(
    classifier: Classifier, first: int, store: TokenStore, catalog: Catalog, indices: Iterable[int]
) -> tuple[list[Tensor], list[int]]:
    """Collect what each head reads of photos and their mirror images.

    Args:
        classifier: Classifier with its heads.
        first: Number of frozen blocks, whose output the store holds.
        store: Feature cache.
        catalog: Photos.
        indices: Photos to read, by their index in the catalog.

    Returns:
        The inputs of each head (2N, D), and the indices of the photos that could be read.

    Raises:
        TagmaskError: If no photo can be read.
    """
    readable: list[int] = []
    inputs: list[list[Tensor]] = []
    classifier.eval()
    # the hooks are removed also after an error or Ctrl-C
    with ExitStack() as hooks:
        for head in _heads(classifier):
            given: list[Tensor] = []
            inputs.append(given)
            hooks.enter_context(head.register_forward_pre_hook(partial(_keep_input, given)))
        for i in indices:
            # the training names photos that cannot be read
            with suppress(ImageError):
                tokens = store.get(catalog, i)
                rest = tail(classifier, first, tokens.grid)
                rest(tokens.values.to(classifier.mean.device))
                readable.append(i)
    if not readable:
        raise TagmaskError("no image could be read; check the paths in the data settings.")
    return [torch.cat(parts) for parts in inputs], readable


def _keep_input(kept: list[Tensor], module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Append the first input of a module to ``kept``; a forward pre-hook."""
    del module
    kept.append(inputs[0])


def _heads(classifier: Classifier) -> list[nn.Linear]:
    """Return the linear head, and that of a distillation token."""
    heads = (classifier.vit.head, getattr(classifier.vit, "head_dist", None))
    return [head for head in heads if isinstance(head, nn.Linear)]
