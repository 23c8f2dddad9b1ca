"""Settings of the report."""

from dataclasses import dataclass
from pathlib import Path

from tagmask.config.base import DataSettings

MOST_ROWS = 24


@dataclass(frozen=True, kw_only=True)
class ReportSettings(DataSettings):
    """Write one HTML page about a run: scores, curves, pictures, and how all was made."""

    out: Path
    """Folder of the run; the page is its report.html."""
    rows: int = 12
    """Images in the gallery: best, median and worst in equal parts."""

    def mistakes(self) -> list[str]:
        found = DataSettings.mistakes(self)
        if not 0 <= self.rows <= MOST_ROWS:
            found.append(f"--rows {self.rows} must be from 0 to {MOST_ROWS}.")
        return found
