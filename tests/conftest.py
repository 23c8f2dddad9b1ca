"""One thread everywhere: contention costs far more than it gives on small tensors."""

import torch

import tagmask.models  # noqa: F401  before torchmetrics, which imports torchvision

torch.set_num_threads(1)
