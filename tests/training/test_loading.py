"""Reading processes leave Ctrl-C to the command, and still report what they could not read."""

import signal
import sys

import pytest

from tagmask.training.loading import loader, quiet


class Signals:
    """What a reading process does on Ctrl-C; the third item cannot be read."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        if index == 2:
            raise OSError("photo.jpg is broken")
        return int(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)


@pytest.mark.parametrize(("workers", "ignored"), [(0, 0), (1, 1)])
def test_only_processes_ignore_ctrl_c(workers: int, ignored: int) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        batches = iter(loader(Signals(), workers, batch_size=1))
        assert [int(next(batches)), int(next(batches))] == [ignored, ignored]
        with pytest.raises(OSError, match="is broken"):
            next(batches)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_lost_connection_is_not_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(signal, "signal", lambda number, action: None)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # put back afterwards
    quiet(0)
    for error in (ConnectionResetError("by peer"), BrokenPipeError("gone"), EOFError()):
        sys.excepthook(type(error), error, None)
    assert capsys.readouterr().err == ""
    sys.excepthook(ValueError, ValueError("a real mistake"), None)
    assert "a real mistake" in capsys.readouterr().err
