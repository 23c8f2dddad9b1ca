"""Bars on the terminal."""

import io
import os
import signal
import sys
import time

import pytest

from tagmask.progress import INTERVAL, Bar, show_bars, terminal_bars


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


def test_bars_are_rare_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the last one, however often a text at the end changes."""
    monkeypatch.delenv(INTERVAL, raising=False)
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    show_bars()
    try:
        with Bar(50, "seeds") as bar:
            for step in range(50):
                bar.set_postfix_str(f"loss {step}")
                bar.update()
                time.sleep(0.005)
    finally:
        show_bars(False)
    assert written.getvalue().count("\r") == 2
    assert "50/50" in written.getvalue()
    assert "loss 49" in written.getvalue()
