"""The command line: parse, call, print. Each command imports what it needs when it runs."""

import errno
import io
import os
import sys
from collections.abc import Sequence

from tagmask import __version__
from tagmask.cli.commands import commands, run_command
from tagmask.cli.examples import USAGE
from tagmask.cli.help import ASKED
from tagmask.errors import TagmaskError


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command; a mistake by the user ends with a message, not a traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # the terminal may lack characters of a file name
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
    except TagmaskError as error:
        code = _print_error(str(error))
    except KeyboardInterrupt:
        _close_bars()
        command = "the same command without --restart" if "--restart" in arguments else "the same command again"
        print(f"\nstopped; type {command} to resume.", file=sys.stderr)
        code = 130
    except BrokenPipeError:  # head or less has closed our output
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
        if arguments and arguments[0] in commands() and not ASKED & set(arguments):
            code = _print_error(
                "the output was closed, so the command stopped; type it again without a pipe to resume."
            )
    except OSError as error:
        if error.errno not in _DISK:
            raise
        code = _print_error(f"{error.filename or _output(arguments)}: {_DISK[error.errno]}")
    sys.exit(code)


_DISK = {
    errno.ENOSPC: "the disk is full; free some space and type the same command again to resume.",
    errno.EDQUOT: "the disk quota is used up; free some space and type the same command again to resume.",
    errno.EFBIG: "a file of this size is not allowed there; choose another disk or a higher limit.",
    errno.EIO: "the disk cannot be read or written; check it.",
    errno.EROFS: "the disk is read-only; choose another --out.",
    errno.EACCES: "permission denied; choose another path or change its permissions.",
    errno.EPERM: "permission denied; choose another path or change its permissions.",
    errno.ENAMETOOLONG: "this name is too long for the disk; choose a shorter one.",
    errno.ENOTDIR: "a file is where a folder is needed; choose another path.",
    errno.EEXIST: "a file is where a folder is needed; choose another path.",
    errno.ENOENT: "there is no such folder; choose another path.",
    errno.EISDIR: "a folder is where a file is needed; choose another path.",
}


def _dispatch(arguments: list[str]) -> int:
    for place, argument in enumerate(arguments):
        if not argument or (argument.startswith("--") and argument.endswith("=")):
            name = argument[:-1] or (arguments[place - 1] if place else "an argument")
            raise TagmaskError(f"{name} is empty; give it a value, or leave it out.")
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    if arguments[0] == "--version":
        print(f"tagmask {__version__}")
        return 0
    if arguments[0] not in commands():
        raise TagmaskError(f"there is no command {arguments[0]!r}; choose from {', '.join(commands())}.")
    run_command(arguments[0], arguments[1:])
    return 0


def _output(arguments: Sequence[str]) -> str:
    """Where a command writes, for errors that do not name a file."""
    for flag in ("--to", "--onnx", "--out"):
        for place, argument in enumerate(arguments):
            if argument.startswith(f"{flag}="):
                return argument.removeprefix(f"{flag}=")
            if argument == flag and place + 1 < len(arguments):
                return arguments[place + 1]
    return "the output"


def _print_error(message: str) -> int:
    _close_bars()
    print(f"error: {message}", file=sys.stderr)
    return 1


def _close_bars() -> None:
    """Close progress bars that an exception has left open, so that a message starts on a new line."""
    if "tqdm" in sys.modules:
        from tqdm import tqdm

        for bar in list(getattr(tqdm, "_instances", ())):
            bar.close()
