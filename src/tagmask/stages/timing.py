"""How long one step or one image of a stage takes, for the plan of a run.

Networks are built for it with random weights, so that a wrong name is reported before hours of work, not after.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tagmask.config.run import RunSettings
from tagmask.data.catalog import Catalog
from tagmask.errors import ImageError
from tagmask.training.loop import to_device

_SLOW = 5.0  # seconds after which a first, slower, measurement is good enough


@dataclass(frozen=True)
class Probe:
    """What a measurement is made with: the settings of the run, and one of its images."""

    run: RunSettings
    catalog: Catalog
    image: Any  # (H, W, 3) uint8
    classes: list[int]


def probe(run: RunSettings, catalog: Catalog) -> Probe | None:
    """A probe with the first readable, tagged image; None if there is none among the first twenty."""
    for i in range(min(20, len(catalog))):
        try:
            if catalog.tags(i):
                return Probe(run, catalog, catalog.load_image(i), list(catalog.tags(i)))
        except ImageError:
            continue
    return None


def time_step(module: nn.Module, batch: Mapping[str, Tensor]) -> float:
    """Seconds of one forward and backward pass."""
    module.train()
    if torch.accelerator.is_available():
        module.to(torch.accelerator.current_accelerator())
    device = next(module.parameters()).device

    def step() -> None:
        losses = module(**{name: to_device(value, device) for name, value in batch.items()})
        losses["loss"].backward()
        float(losses["loss"].detach())  # waits for the GPU
        module.zero_grad()

    return timed(step)


def timed(work: Callable[[], Any]) -> float:
    """Seconds of ``work`` once warm, or of the first time if that is slow already."""
    seconds = 0.0
    for _ in range(2):
        began = time.perf_counter()
        work()
        seconds = time.perf_counter() - began
        if seconds > _SLOW:
            break
    return seconds
