"""Networks go where they work."""

from typing import Any

import pytest
import torch
from torch import nn

from tagmask.errors import TagmaskError
from tagmask.models.device import chosen_device, on_device


class Network(nn.Module):
    """Tells where it was sent."""

    where: Any = None

    def to(self, *args: Any, **kwargs: Any) -> "Network":
        (self.where,) = args
        return self


def test_without_a_gpu_it_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert on_device(Network()).where is None

    assert [chosen_device(name) for name in (None, "cpu")] == [None, "cpu"]
    with pytest.raises(TagmaskError, match=r"torch finds no GPU, .*leave it out"):
        chosen_device("gpu")


@pytest.mark.parametrize(("rank", "name"), [(None, "cuda"), ("1", "cuda:1"), ("3", "cuda:1")])
def test_processes_of_a_launch_take_a_gpu_each(
    monkeypatch: pytest.MonkeyPatch, rank: str | None, name: str
) -> None:
    """Without a launch it is the current one, which the paper's tables set themselves."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    if rank is None:
        monkeypatch.delenv("LOCAL_RANK", raising=False)
    else:
        monkeypatch.setenv("LOCAL_RANK", rank)
    assert on_device(Network()).where == torch.device(name)
    assert chosen_device("gpu") == name
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("mps"))
    with pytest.raises(TagmaskError, match="without sparse products"):
        chosen_device("gpu")
