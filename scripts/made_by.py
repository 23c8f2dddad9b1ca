"""Note which commit made each figure and table of the docs: docs/results/made-by.csv.

    python scripts/made_by.py            add files that are new or have changed
    python scripts/made_by.py COMMIT     the same, as made by COMMIT

A row holds the file, the first digits of the SHA-256 of its content, and the commit whose code made
it; for a file that is committed already it is the commit that brought it, and so it is where the
commit noted before is no longer in the history. A test compares the hashes, so a figure that is
replaced without a new note is noticed, and so is one without any. Results are the tables in
docs/results and the pictures that a research page shows; other pictures illustrate how something is
used, and are compared only if they are in the list.

The last column says what the present code does differently, in words that a page of the docs has,
too: it is written by hand when a change makes a result out of date, and cleared when the file is
made again. Without such words the result still stands.
"""

import csv
import hashlib
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs/results/made-by.csv"
HEAD = ["file", "sha256", "commit", "differs"]


def shown() -> list[str]:
    """Return every figure and table that has to be listed or is, relative to the project."""
    tables = {path for path in (ROOT / "docs/results").glob("*.csv") if path != FILE}
    found = {path.relative_to(ROOT).as_posix() for path in tables}
    for page in (ROOT / "docs/research").glob("*.md"):
        pictures = re.findall(r"\]\(\.\./(pictures/[^)]+)\)", page.read_text(encoding="utf-8"))
        found |= {f"docs/{picture}" for picture in pictures}
    listed = {name for name in noted() if (ROOT / name).is_file()}
    return sorted(found | listed)


def digest(name: str) -> str:
    """Return the first digits of the SHA-256 of a file's content."""
    return hashlib.sha256((ROOT / name).read_bytes()).hexdigest()[:16]


def noted() -> dict[str, dict[str, str]]:
    """Return the rows of the list by file; none if there is no list yet."""
    if not FILE.is_file():
        return {}
    with FILE.open(encoding="utf-8", newline="") as file:
        return {row["file"]: row for row in csv.DictReader(file)}


def git(*arguments: str) -> str:
    """Return what git prints."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def has_commit(commit: str) -> bool:
    """Return True if the commit is in this copy of the history."""
    asked = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(asked, cwd=ROOT, check=False, capture_output=True).returncode == 0


def main(commit: str | None) -> None:
    """Write the list again: rows of unchanged files stay."""
    before = noted()
    rows = []
    for name in shown():
        sha = digest(name)
        known = before.get(name)
        is_same = known is not None and known["sha256"] == sha
        if known and is_same and has_commit(known["commit"]):
            rows.append(known)
            continue
        made_by = commit or "HEAD"
        if commit is None and not git("status", "--porcelain", "--", name):
            made_by = git("log", "-1", "--format=%H", "--", name)
        differs = known["differs"] if known and is_same else ""
        short = git("rev-parse", "--short=10", made_by)
        rows.append({"file": name, "sha256": sha, "commit": short, "differs": differs})
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, HEAD, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
