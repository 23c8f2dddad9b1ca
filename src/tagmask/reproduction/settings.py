"""Settings of a table or figure from a preset, for the command line and for Python."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tagmask.config import read_values
from tagmask.config.paper import PaperSettings, PaperTop
from tagmask.config.presets import find_preset
from tagmask.config.run import DATA
from tagmask.runs.settings import read_given, run_values
from tagmask.runs.table import sections


def paper_settings(
    table: str, out: str | Path, *, preset: str = "scenes", **settings: Any
) -> PaperSettings:
    """Return the settings that ``tagmask paper TABLE --preset NAME --out OUT`` has.

    Args:
        table: A table or figure, e.g. "methods".
        out: Folder of the tables; trainings are shared by all tables in it.
        preset: A recipe; all its sections are used.
        **settings: What is set once for a table, e.g. ``random_seeds=3``, and values of stages as
            dictionaries, e.g. ``train={"steps": 200}``.

    Raises:
        TagmaskError: There is no such preset, or a setting is unknown or of another form.
    """
    values = preset_values(preset)
    given = read_given(PaperTop, values, settings, "paper_settings")
    top = read_values(PaperTop, {"table": table, "out": out}, "paper_settings")
    values |= {**given, **top}
    stages = {name: values.pop(name) for name in sections()}
    return PaperSettings(**values, stages=stages)


def preset_values(preset: str | None, config: Path | None = None) -> dict[str, Any]:
    """Return what a table starts from.

    Args:
        preset: Name of a recipe; None: none.
        config: The TOML file of a table or the config.toml of a run, whose data and stages come
            on top; None: none.

    Returns:
        Data and settings of tables by name, and the settings of each stage by section.
    """
    values = run_values(preset, config)
    # a run has settings that a table has not
    shared = {*DATA, *sections()}
    values = {key: value for key, value in values.items() if key in shared}
    own: Mapping[str, Any] = {} if preset is None else find_preset(preset).get("paper", {})
    return {**values, **own}
