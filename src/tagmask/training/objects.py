"""Fitting what photos teach without training: the tag head, where objects are, and which.

Everything reads the feature cache. The direction to objects is learned from some of the photos,
evenly spaced; the rest of the fit streams over all of them, one at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from tagmask.data.catalog import Catalog
from tagmask.errors import ImageError, TagmaskError
from tagmask.features.cache import TokenStore
from tagmask.inference.evidence import fit_which, pool
from tagmask.inference.objectness import Grid, Where, fit_where
from tagmask.models.classifier import Classifier
from tagmask.models.finder import ObjectFinder
from tagmask.progress import track
from tagmask.training.start import logistic_regression

_COPIES = 4  # of the cells, while the direction is learned
MOST_CELLS = 120_000  # that the direction to objects is learned from: 400 MB


@dataclass
class PhotoVectors:
    """One vector for each photo that could be read."""

    indices: list[int]  # their numbers in the catalog
    class_tokens: Tensor  # (N, D) of the last block, which the head reads
    pooled: Tensor  # (N, 2, F) standardised: of the foreground and of the rest
    targets: Tensor  # (N, K) of 0 and 1
    broken: dict[str, str]  # photos that could not be read: why


def fit_objects(
    classifier: Classifier,
    store: TokenStore,
    catalog: Catalog,
    *,
    blocks: Sequence[int],
    size: int,
    method: str = "border",
    stuff: Sequence[int] = (),
) -> PhotoVectors:
    """Give a classifier its object finder, fitted to the photos of a catalog.

    Args:
        classifier: its ``finder`` is set.
        store: the feature cache, for the same blocks and size.
        catalog: the photos and their tags.
        blocks: the blocks, counted from 0, whose tokens are read.
        size: the long side in pixels at which photos are seen.
        method: how the direction to objects is found, a name of ``inference.objectness.METHODS``.
        stuff: tags that are no objects.

    Returns:
        The vectors it was fitted to, for the head and the check of the tags.
    """
    width = len(blocks) * int(classifier.vit.embed_dim)
    finder = ObjectFinder(blocks, size, width, len(catalog.classes), stuff)
    finder = finder.to(classifier.mean.device)
    where = _learn_where(finder, store, catalog, method)
    vectors = _vectors(classifier, finder, where, store, catalog)
    which = fit_which(vectors.pooled, vectors.targets, stuff)
    finder.where_weight.copy_(where.weight)
    finder.where_bias.fill_(where.bias)
    finder.kinds = where.kinds
    finder.kind_scores = where.scores
    finder.which_weight.copy_(which.weight)
    finder.which_bias.copy_(which.bias)
    classifier.finder = finder
    return vectors


def fit_head(classifier: Classifier, vectors: PhotoVectors) -> None:
    """Set the linear head of a classifier to the best fit of the tags.

    Args:
        classifier: its head is set.
        vectors: the class tokens it reads, and the tags.
    """
    head = classifier.vit.head
    weight, bias = logistic_regression(vectors.class_tokens, vectors.targets)
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(bias)


def check_fittable(classifier: Classifier, blocks: Sequence[int]) -> None:
    """Refuse a backbone whose head reads more than the class token of its last block.

    Args:
        classifier: the network.
        blocks: those whose tokens are kept.

    Raises:
        TagmaskError: with a sentence on what to use instead.
    """
    depth = len(classifier.blocks)
    wrong = [i for i in blocks if not 0 <= i < depth]
    if wrong or not blocks or blocks[-1] != depth - 1:
        raise TagmaskError(
            f"--object-blocks {' '.join(map(str, blocks)) or '(none)'} must be blocks of "
            f"{classifier.backbone} (0 to {depth - 1}) and end with the last."
        )
    reads_more = getattr(classifier.vit, "head_dist", None) is not None
    if not classifier.has_head or reads_more or not isinstance(classifier.vit.head, nn.Linear):
        raise TagmaskError(
            f"{classifier.backbone} has no single linear head on its class token; leave out "
            "--objects, or use a plain ViT such as vit_small_patch14_dinov2 with --kind acr."
        )


def _learn_where(finder: ObjectFinder, store: TokenStore, catalog: Catalog, method: str) -> Where:
    """Set mean and deviation of the finder, and return where objects are."""
    cells: list[Tensor] = []
    grids: list[Grid] = []
    count = 0
    spread = _spread(len(catalog))
    for i in track(spread, "objects", len(spread)):
        if count >= MOST_CELLS:
            break
        try:
            tokens = store.get(catalog, i)
        except ImageError:
            continue  # named when all photos are read
        cells.append(tokens.values[0])
        grids.append(tokens.grid)
        count += len(tokens.values[0])
    if not cells:
        raise TagmaskError("no image could be read; check the paths in the data settings.")
    everything = torch.cat(cells)
    finder.shift.copy_(everything.mean(0))
    finder.scale.copy_(everything.std(0).clamp(min=1e-6))
    del everything
    standardised = [finder.standardise(tokens) for tokens in cells]
    return fit_where(standardised, grids, method)


def memory_of_fit(cells: Tensor, photos: int) -> float:
    """Return about how many bytes the fits hold besides the network.

    Args:
        cells: Tokens (n, F) of one photo.
        photos: How many there are.
    """
    held = min(photos * len(cells), MOST_CELLS + len(cells))
    size = 4 * cells.shape[1]
    # the cells, the same standardised, and all of them in one piece with its parts
    of_cells = _COPIES * held * size
    # of each photo its class token and its pooled cells, and both in one piece
    return float(of_cells + 4 * photos * size)


def _spread(count: int) -> list[int]:
    """Return all numbers below ``count`` so that any beginning of the list is spread evenly."""
    rounds = max(1, count.bit_length())
    reversed_bits = [int(f"{i:0{rounds}b}"[::-1], 2) for i in range(count)]
    return sorted(range(count), key=reversed_bits.__getitem__)


def _vectors(
    classifier: Classifier,
    finder: ObjectFinder,
    where: Where,
    store: TokenStore,
    catalog: Catalog,
) -> PhotoVectors:
    """Return one vector for every photo that can be read."""
    depth = int(classifier.vit.embed_dim)
    indices: list[int] = []
    class_tokens: list[Tensor] = []
    pooled: list[Tensor] = []
    broken: dict[str, str] = {}
    for i in track(range(len(catalog)), "photos", len(catalog)):
        try:
            tokens = store.get(catalog, i)
        except ImageError as error:
            broken[catalog.name(i)] = str(error)
            continue
        assert tokens.class_token is not None
        standardised = finder.standardise(tokens.values[0])
        indices.append(i)
        class_tokens.append(tokens.class_token[-depth:])
        pooled.append(pool(standardised, where.probability(standardised)))
    targets = torch.from_numpy(catalog.targets(np.array(indices, dtype=np.int64)))
    return PhotoVectors(
        indices,
        torch.stack(class_tokens),
        torch.stack(pooled),
        targets.to(classifier.mean.device),
        broken,
    )
