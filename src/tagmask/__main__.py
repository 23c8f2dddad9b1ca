"""``python -m tagmask`` and the command ``tagmask``."""

import signal


def main() -> None:
    """Run a command. Until it has begun, Ctrl-C ends the process at once, without a traceback."""
    hears = (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )  # not in the background of a shell
    if hears:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tagmask.cli import main as run

    if hears:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
