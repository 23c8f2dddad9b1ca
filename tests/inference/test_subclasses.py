"""Kinds of regions, against scikit-learn's clustering and its logistic regression."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.cluster import AgglomerativeClustering
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score

from tagmask.inference import subclasses
from tagmask.inference.subclasses import (
    STRENGTH,
    learn_names,
    region_vector,
    sort_regions,
    typicality,
)


def drawn(sizes: list[int], spread: float, seed: int = 0) -> tuple[torch.Tensor, list[int]]:
    """Vectors of length 1 around random centres, and the centre of each."""
    rng = torch.Generator().manual_seed(seed)
    centres = torch.randn(len(sizes), 24, generator=rng)
    of = [k for k, size in enumerate(sizes) for _ in range(size)]
    order = torch.randperm(len(of), generator=rng).tolist()
    of = [of[i] for i in order]
    values = centres[of] + spread * torch.randn(len(of), 24, generator=rng)
    return F.normalize(values, dim=1), of


def test_the_vector_of_a_region_by_hand() -> None:
    tokens = torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0], [7.0, -1.0]])  # a grid of 2 × 2
    region = np.zeros((4, 4), bool)
    region[:2, :2] = True  # the whole first cell
    region[0, 2:] = True  # half of the second
    expected = torch.tensor([1.0, 0.5]) / 1.25**0.5
    found = region_vector(tokens, (2, 2), region)
    assert found is not None
    torch.testing.assert_close(found, expected)
    assert region_vector(tokens, (2, 2), np.zeros((4, 4), bool)) is None


@pytest.mark.parametrize("count", [2, 3, 5, 9])
def test_the_same_groups_as_scikit_learn(count: int) -> None:
    vectors, _ = drawn([30, 17, 40, 8], 1.5)
    kinds = sort_regions(vectors, count)
    other = AgglomerativeClustering(count, linkage="ward").fit_predict(vectors.double().numpy())
    assert adjusted_rand_score(other, kinds) == 1
    sizes = [kinds.count(kind) for kind in range(1, count + 1)]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == len(vectors)
    assert sort_regions(vectors, count) == kinds


def test_known_kinds_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, of = drawn([40, 25, 10], 0.3)
    kinds = sort_regions(vectors, 3)
    assert adjusted_rand_score(of, kinds) == 1
    # only some are compared with each other
    monkeypatch.setattr(subclasses, "MOST_COMPARED", 30)
    assert adjusted_rand_score(of, sort_regions(vectors, 3)) == 1
    assert sort_regions(vectors[:1], 3) == [1]
    assert sort_regions(vectors[:0], 3) == []


def test_typicality_by_hand() -> None:
    vectors = F.normalize(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), dim=1)
    assert typicality(vectors, [1, 1, 2]) == pytest.approx([0.5**0.5, 0.5**0.5, 1.0])


def test_names_are_learned_as_scikit_learn_would() -> None:
    vectors, of = drawn([40, 30, 30], 1.2)
    truth = [("barrel", "tube", "vase")[k] for k in of]
    names = [name if i % 3 == 0 else None for i, name in enumerate(truth)]
    found, checked = learn_names(vectors, names)
    known = [i for i, name in enumerate(names) if name is not None]
    assert [found[i] for i in known] == [truth[i] for i in known]
    centred = (vectors - vectors[known].mean(0)).numpy()
    scores = []
    for name in ("barrel", "tube", "vase"):
        model = LogisticRegression(C=STRENGTH, class_weight="balanced", tol=1e-8, max_iter=5000)
        model.fit(centred[known], [truth[i] == name for i in known])
        scores.append(model.decision_function(centred))
    other = [("barrel", "tube", "vase")[k] for k in np.argmax(scores, axis=0)]
    unknown = [i for i, name in enumerate(names) if name is None]
    assert [found[i] for i in unknown] == [other[i] for i in unknown]
    right = sum(found[i] == truth[i] for i in unknown) / len(unknown)
    assert right > 0.8
    assert {name: total for name, (_, total) in checked.items()} == {
        name: sum(truth[i] == name for i in known) for name in ("barrel", "tube", "vase")
    }
    held_out = sum(hits for hits, _ in checked.values()) / len(known)
    assert abs(held_out - right) < 0.2


def test_names_without_meaning_are_not_learned() -> None:
    vectors, _ = drawn([200], 1.0)
    rng = np.random.default_rng(0)
    names: list[str | None] = [str(name) for name in rng.choice(["a", "b"], 200)]
    _, checked = learn_names(vectors, names)
    right = sum(hits for hits, _ in checked.values())
    assert 70 < right < 130, "regions that were kept apart say that nothing was learned"
