"""What `--help` and `--help-all` show.

`--help` shows the settings that most people change; `--help-all` shows the rest too, in a group of
their own.
"""

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

ASKED = {"-h", "--help", "--help-all"}
NOTE = "These are the settings that most people change; --help-all shows all of them."


def show_help(
    kind: type[Any], default: Any, arguments: Sequence[str], prog: str, description: str
) -> None:
    """Print the settings of a command and exit, if the arguments ask for help.

    Args:
        kind: Class of the settings; ``basic`` of it and its bases names those to show first.
        default: Values of the settings; ``tyro.MISSING`` for those that must be given.
        arguments: The command line.
        prog: Name of the command, e.g. "tagmask train".
        description: Text before the settings.
    """
    asked = ASKED & set(arguments)
    if not asked:
        return
    import tyro

    values = {field.name: getattr(default, field.name) for field in dataclasses.fields(kind)}
    required = {name for name, value in values.items() if value is tyro.MISSING}
    basic = set(required)
    for base in kind.__mro__:
        basic |= set(vars(base).get("basic", "").split())
    # a class that names none has only a few settings
    if not basic:
        basic = set(values)
    first = _part(kind, values, values.keys() - basic)
    shown: Any = first(**values)
    if "--help-all" in asked:
        more = _part(kind, values, basic & values.keys(), in_group=True)
        groups: list[tuple[str, Any]] = [
            ("basic", Annotated[first, tyro.conf.arg(name="")]),
            ("more", more),
        ]
        # tyro wants a value for what it hides
        hints = typing.get_type_hints(kind)
        hidden = {name: hints[name]() for name in required}
        both = dataclasses.make_dataclass("Help", groups)
        shown = both(shown, more(**{**values, **hidden}))
    elif values.keys() - basic:
        description = f"{description}\n{NOTE}"
    tyro.cli(type(shown), args=["--help"], prog=prog, description=description, default=shown)


def with_some_of_stage(
    kind: type[Any], settings: Any, names: Sequence[str], title: str
) -> tuple[type[Any], Any]:
    """Return the settings of a run with a few of a stage, so that its help shows them, too.

    Args:
        kind: Class of the settings of the run.
        settings: Those of the stage.
        names: Settings of the stage to show.
        title: What stands above them.

    Returns:
        The class with one more field, named as the stage's section, and the value of that field.
    """
    values = {}
    for field in dataclasses.fields(settings):
        values[field.name] = getattr(settings, field.name)
    part = _part(type(settings), values, values.keys() - set(names), title=title)
    section = settings.section
    both = dataclasses.make_dataclass(
        kind.__name__,
        [(section, part)],
        bases=(kind,),
        namespace={"basic": section, "__doc__": kind.__doc__},
        frozen=True,
        kw_only=True,
    )
    return both, part(**values)


def _part(
    kind: type[Any],
    values: Mapping[str, Any],
    hidden: Collection[str],
    in_group: bool = False,
    title: str = "All other settings.",
) -> type[Any]:
    """Return a copy of a settings class whose ``hidden`` settings do not appear in the help."""
    import tyro

    hints = typing.get_type_hints(kind)
    texts = _explanations(kind)
    annotations: dict[str, Any] = {}
    for name in hidden:
        annotations[name] = Annotated[hints[name], tyro.conf.Suppress]
    for name in values.keys() - hidden:
        text = texts.get(name)
        if values[name] is None:
            # the docstring says what happens without a value
            quiet = tyro.conf.arg(prefix_name=not in_group, help=text, help_behavior_hint="")
            annotations[name] = Annotated[hints[name], tyro.conf.DisallowNone, quiet]
        else:
            shown = tyro.conf.arg(prefix_name=not in_group, help=text)
            annotations[name] = Annotated[hints[name], shown]
    body = {"__annotations__": annotations, "__doc__": title}
    part = type(kind.__name__, (kind,), body)
    return dataclasses.dataclass(frozen=True, kw_only=True)(part)


def _explanations(kind: type[Any]) -> dict[str, str]:
    """Return the docstring below each setting of a class and its bases, as one line.

    tyro keeps the line breaks of the source, which fit no other width than that of the source.
    """
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        try:
            source = textwrap.dedent(inspect.getsource(base))
        except (OSError, TypeError):  # made while the program runs, or built in
            continue
        body = ast.parse(source).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            if not isinstance(field, ast.AnnAssign) or not isinstance(below, ast.Expr):
                continue
            if isinstance(field.target, ast.Name) and isinstance(below.value, ast.Constant):
                found[field.target.id] = " ".join(str(below.value.value).split())
    return found
