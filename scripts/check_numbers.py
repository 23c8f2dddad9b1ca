"""Are the numbers of the pages those of the files they come from? Tables and headlines are compared.

A table of a page is compared with the CSV files under docs/results whose first column has the same title: a row with
the row of the same name, a cell with the columns that its title names (mean, ± std, [low, high], the paper's). Tables of
few photos are computed from the runs. Rows and columns that no file has are not compared, and files may have more.

    python scripts/check_numbers.py            prints what does not agree, and how many numbers were compared
"""

import csv
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results"
# what tables call the columns of the files
ALIASES = {
    "baseline": "none (baseline)",
    "+ activation (SEAM*)": "activation (SEAM*)",
    "+ affinity": "affinity",
    "+ both (ACR)": "activation + affinity (ACR)",
    "gain of ACR": "activation + affinity (ACR)",
}
NUMBER = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?")
CELL = re.compile(
    rf"(?P<mean>{NUMBER.pattern})(?: ± (?P<std>[\d.]+))?"
    r"(?: \[(?P<low>[+-][\d.]+), (?P<high>[+-][\d.]+)\])?"
)
Rows = dict[str, dict[str, str]]


@dataclass
class Found:
    """What was compared, and what does not agree."""

    compared: int = 0
    mistakes: list[str] = field(default_factory=list)

    def compare(self, where: str, written: str, value: float) -> None:
        """Compare a number as it is written with its value."""
        self.compared += 1
        if not agrees(written, value):
            self.mistakes.append(f"{where}: {written} is written, the file has {value:g}")


@dataclass(frozen=True)
class Table:
    """A table of a page: titles of its columns, and the cells of each row."""

    page: str
    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def agrees(written: str, value: float) -> bool:
    """Return True if a number is a value rounded to its decimals.

    Args:
        written: The number as it is written, such as "+5.8" or "1,580".
        value: Its value.
    """
    _, _, decimals = written.partition(".")
    half = 0.5 * float(f"1e-{len(decimals)}")
    return abs(float(written.replace(",", "")) - value) <= half + 1e-6


def tables(path: Path) -> Iterator[Table]:
    """Yield the tables of a page.

    Args:
        path: A Markdown file.
    """
    plain = re.sub(r"\*\*|\\(?=\*)", "", path.read_text(encoding="utf-8")).replace("−", "-")
    for block in re.findall(r"(?:^\|.*\n)+", plain, re.MULTILINE):
        lines = [line.strip().removeprefix("|").removesuffix("|") for line in block.splitlines()]
        titles, _, *rows = [tuple(cell.strip() for cell in line.split("|")) for line in lines]
        # a cell with a mark of its own, as in code, makes a row longer
        whole = tuple(row for row in rows if len(row) == len(titles))
        yield Table(path.name, titles, whole)


def read_results(folder: Path) -> dict[str, tuple[str, Rows]]:
    """Return the title of the first column and the rows by name of each file.

    Args:
        folder: Where the CSV files are.
    """
    results = {}
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            first = (reader.fieldnames or [""])[0]
            results[path.name] = (first, {row[first]: row for row in reader})
    return results


def columns(titles: Sequence[str], suffix: str) -> list[str]:
    """Return what a file calls the columns of a table, after the first.

    Args:
        titles: Of the table; "paper" belongs to the column before.
        suffix: What the titles leave out: nothing, or that thresholds need no masks.
    """
    names: list[str] = []
    for title in titles[1:]:
        if title == "paper":
            names.append(f"{names[-1].removesuffix(' paper')} paper" if names else "paper")
            continue
        short, _, kind = title.rpartition(", ")
        if kind in ("blind", "tuned") and short in ALIASES:
            names.append(ALIASES[short] + (", blind" if kind == "blind" else ""))
        else:
            names.append(ALIASES.get(title, title) + suffix)
    return names


def compare_row(cells: Sequence[str], row: dict[str, str], names: Sequence[str]) -> Found | None:
    """Compare the cells of a row with a file's; None if the file lacks a column.

    Args:
        cells: Of the row, with its name.
        row: Of the file.
        names: Of the columns.
    """
    found = Found()
    for cell, name in zip(cells[1:], names, strict=True):
        is_paper = name.endswith(" paper")
        key = f"{name} mean"
        if is_paper or key not in row:
            # a column of the file without deviation or interval
            key = name
        if key not in row:
            return None
        matched = CELL.fullmatch(cell)
        if matched is None:
            continue
        for part, written in matched.groupdict().items():
            value = row.get(key if part == "mean" else f"{name} {part}", "")
            # numbers of the paper are written by hand where the file has none
            if written is not None and (value or not is_paper):
                found.compare(f"{cells[0]}, {name}", written, float(value or "nan"))
    return found


def compare_table(table: Table, results: dict[str, tuple[str, Rows]]) -> Found:
    """Compare a table with the file that agrees best; rows that it lacks with any other.

    Args:
        table: Of a page.
        results: Title and rows of each file.
    """
    tried: list[dict[str, Found]] = []
    for first, rows in results.values():
        if first != table.titles[0]:
            continue
        for suffix in ("", ", blind"):
            names = columns(table.titles, suffix)
            compared = {}
            for cells in table.rows:
                of_row = compare_row(cells, rows[cells[0]], names) if cells[0] in rows else None
                if of_row is not None:
                    compared[cells[0]] = of_row
            tried.append(compared)
    found = Found()
    tried.sort(key=lambda compared: -sum(not of_row.mistakes for of_row in compared.values()))
    for cells in table.rows:
        of_rows = [compared[cells[0]] for compared in tried if cells[0] in compared]
        if not of_rows:
            continue
        is_in_best = cells[0] in tried[0]
        best = of_rows[0] if is_in_best else min(of_rows, key=lambda of_row: len(of_row.mistakes))
        found.compared += best.compared
        found.mistakes += [f"{table.page}: {mistake}" for mistake in best.mistakes]
    return found


def few_photos(name: str) -> dict[tuple[str, int, str], dict[int, dict[str, str]]]:
    """Return the runs of a file of few photos, by kind of tags, count and flags, then by draw.

    Args:
        name: Of the file under docs/results.
    """
    runs: dict[tuple[str, int, str], dict[int, dict[str, str]]] = {}
    with (RESULTS / name).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            kind = f"{row['kind']} {row['classes']}"
            key = (kind, int(row["count"]), row["flags"].split(" ")[0])
            runs.setdefault(key, {})[int(row["draw"])] = row
    return runs


TWO = "exclusive cat+dog"
SIX = "mixed cat+cow+dog+horse+person+sheep"


def curve() -> dict[tuple[str, int], list[float]]:
    """Return the mIoU of each draw with the preset, by kind of tags and number of photos."""
    scores = {}
    for (kind, count, flags), draws in few_photos("few-photos-curve.csv").items():
        if flags == "preset":
            scores[kind, count] = [float(draws[draw]["miou"]) for draw in sorted(draws)]
    return scores


def compare_curve(found: Found) -> None:
    """Compare the table of how many photos are needed: a mean, and the draws in brackets."""
    scores = curve()
    for table in tables(ROOT / "docs/research/few-photos.md"):
        if table.titles[0] != "photos" or not table.titles[1].startswith("two tags"):
            continue
        for cells in table.rows:
            for kind, cell in zip((TWO, SIX), cells[1:3], strict=True):
                written = re.findall(r"\d+\.\d+", cell)
                draws = scores.get((kind, int(cells[0].replace(",", ""))))
                if not written or draws is None:
                    continue
                where = f"{table.page}: {cells[0]} photos, {kind}"
                found.compare(where, written[0], mean(draws))
                if len(written) > 1:
                    found.compare(f"{where}, number of draws", str(len(written) - 1), len(draws))
                for one, value in zip(written[1:], sorted(draws), strict=False):
                    found.compare(where, one, value)


def compare_trained(found: Found) -> None:
    """Compare the table of gentle trainings: columns are draws, or a column has all draws."""
    runs = few_photos("few-photos-trained.csv")
    flags = {"no training": "none", "with ACR's consistency": "acr", "without it": "plain"}
    for table in tables(ROOT / "docs/research/few-photos.md"):
        if "others, with tags" not in table.titles:
            continue
        for cells in table.rows:
            draws = runs.get((SIX, 80, flags.get(cells[0], "")), {})
            where = f"{table.page}: {cells[0]}"
            for title, cell in zip(table.titles, cells, strict=True):
                number = re.fullmatch(r"draw (\d+)", title)
                if number and int(number[1]) in draws:
                    found.compare(where, cell, float(draws[int(number[1])]["miou"]))
                column = {"others, with tags": "others", "others, without": "others_without"}
                if title in column:
                    for one, draw in zip(cell.split(", "), sorted(draws), strict=False):
                        found.compare(where, one, float(draws[draw][column[title]]))


@dataclass(frozen=True)
class Headline:
    """A sentence of a page with numbers in its groups, and their values."""

    page: str
    pattern: str
    values: tuple[float, ...]


def headlines(results: dict[str, tuple[str, Rows]]) -> list[Headline]:
    """Return the sentences that repeat results, with the values of their files.

    Args:
        results: Title and rows of each file.
    """
    scores = {key: mean(draws) for key, draws in curve().items()}
    two = [scores[TWO, count] for count in (10, 20, 40, 80)]
    six = [scores[SIX, count] for count in (20, 40, 80)]
    ends = (two[0], two[-1], six[0], six[-1])
    long = results["photos-long-gains.csv"][1]
    short = results["photos-ablation-all-gains.csv"][1]
    chain = results["photos-long-chain.csv"][1]
    both = "activation + affinity (ACR)"
    gain = float(long["mean of the maps"][f"{both} mean"])
    blind = float(long["mean of the maps"][f"{both}, blind mean"])
    own = float(long["ACR, affinity, 1 step"][f"{both} mean"])
    after_160 = float(short["mean of the maps"][f"{both} mean"])
    told = float(chain["masks, told the tags"]["gain mean"])
    first = float(few_photos("few-photos-curve.csv")[TWO, 120, "preset"][0]["miou"])
    n = r"([+-]?\d+(?:\.\d+)?)"
    index = "docs/research/index.md"
    return [
        Headline(
            "README.md", rf"10 to 80 photos of VOC, two tags \| {n} to {n}", (min(two), max(two))
        ),
        Headline(
            "README.md",
            rf"20 to 80 photos, six tags, several a photo \| {n} to {n}",
            (min(six), max(six)),
        ),
        Headline("README.md", rf"three random seeds \| {n} mIoU", (gain,)),
        Headline("README.md", rf"\(tagmask {n}\)", (first,)),
        Headline(
            "docs/tutorials/own-photos.md",
            rf"about {n} with 10 photos and about {n} with 80; six tags, several a photo, {n} with 20 and {n} with 80",
            ends,
        ),
        Headline(
            index,
            rf"{n} mIoU with 10 photos of two tags and {n} with 80; six tags, several a photo: {n} with 20, {n} with 80",
            ends,
        ),
        Headline(
            index, rf"{n} points of mIoU after 1,600 steps \({n} at thresholds", (gain, blind)
        ),
        Headline(index, rf"own maps with affinity gain {n} \(", (own,)),
        Headline(index, rf"After 160 steps it is {n}", (after_160,)),
        Headline(index, rf"With tags at test time, yes: {n}", (told,)),
    ]


def compare_headlines(results: dict[str, tuple[str, Rows]], found: Found) -> None:
    """Compare the sentences that repeat results; one that is gone is a mistake, too."""
    for line in headlines(results):
        text = (ROOT / line.page).read_text(encoding="utf-8").replace("**", "").replace("−", "-")
        matched = re.search(line.pattern, " ".join(text.split()))
        if matched is None:
            found.mistakes.append(
                f"{line.page}: no sentence like {line.pattern}; change it in this script, too"
            )
            continue
        for written, value in zip(matched.groups(), line.values, strict=True):
            found.compare(f"{line.page}: {matched[0]}", written, value)


def check() -> Found:
    """Compare all pages with their files."""
    results = read_results(RESULTS)
    found = Found()
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if "_build" in path.parts:
            continue
        for table in tables(path):
            of_table = compare_table(table, results)
            found.compared += of_table.compared
            found.mistakes += of_table.mistakes
    compare_curve(found)
    compare_trained(found)
    compare_headlines(results, found)
    return found


def main() -> None:
    """Print what does not agree."""
    found = check()
    for mistake in found.mistakes:
        print(mistake)
    print(f"{found.compared} numbers compared, {len(found.mistakes)} mistakes")
    sys.exit(bool(found.mistakes))


if __name__ == "__main__":
    main()
