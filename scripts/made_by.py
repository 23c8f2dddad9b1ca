"""Note which commit made each figure and table of the docs, and whether its code has changed since.

    python scripts/made_by.py                    after making files: notes those that are new or differ
    python scripts/made_by.py COMMIT             the same, as made by COMMIT
    python scripts/made_by.py --stands FILE WHY  the code has changed, and FILE would be the same: say why

The list is docs/results/made-by.csv, a row for each table in docs/results and each picture in
docs/pictures:

    file     the figure or table
    sha256   the first digits of the SHA-256 of its content
    commit   the commit whose code made it; for a file that was committed before it was noted, the
             commit that brought it, and so it is where the commit noted before is no longer in the
             history
    shows    the files and folders whose code it shows, written by hand
    code     the first digits of a hash of that code: comments, docstrings and line breaks do not count
    stands   why the file stands although that code has changed since it was made
    differs  what the present code does differently, in words that docs/research/tables.md has, too

A test compares the hashes. So a figure that is replaced without a new note is noticed, and so is one
whose code has changed: make it again, or say why it stands.
"""

import ast
import csv
import hashlib
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs/results/made-by.csv"
HEAD = ["file", "sha256", "commit", "shows", "code", "stands", "differs"]
Row = dict[str, str]


def shown() -> list[str]:
    """Return every figure and table of the docs, relative to the project."""
    tables = {path for path in (ROOT / "docs/results").glob("*.csv") if path != FILE}
    pictures = set((ROOT / "docs/pictures").iterdir())
    return sorted(path.relative_to(ROOT).as_posix() for path in tables | pictures)


def short_hash(content: bytes) -> str:
    """Return the first digits of the SHA-256 of bytes."""
    return hashlib.sha256(content).hexdigest()[:16]


def digest(name: str) -> str:
    """Return the first digits of the SHA-256 of a file's content."""
    return short_hash((ROOT / name).read_bytes())


def code_digest(shows: str) -> str:
    """Return the hash of what the files and folders named in a row compute.

    Args:
        shows: Their paths from the project's root, separated by blanks.
    """
    parts = []
    for name in shows.split():
        path = ROOT / name
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                parts.append(file.relative_to(ROOT).as_posix().encode())
                parts.append(essence(file))
    return short_hash(b"\0".join(parts))


def essence(file: Path) -> bytes:
    """Return what a file computes: of Python without comments, docstrings and blanks."""
    if file.suffix != ".py":
        # git may check text out with other line ends
        return file.read_bytes().replace(b"\r\n", b"\n")
    text = file.read_text(encoding="utf-8")
    left_out = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            # a docstring, or another text that stands alone
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    kept = []
    for number, line in enumerate(text.splitlines(), 1):
        if number not in left_out and not line.lstrip().startswith("#"):
            kept.append(line)
    return re.sub(r"\s+", "", "".join(kept)).encode()


def noted() -> dict[str, Row]:
    """Return the rows of the list by file; none if there is no list yet."""
    if not FILE.is_file():
        return {}
    with FILE.open(encoding="utf-8", newline="") as file:
        return {row["file"]: row for row in csv.DictReader(file)}


def changed() -> list[str]:
    """Return the files whose code has changed since they were made, or were last said to stand."""
    return [name for name, row in noted().items() if code_digest(row["shows"]) != row["code"]]


def git(*arguments: str) -> str:
    """Return what git prints."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def has_commit(commit: str) -> bool:
    """Return True if the commit is in this copy of the history."""
    asked = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(asked, cwd=ROOT, check=False, capture_output=True).returncode == 0


def write(rows: list[Row]) -> None:
    """Write the list."""
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, HEAD, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def note(commit: str | None) -> None:
    """Write the list again: rows of unchanged files stay."""
    before = noted()
    rows = []
    for name in shown():
        known = before.get(name)
        sha = digest(name)
        if known and known["sha256"] == sha and has_commit(known["commit"]):
            rows.append({**known, "code": known["code"] or _code(known["shows"])})
        else:
            rows.append(_new_row(name, sha, commit, known))
    write(rows)
    for row in rows:
        if not row["shows"]:
            print(
                f"{row['file']}: write into the column shows whose code it shows, and run this again."
            )


def _new_row(name: str, sha: str, commit: str | None, known: Row | None) -> Row:
    """Return the row of a file that is new, that has changed, or whose commit is lost."""
    made_by = commit or "HEAD"
    if commit is None and not git("status", "--porcelain", "--", name):
        made_by = git("log", "-1", "--format=%H", "--", name)
    row = {"file": name, "sha256": sha, "commit": git("rev-parse", "--short=10", made_by)}
    if known and known["sha256"] == sha:
        return {**known, **row}
    shows = known["shows"] if known else ""
    return {**row, "shows": shows, "code": _code(shows), "stands": "", "differs": ""}


def _code(shows: str) -> str:
    """Return the hash of the code that a file shows; empty as long as nothing names that code."""
    return code_digest(shows) if shows else ""


def stand(name: str, why: str) -> None:
    """Note that a file would be the same by the present code."""
    rows = noted()
    if name not in rows:
        sys.exit(f"{name} is not in {FILE.relative_to(ROOT).as_posix()}.")
    rows[name]["code"] = code_digest(rows[name]["shows"])
    rows[name]["stands"] = why
    write(list(rows.values()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--stands"]:
        stand(*sys.argv[2:])
    else:
        note(sys.argv[1] if len(sys.argv) > 1 else None)
