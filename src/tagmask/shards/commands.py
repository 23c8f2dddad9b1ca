"""The commands on shards, from settings to a summary for the terminal."""

from pathlib import Path

from tagmask.config import check
from tagmask.config.base import within
from tagmask.config.shards import (
    EngineSettings,
    ExportShardsSettings,
    MakeShardsSettings,
    PredictShardsSettings,
    SeedShardsSettings,
)
from tagmask.data.folder import read_folder
from tagmask.data.images import list_files, strip_suffix
from tagmask.errors import TagmaskError
from tagmask.notes import Parts
from tagmask.shards.engines import run_job
from tagmask.shards.export import export_task
from tagmask.shards.rows import MANIFESTS, Entry, Listing, RowShard
from tagmask.shards.source import open_manifest, open_shards
from tagmask.shards.storage import Folder, is_address, split_address
from tagmask.shards.tasks import ImageTask, MapTask, MaskTask
from tagmask.shards.work import Job


def make_shards(settings: MakeShardsSettings) -> str:
    """Put photos into shards, and return a summary.

    Args:
        settings: those of the command.
    """
    check(settings)
    to = _target(settings.to, settings.source)
    shards = _shards_of(settings)
    # the number of images says where one shard ends and the next begins
    parts: Parts = {"images": settings.images}
    job = Job(ImageTask(), shards, to, parts, settings.restart)
    # copying waits for disks, not for cores
    processes = settings.processes or 1
    return run_job(job, title="shard", shard=settings.shard, processes=processes)


def _shards_of(settings: MakeShardsSettings) -> list[RowShard]:
    """Return the rows that become shards: those of a manifest, or the photos of a folder."""
    if settings.source.lower().endswith(MANIFESTS):
        if settings.tags is not None:
            raise TagmaskError("--tags belongs to a folder; a manifest has a column tags.")
        return open_manifest(settings.source, settings.root).shards(settings.images)
    if settings.root is not None:
        raise TagmaskError("--root belongs to a manifest (.csv or .parquet); leave it out.")
    if is_address(settings.source):
        raise TagmaskError(
            f"{settings.source} is no manifest; photos in object storage are listed in one: a .csv "
            "with a column file, and --root for the address that it is relative to."
        )
    folder = Path(settings.source)
    files = list_files(folder, [])
    photos = [file for file in files if strip_suffix(file) != file]
    if not photos:
        raise TagmaskError(f"{folder} contains no pictures; give a folder of photos.")
    tags = _tags_of(folder, settings.tags)
    rows = [Entry(file, tags.get(strip_suffix(file), ())) for file in photos]
    listing = Listing(folder.absolute().name or "photos", rows)
    return listing.shards(Folder(str(folder)), settings.images)


def _tags_of(folder: Path, table: Path | None) -> dict[str, tuple[str, ...]]:
    """Return the tags of the photos of a folder, by name."""
    if table is None:
        return {}
    tags: dict[str, tuple[str, ...]] = {}
    catalog = read_folder(folder, table)
    for item in catalog:
        tags[item.name] = tuple(catalog.classes[number] for number in item.tags)
    return tags


def predict_shards(settings: PredictShardsSettings) -> str:
    """Predict masks of shards, and return a summary.

    Args:
        settings: those of the command.
    """
    return _by_network(settings, MaskTask(settings), "predict")


def seed_shards(settings: SeedShardsSettings) -> str:
    """Make localisation maps of shards, and return a summary.

    Args:
        settings: those of the command.
    """
    return _by_network(settings, MapTask(settings), "seeds")


def _by_network(settings: EngineSettings, task: MaskTask | MapTask, title: str) -> str:
    check(settings)
    to = _target(settings.to, settings.shards)
    shards = open_shards(settings.shards, settings)
    # a network that cannot be used is told before anything is written
    task.prepare()
    job = Job(task, shards, to, task.made_from(), settings.restart)
    return _run(job, settings, title)


def export_shards(settings: ExportShardsSettings) -> str:
    """Write shards of masks in a format of another tool, and return a summary.

    Args:
        settings: those of the command.
    """
    check(settings)
    to = _target(settings.to, settings.shards)
    shards = open_shards(settings.shards, settings)
    task = export_task(settings, shards)
    job = Job(task, shards, to, task.made_from(), settings.restart)
    return _run(job, settings, "export")


def _run(job: Job, settings: EngineSettings, title: str) -> str:
    return run_job(
        job,
        title=title,
        shard=settings.shard,
        processes=settings.processes,
        engine=settings.engine,
        ray_address=settings.ray_address,
    )


def _target(to: str, source: str) -> Folder:
    """Return where results go; refuse the place that is read."""
    target = Folder(to)
    read = source
    if source.lower().endswith((".tar", *MANIFESTS)):
        read = split_address(source)[0]
    origin = Folder(read)
    is_same = target.address.rstrip("/") == origin.address.rstrip("/")
    if target.is_local and origin.is_local:
        is_same = within(target.path, origin.path)
        if target.path.is_file():
            raise TagmaskError(f"--to {to} is a file; name a folder.")
    if is_same or (is_address(to) and f"{to.rstrip('/')}/".startswith(f"{read.rstrip('/')}/")):
        raise TagmaskError(f"--to {to} lies in what is read ({source}); choose another folder.")
    return target
