"""The plan of a run: its stages, how far each has come, and about how long the rest will take.

Times come from the log of a training that is resumed, otherwise from one step or one image.
"""

from collections.abc import Mapping
from contextlib import suppress
from itertools import dropwhile
from pathlib import Path

import torch

from tagmask import layout
from tagmask.config.run import RunSettings
from tagmask.data.catalog import Catalog, give_back
from tagmask.data.survey import tag_table
from tagmask.runs.memory import Watch, available, resident, size
from tagmask.runs.record import Status, read_log
from tagmask.runs.table import Stage, stage
from tagmask.runs.timing import Probe, probe
from tagmask.training.checkpoint import read_state

_MARGIN = 1.1  # memory that a process holds of the stages before


def plan(settings: RunSettings, catalog: Catalog, statuses: Mapping[str, Status]) -> str:
    """Return one line per stage: its state, how much is left, how long it will take.

    Args:
        settings: Those of the run.
        catalog: Its images.
        statuses: How far each stage has come, in their order.
    """
    # from the first that is not done
    waiting = tuple(dropwhile(lambda name: statuses[name].state == "done", statuses))
    amounts: dict[str, int] = {}
    for name in waiting:
        amounts[name] = _left(settings, catalog, stage(name), statuses[name])
    example = probe(settings, catalog) if settings.estimate else None
    rates: dict[str, float] = {}
    memory: dict[str, float] = {}
    if example:
        rates, memory = _measure(settings, waiting, example)

    lines = [f"plan for {settings.out}: {len(catalog)} images, {len(catalog.classes)} classes"]
    if waiting:
        lines += [f"    {row}" for row in tag_table(catalog)]
    for name, status in statuses.items():
        amount = ""
        time = ""
        if name in waiting:
            unit = _amount(settings, catalog, stage(name))[1]
            amount = f"{amounts[name]} {unit}"
        if name in rates:
            time = f"about {duration(rates[name] * amounts[name])}"
        state = _state(status, name in waiting)
        lines.append(f"  {name:8} {state:38} {amount:14} {time}".rstrip())
    if not catalog.has_masks:
        lines.append("  score    left out, these data have no masks")
    if rates:
        lines.append(_together(waiting, rates, amounts))
    if memory:
        lines.append(_memory(memory))
    if example:
        lines += _disk(settings, waiting, example)
    return "\n".join(lines)


def _together(
    waiting: tuple[str, ...], rates: Mapping[str, float], amounts: Mapping[str, int]
) -> str:
    """Return a line on the time of all stages, and on those whose time is unknown."""
    total = 0.0
    for name, rate in rates.items():
        total += rate * amounts[name]
    line = f"  together about {duration(total)}"
    unknown = [name for name in waiting if name not in rates and stage(name).part("estimate")]
    if unknown:
        line += f", without {', '.join(unknown)}"
    return line


def _memory(needed: Mapping[str, float]) -> str:
    """Return a line on the memory of the stage that needs most."""
    name = max(needed, key=needed.__getitem__)
    line = f"  memory: about {size(needed[name])}, for {name}"
    free = available() + resident()
    if needed[name] > free:
        line += (
            f"; only {size(free)} are free: use fewer --processes, smaller batches or smaller "
            "photos, or end other programs"
        )
    return line


def duration(seconds: float) -> str:
    """Return a time for people: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _state(status: Status, waiting: bool) -> str:
    """Return the state of a stage in words."""
    if not waiting:
        return "done, nothing has changed"
    if status.state == "done":
        return "redo if its inputs change"
    state = "to do" if status.state == "new" else status.state
    if not status.why:
        return state
    more = f" and {len(status.why) - 1} more" if len(status.why) > 1 else ""
    return f"{state}: {status.why[0]}{more}"


def _left(settings: RunSettings, catalog: Catalog, row: Stage, status: Status) -> int:
    """Return how many steps or images are left of a stage, at most."""
    folder = settings.out / row.folder
    is_resumed = status.state == "resume"
    total, unit = _amount(settings, catalog, row)
    if unit == "steps":
        state = read_state(folder) if is_resumed else None
        return total - min(total, state["step"] if state else 0)
    # a training that is only a fit starts over
    if row.unit == "images" and row.folder and is_resumed:
        suffix = Path(row.products).suffix
        made = 0
        for i in range(len(catalog)):
            file = folder / f"{catalog.name(i)}{suffix}"
            made += file.is_file()
        return total - made
    return total


def _amount(settings: RunSettings, catalog: Catalog, row: Stage) -> tuple[int, str]:
    """Return how much there is to do in a stage, and in which unit."""
    own = row.part("amount")
    if own is not None:
        amount: tuple[int, str] = own(row.settings_of(settings), len(catalog))
        return amount
    return (1 if row.unit == "page" else len(catalog)), row.unit


def _disk(settings: RunSettings, waiting: tuple[str, ...], example: Probe) -> list[str]:
    """Return a line on the disk space of the feature cache, if anything is kept."""
    needed = 0.0  # gigabytes
    for name in waiting:
        own = stage(name).part("disk")
        if own is not None:
            needed += own(example) / 1e9
    if needed <= 0:
        return []
    line = f"  {layout.TOKENS}: kept tokens take about {needed:.1f} GB"
    if needed > settings.tokens_limit:
        line += f"; --tokens-limit keeps {settings.tokens_limit:g} GB of them"
    return [line]


def _measure(
    settings: RunSettings, waiting: tuple[str, ...], example: Probe
) -> tuple[dict[str, float], dict[str, float]]:
    """Measure the stages, as far as they can be: seconds per step or image, and bytes of memory."""
    generator = torch.random.get_rng_state()
    rates: dict[str, float] = {}
    memory: dict[str, float] = {}
    for row in map(stage, waiting):
        rate = None
        if row.unit == "steps":
            rate = logged_rate(settings.out / row.folder / layout.LOG)
        estimate = row.part("estimate")
        if estimate is not None:
            example.unseen.clear()
            measured = None
            give_back()  # what the stage before has left
            with suppress(torch.OutOfMemoryError), Watch() as watch:
                measured = estimate(example)
            if measured is not None:
                own = row.part("memory")
                one = _MARGIN * (watch.highest + sum(example.unseen))
                memory[row.name] = one if own is None else own(example, one)
                rate = measured if rate is None else rate
        if rate is not None:
            rates[row.name] = rate
    torch.random.set_rng_state(generator)
    return rates, memory


def logged_rate(log: Path) -> float | None:
    """Return the seconds per step of the last part of a training's log; None if it is too short.

    Args:
        log: The log.jsonl of a training.
    """
    if not log.is_file():
        return None
    rows = [row for row in read_log(log) if "seconds" in row]
    # each row with the one before it, the last first; a training that was resumed counts anew
    for before, after in zip(rows[-2::-1], rows[:0:-1], strict=True):
        steps = after["step"] - before["step"]
        seconds = after["seconds"] - before["seconds"]
        if steps > 0 and seconds > 0:
            return seconds / steps
    return None
