"""The command line: parse, call, print. Each command imports what it needs when it runs."""

import difflib
import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tagmask.cli.commands import commands, run_command
from tagmask.cli.examples import USAGE
from tagmask.cli.help import ASKED
from tagmask.cli.interrupts import noted_interrupts
from tagmask.cli.mistakes import as_typed_plainly, other_command
from tagmask.cli.parse import take
from tagmask.cli.streams import guarded_streams
from tagmask.errors import TagmaskError, Told, is_out_of_memory, message_of, typed
from tagmask.layout import is_run
from tagmask.version import __version__


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command; a mistake by the user ends with a message, not a traceback.

    Args:
        argv: What follows ``tagmask`` on the command line; default: that of this process.

    Raises:
        SystemExit: Always; its code is 0 if the command has done its work.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    with guarded_streams():
        code = _flushed(_attempt(arguments))
    sys.exit(code)


def _attempt(arguments: list[str]) -> int:
    """Run a command, and return the exit code."""
    with noted_interrupts() as interrupts:
        try:
            return _answer(arguments)
        except Exception:
            # a library may turn Ctrl-C into an error of its own
            if not interrupts:
                raise
            return _stopped(arguments)


def _answer(arguments: list[str]) -> int:
    """Run a command, and return the exit code; an error that is not foreseen is raised."""
    try:
        _dispatch(arguments)
        sys.stdout.flush()
        code = 0
    except Told:
        # another process of the launch says it
        code = 1
    except TagmaskError as error:
        code = _print_error(message_of(error))
    except KeyboardInterrupt:
        code = _stopped(arguments)
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
    except RecursionError:
        code = _print_error("a path or a file is nested too deep; use fewer levels.")
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        code = _print_error(
            "memory ran out; use a smaller --size or --batch, or --tile for large photos."
        )
    except ImportError as error:
        # a library that cannot be loaded: as a rule there is too little memory to map it
        code = _print_error(
            f"a library cannot be loaded ({message_of(error)}); "
            "close other programs or raise the limit of memory, or install tagmask again."
        )
    return code


def _stopped(arguments: list[str]) -> int:
    """Say how to go on after Ctrl-C, and return the exit code."""
    again = "the same command again"
    if "--restart" in arguments:
        again = "the same command without --restart"
    return _print_error(f"stopped; type {again} to resume.", 130, prefix="\n")


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
    errno.ENOENT: "there is no such file or folder; choose another path.",
    errno.ELOOP: "a link leads to itself; correct it or choose another path.",
    errno.EMFILE: (
        "too many files are open; close other programs, or use fewer --workers and --processes."
    ),
    errno.EISDIR: "a folder is where a file is needed; choose another path.",
}


def _dispatch(arguments: list[str]) -> None:
    """Refuse empty arguments, then run the command or print the overview or the version."""
    before = "an argument"
    arguments = as_typed_plainly(arguments)
    for argument in arguments:
        if not argument or (argument.startswith("--") and argument.endswith("=")):
            name = argument[:-1] or before
            raise TagmaskError(f"{name} is empty; give it a value, or leave it out.")
        before = argument
    if len(arguments) > 1 and arguments[0] in _HELP:
        arguments = [arguments[1], "--help"]
    if len(arguments) == 2 and arguments[1] in _HELP:
        arguments = [arguments[0], "--help"]
    if not arguments or arguments[0] in _HELP:
        print(USAGE, end="")
    elif arguments[0] in ("--version", "-V", "-v", "version"):
        print(f"tagmask {__version__}")
    elif arguments[0] not in commands():
        raise TagmaskError(_no_command(arguments[0], arguments[1:]))
    else:
        run_command(arguments[0], arguments[1:])


_HELP = ("-h", "--help", "help", "-help", "-?")


def _no_command(word: str, rest: Sequence[str]) -> str:
    """Return what to type instead of something that is no command.

    Args:
        word: What was typed.
        rest: What follows it.
    """
    path = Path(word)
    if is_run(path):
        return f"{word} is a run; say what to do with it, e.g. `tagmask explore {typed(word)}`."
    if path.is_dir():
        table = [rest[0]] if rest and Path(rest[0]).is_file() else []
        command = typed("tagmask", "run", word, *table, "--out", "run")
        return f"{word} is a folder; for masks of its photos: `{command}`."
    if not path.is_file():
        other = other_command(word, rest, list(commands()))
        if other is not None:
            return other
    near = difflib.get_close_matches(word.lower(), commands(), n=1)
    if near:
        return f"there is no command {word!r}; did you mean `tagmask {near[0]}`?"
    if path.is_file():
        return f"{word} is a file; for its mask: `tagmask predict RUN {typed(word)}`."
    if word.startswith("-"):
        near = difflib.get_close_matches(word, ("--version", "--help"), n=1)
        if near:
            return f"{word} is not known; did you mean `tagmask {near[0]}`?"
        return f"{word} comes without a command; `tagmask --help` lists them."
    return f"there is no command {word!r}; choose from {', '.join(commands())}."


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
