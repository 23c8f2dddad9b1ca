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
from tagmask.notes import GONE

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SECTION_NAMES = {"data", "run", "train", "seeds", "pseudo", "segment", "predict", "paper"}
# TOML has no null; this is written only for a setting whose default is a value
UNSET = "none"


def to_plain(settings: "DataclassInstance") -> dict[str, Any]:
    """Return settings as TOML and JSON can hold them, nested ones as tables.

    Those unset by default are left out while they are unset.
    """
    plain: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value is not None:
            plain[field.name] = _plain(value)
        elif field.default is not None:
            plain[field.name] = UNSET
    return plain


def _plain(value: Any) -> Any:
    """Return a value as TOML and JSON can hold it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_plain(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value


def read_values(
    kind: "type[DataclassInstance]", values: Mapping[str, Any], source: str
) -> dict[str, Any]:
    """Return arguments of a settings class from TOML values.

    Args:
        kind: Settings dataclass.
        values: Values by the names of its fields.
        source: Where they come from, for messages.

    Returns:
        The values, converted to the types of the fields.

    Raises:
        TagmaskError: If names are unknown or types are wrong; all mistakes are reported at once.
    """
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    mistakes: list[str] = []
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        if name in GONE and name not in fields:
            # what was made with another value of it is told to have changed
            continue
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            remedy = f"; did you mean {near[0]!r}?" if near else "."
            mistakes.append(f"{source}: there is no setting {name!r}{remedy}")
            continue
        hint = hints[name]
        try:
            if dataclasses.is_dataclass(hint):
                arguments[name] = _nested(fields[name], hint, value, f"{source}: {name}")
            else:
                arguments[name] = _convert(value, hint)
        except (TypeError, ValueError, OverflowError):
            shown = _brief(value)
            mistakes.append(f"{source}: {name} = {shown} is not of the form {_describe(hint)}.")
        except TagmaskError as error:
            mistakes.append(str(error))
    if mistakes:
        raise TagmaskError("\n".join(mistakes))
    return arguments


def write_sections(path: Path, sections: Mapping[str, Mapping[str, Any]]) -> None:
    """Put sections into a run's config.toml, if that is not what it holds; the others stay.

    Args:
        path: The config.toml; it is made if it is not there.
        sections: Values of each section, as ``to_plain`` returns them.

    Raises:
        TagmaskError: If the file is there and is not a run's.
    """
    import tomli_w

    whole = read_toml(path) if path.exists() else {}
    if whole and not SECTION_NAMES & whole.keys():
        raise TagmaskError(
            f"{path} is not a run's: it has none of its sections; choose another --out."
        )
    changed = {**whole, **sections}
    # what concerns every stage comes first
    first: dict[str, Any] = {name: changed[name] for name in ("data", "run") if name in changed}
    changed = {**first, **changed}
    if changed != whole:
        write_text(path, tomli_w.dumps(changed))


def read_toml(path: Path) -> dict[str, Any]:
    """Return the sections of a TOML file; raise TagmaskError if it cannot be read."""
    try:
        sections = tomllib.loads(read_text(path))
    # not TOML, a number of thousands of digits, or nested too deep
    except (ValueError, RecursionError) as error:
        raise TagmaskError(f"{path} is not valid TOML: {error}.") from None
    for name, section in sections.items():
        if not isinstance(section, dict):
            raise TagmaskError(
                f"{path}: {name} is in no section; settings belong below a heading, e.g. [train]."
            )
    return sections


def _nested(field: "dataclasses.Field[Any]", inner: Any, value: Any, source: str) -> Any:
    """Return settings within settings: a table's values on top of the outer settings' defaults."""
    if isinstance(value, inner):
        return value
    if not isinstance(value, Mapping):
        raise TypeError
    default = inner if field.default_factory is dataclasses.MISSING else field.default_factory
    return dataclasses.replace(default(), **read_values(inner, value, source))


def _convert(value: Any, hint: Any) -> Any:
    """Return ``value`` as the type ``hint``, or raise TypeError or ValueError."""
    origin = typing.get_origin(hint)
    args = typing.get_args(hint)
    # a Literal or None is a typing.Union, other types or None are a UnionType
    if origin in (types.UnionType, typing.Union):
        inner = next(arg for arg in args if arg is not type(None))
        if value is None or (value == UNSET and inner is not str):
            return None
        return _convert(value, inner)
    if origin is Literal:
        if value not in args:
            raise ValueError
        return value
    if origin is tuple:
        variadic = len(args) == 2 and args[1] is Ellipsis
        if not isinstance(value, (list, tuple)):
            raise ValueError
        if not variadic and len(value) != len(args):
            raise ValueError
        return tuple(_convert(item, args[0]) for item in value)
    if hint is Path and isinstance(value, (str, Path)):
        text = str(value)
        if not text or "\0" in text:
            raise ValueError
        return Path(value)
    # bool is a subclass of int
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not hint:
        raise TypeError
    return value


def _brief(value: Any) -> str:
    """Return a value for a message, shortened if it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        # a number of thousands of digits, or nested too deep
        return "(too long to show)"
    return text if len(text) < 200 else f"{text[:200]} …"


def _describe(hint: Any) -> str:
    """Return a type in words, for a message."""
    args = typing.get_args(hint)
    if typing.get_origin(hint) is Literal:
        return " | ".join(repr(arg) for arg in args)
    if args:
        return str(hint)
    return getattr(hint, "__name__", str(hint))
