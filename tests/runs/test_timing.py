"""How long a step takes, by a clock that the network itself moves on."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from tagmask.runs import timing


class Slow(nn.Module):
    """Takes ``once`` seconds for each call and ``each`` for each image."""

    def __init__(self, once: float, each: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.once, self.each, self.now = once, each, 0.0
        self.seen: list[int] = []

    def forward(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        assert len(images) == len(labels)
        self.now += self.once + self.each * len(images)
        self.seen.append(len(images))
        return {"loss": self.weight * images.sum()}


@pytest.mark.skipif(
    torch.accelerator.is_available(), reason="of accelerators the whole batch is measured"
)
@pytest.mark.parametrize(
    ("once", "each", "seconds", "seen"),
    [
        (0.0, 1.0, 30.0, [1]),  # three times as much as the forward pass of ten images
        (0.1, 0.2, 2.5, [1, 2, 2]),  # 0.5 s are measured twice; 2.5 s for the batch are slow
        (0.1, 0.01, 0.2, [1, 2, 2, 10, 10]),  # quick, so the batch itself is measured, when warm
    ],
)
def test_a_slow_step_is_projected_from_few_images(
    once: float, each: float, seconds: float, seen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = Slow(once, each)
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: module.now))
    batch = {"images": torch.rand(10, 3), "labels": torch.zeros(10)}
    assert timing.time_step(module, batch, []) == pytest.approx(seconds)
    assert module.seen == seen


class Squares(nn.Module):
    """Keeps the products of its images with a number for the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        return {"loss": (self.weight * images).pow(2).sum()}


def test_what_a_pass_keeps_is_counted_by_hand() -> None:
    module = Squares()
    batch = torch.rand(5, 3)
    kept = timing.Kept(module, [batch])
    assert kept.trained == 4
    for images in (5, 2):
        with kept.counted():
            module(batch[:images])
        assert kept.bytes == images * 3 * 4  # the products; the images themselves are there anyway


@pytest.mark.skipif(torch.accelerator.is_available(), reason="they have a memory of their own")
def test_a_batch_that_is_projected_takes_memory_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_is_enough", lambda seconds: True)
    unseen: list[float] = []
    timing.time_step(Squares(), {"images": torch.rand(10, 3)}, unseen)
    of_an_image = 3 * 4
    assert unseen == [2 * 4, 8 * of_an_image]


@pytest.mark.skipif(torch.accelerator.is_available(), reason="they have a memory of their own")
def test_a_batch_of_a_long_step_takes_memory_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_LONG", 0.0)
    unseen: list[float] = []
    timing.time_step(Squares(), {"images": torch.rand(10, 3)}, unseen)
    gradient = 4
    assert unseen == [2 * 4, gradient + 10 * 3 * 4]


def test_large_weights_of_a_shape_share_their_memory() -> None:
    layers = [nn.Linear(200, 200) for _ in range(4)]
    module = nn.Sequential(*layers, nn.Linear(200, 3))
    biases = [layer.bias.clone() for layer in layers]
    assert timing.share_weights(module) == 3 * 200 * 200 * 4
    assert len({layer.weight.data_ptr() for layer in layers}) == 1
    # small ones stay as they are, and each weight has a gradient of its own
    assert all(torch.equal(layer.bias, bias) for layer, bias in zip(layers, biases, strict=True))
    module(torch.rand(1, 200)).sum().backward()
    assert len({layer.weight.grad.data_ptr() for layer in layers}) == 4  # type: ignore[union-attr]
