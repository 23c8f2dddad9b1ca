"""Settings of a whole run: folder and data once, and a section for each stage.

A config.toml has a table ``[data]``, a table ``[run]`` with what else is set once, and a table for
each stage with the stage's own values. A stage that was run alone on other images than the rest
has those in a table of its own, e.g. ``[predict.data]``.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from tagmask import layout
from tagmask.config.base import (
    AboutSettings,
    DataSettings,
    Settings,
    SharedTokenSettings,
    flag,
    refuse,
    written_over,
)
from tagmask.config.former import in_todays_form
from tagmask.config.limits import Rows
from tagmask.config.toml import read_toml, to_plain, write_sections
from tagmask.errors import TagmaskError

DATA = tuple(field.name for field in dataclasses.fields(DataSettings))
KEPT = ("tokens", "tokens_limit")  # settings of the feature cache, of the whole run
NOT_IN_A_RUN = {  # setting of a stage: what to do instead
    "restart": "use --restart for the whole run, or delete the folder of the stage",
    "shard": "run the stages one by one to share them out",
    "model": "a run uses its own networks",
    "pseudo": "a run uses its own pseudo labels",
    "photos": "predict other photos with `tagmask predict` after the run",
}
ONCE = {name: f"give --{flag(name)} once, for the whole run" for name in ("out", *KEPT, *DATA)}
_WRITTEN = ("out", *KEPT, "rows", "about", "by", "mm_per_pixel")  # what the table [run] holds

Kind = TypeVar("Kind", bound=Settings)


@dataclass(frozen=True, kw_only=True)
class Located(DataSettings):
    """The folder of a run, and its data."""

    out: Path
    """Folder of the run."""


@dataclass(frozen=True, kw_only=True)
class Place(SharedTokenSettings, Located):
    """What every stage of a run needs besides its own settings."""

    def data_part(self) -> DataSettings:
        """Return the data settings alone."""
        return DataSettings(**self.data_settings())


@dataclass(frozen=True, kw_only=True)
class RunTop(AboutSettings, Place):
    """What is set once for a whole run."""

    section = "run"
    makes = (
        *layout.FOLDERS,
        layout.CONFIG,
        layout.CHECK,
        layout.SCORES,
        layout.CURVE,
        layout.REPORT,
    )
    basic = "restart estimate rows masks count"
    restart: bool = False
    """Discard what earlier runs made and do every stage."""
    estimate: bool = True
    """Measure first how long the stages will take; this takes seconds,
    on a slow machine up to a minute."""
    rows: Rows = 12
    """Images in the report's gallery."""


@dataclass(frozen=True, kw_only=True)
class Staged:
    """Settings of several stages, by the names of their sections."""

    stages: Mapping[str, Settings] = field(default_factory=dict)

    def of(self, kind: type[Kind]) -> Kind:
        """Return the settings of the stage whose settings are of this class.

        Args:
            kind: A settings class with a section.

        Returns:
            Those of its section; the defaults if it was not given.
        """
        settings = self.stages.get(kind.section)
        if settings is None:
            default = kind.kind_for({})
            return default() if issubclass(default, kind) else kind()
        if not isinstance(settings, kind):
            raise TagmaskError(
                f"[{kind.section}] is set for another network, {type(settings).__name__}; "
                f"this needs {kind.__name__}."
            )
        return settings

    def with_stages(self, *stages: Settings) -> Self:
        """Return a copy in which the sections of these settings are replaced."""
        changed = {settings.section: settings for settings in stages}
        return dataclasses.replace(self, stages={**self.stages, **changed})

    def with_changes(self, **sections: Mapping[str, Any]) -> Self:
        """Return a copy with values of sections changed.

        Args:
            **sections: Values by name, under the name of a section that was given.
        """
        changed = []
        for name, values in sections.items():
            changed.append(dataclasses.replace(self.stages[name], **values))
        return self.with_stages(*changed)


@dataclass(frozen=True, kw_only=True)
class RunSettings(Staged, RunTop):
    """From images and tags to masks."""

    def _mistakes(self) -> Iterator[str]:
        of_the_run = list(super()._mistakes())
        yield from of_the_run
        for name, section in self.stages.items():
            yield from _misplaced(name, section)
            for mistake in _section_mistakes(self, section):
                if mistake not in of_the_run:
                    yield f"{name}: {mistake}"
        yield from self._disagreements()

    def _disagreements(self) -> Iterator[str]:
        """Yield a sentence for every setting of a stage that does not fit those of another."""
        for section in self.stages.values():
            yield from section.disagreements(self.stages)

    def with_data(self, data: Mapping[str, Any]) -> Self:
        """Return a copy with other data.

        Args:
            data: Values by the names of ``DataSettings``.
        """
        return dataclasses.replace(self, **data)


def _section_mistakes(place: Place, settings: Settings) -> Iterator[str]:
    """Yield a sentence for everything that is wrong with the own settings of a stage in a run."""
    yield from settings.mistakes()
    yield from written_over(place.out, settings.makes, settings.inputs())
    yield from settings.mistakes_in(place)


def check_stage(run: Place, settings: Settings) -> None:
    """Raise one error that lists every mistake of a stage in a run.

    Args:
        run: Folder and data of the run.
        settings: The stage's own settings.

    Raises:
        TagmaskError: Something cannot be used.
    """
    mistakes = list(_section_mistakes(run, settings))
    if settings.needs_data():
        place = Place(**{name: getattr(run, name) for name in ("out", *KEPT, *DATA)})
        mistakes += place.mistakes()
        mistakes += written_over(place.out, settings.makes, place.inputs())
    refuse(list(dict.fromkeys(mistakes)))


def _misplaced(name: str, section: Settings) -> Iterator[str]:
    """Yield a sentence for settings of a stage that have no place in a run."""
    default = type(section)()
    for key, remedy in NOT_IN_A_RUN.items():
        if getattr(section, key, None) != getattr(default, key, None):
            yield f"--{name}.{flag(key)} has no place in a run; {remedy}."


Tables = dict[str, dict[str, Any]]


def read_config(path: Path) -> Tables:
    """Return the tables of a run's config.toml, also of one in the former form.

    Raises:
        TagmaskError: It cannot be read.
    """
    return in_todays_form(read_toml(path), DATA, ("out", *KEPT))


def data_of(tables: Mapping[str, Mapping[str, Any]], section: str | None = None) -> dict[str, Any]:
    """Return the data of a run, or of one of its stages, as plain values.

    Args:
        tables: As ``read_config`` returns them.
        section: A stage; default: the whole run.
    """
    own = tables.get(section, {}).get("data") if section else None
    return dict(own if own is not None else tables.get("data", {}))


def own_values(tables: Mapping[str, Mapping[str, Any]], section: str) -> dict[str, Any]:
    """Return the values of a stage's own settings in a config.toml.

    Args:
        tables: As ``read_config`` returns them.
        section: The stage.
    """
    values = tables.get(section, {})
    return {name: value for name, value in values.items() if name not in ("data", "restart")}


def write_config(settings: RunSettings, path: Path | None = None) -> None:
    """Put every setting of a run into its config.toml, if that is not what it holds.

    Args:
        settings: Those of the run.
        path: Another file to write; default: the one in the run's folder.
    """
    sections: dict[str, Any] = dict(_tables_of_place(settings))
    for name, stage in settings.stages.items():
        sections[name] = to_plain(stage)
    write_sections(path or settings.out / layout.CONFIG, sections)


def write_stage_config(settings: RunSettings, stage: Settings) -> None:
    """Put the settings of a stage that is run alone into the run's config.toml.

    The run's data stay as they are if other stages were run on them: then the stage has its own.

    Args:
        settings: Those of the run, with the data that the stage is run on.
        stage: Settings of the stage.
    """
    path = settings.out / layout.CONFIG
    tables = read_config(path) if path.exists() else {}
    sections: dict[str, Any] = dict(_tables_of_place(settings))
    section = to_plain(stage)
    others = tables.keys() - {"data", "run", stage.section}
    known = {**to_plain(DataSettings()), **tables.get("data", {})}
    if others and "data" in tables and known != sections["data"]:
        section["data"] = sections.pop("data")
    sections[stage.section] = section
    write_sections(path, {**tables, **sections})


def _tables_of_place(settings: RunSettings) -> Tables:
    """Return the tables [data] and [run] of a config.toml."""
    top = to_plain(settings)
    data = {name: top[name] for name in DATA if name in top}
    run = {name: top[name] for name in _WRITTEN if name in top}
    return {"data": data, "run": run}


def check_is_config(tables: Mapping[str, Any], sections: Mapping[str, Any], path: Path) -> None:
    """Refuse a TOML file that has no section of a run.

    Args:
        tables: What the file holds.
        sections: The sections that a run may have.
        path: The file, for the message.

    Raises:
        TagmaskError: It is no run's.
    """
    if not tables.keys() & {"run", "data", *sections}:
        raise TagmaskError(f"{path} has no section of a stage; give the config.toml of a run.")
