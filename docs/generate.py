"""Write the pages of the documentation site that come from the code.

    commands     what `tagmask COMMAND --help-all` prints, for every command
    api          docstrings of the public names and of the modules on tensors and arrays
    notebook     the cells of the notebook as a page

The pages are written into the folders of the documentation, and git ignores them.
"""

import contextlib
import inspect
import io
import json
import os
import re
from pathlib import Path
from pkgutil import resolve_name

import tagmask
from tagmask.cli import main
from tagmask.cli.commands import commands
from tagmask.cli.examples import USAGE

# the rooms that know no files and no settings, and what they are for
MODULES = {
    "tagmask.acr.views": "Views of an image and their inverses on attention",
    "tagmask.acr.consistency": "The two losses of all-pairs consistency",
    "tagmask.acr.localize": "Localisation maps of a batch",
    "tagmask.acr.gradients": "Class gradients of the attention",
    "tagmask.masks.crf": "Dense CRF",
    "tagmask.masks.walk": "Random walk",
    "tagmask.masks.labels": "Labels from maps",
    "tagmask.scoring.confusion": "Confusion matrix and IoU",
    "tagmask.scoring.sweep": "All thresholds in one pass",
    "tagmask.scoring.threshold": "Thresholds without masks",
    "tagmask.inference.objectness": "Where objects are",
    "tagmask.inference.evidence": "Which tag an object has",
    "tagmask.inference.selfcheck": "Whether masks can be believed",
}
# what other pages import besides; a test compares this list with them
NAMES = (
    "tagmask.cli:main",
    "tagmask.config:MapSettings",
    "tagmask.config:ScoreSettings",
    "tagmask.config.paper:PaperSettings",
    "tagmask.data.images:write_mask",
    "tagmask.data.scenes.catalog:Scenes",
    "tagmask.inference.maps:make_maps",
    "tagmask.inference.probabilities:predict_probabilities",
    "tagmask.inference.probabilities:sharpen",
    "tagmask.methods:Method",
    "tagmask.methods.mctformer:mct",
    "tagmask.methods.trace:class_trace",
    "tagmask.models.deeplab:DeepLabV2",
    "tagmask.models.mct:MctClassifier",
    "tagmask.reproduction.command:run_paper",
    "tagmask.reproduction.settings:paper_settings",
    "tagmask.stages.score:score_seeds",
    "tagmask.stages.seeds:seed_file",
    "tagmask.stages.seeds:write_seeds",
)
# dictionaries among them: their own docstring is that of every dictionary
DATA = {
    "tagmask.config:PRESETS": "The presets by name: values of each section of config.toml.",
    "tagmask.methods:METHODS": "The map methods by name; add to it to register one.",
}
WIDTH = "100"


def write_generated_pages(docs: Path) -> None:
    """Write the generated pages, each only if it has changed."""
    _write(docs / "reference/commands.md", commands_page())
    _write(docs / "reference/api.md", api_page())
    _write(docs / "tutorials/notebook.md", notebook_page(docs / "tutorials/photos-to-masks.ipynb"))


def commands_page() -> str:
    """Return the page of all commands and their settings."""
    parts = [
        "# Commands",
        "Generated from the program: what `tagmask --help` and `tagmask COMMAND --help-all` print.",
        _block(USAGE),
    ]
    for name in commands():
        parts += [f"## tagmask {name}", _block(help_of(name))]
    return "\n\n".join(parts) + "\n"


def help_of(command: str) -> str:
    """Return what a command prints for --help-all, without colours."""
    os.environ["COLUMNS"] = WIDTH
    os.environ["NO_COLOR"] = "1"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([command, "--help-all"])
    without_colours = re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue())
    lines = [line.rstrip() for line in without_colours.splitlines()]
    return "\n".join(lines).strip()


def api_page() -> str:
    """Return the page of the public names and of the modules on tensors and arrays."""
    parts = [
        "# Python interface",
        "Generated from the docstrings. [In Python](python.md) shows how the names are used.",
        "## tagmask",
    ]
    for name in sorted(tagmask.__all__):
        if not name.startswith("_"):
            if not inspect.isclass(getattr(tagmask, name)):
                parts.append(_directive(f"autofunction:: tagmask.{name}"))
            elif name.endswith("Settings"):
                parts.append(_directive(f"autoclass:: tagmask.{name}"))
            else:
                parts.append(_directive(f"autoclass:: tagmask.{name}", "members"))
    for module, title in MODULES.items():
        parts += [f"## {title}", _directive(f"automodule:: {module}", "members")]
    parts.append("## Other names that these pages use")
    for name in NAMES:
        value = resolve_name(name)
        dotted = name.replace(":", ".")
        kind = "autoclass" if inspect.isclass(value) else "autofunction"
        parts.append(_directive(f"{kind}:: {dotted}"))
    for name, text in DATA.items():
        dotted = name.replace(":", ".")
        parts.append(f"```{{eval-rst}}\n.. py:data:: {dotted}\n\n   {text}\n```")
    return "\n\n".join(parts) + "\n"


def plain_docstring(kind: str, lines: list[str]) -> None:
    """Change a docstring in place so that reStructuredText shows it as it is written.

    Args:
        kind: "module", "function" or another kind of object.
        lines: The docstring.
    """
    shown: list[str] = []
    in_block = False
    for line in lines:
        indented = line.startswith("    ")
        if kind == "module" and indented and not in_block:
            # a formula or a list in columns
            shown += ["", ".. code-block:: text", ""]
        if kind == "module" and line and not indented and in_block:
            shown.append("")
        if line or not in_block:
            in_block = kind == "module" and indented
        is_code = kind == "module" and indented
        shown.append(line if is_code else line.replace("|", "\\|"))
    lines[:] = shown


def notebook_page(notebook: Path) -> str:
    """Return the cells of a notebook as Markdown."""
    parts = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            text = f"```python\n{text}\n```"
        parts.append(text)
    parts.append(f"The notebook as a file: [{notebook.name}]({notebook.name}).")
    return "\n\n".join(parts) + "\n"


def _block(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"


def _directive(line: str, *options: str) -> str:
    settings = "".join(f"\n   :{option}:" for option in options)
    return f"```{{eval-rst}}\n.. {line}{settings}\n```"


def _write(file: Path, text: str) -> None:
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")
