"""Settings to TOML and back; unknown names and wrong types are reported all at once."""

import dataclasses
import difflib
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tagmask.errors import TagmaskError
from tagmask.files import read_text, write_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SECTION_NAMES = {"run", "train", "seeds", "pseudo", "segment", "predict", "paper"}
UNSET = "none"  # TOML has no null; written only for a setting whose default is a value


def to_plain(settings: "DataclassInstance") -> dict[str, Any]:
    """Settings as TOML and JSON can hold them, nested ones as tables; those unset by default are left out."""
    values = {field: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    return {
        field.name: UNSET if value is None else _plain(value)
        for field, value in values.items()
        if value is not None or field.default is not None
    }


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_plain(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def read_values(
    kind: "type[DataclassInstance]", values: Mapping[str, Any], source: str
) -> dict[str, Any]:
    """Arguments of ``kind`` from TOML values; all mistakes are reported at once."""
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    mistakes: list[str] = []
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            mistakes.append(f"{source}: there is no setting {name!r}{hint}")
            continue
        try:
            if dataclasses.is_dataclass(hints[name]):
                arguments[name] = _nested(fields[name], hints[name], value, f"{source}: {name}")
            else:
                arguments[name] = _convert(value, hints[name])
        except (TypeError, ValueError, OverflowError):
            mistakes.append(
                f"{source}: {name} = {_brief(value)} is not of the form {_describe(hints[name])}."
            )
        except TagmaskError as error:
            mistakes.append(str(error))
    if mistakes:
        raise TagmaskError("\n".join(mistakes))
    return arguments


def write_section(path: Path, section: str, settings: "DataclassInstance") -> None:
    """Put ``settings`` into the ``[section]`` of a run's config.toml; the other sections stay."""
    import tomli_w

    whole = read_toml(path) if path.exists() else {}
    if whole and not SECTION_NAMES & whole.keys():
        raise TagmaskError(
            f"{path} is not a run's: it has none of its sections; choose another --out."
        )
    whole[section] = to_plain(settings)
    write_text(path, tomli_w.dumps(whole))


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; a sentence if it cannot be read."""
    try:
        sections = tomllib.loads(read_text(path))
    except (
        ValueError,
        RecursionError,
    ) as error:  # not TOML, a number of thousands of digits, or nested too deep
        raise TagmaskError(f"{path} is not valid TOML: {error}.") from None
    for name, section in sections.items():
        if not isinstance(section, dict):
            raise TagmaskError(
                f"{path}: {name} is in no section; settings belong below a heading, e.g. [train]."
            )
    return sections


def _nested(field: "dataclasses.Field[Any]", inner: Any, value: Any, source: str) -> Any:
    """Settings within settings: a table's values on top of the defaults of the outer settings."""
    if isinstance(value, inner):
        return value
    if not isinstance(value, Mapping):
        raise TypeError
    default = inner if field.default_factory is dataclasses.MISSING else field.default_factory
    return dataclasses.replace(default(), **read_values(inner, value, source))


def _convert(value: Any, hint: Any) -> Any:
    """``value`` as the type ``hint``, or TypeError/ValueError."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):  # a Literal or None is the latter
        inner = next(arg for arg in args if arg is not type(None))
        return (
            None
            if value is None or (value == UNSET and inner is not str)
            else _convert(value, inner)
        )
    if origin is Literal:
        if value not in args:
            raise ValueError
        return value
    if origin is tuple:
        variadic = len(args) == 2 and args[1] is Ellipsis
        if not isinstance(value, (list, tuple)) or (not variadic and len(value) != len(args)):
            raise ValueError
        return tuple(_convert(item, args[0]) for item in value)
    if hint is Path and isinstance(value, (str, Path)):
        if not str(value) or "\0" in str(value):
            raise ValueError
        return Path(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not hint:
        raise TypeError
    return value


def _brief(value: Any) -> str:
    """A value for a message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits
        return "(too long to show)"
    return text if len(text) < 200 else f"{text[:200]} …"


def _describe(hint: Any) -> str:
    args = typing.get_args(hint)
    if typing.get_origin(hint) is Literal:
        return " | ".join(repr(arg) for arg in args)
    return getattr(hint, "__name__", str(hint)) if not args else str(hint)
