"""Variables of the environment that libraries read when they are loaded."""

import importlib
import os

from tagmask.config.launch import NUMBERS, launch_number, launched_part
from tagmask.errors import TagmaskError


def check_surroundings() -> None:
    """Refuse variables of the environment on which a library would fail, before it is loaded.

    Raises:
        TagmaskError: if one holds what cannot be used.
    """
    for name in NUMBERS:
        launch_number(name)
    launched_part()
    # commands draw into files alone, whatever is set for notebooks and windows
    os.environ["MPLBACKEND"] = "agg"
    bars = sorted(name for name in os.environ if name.startswith("TQDM_"))
    if not bars:
        return
    try:
        importlib.import_module("tqdm")
    except ValueError as error:
        raise TagmaskError(
            f"the environment sets {', '.join(bars)} for the progress bars, and one of them cannot "
            f"be used ({error}); correct or unset it."
        ) from None
