"""How much each class covers, for the page: the same counts as in the report."""

import dataclasses
from typing import Any

from tagmask.report.cover import MOST_PHOTOS, cover_of, summarise
from tagmask.report.images import RunLabels
from tagmask.studio.view import RunView


def numbers(view: RunView) -> dict[str, Any]:
    """Return the tables of a run's masks by class, and by the columns that the run was told.

    Args:
        view: The run.

    Returns:
        Plain values; without masks there are no rows. ``problem`` is a sentence, or empty.

    Raises:
        TagmaskError: The table about the photos has mistakes.
    """
    labels = RunLabels(view.run.out, view.catalog)
    indices = labels.images_of("predictions")
    if not indices:
        return {"classes": [], "tables": [], "has_scale": False, "problem": ""}
    if len(indices) > MOST_PHOTOS:
        problem = f"{len(indices):,} masks are too many for this page; export a table."
        return {"classes": [], "tables": [], "has_scale": False, "problem": problem}
    cover = cover_of(summarise(labels, indices, view.run, view.run.images))
    problem = f"{len(labels.problems)} masks cannot be read." if labels.problems else ""
    return {**dataclasses.asdict(cover), "problem": problem}
