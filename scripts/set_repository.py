"""Fill the address of the repository into every file that has the placeholder.

    make repository URL=https://github.com/me/tagmask

The placeholder is https://github.com/OWNER/tagmask. Started again with another address, the script
replaces the one it wrote before; pyproject.toml remembers it.
"""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = (
    "pyproject.toml",
    "README.md",
    "CONTRIBUTING.md",
    "CITATION.cff",
    "docs/how-to/faq.md",
    ".github/ISSUE_TEMPLATE/config.yml",
)


def current(root: Path) -> str:
    """Return the address that the files have now."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Repository"])


def fill(root: Path, address: str) -> list[str]:
    """Write an address in place of the current one, and return the changed files.

    Args:
        root: Folder of the repository.
        address: Without a slash at the end, e.g. "https://github.com/me/tagmask".
    """
    before = current(root)
    changed = []
    for name in FILES:
        file = root / name
        text = file.read_text(encoding="utf-8")
        if before in text:
            file.write_text(text.replace(before, address), encoding="utf-8")
            changed.append(name)
    return changed


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].startswith("https://"):
        sys.exit("give one address: make repository URL=https://github.com/me/tagmask")
    print("changed:", ", ".join(fill(ROOT, sys.argv[1].rstrip("/"))))
