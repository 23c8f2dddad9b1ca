"""Write docs/reference/paper-audit.md from paper-audit.csv beside it.

The CSV is the audit as data: for every statement of the paper its words in short, where it is in the
code, the verdict, and for settings the preset, the name and the value that a test compares.

    python scripts/paper_audit.py
"""

import csv
from collections import Counter
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs/reference"
HEAD = """# The paper, statement by statement

What the ACR paper states, where it is in the code (`src/tagmask`), and whether the strict presets
do it: {counts}.
*right*, of a score that the paper reports, means that it is stored as printed, not that it was
reproduced ([what was](../research/index.md)).
*explained* means that the paper is silent, contradicts itself, or cannot be followed;
[the paper's settings](paper-settings.md) gives the reason in the words of the last column.
Settings are those of the preset named; a test compares them with the presets and with that page,
and looks up every place in the code.

The rows are [data](paper-audit.csv); `python scripts/paper_audit.py` writes this page.

| where | the paper | in the code | verdict | setting | reason |
|---|---|---|---|---|---|
"""


def page() -> str:
    """Return the page as Markdown."""
    with (FOLDER / "paper-audit.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    verdicts = Counter(row["verdict"] for row in rows)
    numbers = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    lines = [HEAD.format(counts=f"{len(rows)} statements, {numbers}").rstrip("\n")]
    for row in rows:
        setting = ""
        if row["setting"]:
            setting = f"`{row['preset']}`: `{row['setting']}` = `{row['value']}`"
        cells = (row["section"], row["paper"], f"`{row['code']}`", row["verdict"], setting)
        escaped = [cell.replace("|", "\\|") for cell in (*cells, row["why"])]
        lines.append(f"| {' | '.join(escaped)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (FOLDER / "paper-audit.md").write_text(page(), encoding="utf-8")
