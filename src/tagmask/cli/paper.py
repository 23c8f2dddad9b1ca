"""`tagmask paper`: settings from --preset, --config and flags, then one table or figure."""

import difflib
from pathlib import Path
from typing import Any

from tagmask.cli.examples import PAPER_EXAMPLES
from tagmask.cli.parse import take
from tagmask.config import read_toml, read_values
from tagmask.config.paper import OWN, PaperSettings, PaperTop
from tagmask.config.run import DATA, SECTIONS, run_values
from tagmask.errors import TagmaskError
from tagmask.paper.names import NAMES, listing

_SHORT = "--seeds"  # of --random-seeds; --seeds.NAME are settings of the maps


def paper(arguments: list[str]) -> None:
    """Parse, call, print."""
    if "--list" in arguments:
        print(listing())
        return
    settings = parse_paper(arguments)
    from tagmask.paper import command

    print(command.run_paper(settings).summary())


def parse_paper(arguments: list[str]) -> PaperSettings:
    """The settings of a table; later sources win: defaults, preset, --config, flags."""
    import tyro

    rest = list(arguments)
    if {"-h", "--help"} & set(rest):  # the settings of the stages are told by the stages' own help
        tyro.cli(PaperTop, args=["--help"], prog="tagmask paper", description=PAPER_EXAMPLES)
    rest = [*(["--table"] if rest and not rest[0].startswith("-") else []), *rest]
    rest = [f"--random-seeds{one[len(_SHORT) :]}" if _is_short(one) else one for one in rest]
    name = take([*rest], "--table")
    _check_name(name)
    preset, config = take(rest, "--preset"), take(rest, "--config")
    if preset is None and config is None and not any(one == "--data" or one.startswith("--data=") for one in rest):
        preset = "scenes"
    values: dict[str, Any] = run_values(preset, Path(config) if config is not None else None)
    start = {key: value for key, value in values.items() if key in (*DATA, *SECTIONS)}
    start |= _own_of(Path(config), name) if config is not None else {}
    default = PaperSettings(**{"out": tyro.MISSING, "table": tyro.MISSING, **start})
    return tyro.cli(PaperSettings, args=rest, prog="tagmask paper", description=PAPER_EXAMPLES, default=default)


def _is_short(argument: str) -> bool:
    return argument == _SHORT or argument.startswith(_SHORT + "=")


def _check_name(name: str | None) -> None:
    if name is None:
        raise TagmaskError(f"name a table or figure first: {', '.join(NAMES)}; `tagmask paper --list` tells of each.")
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(NAMES)}."
        raise TagmaskError(f"the paper has no table or figure {name!r} here; {hint}")


def _own_of(config: Path, table: str | None) -> dict[str, Any]:
    """What a table's config.toml says of scoring, and of the rows of the same table; nothing in that of a run."""
    found = read_values(PaperTop, read_toml(config).get("paper", {}), f"{config}: paper")
    left_out = () if found.get("table") == table else ("rows",)
    return {key: value for key, value in found.items() if key in (*OWN, *DATA) and key not in left_out}
