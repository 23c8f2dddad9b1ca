"""Settings of what other tools read and write: exports, the backend of Label Studio, corrections."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from tagmask import layout
from tagmask.config.base import DataSettings
from tagmask.config.limits import Limit, Seed, Share
from tagmask.config.segment import MaskSettings, check_photos

File = Literal["coco", "voc-test", "label-studio", "cvat"]
Folder = Literal[
    "voc", "overlays", "index", "ultralytics", "yolo-seg", "fiftyone", "huggingface", "xanylabeling"
]
FILES: tuple[str, ...] = get_args(File)
SPLIT = ("ultralytics", "yolo-seg", "huggingface")  # with images for validation


@dataclass(frozen=True, kw_only=True)
class ExportSettings(DataSettings):
    """Write masks as other tools read them, or the segmentation network as ONNX."""

    basic = "format to labels photos polygons pieces val_fraction onnx"
    written = ("to", "onnx")
    out: Path
    """Folder of the run."""
    format: Literal[File, Folder] = "coco"
    """coco, label-studio: a .json file; voc-test: a .tgz file; cvat: a .zip file; the others: a folder."""
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
    val_fraction: Share | None = None
    """ultralytics, yolo-seg, huggingface: share of each tag's images for validation; default: 0.2."""
    split_seed: Seed = 0
    """ultralytics, yolo-seg, huggingface: another seed divides the images otherwise."""
    onnx: Path | None = None
    """Write the segmentation network to this .onnx file (needs the extra `onnx`)."""
    model: Path | None = None
    """onnx: folder of a trained segmenter; default: 5_segmenter of the run."""

    def inputs(self) -> dict[str, Path]:
        """What is read, with the files of the run."""
        made = (*layout.FOLDERS, layout.CONFIG, layout.SCORES, layout.CURVE, layout.REPORT)
        return super().inputs() | {f"{name} of the run": self.out / name for name in made}

    def data_mistakes(self) -> Iterator[str]:
        if self.to is not None or self.onnx is None:  # not the network alone
            yield from super().data_mistakes() if self.photos is None else check_photos(self.photos)

    def _mistakes(self) -> Iterator[str]:
        yield from super()._mistakes()
        if self.to is None:
            if self.onnx is None:
                yield "--to is missing; name the file or folder to write, or --onnx FILE for the network."
            return
        if self.format in FILES and self.to.is_dir():
            yield f"--to {self.to} is a folder; --format {self.format} writes a single file: name it."
        elif self.format not in FILES and self.to.is_file():
            yield f"--to {self.to} is a file; --format {self.format} writes a folder: name another."
        if self.format == "label-studio" and self.to.suffix.lower() == ".xml":
            yield f"--to {self.to}: the tasks are JSON, and their labelling interface is the .xml; name a .json."
        if self.polygons and self.format != "coco":
            yield f"--polygons belongs to --format coco; leave it out with {self.format}."
        if self.pieces and self.format not in ("coco", "label-studio", "cvat"):
            always = self.format in ("yolo-seg", "xanylabeling")
            why = "always writes pieces" if always else "knows classes only, no objects"
            yield f"--pieces: --format {self.format} {why}; leave it out."
        if self.format not in SPLIT and (self.val_fraction is not None or self.split_seed):
            yield f"--val-fraction and --split-seed: --format {self.format} has no split; leave them out."


@dataclass(frozen=True, kw_only=True)
class ServeSettings(MaskSettings, DataSettings):
    """Answer Label Studio with the masks of a trained run."""

    basic = "out label_studio images model host port secret"
    out: Path
    """Folder of the run."""
    label_studio: bool = False
    """Be a machine-learning backend of Label Studio."""
    model: Path | None = None
    """Folder of a trained segmenter; default: 5_segmenter of the run."""
    host: str = "127.0.0.1"
    """Address to listen on; the default is reached from this machine only."""
    port: Annotated[int, Limit(least=0, most=65_535)] = 9090
    """Port to listen on; 0 takes a free one."""
    secret: Path | None = None
    """File with user:password, which Label Studio must then send."""

    def data_mistakes(self) -> Iterator[str]:
        if not self.label_studio:
            yield "--label-studio is missing; it is the tool that can be served."
        if self.images is None or not self.images.is_dir():
            yield "--images is missing or is not a folder; check the path of the photos."
        if self.secret is None and self.host not in ("127.0.0.1", "localhost", "::1"):
            yield f"--host {self.host} is open to other machines; give --secret FILE with user:password."


@dataclass(frozen=True, kw_only=True)
class CorrectionSettings(DataSettings):
    """Take over masks that were corrected in Label Studio, CVAT or another tool that writes COCO."""

    basic = "out source"
    out: Path
    """Folder of the run; the corrections go into its corrections folder."""
    source: Path
    """The export (--from): Label Studio's JSON, "CVAT for images 1.1" (.xml or .zip), or COCO's instances (.json)."""
