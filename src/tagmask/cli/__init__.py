"""The command line: parse, call, print. Each command imports what it needs when it runs."""

import errno
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from tagmask.cli.commands import commands, run_command
from tagmask.cli.examples import USAGE
from tagmask.cli.help import ASKED
from tagmask.cli.parse import take
from tagmask.errors import TagmaskError, is_out_of_memory
from tagmask.version import __version__


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command; a mistake by the user ends with a message, not a traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_streams()
    try:
        _dispatch(arguments)
        sys.stdout.flush()
        code = 0
    except TagmaskError as error:
        code = _print_error(str(error))
    except KeyboardInterrupt:
        again = "the same command again"
        if "--restart" in arguments:
            again = "the same command without --restart"
        code = _print_error(f"stopped; type {again} to resume.", 130, prefix="\n")
    except BrokenPipeError:
        # head or less has closed our output
        code = 0
        if arguments and arguments[0] in commands() and not ASKED & set(arguments):
            code = _print_error(
                "the output was closed, so the command stopped; "
                "type it again without a pipe to resume."
            )
    except OSError as error:
        otherwise = f"{error.strerror or error}; check the path."
        reason = _DISK.get(error.errno or 0, otherwise)
        where = error.filename or _output(arguments)
        code = _print_error(f"{where}: {reason}")
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        code = _print_error(
            "memory ran out; use a smaller --size or --batch, or --tile for large photos."
        )
    sys.exit(_flushed(code))


def _open_streams() -> None:
    """Open closed streams on the null device.

    The next file that is opened would get the number of a closed one, and messages with it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # takes the lowest free number, this one
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
        stream = getattr(sys, name)
        if number and isinstance(stream, io.TextIOWrapper):
            # the terminal may lack characters of a file name
            stream.reconfigure(errors="backslashreplace")


def _flushed(code: int) -> int:
    """Give up output that nobody reads any more, and return the exit code.

    At exit such output would be an error.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
    return code


_DISK = {
    errno.ENOSPC: "the disk is full; free some space and type the same command again to resume.",
    errno.EDQUOT: (
        "the disk quota is used up; free some space and type the same command again to resume."
    ),
    errno.EFBIG: "a file of this size is not allowed there; choose another disk or a higher limit.",
    errno.EIO: "the disk cannot be read or written; check it.",
    errno.EROFS: "the disk is read-only; choose another --out.",
    errno.EACCES: "permission denied; choose another path or change its permissions.",
    errno.EPERM: "permission denied; choose another path or change its permissions.",
    errno.ENAMETOOLONG: "this name is too long for the disk; choose a shorter one.",
    errno.ENOTDIR: "a file is where a folder is needed; choose another path.",
    errno.EEXIST: "a file is where a folder is needed; choose another path.",
    errno.ENOENT: "there is no such folder; choose another path.",
    errno.ELOOP: "a link leads to itself; correct it or choose another path.",
    errno.EMFILE: (
        "too many files are open; close other programs, or use fewer --workers and --processes."
    ),
    errno.EISDIR: "a folder is where a file is needed; choose another path.",
}


def _dispatch(arguments: list[str]) -> None:
    """Refuse empty arguments, then run the command or print the overview or the version."""
    before = "an argument"
    for argument in arguments:
        if not argument or (argument.startswith("--") and argument.endswith("=")):
            name = argument[:-1] or before
            raise TagmaskError(f"{name} is empty; give it a value, or leave it out.")
        before = argument
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
    elif arguments[0] == "--version":
        print(f"tagmask {__version__}")
    elif arguments[0] not in commands():
        raise TagmaskError(
            f"there is no command {arguments[0]!r}; choose from {', '.join(commands())}."
        )
    else:
        run_command(arguments[0], arguments[1:])


def _output(arguments: Sequence[str]) -> str:
    """Return where a command writes, for errors that do not name a file."""
    for flag in ("--to", "--onnx", "--out"):
        value = take([*arguments, ""], flag)
        if value:
            return value
    return "the output"


def _print_error(message: str, code: int = 1, prefix: str = "error: ") -> int:
    """Print a message for the user, and return the exit code."""
    # perhaps nobody reads it
    with suppress(OSError, ValueError):
        # close progress bars that an exception has left open: a message needs a new line
        if "tqdm" in sys.modules:
            for bar in list(getattr(sys.modules["tqdm"].tqdm, "_instances", ())):
                bar.close()
        print(f"{prefix}{message}", file=sys.stderr, flush=True)
    return code
