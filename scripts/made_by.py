"""Note which commit made each figure and table of the docs: docs/results/made-by.csv.

    python scripts/made_by.py            add files that are new or have changed
    python scripts/made_by.py COMMIT     the same, as made by COMMIT

A row holds the file, the first digits of the SHA-256 of its content, and the commit whose code made
it; for a file that is committed already it is the commit that brought it. A test compares the hashes,
so a figure that is replaced without a new note is noticed, and so is one without any. Pictures of
pages and of the first steps are no results and are left out.
"""

import csv
import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs/results/made-by.csv"
HEAD = ["file", "sha256", "commit"]
NO_RESULTS = ("explore-", "studio", "clicks", "demo", "hero", "own-photos", "report")


def shown() -> list[str]:
    """Return every figure and table of results under docs, relative to the project."""
    found = []
    for folder in ("docs/pictures", "docs/results"):
        for path in sorted((ROOT / folder).iterdir()):
            is_result = not path.name.startswith(NO_RESULTS)
            if path != FILE and is_result and path.suffix in (".png", ".jpg", ".csv"):
                found.append(path.relative_to(ROOT).as_posix())
    return found


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


def main(commit: str | None) -> None:
    """Write the list again: rows of unchanged files stay."""
    before = noted()
    rows = []
    for name in shown():
        sha = digest(name)
        known = before.get(name)
        if known and known["sha256"] == sha:
            rows.append(known)
            continue
        made_by = commit or "HEAD"
        if commit is None and not git("status", "--porcelain", "--", name):
            made_by = git("log", "-1", "--format=%H", "--", name)
        rows.append(
            {"file": name, "sha256": sha, "commit": git("rev-parse", "--short=10", made_by)}
        )
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, HEAD, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
