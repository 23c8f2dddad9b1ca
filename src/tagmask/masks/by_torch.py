"""The loops of the CRF and of the random walk on a device of torch, such as a GPU.

The matrices are those that numpy and scipy have made; only the products with them, repeated in every iteration, run
on the device. Results differ from scipy's by rounding.
"""

import warnings
from typing import Any

import numpy as np
import torch

from tagmask.masks.lattice import Floats, Kernel


def mean_field(clipped: Floats, kernels: list[Kernel], iterations: int, device: str) -> Floats:
    """As ``tagmask.masks.crf`` does it, (K, N) to (K, N)."""
    evidence = torch.from_numpy(clipped).to(device).log()  # (K, N)
    total = torch.from_numpy(np.sum([kernel.total for kernel in kernels], axis=0)).to(
        device
    )  # (N,)
    moved: Any = [
        Kernel(tuple(_matrix(each, device) for each in kernel.matrices), kernel.total)
        for kernel in kernels
    ]
    labels: Any = evidence.softmax(0)  # (K, N)
    for _ in range(iterations):
        message = torch.stack([kernel.apply(labels[:-1].T).T for kernel in moved]).sum(
            0
        )  # (K−1, N)
        labels = (
            evidence + torch.cat([message, total[None] - message.sum(0, keepdim=True)])
        ).softmax(0)
    refined: Floats = labels.cpu().numpy()
    return refined


def take_steps(transition: Any, state: Any, steps: int, device: str) -> Any:
    """``state`` (n, K) after ``steps`` products with a sparse matrix (n, n)."""
    matrix, moved = _matrix(transition, device), torch.from_numpy(state).to(device)
    for _ in range(steps):
        moved = matrix @ moved
    return moved.cpu().numpy()


def _matrix(matrix: Any, device: str) -> Any:
    """A sparse matrix of scipy as one of torch, stored by rows."""
    rows = matrix.tocsr()
    starts, columns, values = (
        torch.from_numpy(part) for part in (rows.indptr, rows.indices, rows.data)
    )
    with warnings.catch_warnings(
        action="ignore", category=UserWarning
    ):  # torch calls such matrices a beta
        return torch.sparse_csr_tensor(
            starts, columns, values, rows.shape, check_invariants=False
        ).to(device)
