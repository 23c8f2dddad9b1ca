"""Several processes for work on images: those of a pool, and those of a launch over many devices."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context, parent_process, resource_tracker
from typing import Any

from tagmask.errors import TagmaskError

Each = Callable[..., Iterator[Any]]  # (work, items, chunksize=1) -> the results in order
_LAUNCH = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_stopped: Any = None  # an event, in the processes of the pool: no further item


def each(work: Callable[[Any], Any], items: Iterable[Any], processes: int, chunksize: int = 1) -> Iterator[Any]:
    """The results of ``work`` in order, from this process or from several with one thread each."""
    if processes == 1:
        yield from map(work, items)
        return
    import torch

    with pool(processes, partial(torch.set_num_threads, 1)) as spread:
        yield from spread(work, items, chunksize=chunksize)


@contextmanager
def pool(processes: int, prepare: Callable[[], None] | None = None) -> Iterator[Each]:
    """Yield a ``map`` over processes, each of which calls ``prepare`` first.

    Only the main process receives Ctrl-C; the others finish their current item and stop. They all end with the process
    that started them, however it ends.
    """
    context = get_context("spawn")
    stopped = context.Event()
    with ProcessPoolExecutor(processes, context, _begin, (stopped, prepare)) as executor:

        def spread(work: Callable[[Any], Any], items: Iterable[Any], chunksize: int = 1) -> Iterator[Any]:
            with deaf_to_ctrl_c():  # it is here that processes start
                return executor.map(partial(_unless_stopped, work), items, chunksize=chunksize)

        try:
            yield spread
        except BaseException as error:
            stopped.set()
            executor.shutdown(wait=False, cancel_futures=True)
            if isinstance(error, BrokenProcessPool):
                raise TagmaskError(
                    "a process was killed, perhaps because memory ran out; use fewer --processes."
                ) from None
            raise


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """Processes started inside never receive Ctrl-C; this process receives it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # started later, it would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def launched_shard() -> tuple[int, int]:
    """Part i of n of this process under `accelerate launch` or torchrun; otherwise 0 of 1."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def single_process() -> Iterator[None]:
    """For work that one of several launched processes does alone, without waiting for the others."""
    hidden = {name: os.environ.pop(name) for name in _LAUNCH if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _begin(stopped: Any, prepare: Callable[[], None] | None) -> None:
    global _stopped
    _stopped = stopped
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if prepare is not None:
        prepare()


def _end_with_parent() -> None:
    """A process of a pool does not notice that its parent was killed, and would wait forever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _unless_stopped(work: Callable[[Any], Any], item: Any) -> Any:
    return None if _stopped is not None and _stopped.is_set() else work(item)
