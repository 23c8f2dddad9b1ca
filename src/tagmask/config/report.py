"""Settings of the report."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tagmask.config.base import DataSettings, Limit

MOST_ROWS = 24
Rows = Annotated[int, Limit(least=0, most=MOST_ROWS)]


@dataclass(frozen=True, kw_only=True)
class ReportSettings(DataSettings):
    """Write one HTML page about a run: scores, curves, pictures, and how everything was made."""

    basic = "rows"
    out: Path
    """Folder of the run; the page is its report.html."""
    rows: Rows = 12
    """Images in the gallery: best, median and worst in equal parts."""
