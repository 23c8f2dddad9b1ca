"""Information and inconsistency of attention against textbook definitions and hand-made matrices."""

import math

import pytest
import torch
from sklearn.metrics import mutual_info_score

from tagmask.acr.information import inconsistency, information


def with_class_token(rows: torch.Tensor) -> torch.Tensor:
    """Patch rows (…, n, n) inside (…, n+1, n+1); the class token takes a third of every row."""
    whole = torch.full((*rows.shape[:-2], rows.shape[-2] + 1, rows.shape[-1] + 1), 1 / 3, dtype=rows.dtype)
    whole[..., 1:, 1:] = rows * 2 / 3
    return whole


def test_information_of_rows_that_are_alike_is_zero() -> None:
    bright_columns = torch.tensor([[0.7, 0.1, 0.1, 0.1]]).expand(4, 4)
    assert information(with_class_token(bright_columns)) == pytest.approx(0, abs=1e-6)
    assert information(with_class_token(torch.full((6, 6), 1 / 6))) == pytest.approx(0, abs=1e-6)


def test_two_objects_that_look_at_themselves_tell_one_bit() -> None:
    rows = torch.block_diag(torch.full((3, 3), 1 / 3), torch.full((3, 3), 1 / 3))
    assert information(with_class_token(rows)) == pytest.approx(math.log(2))
    assert information(with_class_token(torch.eye(5))) == pytest.approx(math.log(5))


def test_information_equals_that_of_a_contingency_table() -> None:
    counts = torch.randint(1, 9, (2, 5, 5), generator=torch.Generator().manual_seed(0)).double()
    counts[:, :, 0] += 40 - counts.sum(-1)  # rows of equal weight: each patch looks once
    expected = [mutual_info_score(None, None, contingency=table.numpy()) for table in counts]
    assert information(with_class_token(counts / 40)).tolist() == pytest.approx(expected)


def test_inconsistency_by_hand() -> None:
    rows = torch.tensor([[0.8, 0.2], [0.4, 0.6]])  # mean row (.6, .4): distances .4 + .4
    other = torch.tensor([[0.7, 0.3], [0.4, 0.6]])  # distance .2
    assert inconsistency(with_class_token(rows), with_class_token(other)) == pytest.approx(0.25)
    assert inconsistency(with_class_token(rows), with_class_token(rows)) == pytest.approx(0)
