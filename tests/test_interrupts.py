"""Ctrl-C that a library turns into an error of its own."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import tagmask.cli as cli
from tagmask.cli.interrupts import noted_interrupts


@pytest.fixture(autouse=True)
def _hears_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C interrupt, also where tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def swallow(*_: Any) -> None:
    """Do what torch does where Ctrl-C meets it while it looks at its arguments."""
    try:
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("Ctrl-C was not noticed")
    except KeyboardInterrupt:
        pass
    raise ValueError("could not determine the shape")


def test_it_stops_the_command_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "run_command", swallow)
    with pytest.raises(SystemExit) as ended:
        cli.main(["check", "run"])
    assert ended.value.code == 130
    assert "type the same command again to resume" in capsys.readouterr().err


def test_an_error_without_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("a mistake of ours")

    monkeypatch.setattr(cli, "run_command", fail)
    with pytest.raises(ValueError, match="a mistake of ours"):
        cli.main(["check", "run"])


def test_what_ctrl_c_meant_before_it_means_again() -> None:
    before = signal.getsignal(signal.SIGINT)
    with noted_interrupts() as interrupts:
        assert signal.getsignal(signal.SIGINT) is not before
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert interrupts == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is before
    meaning = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with noted_interrupts() as none:
            os.kill(os.getpid(), signal.SIGINT)
        assert not none
    finally:
        signal.signal(signal.SIGINT, meaning)
