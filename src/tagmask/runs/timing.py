"""Time that one step or one image of a stage takes, for the plan of a run.

Networks are built for it with random weights, so that a wrong name is reported before hours of
work, not after.
"""

import copy
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from tagmask.config import DeepLabSettings, HeadSettings, TrainSettings
from tagmask.config.run import RunSettings
from tagmask.data.catalog import Catalog, give_back
from tagmask.errors import ImageError
from tagmask.features.photo import Tokens, photo_features
from tagmask.models.deeplab import DeepLabV2
from tagmask.models.device import on_device
from tagmask.models.head import HeadSegmenter
from tagmask.training.classifier import ClassifierTask
from tagmask.training.loop import to_device
from tagmask.training.segmenter import build_segmenter

_FEW = 2  # images of a batch
_LONG = 10.0  # seconds of a step beyond which only a forward pass is measured
_HELD = 4e7  # bytes
_LARGE = 1e5  # bytes of a weight; the small ones are norms and biases, which differ in kind
# seconds on a CPU after which a first measurement is good enough; it takes little to warm up
_SLOW = 1.0


@dataclass(frozen=True)
class Probe:
    """Settings of the run and one of its images, to measure with."""

    run: RunSettings
    catalog: Catalog
    image: Any  # (H, W, 3) uint8
    classes: list[int]
    # bytes that a stage takes beyond what was measured: images of a batch, weights
    unseen: list[float] = field(default_factory=list)
    # bytes of weights that the classifier and DeepLabV2 have beyond those built here
    shared: dict[str, float] = field(default_factory=dict)

    @cached_property
    def training(self) -> TrainSettings:
        """Return settings to train the classifier with random weights."""
        settings = self.run.of(TrainSettings)
        return dataclasses.replace(settings, pretrained=False, weights=None)

    @cached_property
    def task(self) -> ClassifierTask:
        """Return that training; its classifier serves all stages."""
        # nothing is kept
        place = dataclasses.replace(self.run, out=self.run.out / ".probe", tokens_limit=0.0)
        task = ClassifierTask(self.catalog, self.catalog.subset([]), self.training, place)
        self.shared["classifier"] = share_weights(task.module)
        return task

    @cached_property
    def segmenter(self) -> DeepLabV2:
        """Return a DeepLabV2 with random weights."""
        settings = self.run.of(DeepLabSettings)
        model = build_segmenter(settings, self.catalog.classes, fresh=True)
        self.shared["segmenter"] = share_weights(model)
        return on_device(model)

    @cached_property
    def head(self) -> HeadSegmenter:
        """Return a head on that classifier."""
        segment = self.run.of(HeadSettings)
        classifier = copy.deepcopy(self.task.classifier)
        return on_device(HeadSegmenter(classifier, segment.head_blocks, segment.size))

    @cached_property
    def head_tokens(self) -> Tokens:
        """Return what the head reads of the image, computed once."""
        return self.see()

    def see(self) -> Tokens:
        """Compute what the head reads of the image."""
        head = self.head
        return photo_features(head.classifier, head.blocks, head.size, self.image)

    @property
    def keeps_features_before(self) -> bool:
        """Return True if the training stage already keeps what the head reads."""
        training = self.training
        segment = self.run.of(HeadSettings)
        is_same_view = (training.object_blocks, training.object_size) == (
            segment.head_blocks,
            segment.size,
        )
        return training.objects and is_same_view


def probe(run: RunSettings, catalog: Catalog) -> Probe | None:
    """Return a probe with the first readable, tagged image.

    Args:
        run: Settings of the run.
        catalog: Images and tags.

    Returns:
        The probe; None if there is no such image among the first twenty.
    """
    for i in range(min(20, len(catalog))):
        try:
            tags = catalog.tags(i)
            if tags:
                return Probe(run, catalog, catalog.load_image(i), list(tags))
        except ImageError:
            continue
    return None


def share_weights(module: nn.Module) -> float:
    """Let large weights of the same shape share their memory, to time a network in less of it.

    The blocks of a transformer then take the memory of one. What the network computes has no
    meaning any more, but takes as long.

    Args:
        module: A network with random weights, on a CPU.

    Returns:
        The bytes that are saved; they are given back to the system.
    """
    first: dict[torch.Size, Tensor] = {}
    saved = 0.0
    for parameter in module.parameters():
        if parameter.nbytes < _LARGE or parameter.dtype != torch.float32:
            continue
        if parameter.shape in first:
            saved += parameter.nbytes
            parameter.data = first[parameter.shape]
        else:
            first[parameter.shape] = parameter.data
    give_back()
    return saved


def time_step(module: nn.Module, batch: Mapping[str, Any], unseen: list[float]) -> float:
    """Return the seconds of one forward and backward pass.

    A slow one on a CPU is projected from a few images of the batch, a very slow one from the
    forward pass of one image, which takes little memory.

    Args:
        module: Returns a dictionary with the ``loss`` of a batch; it is moved to the device.
        batch: Arguments of the module by name, each with one entry per image.
        unseen: Bytes are added that a training takes in this process beyond what was measured.

    Returns:
        Seconds for the whole batch.
    """
    on_device(module).train()
    device = next(module.parameters()).device
    images = len(next(iter(batch.values())))

    def look(count: int) -> Tensor:
        part = {name: to_device(values[:count], device) for name, values in batch.items()}
        loss: Tensor = module(**part)["loss"]
        return loss

    def step(count: int) -> None:
        loss = look(count)
        loss.backward()
        # reading the number waits for the GPU
        float(loss.detach())
        module.zero_grad()

    few = min(_FEW, images)
    if device.type != "cpu":
        projected = timed(lambda: step(few)) * images / few
        return projected if _is_enough(projected) else timed(lambda: step(images))
    kept = Kept(module, [values for values in batch.values() if isinstance(values, Tensor)])
    began = time.perf_counter()
    with kept.counted():
        look(1)
    # a backward pass takes about twice as long as a forward pass
    seconds = 3 * (time.perf_counter() - began) * images
    # the optimiser keeps two numbers for each that is trained
    unseen.append(2.0 * kept.trained)
    if seconds > _LONG:
        unseen.append(float(kept.trained + kept.bytes * images))
        return seconds
    seconds = timed(lambda: step(few)) * images / few
    if _is_enough(seconds):
        unseen.append(float(kept.bytes * (images - few)))
        return seconds
    return timed(lambda: step(images))


class Kept:
    """Count the bytes that a forward pass on a CPU keeps for the backward pass.

    Args:
        module: Its own parameters do not count.
        batch: Its images, which do not count either.

    Attributes:
        trained: Bytes of its parameters that are trained.
        bytes: Those of the last pass.
    """

    def __init__(self, module: nn.Module, batch: Sequence[Tensor]) -> None:
        own = list(module.parameters())
        self.trained = sum(p.nbytes for p in own if p.requires_grad)
        self._own = {tensor.untyped_storage().data_ptr() for tensor in [*own, *batch]}
        self._held: dict[int, Tensor] = {}  # by address: views share theirs
        self.bytes = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count anew what a forward pass within keeps; it is let go, so that memory stays free."""
        self.bytes = 0
        forgotten = torch.empty(0)

        def pack(tensor: Tensor) -> Tensor:
            self._add(tensor)
            return forgotten

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield
        self._held.clear()

    def _add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address in self._own or address in self._held:
            return
        self.bytes += storage.nbytes()
        # as long as it is held, no other tensor has this address; who saves it again does so soon
        self._held[address] = tensor
        while sum(held.nbytes for held in self._held.values()) > _HELD:
            del self._held[next(iter(self._held))]


def timed(work: Callable[[], Any]) -> float:
    """Return the seconds of ``work`` once warm, or of the first time if that is slow already."""
    seconds = 0.0
    for _ in range(2):
        began = time.perf_counter()
        work()
        seconds = time.perf_counter() - began
        if _is_enough(seconds):
            break
    return seconds


def _is_enough(seconds: float) -> bool:
    """Return True if a measurement need not be repeated."""
    return seconds > _SLOW and not torch.accelerator.is_available()
