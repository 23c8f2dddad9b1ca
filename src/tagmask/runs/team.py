"""The processes of a launch that do one run together: who is first, when all wait, how all end.

`accelerate launch` and torchrun start the same command several times. The first process plans,
notes and reports, and holds the lock of the run; all of them train and share out the images. They
wait for each other over gloo, which costs nothing, however long one of them works alone.

An error in one process ends all of them, and the first one says it. A thread in each process looks
for errors of the others: work on images is interrupted as by Ctrl-C, and a process that hangs in a
step of a training, because another one has left it, is ended after a while. A process that was
killed says nothing; the others notice that its connection is closed.
"""

import _thread
import errno
import json
import logging
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined, unused-ignore]

from tagmask.errors import TagmaskError, Told, message_of
from tagmask.progress import logger, show_bars
from tagmask.runs.processes import launched_shard

Value = TypeVar("Value")  # anything that JSON can hold
_LONG = timedelta(days=365)  # one process may work alone for as long as it takes
_FAILED = "failed"  # the entry of the common store that an error is written to
_HEARD = "heard"  # and the one that says that the first process knows of it
_EVERY = 0.5  # seconds between two looks at the store
_GRACE = 10.0  # seconds in which a process that was interrupted should have ended
_TO_BE_HEARD = 5.0  # seconds that a process with an error waits for the first one


class Team:
    """The processes of a run; this one alone, unless ``joined`` says otherwise."""

    rank = 0
    count = 1

    @property
    def is_first(self) -> bool:
        """Return True in the process that plans, notes and reports."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait until all processes are here."""

    def gather(self, value: Value) -> list[Value]:
        """Return the values of all processes, in their order.

        Args:
            value: That of this process; JSON must be able to hold it.
        """
        return [value]

    def from_first(self, work: Callable[[], Value]) -> Value:
        """Let the first process do some work, and return its result in all of them.

        Args:
            work: Returns something that JSON can hold.
        """
        own: Any = work() if self.is_first else None
        result: Value = self.gather(own)[0]
        return result

    @contextmanager
    def first_goes_first(self) -> Iterator[None]:
        """Let the others do what is inside when the first process has done it."""
        if not self.is_first:
            self.wait()
        yield
        if self.is_first:
            self.wait()

    def share(self, items: int) -> range:
        """Return the numbers below ``items`` that are this process's part of some work."""
        return range(self.rank, items, self.count)

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """Turn what the error of another process causes in this one into that error."""
        yield


ALONE = Team()


class Launched(Team):
    """Several processes that a launcher has started."""

    def __init__(self) -> None:
        from accelerate import PartialState

        with warnings.catch_warnings():
            # that OMP_NUM_THREADS is unset, for which accelerate chooses a value
            warnings.simplefilter("ignore")
            state = PartialState(cpu=not torch.accelerator.is_available())
        self.rank = int(state.process_index)
        self.count = int(state.num_processes)
        self._group = dist.new_group(backend="gloo", timeout=_LONG)
        self._failure: dict[str, Any] | None = None
        self._is_ending = False
        self._left = threading.Event()
        self._store = self._meet()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def _meet(self) -> TCPStore:
        """Return the store of errors, which the first process keeps."""
        address = os.environ.get("MASTER_ADDR", "127.0.0.1")
        port = 0
        if self.is_first:
            # the system chooses the port
            with socket.socket() as free:
                free.bind(("", 0))
                port = free.getsockname()[1]
            store = TCPStore(address, port, is_master=True, wait_for_workers=False)
        port = self.gather(port)[0]
        if not self.is_first:
            store = TCPStore(address, port, is_master=False, wait_for_workers=False)
        self.wait()
        return store

    def wait(self) -> None:
        """Wait until all processes are here."""
        self.gather(None)

    def gather(self, value: Value) -> list[Value]:
        """Return the values of all processes, in their order."""
        text = json.dumps(value).encode()
        own = torch.tensor([len(text)])
        lengths = [torch.zeros_like(own) for _ in range(self.count)]
        dist.all_gather(lengths, own, group=self._group)
        longest = int(max(lengths))
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        texts = [torch.zeros_like(padded) for _ in range(self.count)]
        dist.all_gather(texts, padded, group=self._group)
        values = []
        for length, content in zip(lengths, texts, strict=True):
            values.append(json.loads(content[: int(length)].numpy().tobytes()))
        return values

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """Turn what the error of another process causes in this one into that error."""
        try:
            yield
        except (KeyboardInterrupt, RuntimeError) as error:
            raise self.meaning_of(error) from None

    def meaning_of(self, error: BaseException) -> BaseException:
        """Return the error of another process if it has caused this one, else the error itself.

        Args:
            error: What was raised in this process.
        """
        if isinstance(error, KeyboardInterrupt):
            is_caused = self._failure is not None
        else:
            is_caused = isinstance(error, RuntimeError) and _is_lost(error)
        if not is_caused:
            return error
        self._is_ending = True
        end = time.monotonic() + 2 * _EVERY
        while self._failure is None and time.monotonic() < end:
            self._left.wait(_EVERY / 5)  # the thread that looks for errors sees it soon
        if not self.is_first:
            return Told("another process of the launch has said why.")
        return _as_error(self._failure or {"kind": "killed"})

    def _watch(self) -> None:
        """Look for errors of other processes, and end this one if there is one."""
        parent = os.getppid()
        while not self._left.wait(_EVERY):
            try:
                if self._store.check([_FAILED]):
                    self._failure = json.loads(self._store.get(_FAILED))
            except (RuntimeError, ValueError):
                self._failure = {"kind": "killed"}  # the first process has gone
            if os.getppid() != parent:
                # nobody would end this process if another one failed
                self._failure = {"kind": "killed"}
            if self._failure is not None:
                break
        else:
            return
        if self.is_first:
            with suppress(RuntimeError):
                self._store.set(_HEARD, "1")
        if not self._is_ending:
            _thread.interrupt_main()
        if self._left.wait(_GRACE):
            return
        # it waits for a process that does not come
        if self.is_first:
            error = _as_error(self._failure)
            text = message_of(error) if not isinstance(error, KeyboardInterrupt) else "stopped."
            print(f"error: {text}", file=sys.stderr, flush=True)
        os._exit(1)

    def announce(self, error: BaseException) -> None:
        """Tell the others of an error, unless one of them has told of one before.

        Args:
            error: What ends this process.
        """
        self._is_ending = True
        if isinstance(error, Told):
            return
        with suppress(RuntimeError):
            note = {**_as_note(error), "rank": self.rank, "count": self.count}
            self._store.compare_set(_FAILED, "", json.dumps(note))
        if self.is_first:
            return
        # the launcher ends all processes when one has ended: the first is to speak before
        with suppress(RuntimeError):
            end = time.monotonic() + _TO_BE_HEARD
            while not self._store.check([_HEARD]) and time.monotonic() < end:
                time.sleep(_EVERY / 5)
            time.sleep(_EVERY)

    def leave(self, together: bool) -> None:
        """Leave the launch.

        Args:
            together: Wait for the others first; False after an error.
        """
        self._left.set()
        self._watcher.join()
        if not together:
            # the end of the process closes its connections; closing them here may wait for others
            return
        from accelerate.state import AcceleratorState

        self.wait()
        dist.destroy_process_group()
        AcceleratorState._reset_state(reset_partial_state=True)


@contextmanager
def joined() -> Iterator[Team]:
    """Join the other processes of a launch, if this is one of several.

    Raises:
        TagmaskError: What went wrong in any of them; in all but the first process it is ``Told``.
    """
    if launched_shard()[1] == 1:
        yield ALONE
        return
    try:
        team = Launched()
    except (RuntimeError, ValueError) as why:
        raise TagmaskError(
            f"the processes of this launch do not reach each other ({message_of(why)}); check "
            "the addresses, ports and numbers of the launch."
        ) from None
    if not team.is_first:
        logger.setLevel(logging.WARNING)
        show_bars(False)
    try:
        with team.hearing():
            yield team
    except BaseException as raised:
        error = team.meaning_of(raised)
        team.announce(error)
        team.leave(together=False)
        is_said = isinstance(error, (TagmaskError, OSError, KeyboardInterrupt))
        if is_said and not team.is_first:
            raise Told(message_of(error)) from None
        if error is raised:
            raise
        raise error from None
    team.leave(together=True)


def _as_note(error: BaseException) -> dict[str, Any]:
    """Return what the other processes are told of an error."""
    if isinstance(error, KeyboardInterrupt):
        return {"kind": "stopped"}
    if isinstance(error, OSError):
        number = error.errno or errno.EIO
        file = None if error.filename is None else os.fsdecode(error.filename)
        return {"kind": "disk", "errno": number, "file": file}
    if isinstance(error, TagmaskError):
        return {"kind": "sentence", "text": message_of(error)}
    return {"kind": "fault", "text": f"{type(error).__name__}: {message_of(error)}"}


def _as_error(note: dict[str, Any]) -> BaseException:
    """Return the error that a note tells of."""
    kind = note["kind"]
    if kind == "stopped":
        return KeyboardInterrupt()
    if kind == "disk":
        return OSError(note["errno"], os.strerror(note["errno"]), note["file"])
    if kind == "sentence":
        return TagmaskError(note["text"])
    if kind == "fault":
        return TagmaskError(f"process {note['rank']} of {note['count']} failed: {note['text']}")
    return TagmaskError(
        "another process of the launch was killed, perhaps because memory ran out; "
        "start the same command again to continue."
    )


def _is_lost(error: RuntimeError) -> bool:
    """Return True if an error says that another process has gone."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)
