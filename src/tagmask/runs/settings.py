"""Settings of a run from presets, from a config.toml, and from Python."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tagmask.config import read_values
from tagmask.config.base import Settings
from tagmask.config.presets import find_preset
from tagmask.config.run import (
    RunSettings,
    RunTop,
    check_is_config,
    data_of,
    own_values,
    read_config,
)
from tagmask.errors import TagmaskError
from tagmask.runs.table import sections

Sources = dict[str, Mapping[str, Mapping[str, Any]]]  # what messages call it: its tables


def run_values(preset: str | None, config: Path | None) -> dict[str, Any]:
    """Return values of a run from a preset, and from a run's config.toml on top.

    Args:
        preset: Name of a recipe; None: none.
        config: A run's config.toml; None: none.

    Returns:
        What is set once for the run by name, and the settings of each stage by section.

    Raises:
        TagmaskError: A value cannot be used; all mistakes are reported at once.
    """
    sources: Sources = {}
    if preset is not None:
        sources[f"preset {preset}"] = find_preset(preset)
    if config is not None:
        tables = read_config(config)
        check_is_config(tables, sections(), config)
        # the data of the first stage are those that were learned from
        first_stage = next((name for name in sections() if name in tables), None)
        run = {**data_of(tables, first_stage), **tables.get("run", {})}
        stages = {name: own_values(tables, name) for name in sections()}
        sources[str(config)] = {"run": run, **stages}
    return _merge(sources)


def _merge(sources: Sources) -> dict[str, Any]:
    """Return the values of several sources; later ones win."""
    mistakes: list[str] = []
    values: dict[str, Any] = {}
    collected: dict[str, dict[str, Any]] = {name: {} for name in sections()}
    for source, tables in sources.items():
        try:
            values |= read_values(RunTop, tables.get("run", {}), f"{source}: run")
        except TagmaskError as error:
            mistakes.append(str(error))
        for name, kind in sections().items():
            start = {**collected[name], **tables.get(name, {})}
            try:
                read_values(kind.kind_for(start), tables.get(name, {}), f"{source}: {name}")
            except TagmaskError as error:
                mistakes.append(str(error))
            collected[name] = start
    if mistakes:
        raise TagmaskError("\n".join(mistakes))
    for name, kind in sections().items():
        values[name] = make_stage(kind, collected[name], name)
    return values


def make_stage(kind: type[Settings], values: Mapping[str, Any], source: str) -> Settings:
    """Return the settings of a stage.

    Args:
        kind: Their class; that of one network where the stage has several.
        values: Plain values by name.
        source: What messages call the place they come from.
    """
    chosen = kind.kind_for(values)
    return chosen(**read_values(chosen, values, source))


def read_given(
    top: type[Settings], values: Mapping[str, Any], given: Mapping[str, Any], source: str
) -> dict[str, Any]:
    """Return settings given in Python, on top of others.

    Args:
        top: Class of what is set once.
        values: What they come on top of, as ``run_values`` returns it.
        given: By name; those of a stage are a dictionary under its section.
        source: What messages call the place they come from.

    Raises:
        TagmaskError: A setting is unknown or of another form.
    """
    stages = sections()
    once = {name: value for name, value in given.items() if name not in stages}
    settings = read_values(top, once, source)
    for name in stages.keys() & given.keys():
        changes = read_values(type(values[name]), given[name], f"{source}: {name}")
        settings[name] = dataclasses.replace(values[name], **changes)
    return settings


def run_settings(values: Mapping[str, Any]) -> RunSettings:
    """Return the settings of a run.

    Args:
        values: As ``run_values`` returns them, with ``out``.
    """
    stages = {name: values[name] for name in sections() if name in values}
    top = {name: value for name, value in values.items() if name not in stages}
    return RunSettings(**top, stages=stages)
