"""One thread everywhere: contention costs far more than it gives on small tensors."""

import torch

import tagmask.models.compat  # noqa: F401

torch.set_num_threads(1)
