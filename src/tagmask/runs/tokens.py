"""The feature cache of a run, filled by several processes of a launch at once."""

from tagmask.data.catalog import Catalog
from tagmask.errors import ImageError
from tagmask.features.cache import TokenStore
from tagmask.progress import track
from tagmask.runs.team import Team


def open_together(team: Team, store: TokenStore | None) -> None:
    """Make the cache ready for processes that keep tokens at the same time.

    Args:
        team: The processes of the run.
        store: The cache; None does nothing.
    """
    if team.count == 1 or store is None:
        return
    with team.first_goes_first():
        store.begin()
    # each counts only what it keeps itself
    left = max(0.0, store.limit - store.used)
    store.limit = store.used + left / team.count


def keep_together(team: Team, store: TokenStore, catalog: Catalog, title: str = "tokens") -> None:
    """Let each process compute and keep its part of the tokens, for one that reads all of them.

    Args:
        team: The processes of the run; a single one computes tokens when it reads them.
        store: The cache.
        catalog: The photos.
        title: Title of the progress bar.
    """
    if team.count == 1 or store.limit <= 0:
        return
    open_together(team, store)
    share = team.share(len(catalog))
    for i in track(share, title, len(share), quiet=not team.is_first):
        try:
            store.get(catalog, i)
        except ImageError:
            continue  # named when all photos are read
    team.wait()
    store.limit = store.used + (store.limit - store.used) * team.count
