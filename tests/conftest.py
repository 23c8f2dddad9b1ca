"""One thread everywhere: contention costs far more than it gives on small tensors."""

import os

for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"  # before torch; processes that tests start inherit it

import torch  # noqa: E402

import tagmask.models  # noqa: E402, F401  before torchmetrics, which imports torchvision

torch.set_num_threads(1)
