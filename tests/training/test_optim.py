"""Schedule and optimiser by hand-computed numbers."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tagmask.config import LoopSettings
from tagmask.training.optim import build_optimizer, decay, set_lr
from tests.helpers import tiny_settings


def test_poly_by_hand() -> None:
    assert decay(0, 100, LoopSettings(power=0.9)) == 1
    assert decay(50, 100, LoopSettings(power=0.9)) == pytest.approx(0.5358867)
    assert decay(99, 100, LoopSettings(power=1.0)) == pytest.approx(0.01)
    assert decay(0, 100, LoopSettings(power=1.0, warmup=4)) == pytest.approx(0.25)
    assert decay(1, 100, LoopSettings(power=1.0, warmup=4)) == pytest.approx(0.5 * 0.99)


def test_cosine_decay() -> None:
    settings = LoopSettings(schedule="cosine", warmup=4)
    assert decay(1, 100, settings) == pytest.approx(0.5 * 0.9997533)
    assert decay(25, 100, settings) == pytest.approx(0.8535534)  # (1 + √½) / 2
    assert decay(50, 100, settings) == pytest.approx(0.5)
    assert decay(99, 100, settings) == pytest.approx(0.0002467, abs=1e-7)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(2, 2), nn.Linear(2, 1)


def test_groups(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, lr=0.1, head_lr=10, weight_decay=0.5, optimizer="adamw")
    groups = build_optimizer(Net(), settings, ("head",)).param_groups
    described = {(round(g["lr"], 6), g["weight_decay"], len(g["params"])) for g in groups}
    assert described == {(0.1, 0.5, 1), (0.1, 0.0, 1), (1.0, 0.5, 1), (1.0, 0.0, 1)}


def test_sgd_step_by_hand(tmp_path: Path) -> None:
    net = nn.Linear(1, 1, bias=False)
    nn.init.constant_(net.weight, 2.0)
    settings = tiny_settings(tmp_path, optimizer="sgd", lr=0.1, momentum=0.9, weight_decay=0.5)
    optimizer = build_optimizer(net, settings)
    for _ in range(2):
        set_lr(optimizer, 0.5)  # lr 0.05
        net(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    # gradient 1 + 0.5·w; v₁ = 2, w = 1.9; v₂ = 0.9·2 + 1.95 = 3.75, w = 1.9 − 0.1875
    assert net.weight.item() == pytest.approx(1.7125)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)
