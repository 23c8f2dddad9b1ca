"""Several processes for work on images: they end with the process that started them, whatever ends it."""

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
_stopped: Any = None  # an event, in the processes of the pool: no further item


@contextmanager
def pool(processes: int, prepare: Callable[[], None] | None = None) -> Iterator[Each]:
    """Yield a ``map`` over processes, each of which calls ``prepare`` first.

    Ctrl-C is told to the main process alone; the others finish the item that they are at, and no further one.
    """
    context = get_context("spawn")
    stopped = context.Event()
    with ProcessPoolExecutor(processes, context, _begin, (stopped, prepare)) as executor:

        def each(work: Callable[[Any], Any], items: Iterable[Any], chunksize: int = 1) -> Iterator[Any]:
            with deaf_to_ctrl_c():  # it is here that processes start
                return executor.map(partial(_unless_stopped, work), items, chunksize=chunksize)

        try:
            yield each
        except BaseException as error:
            stopped.set()
            executor.shutdown(wait=False, cancel_futures=True)
            if isinstance(error, BrokenProcessPool):
                raise TagmaskError(
                    "a process was ended from outside, perhaps for lack of memory; use fewer --processes."
                ) from None
            raise


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """Processes that start meanwhile never hear Ctrl-C; this one hears it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # started later, it would end the silence
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(stopped: Any, prepare: Callable[[], None] | None) -> None:
    global _stopped
    _stopped = stopped
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if prepare is not None:
        prepare()


def _end_with_parent() -> None:
    """A pool's process does not notice by itself that its parent was killed, and would wait for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _unless_stopped(work: Callable[[Any], Any], item: Any) -> Any:
    return None if _stopped is not None and _stopped.is_set() else work(item)
