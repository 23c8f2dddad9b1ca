"""Read a config.toml in the form it had before ``[data]``.

In that form the data, the folder and the settings of the feature cache were repeated in the table
of every stage, and the table ``[run]`` held the data of the run.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from tagmask.config.segment import NETS

Tables = dict[str, dict[str, Any]]


def in_todays_form(
    tables: Mapping[str, Mapping[str, Any]], data: Collection[str], once: Collection[str]
) -> Tables:
    """Return the tables with ``[data]`` once; those of today's form stay as they are.

    Args:
        tables: As they are in the file.
        data: Names of the data settings.
        once: Names of the other settings that every stage repeated.
    """
    repeats = any("data" in table for table in tables.values())
    if "data" in tables or not repeats:
        return {name: dict(table) for name, table in tables.items()}
    stages = [name for name in tables if name not in ("run", "paper")]
    # without [run], the stages were run one by one
    first = tables.get("run") or next(iter(tables[name] for name in stages), {})
    of_the_run = {name: first[name] for name in data if name in first}
    whole: Tables = {"data": of_the_run}
    for name, table in tables.items():
        repeated = set(data) if name == "run" else {*data, *once}
        if name == "paper":
            repeated = set()
        whole[name] = {key: value for key, value in table.items() if key not in repeated}
        if name == "segment":
            whole[name] = _of_its_network(whole[name])
        own = {key: table[key] for key in data if key in table}
        if name in stages and own and own != of_the_run:
            whole[name]["data"] = own
    whole.setdefault("run", {key: first[key] for key in once if key in first})
    return whole


def _of_its_network(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a segmenter without those that only another network has."""
    fields = {}
    for name, kind in NETS.items():
        fields[name] = {field.name for field in dataclasses.fields(kind)}
    own = fields.get(values.get("net", "deeplab"), set())
    others = set().union(*fields.values()) - own
    return {name: value for name, value in values.items() if name not in others}
