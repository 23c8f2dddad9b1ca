"""Settings of the segmentation network, its predictions, and what they are exported to."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tagmask.config.base import (
    DataSettings,
    LoopSettings,
    below,
    check_scales,
    check_shard,
    check_weights,
    same_file,
    within,
)

HALO = 256  # pixels seen around a tile
TILE_STEP = 8  # pixels, the stride of most networks; those with a larger one ask for more


@dataclass(frozen=True, kw_only=True)
class SegmentSettings(LoopSettings, DataSettings):
    """Train a segmentation network on pseudo labels. The defaults are the community's DeepLabV2 recipe."""

    out: Path
    """Folder of the run; the segmenter goes into its 5_segmenter."""
    pseudo: Path | None = None
    """Folder of pseudo labels (palette PNG, 255 = unsure); default: 4_pseudo of the run."""
    backbone: str = "resnet101"
    """Any convolutional timm encoder."""
    pretrained: bool = False
    """Start from timm's published weights (downloaded by timm once)."""
    weights: Path | None = None
    """Start from a local .safetensors or .pth file of an image classifier."""
    caffe: bool = False
    """The weights file strides in the first convolution of each bottleneck block, as Caffe's models do."""
    multi_scale: bool = False
    """Also see each crop at ¾ and ½ of its size and take the largest logit."""
    frozen_norm: bool = False
    """Keep the encoder's BatchNorm as it is; advisable for batches below about 8 per device."""
    crop: int = 321
    """Side of the square training crops in pixels; best one more than a multiple of 8."""
    scales: tuple[float, float] = (0.5, 1.5)
    """Smallest and largest random scale of an image before it is cropped."""
    val_fraction: float = 0.05
    """Share of the pseudo labels kept aside to validate on."""
    batch: int = 10
    lr: float = 2.5e-4
    head_lr: float = 10.0
    steps: int | None = 20_000

    def mistakes(self) -> list[str]:
        found = DataSettings.mistakes(self) + LoopSettings.mistakes(self) + below(self, crop=9)
        if not 0 < self.scales[0] <= self.scales[1]:
            found.append(f"--scales {self.scales[0]} {self.scales[1]} must be above 0, the smaller one first.")
        if not 0 <= self.val_fraction < 1:
            found.append(f"--val-fraction {self.val_fraction} must be at least 0 and below 1.")
        return found + check_weights(self.weights, self.pretrained)


@dataclass(frozen=True, kw_only=True)
class MaskSettings:
    """How masks are predicted; the defaults are the community's."""

    scales: tuple[float, ...] = (0.5, 0.75, 1.0, 1.25, 1.5)
    """The image is seen at each of these scales of its size, and the probabilities are averaged."""
    flip: bool = True
    """Also see the mirrored image."""
    crf: bool = True
    """Sharpen the probabilities along the edges of the image by a dense CRF."""
    tile: int | None = None
    """Compute big images in squares of this many pixels, e.g. 1024, to save memory; default: at once."""
    halo: int = HALO
    """Pixels seen around each tile."""

    def mistakes(self) -> list[str]:
        found = check_scales(self.scales)
        if self.tile is not None and (self.tile < TILE_STEP or self.tile % TILE_STEP):
            found.append(f"--tile {self.tile} must be a multiple of {TILE_STEP}, e.g. 1024.")
        if self.halo < TILE_STEP or self.halo % TILE_STEP:
            found.append(f"--halo {self.halo} must be a multiple of {TILE_STEP}, e.g. {HALO}.")
        return found


@dataclass(frozen=True, kw_only=True)
class PredictSettings(MaskSettings, DataSettings):
    """Predict the mask of every image of a catalog, or of every photo of a folder."""

    out: Path
    """Folder of the run; the masks go into its 6_predictions."""
    model: Path | None = None
    """Folder of a trained segmenter; default: 5_segmenter of the run."""
    photos: Path | None = None
    """A folder of photos without tags, instead of --data; sub-folders are read too."""
    use_tags: bool = False
    """Rule out the classes that an image is not tagged with."""
    probabilities: bool = False
    """Also write the probabilities of every class (.npz)."""
    shard: str | None = None
    """Only part i of n, written i/n with i from 0: run the parts on several machines."""
    restart: bool = False
    """Make all masks anew."""

    def mistakes(self) -> list[str]:
        found = [] if self.photos is not None else DataSettings.mistakes(self)
        if self.photos is not None and not self.photos.is_dir():
            found.append(f"--photos {self.photos} is not a folder; check the path.")
        elif self.photos is not None and within(self.out, self.photos):
            found.append(
                f"--out {self.out} lies in --photos {self.photos}, and would be read as photos; choose another."
            )
        if self.photos is not None and self.use_tags:
            found.append("--photos have no tags; leave out --use-tags.")
        return found + MaskSettings.mistakes(self) + check_shard(self.shard)


@dataclass(frozen=True, kw_only=True)
class PredictPhotoSettings(MaskSettings):
    """Predict the mask of one photo."""

    photo: Path
    """The photo; may also stand first, without --photo."""
    model: Path
    """Folder of a trained segmenter."""
    tags: str | None = None
    """What is on the photo, e.g. dog,sofa; the other classes are ruled out. Default: all may occur."""
    show: Path | None = None
    """Write a picture of the photo and its mask here (PNG)."""
    mask: Path | None = None
    """Write the mask here (palette PNG)."""

    def mistakes(self) -> list[str]:
        return MaskSettings.mistakes(self) + same_file(self.photo, show=self.show, mask=self.mask)


Format = Literal["coco", "voc", "voc-test", "label-studio", "cvat", "overlays"]
FOLDERS = ("voc", "overlays")  # the other formats are single files


@dataclass(frozen=True, kw_only=True)
class ExportSettings(DataSettings):
    """Write masks as other tools read them, or the segmentation network as ONNX."""

    out: Path
    """Folder of the run."""
    format: Format = "coco"
    """coco, label-studio: a .json file; voc, overlays: a folder; voc-test: a .tgz file; cvat: a .zip file."""
    to: Path | None = None
    """The file or folder to write."""
    labels: Path | None = None
    """Folder of the masks, e.g. 4_pseudo of the run; default: its 6_predictions."""
    photos: Path | None = None
    """The masks are those of this folder of photos, instead of --data."""
    polygons: bool = False
    """coco: outlines as polygons instead of run lengths; both cover the same pixels."""
    pieces: bool = False
    """coco, label-studio, cvat: each connected piece is an object of its own, instead of each class of an image."""
    image_url: str = "/data/local-files/?d={file}"
    """label-studio: where it finds an image; {file} stands for the path with folders."""
    onnx: Path | None = None
    """Write the segmentation network to this .onnx file (needs the extra `onnx`)."""
    model: Path | None = None
    """onnx: folder of a trained segmenter; default: 5_segmenter of the run."""

    def mistakes(self) -> list[str]:
        if self.onnx is not None and self.to is None:
            return []
        found = [] if self.photos is not None else DataSettings.mistakes(self)
        if self.photos is not None and not self.photos.is_dir():
            found.append(f"--photos {self.photos} is not a folder; check the path.")
        if self.to is None:
            found.append("--to is missing; name the file or folder to write, or --onnx FILE for the network.")
        elif self.format not in FOLDERS and self.to.is_dir():
            found.append(f"--to {self.to} is a folder; --format {self.format} writes a single file: name it.")
        elif self.format in FOLDERS and self.to.is_file():
            found.append(f"--to {self.to} is a file; --format {self.format} writes a folder: name another.")
        if self.format == "label-studio" and self.to is not None and self.to.suffix.lower() == ".xml":
            found.append(
                f"--to {self.to}: the tasks are JSON, and their labelling interface is the .xml; name a .json."
            )
        if self.polygons and self.format != "coco":
            found.append(f"--polygons belongs to --format coco; leave it out with {self.format}.")
        if self.pieces and self.format in ("voc", "voc-test", "overlays"):
            found.append(f"--pieces: --format {self.format} knows classes only, no objects; leave it out.")
        return found
