"""A sample of the images of shards as a folder of photos with a table of tags, to train on.

Which images are taken depends on the names in the shards and on the seed alone, and so does the
order in which a training sees them: the folder is an ordinary one, and ``training.stream`` draws
from it by step. So a training that was stopped resumes, also from a sample that was made again
elsewhere.
"""

import csv
import hashlib
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from tagmask.config import check
from tagmask.config.shards import SampleSettings
from tagmask.data.catalog import refuse_clashes
from tagmask.errors import TagmaskError, typed
from tagmask.files import is_regular, read_object, replacing, write_json, write_text
from tagmask.notes import differences, shorten
from tagmask.progress import track
from tagmask.runs.images import list_skipped
from tagmask.shards.samples import Failures, ShardError
from tagmask.shards.source import Shard, open_shards

IMAGES = "images"
TAGS = "tags.csv"
NOTE = "sample.json"


def draw_sample(settings: SampleSettings) -> str:
    """Write a sample of shards to a folder, and return a summary.

    Args:
        settings: those of the command.

    Raises:
        TagmaskError: there are no shards or no images with tags, or the folder holds another
            sample.
    """
    check(settings)
    shards = open_shards(settings.shards, settings)
    by_name = {shard.name: shard for shard in shards}
    names = ranked(by_name, settings.seed)[: settings.from_shards]
    _claim(settings, names)
    rows: list[tuple[str, tuple[str, ...]]] = []
    failed: dict[str, str] = {}
    missing = settings.count
    for place, name in enumerate(track(names, "sample", len(names), "shard")):
        # what one shard lacks, the others give
        share = -(-missing // (len(names) - place))
        taken = _take(by_name[name], share, settings, failed)
        rows += taken
        missing -= len(taken)
    if not rows:
        raise TagmaskError(
            f"{settings.shards} holds no images with tags (KEY.json, or a column tags); training "
            "needs some. Add --untagged for a folder of photos to tag."
        )
    rows.sort()
    refuse_clashes([name for name, _ in rows], settings.to)
    _write_table(settings.to / TAGS, rows)
    images = settings.to / IMAGES
    lines = [
        *list_skipped(failed),
        f"{len(rows):,} images of {len(names):,} shards in {images}",
    ]
    if missing > 0:
        lines.append(f"{missing:,} fewer than asked for: the shards drawn hold no more.")
    lines.append(f"train on them: {typed('tagmask', 'run', images, settings.to / TAGS)} --out run")
    return "\n".join(lines)


def _take(
    shard: Shard, count: int, settings: SampleSettings, failed: dict[str, str]
) -> list[tuple[str, tuple[str, ...]]]:
    """Write so many images of a shard, and return their files with their tags."""
    unusable = Failures()
    rows: list[tuple[str, tuple[str, ...]]] = []
    try:
        keys = [key for key, tags in shard.tagged_keys(unusable) if tags or settings.untagged]
        chosen = set(ranked(keys, settings.seed)[:count])
        for sample in shard.samples(Failures(), chosen):
            file = f"{shard.name}/{sample.key}{sample.suffix}"
            with replacing(settings.to / IMAGES / file) as partial:
                partial.write_bytes(sample.content)
            rows.append((file, sample.known_tags()))
    except ShardError as error:
        failed[shard.name] = str(error)
    for key, why in unusable.why.items():
        failed[f"{shard.name}/{key}"] = why
    return rows


def ranked(names: Iterable[str], seed: int) -> list[str]:
    """Return names in an order that depends on them and on the seed alone.

    Args:
        names: of shards or images.
        seed: another one gives another order.
    """
    salt = str(seed).encode()

    def rank(name: str) -> bytes:
        return hashlib.blake2b(name.encode("utf-8", "surrogateescape"), key=salt).digest()

    return sorted(names, key=rank)


def _claim(settings: SampleSettings, names: Sequence[str]) -> None:
    """Refuse a folder that holds anything but this sample; note the sample."""
    file = settings.to / NOTE
    value = {
        "count": settings.count,
        "from_shards": settings.from_shards,
        "seed": settings.seed,
        "untagged": settings.untagged,
        "shards": list(names),
    }
    if is_regular(file):
        changed = differences(read_object(file), value)
        if changed:
            raise TagmaskError(
                f"--to {settings.to} holds another sample ({shorten(changed)}); choose another "
                "folder."
            )
    elif settings.to.is_dir() and any(settings.to.iterdir()):
        raise TagmaskError(f"--to {settings.to} is not empty; name a new folder.")
    write_json(file, value)


def _write_table(path: Path, rows: Sequence[tuple[str, tuple[str, ...]]]) -> None:
    """Write the table of tags."""
    buffer = io.StringIO()
    table = csv.writer(buffer, lineterminator="\n")
    table.writerow(["file", "tags"])
    for file, tags in rows:
        table.writerow([file, ";".join(tags)])
    write_text(path, buffer.getvalue())
