"""Settings of the pseudo-label stage, and of AffinityNet, which one of its routes trains."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tagmask import layout
from tagmask.config.base import LoopSettings, ShardSettings
from tagmask.config.limits import (
    Blocks,
    Device,
    Images,
    Limit,
    NonNegative,
    Positive,
    Processes,
    Side,
)
from tagmask.config.seeds import MapSettings

STRIDE = 8  # of AffinityNet, in pixels


@dataclass(frozen=True, kw_only=True)
class AffinitySettings(LoopSettings):
    """Train AffinityNet on confident regions."""

    epochs: Positive = 5
    batch: Images = 8
    head_lr: NonNegative = 10.0
    backbone: str = "resnet50"
    """Any timm CNN that can be dilated to stride 8."""
    caffe: bool = False
    """The weights have the stride of ResNet bottlenecks on the first 1×1 convolution,
    as Caffe's do."""
    freeze_norm: bool | None = None
    """Do not train batch norms; default: freeze them if the backbone starts from weights."""
    size: Annotated[int, Limit(above=0, most=16_384, multiple=STRIDE, example="448")] = 448
    """Side of the square training crops in pixels, a multiple of 8."""
    scales: Annotated[tuple[float, float], Limit(above=0, most=4, rising=True)] = (1.0, 1.0)
    """Images are resized by a random factor between these before cropping; PSA does not resize."""
    jitter: Annotated[float, Limit(least=0, most=1)] = 0.3
    """Largest change of brightness, contrast and saturation (of hue: a third); 0 = off."""
    radius: Annotated[float, Limit(above=1, most=50)] = 5.0
    """Pairs of positions nearer than this, in cells of 8 pixels."""


@dataclass(frozen=True, kw_only=True)
class PseudoSettings(ShardSettings):
    """Turn seeds into pixel labels, ready to train a segmentation network on."""

    section = "pseudo"
    makes = (layout.CONFIG, layout.AFFINITY, layout.PSEUDO)
    basic = "method maps background crf unsure processes shard restart"
    method: Literal["walk", "crf", "attention"] = "walk"
    """walk: AffinityNet and random walk, as in the paper; crf: only the dense CRF;
    attention: walk on the attention."""
    maps: Literal["refined", "plain"] | None = None
    """The seeds that are labelled: with affinity or without;
    default: without for attention, which adds its own."""
    regions: Literal["refined"] | None = None
    """walk: refined: train AffinityNet on confident regions of the maps with affinity; default:
    without affinity, as the paper advises, because PSA is easily misled by over-activation."""
    background: Annotated[float, Limit(least=0, most=1)] | None = None
    """Score of the background, 0 to 1; the ACR authors' is 0.55;
    default: chosen by --rule, without masks."""
    background_power: Positive | None = None
    """Let a background of (1 − highest map)^POWER walk along with the maps instead of a constant;
    PSA's POWER is 16."""
    stretch: bool | None = None
    """walk, attention: stretch each map to 0 … 1 after the walk;
    default: yes, unless the background walks along."""
    rule: Literal["cross_entropy", "otsu"] = "cross_entropy"
    """How the background's score is chosen from the histogram of the maps."""
    crf: bool = True
    """Sharpen the labels by a dense CRF."""
    crf_preset: Literal["labels", "seeds", "segmentation", "fine"] = "labels"
    crf_size: Side | None = None
    """Long side in pixels at which the CRF works; smaller is faster. Default: the image's own."""
    unsure: bool = False
    """Leave pixels open (255) where maps without affinity (of objects: the evidence of the tags
    alone) would give another label; background that no map claims stays."""
    alpha_low: Positive = 4.0
    """walk: the stronger background; pixels where a class still wins surely belong to it."""
    alpha_high: Positive = 32.0
    """walk: the weaker background; pixels where it still wins are surely background."""
    steps: Annotated[int, Limit(least=1, most=100_000)] | None = None
    """Steps of the random walk; default: 64 for walk, 2 for attention."""
    beta: Positive | None = None
    """Power of the affinity; default: 36 for walk (PSA: 8), 1 for attention."""
    model: Path | None = None
    """attention: folder of the classifier; default: 1_classifier of the run."""
    affinity_blocks: Blocks | None = None
    """attention: first and last block whose affinity is walked on; default: all."""
    size: Side | None = None
    """attention: long side of the image in pixels; default: as for seeds."""
    affinity: AffinitySettings = field(default_factory=AffinitySettings)
    """walk: how AffinityNet is trained."""
    device: Device | None = None
    """Do the network, the walk and the CRF by torch, on the CPU or a GPU;
    default: walk and CRF by scipy on the CPU."""
    processes: Processes | None = None
    """Label with this many processes, one thread each;
    default: one for each core, with --device gpu one."""
    restart: bool = False
    """Discard earlier labels and make all of them; walk: the regions and the network too."""

    def _mistakes(self) -> Iterator[str]:
        yield from super()._mistakes()
        if self.regions is not None and self.method != "walk":
            yield f"--regions is about AffinityNet; leave it out with --method {self.method}."
        if self.method == "walk":
            yield from (f"affinity: {mistake}" for mistake in self.affinity.mistakes())
        if self.background is not None and self.background_power is not None:
            yield "--background and --background-power exclude each other; choose one."
        if self.background_power is not None and self.stretch:
            yield (
                "--stretch changes the maps but not a background that walks along; "
                "leave out one of them."
            )
        if not self.alpha_low < self.alpha_high:
            yield f"--alpha-low {self.alpha_low} must be below --alpha-high {self.alpha_high}."
        if self.unsure and self.method == "crf" and self.source() == "plain":
            yield (
                "--unsure compares with labels of plain maps, as --method crf --maps plain makes; "
                "leave it out."
            )

    def stretches(self) -> bool:
        """Return True if maps are stretched after the walk."""
        return self.background_power is None if self.stretch is None else self.stretch

    def source(self) -> str:
        """Return the kind of maps that are labelled."""
        return self.maps or ("plain" if self.method == "attention" else "refined")

    def map_settings(self) -> MapSettings:
        """Return how the classifier sees an image, for its own affinity."""
        return MapSettings(affinity_blocks=self.affinity_blocks, size=self.size, flip=False)
