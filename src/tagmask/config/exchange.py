"""Settings of the exchange with other tools: exports, Label Studio's backend, corrections."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from tagmask import layout
from tagmask.config.base import DataSettings
from tagmask.config.limits import Limit, Positive, Seed, Share
from tagmask.config.segment import MaskSettings, check_photos

File = Literal["coco", "voc-test", "label-studio", "cvat", "table"]
Folder = Literal[
    "voc",
    "overlays",
    "index",
    "ultralytics",
    "yolo-seg",
    "fiftyone",
    "huggingface",
    "xanylabeling",
    "labelme",
    "geotiff",
    "datumaro",
    "qupath",
    "napari",
]
FILES: tuple[str, ...] = get_args(File)
SPLIT = ("ultralytics", "yolo-seg", "huggingface")  # with images for validation


@dataclass(frozen=True, kw_only=True)
class ExportSettings(DataSettings):
    """Write masks as other tools read them, or the segmentation network as ONNX."""

    basic = "format to labels photos polygons pieces val_fraction mm_per_pixel about by onnx"
    written = ("to", "onnx")
    out: Path
    """Folder of the run."""
    format: Literal[File, Folder] = "coco"
    """coco, label-studio: a .json file; voc-test: a .tgz file; cvat: a .zip file; table: a .csv,
    .tsv or .parquet file; the others: a folder."""
    to: Path | None = None
    """The file or folder to write."""
    labels: Path | None = None
    """Folder of the masks, e.g. 4_pseudo of the run; default: its 6_predictions."""
    photos: Path | None = None
    """The masks are those of this folder of photos, instead of --data."""
    polygons: bool = False
    """coco: outlines as polygons instead of run lengths; both cover the same pixels."""
    pieces: bool = False
    """coco, label-studio, cvat: each connected piece is an object of its own,
    instead of each class of an image."""
    image_url: str = "/data/local-files/?d={folder}/{file}"
    """label-studio: where it finds an image; {folder} is the name of the photos' folder,
    {file} the path in it."""
    val_fraction: Share | None = None
    """ultralytics, yolo-seg, huggingface: share of each tag's images for validation;
    default: 0.2."""
    split_seed: Seed = 0
    """ultralytics, yolo-seg, huggingface: another seed divides the images otherwise."""
    mm_per_pixel: Positive | None = None
    """table: the size of a pixel, for areas; a column mm_per_pixel of --about comes first."""
    about: Path | None = None
    """table: a CSV file with further columns about each photo; the first column is the photo."""
    by: tuple[str, ...] = ()
    """table: columns of --about by which the summary is grouped."""
    decimal_comma: bool = False
    """table: numbers with a decimal comma, and semicolons between cells, for spreadsheets of
    countries that write numbers so; .csv and .tsv."""
    onnx: Path | None = None
    """Write the segmentation network to this .onnx file (needs the extra `onnx`)."""
    model: Path | None = None
    """onnx: folder of a trained segmenter; default: 5_segmenter of the run."""

    def inputs(self) -> dict[str, Path]:
        """Return what is read, with the files of the run."""
        made = (*layout.FOLDERS, layout.CONFIG, layout.SCORES, layout.CURVE, layout.REPORT)
        return super().inputs() | {f"{name} of the run": self.out / name for name in made}

    def data_mistakes(self) -> Iterator[str]:
        """Yield what is wrong with the data, unless only the network is exported."""
        if self.to is not None or self.onnx is None:  # not the network alone
            yield from super().data_mistakes() if self.photos is None else check_photos(self.photos)

    def _mistakes(self) -> Iterator[str]:
        yield from super()._mistakes()
        if self.to is None:
            if self.onnx is None:
                yield (
                    "--to is missing; name the file or folder to write, "
                    "or --onnx FILE for the network."
                )
            return
        if self.format in FILES and self.to.is_dir():
            yield (
                f"--to {self.to} is a folder; --format {self.format} writes a single file: name it."
            )
        elif self.format not in FILES and self.to.is_file():
            yield f"--to {self.to} is a file; --format {self.format} writes a folder: name another."
        if self.format == "label-studio" and self.to.suffix.lower() == ".xml":
            yield (
                f"--to {self.to}: the tasks are JSON, and their labelling interface is the .xml; "
                "name a .json."
            )
        if self.format == "table" and self.to.suffix.lower() not in (".csv", ".tsv", ".parquet"):
            yield f"--to {self.to}: a table is a .csv, .tsv or .parquet file; name one."
        of_table = self.mm_per_pixel is not None or self.about is not None or self.by
        if self.format != "table" and of_table:
            yield "--mm-per-pixel, --about and --by belong to --format table; leave them out."
        if self.decimal_comma and self.format != "table":
            yield "--decimal-comma belongs to --format table; leave it out."
        elif self.decimal_comma and self.to.suffix.lower() == ".parquet":
            yield "--decimal-comma: Parquet holds numbers, not their spelling; leave it out."
        if self.about is not None and not self.about.is_file():
            yield f"--about {self.about} does not exist; check the path."
        if self.by and self.about is None:
            yield "--by names columns of --about; give --about FILE."
        if self.polygons and self.format != "coco":
            yield f"--polygons belongs to --format coco; leave it out with {self.format}."
        if self.pieces and self.format not in ("coco", "label-studio", "cvat"):
            always = self.format in ("yolo-seg", "xanylabeling", "labelme", "qupath")
            why = "always writes pieces" if always else "knows classes only, no objects"
            yield f"--pieces: --format {self.format} {why}; leave it out."
        if self.format not in SPLIT and (self.val_fraction is not None or self.split_seed):
            yield (
                f"--val-fraction and --split-seed: --format {self.format} has no split; "
                "leave them out."
            )


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
        """Yield what is wrong with the photos, the address and the secret."""
        if not self.label_studio:
            yield "--label-studio is missing; it is the tool that can be served."
        if self.images is None or not self.images.is_dir():
            yield "--images is missing or is not a folder; check the path of the photos."
        if self.secret is None and self.host not in ("127.0.0.1", "localhost", "::1"):
            yield (
                f"--host {self.host} is open to other machines; "
                "give --secret FILE with user:password."
            )


@dataclass(frozen=True, kw_only=True)
class CorrectionSettings(DataSettings):
    """Take over masks that were corrected in another tool."""

    basic = "out source"
    out: Path
    """Folder of the run; the corrections go into its corrections folder."""
    source: Path
    """The export (--from): Label Studio's JSON, "CVAT for images 1.1" (.xml or .zip), COCO's
    instances (.json), LabelMe's file, or a folder of LabelMe's files or of masks (PNG, TIFF)."""


@dataclass(frozen=True, kw_only=True)
class PushSettings(DataSettings):
    """Send the masks of a run to a Label Studio project as predictions."""

    basic = "out label_studio token project labels pieces"
    out: Path
    """Folder of the run."""
    label_studio: str = ""
    """Address of Label Studio, such as http://localhost:8080."""
    token: Path = Path()
    """File with your access token, alone on one line."""
    project: Annotated[int, Limit(least=0)] = 0
    """Number of the project, as in its address."""
    labels: Path | None = None
    """Folder of the masks; default: 6_predictions of the run."""
    pieces: bool = False
    """Each connected piece is a region of its own, instead of each class of an image."""

    def _mistakes(self) -> Iterator[str]:
        yield from super()._mistakes()
        if not self.label_studio.startswith(("http://", "https://")):
            yield "--label-studio is missing or no address; give one such as http://localhost:8080."
        if self.token == Path():
            yield "--token is missing; name a file with your access token."
        elif not self.token.is_file():
            yield f"--token {self.token} does not exist; check the path."
        if not self.project:
            yield "--project is missing; give the number in the project's address."


@dataclass(frozen=True, kw_only=True)
class SubclassSettings(DataSettings):
    """Divide a tag: sort its regions into kinds, and write a table of tags with their names."""

    basic = "out tag into names to labels"
    written = ("to",)
    out: Path
    """Folder of the run."""
    tag: str | None = None
    """The tag to divide; its regions, and pictures of them, are written to the folder --to."""
    into: Annotated[int, Limit(least=2, most=100)] = 6
    """How many kinds: more than you expect, since two kinds may get the same name."""
    names: Path | None = None
    """That folder, once its tables have names; the new tags are written to --to."""
    to: Path | None = None
    """With --tag the folder to make; with --names the .csv file of the new tags."""
    labels: Path | None = None
    """Folder of the masks; default: 6_predictions of the run."""

    def _mistakes(self) -> Iterator[str]:
        yield from super()._mistakes()
        if (self.tag is None) == (self.names is None):
            yield "give --tag NAME to sort its regions, or --names FOLDER once they have names."
        if self.to is None:
            yield "--to is missing; name the folder, or with --names the .csv file, to write."
        elif self.names is not None and self.to.suffix.lower() != ".csv":
            yield f"--to {self.to}: the new tags are a .csv file; name one."
        elif self.to.is_file() or (self.to.is_dir() and any(self.to.iterdir())):
            yield f"--to {self.to} exists; name a new one, so that nothing of yours is replaced."
        if self.names is not None and not self.names.is_dir():
            yield f"--names {self.names} is not a folder; check the path: --tag has written it."
