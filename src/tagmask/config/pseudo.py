"""Settings of the pseudo-label stage."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tagmask.config.affinity import AffinitySettings
from tagmask.config.base import Blocks, Count, DataSettings, Limit, Positive, ShardSettings
from tagmask.config.seeds import MapSettings


@dataclass(frozen=True, kw_only=True)
class PseudoSettings(ShardSettings, DataSettings):
    """Turn seeds into pixel labels, ready to train a segmentation network on."""

    section = "pseudo"
    basic = "method maps background crf unsure processes shard restart"
    out: Path
    """Folder of the run; the labels go into its 4_pseudo."""
    method: Literal["walk", "crf", "attention"] = "walk"
    """walk: AffinityNet and random walk, as in the paper; crf: only the dense CRF; attention: walk on the ViT's own."""
    maps: Literal["refined", "plain"] | None = None
    """The seeds that are labelled: with affinity or without; default: without for attention, which adds its own."""
    background: Annotated[float, Limit(least=0, most=1)] | None = None
    """Score of the background, 0 to 1; the ACR authors' is 0.55; default: chosen by --rule, without masks."""
    background_power: Positive | None = None
    """Let a background of (1 − highest map)^POWER walk along with the maps instead of a constant; PSA's POWER is 16."""
    stretch: bool | None = None
    """walk, attention: stretch each map to 0 … 1 after the walk; default: yes, unless the background walks along."""
    rule: Literal["cross_entropy", "otsu"] = "cross_entropy"
    """How the background's score is chosen from the histogram of the maps."""
    crf: bool = True
    """Sharpen the labels by a dense CRF."""
    crf_preset: Literal["labels", "seeds", "segmentation", "fine"] = "labels"
    unsure: bool = False
    """Leave pixels open (255) where maps without affinity would be labelled otherwise."""
    alpha_low: Positive = 4.0
    """walk: the stronger background; what is a class against it is surely that class."""
    alpha_high: float = 32.0
    """walk: the weaker background; what is background against it surely is."""
    steps: Count | None = None
    """Steps of the random walk; default: 64 for walk, 2 for attention."""
    beta: Positive | None = None
    """Power of the affinity; default: 36 for walk (PSA: 8), 1 for attention."""
    model: Path | None = None
    """attention: folder of the classifier; default: 1_classifier of the run."""
    affinity_blocks: Blocks | None = None
    """attention: first and last block whose affinity is walked on; default: all."""
    size: Count | None = None
    """attention: long side of the image in pixels; default: as for seeds."""
    affinity: AffinitySettings = field(default_factory=AffinitySettings)
    """walk: how AffinityNet is trained."""
    processes: Count = 1
    """Label with this many processes, one thread each."""
    restart: bool = False
    """Discard earlier labels and make all of them; walk: the regions and the network too."""

    def mistakes(self) -> list[str]:
        mistakes = super().mistakes()
        if self.method == "walk":
            mistakes += [f"affinity: {mistake}" for mistake in self.affinity.mistakes()]
        if self.background is not None and self.background_power is not None:
            mistakes.append("--background and --background-power exclude each other; choose one.")
        if self.background_power is not None and self.stretch:
            mistakes.append("--stretch changes the maps but not a background that walks along; leave out one of them.")
        if not self.alpha_low < self.alpha_high:
            mistakes.append(f"--alpha-low {self.alpha_low} must be below --alpha-high {self.alpha_high}.")
        if self.unsure and self.method == "crf" and self.source() == "plain":
            mistakes.append(
                "--unsure compares with the labels of plain maps, which --method crf --maps plain makes; leave it out."
            )
        return mistakes

    def stretches(self) -> bool:
        """Whether maps are stretched after the walk."""
        return self.background_power is None if self.stretch is None else self.stretch

    def source(self) -> str:
        """The kind of maps that are labelled."""
        return self.maps or ("plain" if self.method == "attention" else "refined")

    def map_settings(self) -> MapSettings:
        """How the classifier sees an image, for its own affinity."""
        return MapSettings(affinity_blocks=self.affinity_blocks, size=self.size, flip=False)
