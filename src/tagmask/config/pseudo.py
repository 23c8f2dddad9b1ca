"""Settings of the pseudo-label stage."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tagmask.config.affinity import AffinitySettings
from tagmask.config.base import DataSettings, check_blocks, check_shard
from tagmask.config.seeds import MapSettings


@dataclass(frozen=True, kw_only=True)
class PseudoSettings(DataSettings):
    """Turn seeds into pixel labels, ready to train a segmentation network on."""

    out: Path
    """Folder of the run; the labels go into its 4_pseudo."""
    method: Literal["walk", "crf", "attention"] = "walk"
    """walk: AffinityNet and random walk, as in the paper; crf: only the dense CRF; attention: walk on the ViT's own."""
    maps: Literal["refined", "plain"] | None = None
    """The seeds that are labelled: with affinity or without; default: without for attention, which adds its own."""
    background: float | None = None
    """Score of the background, 0 to 1; the paper's is 0.55; default: chosen by --rule, without masks."""
    rule: Literal["cross_entropy", "otsu"] = "cross_entropy"
    """How the background's score is chosen from the histogram of the maps."""
    crf: bool = True
    """Sharpen the labels by a dense CRF."""
    crf_preset: Literal["labels", "seeds", "segmentation", "fine"] = "labels"
    unsure: bool = False
    """Leave pixels open (255) where maps without affinity would be labelled otherwise."""
    alpha_low: float = 4.0
    """walk: the stronger background; what is a class against it is surely that class."""
    alpha_high: float = 32.0
    """walk: the weaker background; what is background against it surely is."""
    steps: int | None = None
    """Steps of the random walk; default: 64 for walk, 2 for attention."""
    beta: float | None = None
    """Power of the affinity; default: 36 for walk (PSA: 8), 1 for attention."""
    model: Path | None = None
    """attention: folder of the classifier; default: 1_classifier of the run."""
    affinity_blocks: tuple[int, int] | None = None
    """attention: first and last block whose affinity is walked on; default: all."""
    size: int | None = None
    """attention: long side of the image in pixels; default: as for seeds."""
    affinity: AffinitySettings = field(default_factory=AffinitySettings)
    """walk: how AffinityNet is trained."""
    processes: int = 1
    """Label with this many processes, one thread each."""
    shard: str | None = None
    """Only part i of n, written i/n with i from 0: run the parts on several machines."""
    restart: bool = False
    """Make all labels anew; walk: the regions and the network too."""

    def mistakes(self) -> list[str]:
        found = DataSettings.mistakes(self)
        if self.method == "walk":
            found += [f"affinity: {one}" for one in self.affinity.mistakes()]
        if self.background is not None and not 0 <= self.background <= 1:
            found.append(f"--background {self.background} must be between 0 and 1.")
        if not 0 < self.alpha_low < self.alpha_high:
            found.append(f"--alpha-low {self.alpha_low} must be above 0 and below --alpha-high {self.alpha_high}.")
        for name in ("steps", "beta", "size", "processes"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                found.append(f"--{name} {value} must be above 0.")
        found += check_blocks(self.affinity_blocks)
        if self.unsure and self.method == "crf" and self.source() == "plain":
            found.append(
                "--unsure compares with the labels of plain maps, which --method crf --maps plain are; leave it out."
            )
        return found + check_shard(self.shard)

    def source(self) -> str:
        """The kind of maps that are labelled."""
        return self.maps or ("plain" if self.method == "attention" else "refined")

    def map_settings(self) -> MapSettings:
        """How the classifier sees an image, for its own affinity."""
        return MapSettings(affinity_blocks=self.affinity_blocks, size=self.size, flip=False)
