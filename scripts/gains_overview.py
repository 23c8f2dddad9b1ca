"""What the consistency brings in several settings: the last rows of their `gains` tables as one table and figure.

python scripts/gains_overview.py --to gains.png "219 photos, 160 steps=few/gains.csv" "1,527 photos=all/gains.csv"
"""

import argparse
import csv
from pathlib import Path

from tagmask.reproduction.page import save_gains
from tagmask.reproduction.seed_tables import ABLATION_TITLES
from tagmask.reproduction.table import BLIND, Cell, Column, Table, TableRow, to_markdown


def last_row(file: Path, columns: list[Column]) -> tuple[Cell, ...]:
    """The mean of the maps; an empty cell for what the table has not."""
    with file.open(newline="") as text:
        *_, row = csv.DictReader(text)
    return tuple(_cell(row, column.title) for column in columns)


def _cell(row: dict[str, str], title: str) -> Cell:
    if not row.get(f"{title} mean"):
        return Cell()
    each = tuple(map(float, row[f"{title} each"].split()))
    return Cell(each, interval=(float(row[f"{title} low"]), float(row[f"{title} high"])))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="+", metavar="TITLE=CSV")
    parser.add_argument("--to", type=Path, required=True, help="the figure (PNG)")
    given = parser.parse_args()
    titles = [title for name, title in ABLATION_TITLES.items() if name != "none"]
    columns = [Column(title + end, gain=True) for title in titles for end in ("", BLIND)]
    rows = [
        TableRow(title, last_row(Path(file), columns))
        for title, _, file in (t.partition("=") for t in given.tables)
    ]
    table = Table("overview", "Mean gain over the maps", "setting", tuple(columns), tuple(rows))
    save_gains(given.to, table)
    print(to_markdown(table))
    for place, column in enumerate(columns):
        gains = [gain for row in rows for gain in row.cells[place].ours]
        above = sum(gain > 0 for gain in gains)
        print(
            f"{column.title}: {above} of {len(gains)} pairs above 0, {min(gains):+.1f} to {max(gains):+.1f}"
        )


if __name__ == "__main__":
    main()
