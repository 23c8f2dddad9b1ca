"""Bars on the terminal."""

import os
import signal
import sys

import pytest

from tagmask.progress import terminal_bars


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")
def test_a_process_that_dies_while_it_prints_stops_nobody_else() -> None:
    lock = terminal_bars().get_lock()
    child = os.fork()
    if not child:
        lock.acquire()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert lock.acquire(blocking=False)
    lock.release()
