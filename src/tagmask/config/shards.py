"""Settings of commands on shards: photos by the million, on disks or in object storage."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tagmask.config.base import Settings, ShardSettings
from tagmask.config.limits import Limit, Positive, Processes, Seed
from tagmask.config.seeds import MapSettings
from tagmask.config.segment import MaskSettings

PerShard = Annotated[int, Limit(least=1, most=1_000_000)]
PER_SHARD = 10_000  # images; a shard is listed and resumed as a whole
SHARD_FORMATS = ("coco", "table", "index", "overlays")


@dataclass(frozen=True, kw_only=True)
class EngineSettings(ShardSettings):
    """Where shards are read and written, and who works on them."""

    basic = "shards to shard processes engine restart"
    shards: str
    """Address or folder of the shards (.tar), one of them, or a manifest (.csv or .parquet); it may
    come first."""
    to: str
    """Address or folder to write to, e.g. s3://bucket/masks; each shard gets a file and a note
    there."""
    shard: str | None = None
    """Only part i of n of the shards, written i/n with i from 0: run the parts on several
    machines."""
    processes: Processes | None = None
    """Work on so many shards at a time, one thread each; default: one for each core, or one on a
    GPU."""
    engine: Literal["none", "ray"] = "none"
    """none: processes of this machine; ray: actors of a Ray cluster (needs the extra `ray`)."""
    ray_address: str | None = None
    """ray: address of the cluster, e.g. auto; default: start Ray on this machine alone."""
    rows: PerShard = PER_SHARD
    """manifest: rows that make up a shard."""
    root: str | None = None
    """manifest: address or folder that its paths are relative to; default: that of the manifest."""
    restart: bool = False
    """Make all shards again."""

    def _mistakes(self) -> Iterator[str]:
        yield from super()._mistakes()
        if self.engine == "ray" and self.shard is not None:
            yield "--engine ray shares out the shards itself; leave out --shard."
        if self.engine == "none" and self.ray_address is not None:
            yield "--ray-address belongs to --engine ray; add it, or leave the address out."


@dataclass(frozen=True, kw_only=True)
class PredictShardsSettings(MaskSettings, EngineSettings):
    """Predict the mask of every image of shards."""

    basic = "model use_tags probabilities"
    model: Path
    """Folder of a trained segmenter."""
    use_tags: bool = False
    """Rule out the classes that an image is not tagged with (KEY.json, or the column tags)."""
    probabilities: bool = False
    """Also write the probabilities of every class (KEY.npz)."""


@dataclass(frozen=True, kw_only=True)
class SeedShardsSettings(MapSettings, EngineSettings):
    """Make localisation maps of every tagged image of shards."""

    basic = "model"
    model: Path
    """Folder of a trained classifier."""
    dtype: Literal["uint8", "float16"] = "uint8"
    """How the maps are stored: uint8 (0 to 255 for 0 to 1) or float16."""


@dataclass(frozen=True, kw_only=True)
class ExportShardsSettings(EngineSettings):
    """Write shards of masks as other tools read them, a file for each shard."""

    basic = "format photos polygons pieces mm_per_pixel"
    format: Literal["coco", "table", "index", "overlays"] = "coco"
    """coco: a .json for each shard; table: two .csv in a .tar; index, overlays: a .tar of
    pictures."""
    photos: str | None = None
    """overlays: address or folder of the shards of photos that the masks were made from."""
    polygons: bool = False
    """coco: outlines as polygons instead of run lengths; both cover the same pixels."""
    pieces: bool = False
    """coco: each connected piece is an object of its own, instead of each class of an image."""
    mm_per_pixel: Positive | None = None
    """table: the size of a pixel, for areas."""

    def _mistakes(self) -> Iterator[str]:
        yield from super()._mistakes()
        if self.format == "overlays" and self.photos is None:
            yield "--photos is missing; --format overlays draws masks over the shards of photos."
        if self.format != "overlays" and self.photos is not None:
            yield f"--photos belongs to --format overlays; leave it out with {self.format}."
        if self.format != "coco" and (self.polygons or self.pieces):
            yield f"--polygons and --pieces belong to --format coco, not to {self.format}."
        if self.format != "table" and self.mm_per_pixel is not None:
            yield "--mm-per-pixel belongs to --format table; leave it out."


@dataclass(frozen=True, kw_only=True)
class MakeShardsSettings(ShardSettings):
    """Put photos into shards: tar files of about 10,000 images, as WebDataset reads them."""

    basic = "source to tags root images shard restart"
    source: str
    """Folder of photos, or a manifest (.csv or .parquet) with a column of files; it may come
    first."""
    to: str
    """Address or folder of the shards, e.g. s3://bucket/shards."""
    tags: Path | None = None
    """folder: a table of files and tags; default: images without tags. A manifest has a column
    tags."""
    root: str | None = None
    """manifest: address or folder that its paths are relative to; default: that of the manifest."""
    images: PerShard = PER_SHARD
    """Images in each shard."""
    shard: str | None = None
    """Only part i of n of the shards, written i/n with i from 0: run the parts on several
    machines."""
    processes: Processes | None = None
    """Write so many shards at a time; default: one."""
    restart: bool = False
    """Make all shards again."""

    def _mistakes(self) -> Iterator[str]:
        yield from super()._mistakes()
        if self.tags is not None and not self.tags.exists():
            yield f"--tags {self.tags} does not exist; check the path."


@dataclass(frozen=True, kw_only=True)
class SampleSettings(Settings):
    """Copy a sample of the images of shards into a folder, to train on."""

    basic = "shards to count from_shards seed"
    written = ("to",)
    shards: str
    """Address or folder of the shards, or a manifest; it may come first."""
    to: Path
    """Folder to write: the photos in its folder images, and their tags in tags.csv."""
    count: Annotated[int, Limit(least=1, most=10_000_000)] = 5000
    """How many images."""
    from_shards: Annotated[int, Limit(least=1, most=1_000_000)] = 10
    """How many shards they come from, in equal parts; more shards are more varied and take longer
    to read."""
    seed: Seed = 0
    """Another seed draws other shards and images."""
    rows: PerShard = PER_SHARD
    """manifest: rows that make up a shard."""
    root: str | None = None
    """manifest: address or folder that its paths are relative to; default: that of the manifest."""
    untagged: bool = False
    """Take images without tags too; training needs tags, so they are left out."""
