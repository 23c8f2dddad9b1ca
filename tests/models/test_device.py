"""Networks go where they work."""

from typing import Any

import pytest
import torch
from torch import nn

from tagmask.models.device import on_device


class Network(nn.Module):
    """Tells where it was sent."""

    where: Any = None

    def to(self, *args: Any, **kwargs: Any) -> "Network":
        (self.where,) = args
        return self


def test_without_a_gpu_it_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert on_device(Network()).where is None


@pytest.mark.parametrize(("rank", "index"), [(None, 0), ("1", 1), ("3", 1)])
def test_processes_of_a_launch_take_a_gpu_each(monkeypatch: pytest.MonkeyPatch, rank: str | None, index: int) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    if rank is None:
        monkeypatch.delenv("LOCAL_RANK", raising=False)
    else:
        monkeypatch.setenv("LOCAL_RANK", rank)
    assert on_device(Network()).where == torch.device("cuda", index)
