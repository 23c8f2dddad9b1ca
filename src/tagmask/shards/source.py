"""From an address to shards: a folder of tar files, one of them, or a manifest."""

from collections.abc import Sequence
from typing import Protocol

from tagmask.errors import TagmaskError
from tagmask.shards.rows import MANIFESTS, Manifest, RowShard
from tagmask.shards.storage import Folder, split_address
from tagmask.shards.tars import TarShard, tar_shards

Shard = TarShard | RowShard
_PACKED = (".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")


class Photos(Protocol):
    """Settings that name shards of photos."""

    @property
    def rows(self) -> int:
        """Rows of a manifest that make up a shard."""

    @property
    def root(self) -> str | None:
        """Folder that the paths of a manifest are relative to."""


def open_shards(address: str, settings: Photos) -> Sequence[Shard]:
    """Return the shards at an address, in the order of their names.

    Args:
        address: a folder of tar files, one tar file, or a manifest.
        settings: how a manifest is read.

    Raises:
        TagmaskError: there are none, or the address cannot be read.
    """
    lower = address.lower()
    if lower.endswith(_PACKED):
        raise TagmaskError(
            f"{address} is a compressed tar; photos are compressed already: unpack it to a .tar."
        )
    if lower.endswith(MANIFESTS):
        return open_manifest(address, settings.root).shards(settings.rows)
    if settings.root is not None:
        raise TagmaskError("--root belongs to a manifest (.csv or .parquet); leave it out.")
    if lower.endswith(".tar"):
        folder, name = split_address(address)
        return tar_shards(Folder(folder), name)
    return tar_shards(Folder(address))


def open_manifest(address: str, root: str | None) -> Manifest:
    """Return a manifest.

    Args:
        address: that of the .csv or .parquet file.
        root: the folder of its images; default: its own.
    """
    folder, name = split_address(address)
    return Manifest(Folder(folder), name, Folder(root or folder))
