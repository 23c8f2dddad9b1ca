"""The last part of a report: settings, seeds, versions and hashes, so that the run can be told from others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tagmask.show.html import Cell, details, escape, section, table, text_cell
from tagmask.show.report_data import Provenance

SHORT = 16  # digits of a sha256 that the stages note down
NETWORKS = ("model", "network")  # entries of made_by.json that are hashes of weights


def run_section(made: Provenance, title: str) -> str:
    """Facts and hashes in sight, long lists of settings behind a line that opens them."""
    parts = [_pairs(made.facts)]
    if made.weights:
        rows = [
            [text_cell(file, "value"), Cell(_bytes(size), size, "number"), Cell(f"<code>{sha}</code>", sha, "value")]
            for file, size, sha in made.weights
        ]
        parts += ["<h3>Weights</h3>", table(["file", "size", "sha256"], rows, sortable=False)]
    if made.makers:
        rows = [[text_cell(folder), text_cell(_maker(values, made), "value")] for folder, values in made.makers.items()]
        parts += ["<h3>Made by</h3>", table(["folder", "model and settings"], rows, sortable=False)]
    parts += ["<h3>Settings and versions</h3>"]
    for name, values in _sections(made.settings).items():
        parts.append(details(f"config.toml [{name}]" if name else "config.toml", _pairs(list(values.items()))))
    parts.append(details("versions of the programs that wrote this page", _pairs(list(made.versions.items()))))
    return section("run", title, *parts)


def weights_of(digest: Any, weights: Sequence[tuple[str, int, str]]) -> str | None:
    """The weights file whose sha256 begins with ``digest``; None where it is not in the run."""
    if not isinstance(digest, str) or len(digest) < SHORT:
        return None
    return next((file for file, _, sha in weights if sha.startswith(digest)), None)


def _maker(values: Mapping[str, Any], made: Provenance) -> str:
    told = [f"{name} = {_plain(value)}" for name, value in values.items() if name not in NETWORKS]
    named = [values[name] for name in NETWORKS if name in values]
    files = [f"weights {digest} ({weights_of(digest, made.weights) or 'not in this run folder'})" for digest in named]
    return "; ".join([*files, *told])


def _sections(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Tables of a TOML file by name; loose values under an empty name."""
    loose = {name: value for name, value in settings.items() if not isinstance(value, Mapping)}
    tables = {name: dict(value) for name, value in settings.items() if isinstance(value, Mapping)}
    return {**({"": loose} if loose else {}), **tables}


def _pairs(pairs: Sequence[tuple[str, Any]]) -> str:
    rows = [[text_cell(name), Cell(f"<code>{escape(_plain(value))}</code>", None, "value")] for name, value in pairs]
    return table(["", ""], rows, sortable=False, kind="pairs")


def _plain(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(map(_plain, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {_plain(one)}" for name, one in value.items()) or "nothing"
    return (
        {True: "yes", False: "no", None: "default"}[value] if value is None or isinstance(value, bool) else str(value)
    )


def _bytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
