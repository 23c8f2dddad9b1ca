"""Several processes for work on images: those of a pool, and those of a launch."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process, resource_tracker
from typing import Any

import torch

from tagmask.config.launch import launch_number, launched_part
from tagmask.errors import TagmaskError
from tagmask.training.loading import can_share

Each = Callable[..., Iterator[Any]]  # (items, chunksize=1) -> the results in order
_LAUNCH = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_WORTH = 200  # images from which on it is worth starting processes, which takes some seconds
_stopped: Any = None  # in the processes of the pool an event: no further item
_work: Any = None  # and what they do


def count_processes(asked: int | None, images: int) -> int:
    """Return how many processes work.

    Args:
        asked: As many as the user wants; None: one for each core, or one for few images.
        images: How many images there are.
    """
    if asked:
        return asked
    if images < _WORTH:
        return 1
    # the processes of a launch on this machine share its cores
    beside = max(1, launch_number("LOCAL_WORLD_SIZE"))
    return max(1, (os.cpu_count() or 1) // beside)


@contextmanager
def few_threads(images: int) -> Iterator[None]:
    """Compute with one thread, as the processes of a pool do, where there is work for a pool.

    The last digits of some sums depend on the number of threads, so that processes of a launch
    make the same files as a pool.

    Args:
        images: How many images there are, in all parts together.
    """
    before = torch.get_num_threads()
    if images >= _WORTH and launched_shard()[1] > 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def each(
    work: Callable[[Any], Any], items: Iterable[Any], processes: int, chunksize: int = 1
) -> Iterator[Any]:
    """Yield the results of some work in order.

    Args:
        work: Does it for one item; processes are sent it.
        items: What is worked on.
        processes: How many processes of one thread each; 1: this one.
        chunksize: Items that a process is given at a time.
    """
    if processes == 1 or not can_share():
        yield from map(work, items)
        return
    with pool(processes, work) as spread:
        yield from spread(items, chunksize)


@contextmanager
def pool(processes: int, work: Callable[[Any], Any]) -> Iterator[Each]:
    """Yield a ``map`` of ``work`` over processes.

    Only the main process receives Ctrl-C; the others finish their current item and stop. They all
    end with the process that started them, however it ends.

    Args:
        processes: How many to start.
        work: Done with each item; it is sent to each process once, with all that it holds.

    Raises:
        TagmaskError: A process was killed.
    """
    context = get_context("spawn")
    stopped = context.Event()
    with ProcessPoolExecutor(processes, context, _begin, (stopped, work)) as executor:

        def spread(items: Iterable[Any], chunksize: int = 1) -> Iterator[Any]:
            """Yield the results of the items, in their order.

            Args:
                items: What to work on.
                chunksize: How many items a process takes at once.
            """
            with block_sigint():  # it is here that processes start
                return executor.map(_do, items, chunksize=chunksize)

        try:
            yield spread
        except BaseException as error:
            stopped.set()
            executor.shutdown(cancel_futures=True)
            if isinstance(error, BrokenProcessPool):
                raise TagmaskError(
                    "a process was killed, perhaps because memory ran out; use fewer --processes."
                ) from None
            raise


@contextmanager
def block_sigint() -> Iterator[None]:
    """Keep Ctrl-C from processes that are started inside; this one receives it afterwards."""
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
    """Return part i of n of this process under `accelerate launch` or torchrun, or 0 of 1."""
    return launched_part()


@contextmanager
def single_process() -> Iterator[None]:
    """Let one of several launched processes work alone, without waiting for the others."""
    hidden = {name: os.environ.pop(name) for name in _LAUNCH if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _begin(stopped: Any, work: Callable[[Any], Any]) -> None:
    """Prepare a new process of the pool."""
    global _stopped, _work
    _stopped, _work = stopped, work
    torch.set_num_threads(1)
    end_with_parent()


def _do(item: Any) -> Any:
    return None if _stopped.is_set() else _work(item)


def end_with_parent() -> None:
    """End this process when its parent has been killed: by itself it would not notice."""
    parent = parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
