"""What torchrun and `accelerate launch` tell a process: which of several it is."""

import os

from tagmask.errors import TagmaskError

# what a launch sets, with the value of a process that was not launched
NUMBERS = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}


def launch_number(name: str) -> int:
    """Return a number that a launch has set, or that of a process that was not launched.

    Args:
        name: One of ``NUMBERS``.

    Raises:
        TagmaskError: if the variable holds something else.
    """
    text = os.environ.get(name)
    if text is None:
        return NUMBERS[name]
    try:
        return int(text)
    except ValueError:
        raise TagmaskError(
            f"the environment has {name}={text}, which is no number; torchrun and accelerate "
            f"launch set it. Without them: unset {name}."
        ) from None


def launched_part() -> tuple[int, int]:
    """Return part i of n of this process under `accelerate launch` or torchrun, or 0 of 1.

    Raises:
        TagmaskError: if there is no such part.
    """
    rank = launch_number("RANK")
    count = launch_number("WORLD_SIZE")
    if not 0 <= rank < max(1, count):
        raise TagmaskError(
            f"the environment has RANK={rank} and WORLD_SIZE={count}, but ranks go from 0 to "
            "WORLD_SIZE - 1; torchrun and accelerate launch set both. "
            "Without them: unset RANK WORLD_SIZE."
        )
    return rank, max(1, count)
