"""The plan of a run: its stages, how far each has come, and about how long the rest will take.

Times come from the log of a training that is resumed, otherwise from one step or one image.
"""

from collections.abc import Mapping
from contextlib import suppress
from itertools import dropwhile
from pathlib import Path
from typing import Any

import torch

from tagmask import layout
from tagmask.config.run import RunSettings
from tagmask.data.catalog import Catalog
from tagmask.data.survey import tag_table
from tagmask.runs.record import Status, read_log
from tagmask.runs.table import Stage, stage
from tagmask.runs.timing import Probe, probe
from tagmask.training.checkpoint import read_state
from tagmask.training.loop import total_steps


def plan(settings: RunSettings, catalog: Catalog, statuses: Mapping[str, Status]) -> str:
    """One line per stage: its state, how much is left, how long it will take."""
    waiting = tuple(
        dropwhile(lambda name: statuses[name].state == "done", statuses)
    )  # from the first
    amounts = {name: _left(settings, catalog, stage(name), statuses[name]) for name in waiting}
    example = probe(settings, catalog) if settings.estimate else None
    rates = _rates(settings, waiting, example) if example else {}
    units = {name: _unit(settings, catalog, stage(name)) for name in statuses}
    lines = [f"plan for {settings.out}: {len(catalog)} images, {len(catalog.classes)} classes"]
    lines += [f"    {row}" for row in tag_table(catalog)] if waiting else []
    for name, status in statuses.items():
        amount = f"{amounts[name]} {units[name]}" if name in waiting else ""
        time = f"about {duration(rates[name] * amounts[name])}" if name in rates else ""
        lines.append(f"  {name:8} {_state(status, name in waiting):38} {amount:14} {time}".rstrip())
    if not catalog.has_masks:
        lines.append("  score    left out, these data have no masks")
    if rates:
        unknown = [name for name in waiting if name not in rates and stage(name).part("estimate")]
        total = sum(rate * amounts[name] for name, rate in rates.items())
        lines.append(
            f"  together about {duration(total)}"
            + (f", without {', '.join(unknown)}" if unknown else "")
        )
    return "\n".join([*lines, *(_disk(settings, waiting, example) if example else [])])


def duration(seconds: float) -> str:
    """A time for people: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def _state(status: Status, waiting: bool) -> str:
    if not waiting:
        return "done, nothing has changed"
    if status.state == "done":
        return "redo if its inputs change"
    more = f" and {len(status.why) - 1} more" if len(status.why) > 1 else ""
    state = "to do" if status.state == "new" else status.state
    return state + (f": {status.why[0]}{more}" if status.why else "")


def _left(settings: RunSettings, catalog: Catalog, row: Stage, status: Status) -> int:
    """How many steps or images are left of a stage, at most."""
    folder, resume = settings.out / row.folder, status.state == "resume"
    amount = row.part("amount")
    section: Any = row.settings_of(settings) if row.unit == "steps" else None
    if amount is not None and amount(section, len(catalog))[1] == "images":
        return len(catalog)
    if row.unit == "steps":
        total = total_steps(section, round(len(catalog) * (1 - section.val_fraction)))
        state = read_state(folder) if resume else None
        return total - min(total, state["step"] if state else 0)
    if row.unit == "images" and row.folder and resume:
        suffix = Path(row.products).suffix
        made = sum((folder / f"{catalog.name(i)}{suffix}").is_file() for i in range(len(catalog)))
        return len(catalog) - made
    return 1 if row.unit == "page" else len(catalog)


def _unit(settings: RunSettings, catalog: Catalog, row: Stage) -> str:
    """Return what a stage counts."""
    amount = row.part("amount")
    if amount is None:
        return row.unit
    unit: str = amount(row.settings_of(settings), len(catalog))[1]
    return unit


def _disk(settings: RunSettings, waiting: tuple[str, ...], example: Probe) -> list[str]:
    """A line on the disk space of kept tokens, if there are any."""
    needed = sum(part(example) for name in waiting if (part := stage(name).part("disk"))) / 1e9
    most = (
        ""
        if needed <= settings.tokens_limit
        else f"; --tokens-limit keeps {settings.tokens_limit:g} GB of them"
    )
    return (
        [f"  {layout.TOKENS}: kept tokens take about {needed:.1f} GB{most}"] if needed > 0 else []
    )


def _rates(settings: RunSettings, waiting: tuple[str, ...], example: Probe) -> dict[str, float]:
    """Seconds per step or image of each stage, as far as they can be measured."""
    generator, rates = torch.random.get_rng_state(), dict[str, float | None]()
    for row in map(stage, waiting):
        logged = (
            logged_rate(settings.out / row.folder / layout.LOG) if row.unit == "steps" else None
        )
        estimate = row.part("estimate")
        with suppress(torch.OutOfMemoryError):
            rates[row.name] = (
                estimate(example) if logged is None and estimate is not None else logged
            )
    torch.random.set_rng_state(generator)
    return {name: rate for name, rate in rates.items() if rate is not None}


def logged_rate(log: Path) -> float | None:
    """Seconds per step of the last part of a training's log; None if it is too short."""
    if not log.is_file():
        return None
    rows = [(row["step"], row["seconds"]) for row in read_log(log) if "seconds" in row]
    for (step, seconds), (later, end) in zip(rows[-2::-1], rows[:0:-1], strict=True):
        if later > step and end > seconds:
            return (end - seconds) / (later - step)
    return None
