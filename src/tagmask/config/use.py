"""How a network is to be used: the settings of its maps or masks that a run decided.

They are stored with the network as plain values and are what every door starts from.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from tagmask.config.base import Settings, check
from tagmask.config.toml import read_values, to_plain

# settings of the machine, not of the result
_NOT_TOLD = {"device", "batch", "processes"}

Kind = TypeVar("Kind", bound=Settings)


def use_of(kind: type[Settings], settings: Settings) -> dict[str, Any]:
    """Return the settings that a network is told, as plain values.

    Args:
        kind: ``MapSettings`` or ``MaskSettings``; their fields count, without those of the machine.
        settings: the settings of a stage, of which ``kind`` is a base class.

    Returns:
        The values that differ from the defaults of ``kind``, as JSON can hold them.
    """
    plain = to_plain(settings)
    use: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        is_default = getattr(settings, field.name) == field.default
        if field.name not in _NOT_TOLD and not is_default:
            use[field.name] = plain[field.name]
    return use


def read_use(kind: type[Settings], use: Mapping[str, Any], source: str = "use") -> dict[str, Any]:
    """Return what a network was told as arguments of ``kind``.

    Args:
        kind: ``MapSettings`` or ``MaskSettings``.
        use: plain values, as ``use_of`` returns them.
        source: what an error calls the place they were read from.

    Raises:
        TagmaskError: a setting is unknown or of another form.
    """
    return read_values(kind, use, source)


def settings_from(kind: type[Kind], use: Mapping[str, Any], given: Mapping[str, Any]) -> Kind:
    """Return settings that start from what a network was told.

    Args:
        kind: ``MapSettings`` or ``MaskSettings``.
        use: plain values, as ``use_of`` returns them.
        given: settings by name; they override ``use``.

    Raises:
        TagmaskError: a setting is unknown or of another form, or cannot be used.
    """
    told = read_use(kind, use)
    settings = kind(**{**told, **read_values(kind, given, "settings")})
    check(settings)
    return settings
