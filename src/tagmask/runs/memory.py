"""Memory that the stages of a run need, for its plan.

One step or one image of a stage is done anyway to see how long it takes; meanwhile the resident
memory of this process is watched. What grows beyond one image is added by the stages: images of a
batch, photos that are held for a fit, processes of a pool.
"""

import sys
import threading
from types import TracebackType

import psutil  # type: ignore[import-untyped]

_EVERY = 0.005  # seconds


def resident() -> int:
    """Return the bytes of memory that this process has now."""
    return int(psutil.Process().memory_info().rss)


def _highest_ever() -> int:
    """Return the most bytes of memory that this process has ever had; 0 if it is not told."""
    try:
        import resource
    except ImportError:  # Windows
        return int(getattr(psutil.Process().memory_info(), "peak_wset", 0))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def available() -> int:
    """Return the bytes of memory that programs can still take on this machine."""
    return int(psutil.virtual_memory().available)


class Watch:
    """Watch the resident memory of this process while something is done.

    Attributes:
        highest: The most that was seen, in bytes.
    """

    def __init__(self) -> None:
        self.highest = resident()
        self._before = _highest_ever()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._ended.wait(_EVERY):
            self.highest = max(self.highest, resident())

    def __enter__(self) -> "Watch":
        """Begin to watch."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End to watch, and look once more."""
        self._ended.set()
        self._thread.join()
        self.highest = max(self.highest, resident())
        # a peak between two looks is known where it is the highest of the process
        ever = _highest_ever()
        if ever > self._before:
            self.highest = max(self.highest, ever)


def of_pool(one: float, processes: int) -> float:
    """Return the bytes of a stage whose images are shared out.

    Args:
        one: Bytes of a process that does one image.
        processes: How many do so; with more than one, this one waits for them.
    """
    return one if processes == 1 else one + processes * one


def size(count: float) -> str:
    """Return a number of bytes for people: 640 MB, 1.9 GB.

    Args:
        count: Bytes.
    """
    if count < 1e9:
        return f"{max(10, round(count / 1e7) * 10)} MB"
    return f"{count / 1e9:.1f} GB"
