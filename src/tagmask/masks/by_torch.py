"""The loops of the CRF and of the random walk on a device of torch, such as a GPU.

The matrices are those that numpy and scipy have made; only the products with them, repeated in
every iteration, run on the device. Results differ from scipy's by rounding.
"""

import warnings
from typing import Any

import numpy as np
import torch

from tagmask.masks.lattice import Floats, Kernel


def mean_field(clipped: Floats, kernels: list[Kernel], iterations: int, device: str) -> Floats:
    """Run the CRF's mean field, as ``tagmask.masks.crf`` does, on a device.

    Args:
        clipped: Probabilities (K, N), none of them 0.
        kernels: Kernels between the N pixels.
        iterations: Number of iterations.
        device: Device of torch, e.g. "cuda".

    Returns:
        Probabilities (K, N).
    """
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
    """Multiply a state by a sparse matrix, again and again.

    Args:
        transition: Sparse matrix (n, n) of scipy.
        state: (n, K).
        steps: Number of products.
        device: Device of torch, e.g. "cuda".

    Returns:
        The state (n, K) after the steps, as an array.
    """
    matrix, moved = _matrix(transition, device), torch.from_numpy(state).to(device)
    for _ in range(steps):
        moved = matrix @ moved
    return moved.cpu().numpy()


def _matrix(matrix: Any, device: str) -> Any:
    """Return a sparse matrix of scipy as one of torch, stored by rows."""
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
