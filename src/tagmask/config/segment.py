"""Settings of the segmentation network and its predictions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tagmask import layout
from tagmask.config.base import (
    LoopSettings,
    Settings,
    ShardSettings,
    TokenSettings,
    within,
)
from tagmask.config.limits import (
    Count,
    Device,
    Images,
    Limit,
    NonNegative,
    Positive,
    Processes,
    Scales,
    Seed,
    Share,
    Side,
)

HALO = 256  # pixels seen around a tile
# pixels, the stride of most networks; networks with a larger stride need a multiple of theirs
TILE_STEP = 8


@dataclass(frozen=True, kw_only=True)
class SegmentSettings(Settings):
    """Train a segmentation network on pseudo labels: DeepLabV2, or a head on the classifier."""

    section = "segment"
    makes = (layout.CONFIG, layout.SEGMENTER)
    cache = TokenSettings
    basic = "net pseudo size lr steps"
    net: Literal["deeplab", "head"] = "deeplab"
    """deeplab: DeepLabV2, all of it trained; head: a linear layer on the tokens of the
    classifier, trained in seconds. Each has settings of its own: --net head --help shows those
    of a head."""
    pseudo: Path | None = None
    """Folder of pseudo labels (palette PNG, 255 = unsure); default: 4_pseudo of the run."""
    size: Annotated[int, Limit(least=9, most=16_384)] = 321
    """Side of the square training crops in pixels, best one more than a multiple of 8;
    head: long side."""
    steps: Count | None = 20_000
    """Number of steps."""
    lr: Positive = 2.5e-4
    """Learning rate."""
    weight_decay: NonNegative = 5e-4
    seed: Seed = 0
    log_every: Count = 20

    @classmethod
    def kinds(cls) -> Mapping[str, Mapping[str, type[Settings]]]:
        """Return the settings of each network, by the value of --net."""
        return {"net": NETS}

    @classmethod
    def kind_for(cls, values: Mapping[str, Any]) -> type[Settings]:
        """Return the settings of the network that the values name."""
        return NETS.get(values.get("net", "deeplab"), cls)


@dataclass(frozen=True, kw_only=True)
class HeadSettings(SegmentSettings):
    """Train a head on the tokens of the classifier."""

    basic = "model head_blocks rounds cells restart"
    net: Literal["deeplab", "head"] = "head"
    """deeplab: DeepLabV2, all of it trained; head: a linear layer on the tokens of the
    classifier, trained in seconds."""
    model: Path | None = None
    """Folder of the classifier; default: 1_classifier of the run."""
    head_blocks: Annotated[tuple[int, ...], Limit(least=0)] = (8, 11)
    """The blocks, counted from 0, whose tokens are read."""
    rounds: Annotated[int, Limit(least=0, most=100)] = 1
    """How often it learns again from its own answers, with the tags given."""
    cells: Annotated[int, Limit(least=1, most=10_000_000)] = 4096
    """Cells per step."""
    size: Annotated[int, Limit(least=9, most=16_384)] = 392
    """Long side in pixels at which photos are seen."""
    steps: Count | None = 600
    """Number of steps."""
    lr: Positive = 1e-3
    """Learning rate."""
    weight_decay: NonNegative = 0.01
    restart: bool = False
    """A head is trained in seconds, always from the beginning."""

    def _mistakes(self) -> Iterator[str]:
        yield from super()._mistakes()
        if self.steps is None:
            yield "--net head counts steps, not epochs; give --steps, e.g. 600."


@dataclass(frozen=True, kw_only=True)
class DeepLabSettings(LoopSettings, SegmentSettings):
    """Train DeepLabV2. The defaults are the community's recipe."""

    basic = "backbone freeze_norm"
    net: Literal["deeplab", "head"] = "deeplab"
    """deeplab: DeepLabV2, all of it trained; head: a linear layer on the tokens of the
    classifier, trained in seconds. Each has settings of its own: --net head --help shows those
    of a head."""
    backbone: str = "resnet101"
    """Any convolutional timm encoder."""
    caffe: bool = False
    """The weights have the stride of ResNet bottlenecks on the first 1×1 convolution,
    as Caffe's do."""
    multi_scale: bool = False
    """Also see each crop at ¾ and ½ of its size and take the largest logit."""
    freeze_norm: bool = False
    """Do not train the encoder's batch norms; advisable for batches below about 8 per device."""
    scales: Annotated[tuple[float, float], Limit(above=0, most=16, rising=True)] = (0.5, 1.5)
    """Smallest and largest random scale of an image before it is cropped."""
    val_fraction: Share = 0.05
    """Share of the pseudo labels kept aside to validate on."""
    batch: Images = 10
    lr: Positive = 2.5e-4
    head_lr: NonNegative = 10.0
    steps: Count | None = 20_000


NETS: dict[str, type[SegmentSettings]] = {"deeplab": DeepLabSettings, "head": HeadSettings}
"""Settings of each segmentation network, by the value of --net."""


@dataclass(frozen=True, kw_only=True)
class MaskSettings(Settings):
    """How masks are predicted; the defaults are the community's."""

    basic = "scales flip crf crf_size pamr tile"
    scales: Scales = (0.5, 0.75, 1.0, 1.25, 1.5)
    """The image is seen at each of these scales of its size, and the probabilities are averaged."""
    flip: bool = True
    """Also see the mirrored image."""
    crf: bool = True
    """Sharpen the probabilities along the edges of the image by a dense CRF."""
    crf_size: Side | None = None
    """Long side in pixels at which the CRF works; smaller is faster. Default: the image's own."""
    pamr: bool = False
    """Refine the probabilities by pixel-adaptive refinement,
    before the CRF or instead of it (--no-crf)."""
    device: Device | None = None
    """Do both by torch, on the CPU or a GPU; default: the CRF by scipy.
    The network uses a GPU in any case."""
    tile: Annotated[int, Limit(above=0, most=16_384, multiple=TILE_STEP, example="1024")] | None = (
        None
    )
    """Compute big images in squares of this many pixels, e.g. 1024, to save memory;
    default: at once."""
    halo: Annotated[int, Limit(above=0, most=16_384, multiple=TILE_STEP, example=str(HALO))] = HALO
    """Pixels seen around each tile."""


@dataclass(frozen=True, kw_only=True)
class PredictSettings(MaskSettings, ShardSettings):
    """Predict the mask of every image of a catalog, or of every photo of a folder."""

    section = "predict"
    makes = (layout.CONFIG, layout.PREDICTIONS)
    cache = TokenSettings
    basic = "model photos use_tags probabilities shard restart"
    model: Path | None = None
    """Folder of a trained segmenter; default: 5_segmenter of the run."""
    photos: Path | None = None
    """A folder of photos without tags, instead of --data; sub-folders are read too."""
    processes: Processes | None = None
    """Predict with this many processes, one thread each;
    default: one for each core, or one on a GPU."""
    use_tags: bool = False
    """Rule out the classes that an image is not tagged with."""
    probabilities: bool = False
    """Also write the probabilities of every class (.npz)."""
    restart: bool = False
    """Discard earlier masks and make all of them."""

    def needs_data(self) -> bool:
        """Return True if it is not other photos whose masks are predicted."""
        return self.photos is None

    def mistakes_in(self, place: Any) -> Iterator[str]:
        """Yield a sentence for everything that is wrong with --photos."""
        if self.photos is None:
            return
        yield from check_photos(self.photos)
        if self.photos.is_dir() and within(place.out, self.photos):
            yield (
                f"--out {place.out} is inside --photos {self.photos}, and would be read as "
                "photos; put it elsewhere."
            )
        if self.use_tags:
            yield "--photos have no tags; leave out --use-tags."


@dataclass(frozen=True, kw_only=True)
class PredictPhotoSettings(MaskSettings):
    """Predict the mask of one photo."""

    basic = "photo model tags show mask"
    written = ("show", "mask")
    photo: Path
    """The photo; `--photo` may be left out if it comes first."""
    model: Path
    """Folder of a trained segmenter."""
    tags: str | None = None
    """What is on the photo, e.g. dog,sofa; the other classes are ruled out.
    Default: all may occur."""
    show: Path | None = None
    """Write a picture of the photo and its mask here (PNG)."""
    mask: Path | None = None
    """Write the mask here (palette PNG)."""


def check_photos(photos: Path) -> Iterator[str]:
    """Yield a sentence if ``photos`` is not a folder."""
    if not photos.is_dir():
        yield f"--photos {photos} is not a folder; check the path."
