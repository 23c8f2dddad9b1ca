"""Build the wheel, compare its files with the source, install it into an empty environment, and use it there.

    python scripts/check_wheel.py [--extras onnx tensorboard] [--only-files] [--find-links FOLDER]

Nothing of this folder is on the path of the installed commands. It downloads what an installation downloads, and prints
how much that is.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
import venv
import zipfile
from pathlib import Path
from urllib.parse import unquote, urlparse

ROOT = Path(__file__).parents[1]
RUN = ("--out", "run")
COMMANDS = (  # every stage on a few pictures, and pages that need templates
    ("--help",),
    ("train", "--preset", "scenes", "--count", "24", "--steps", "2", "--batch", "4", *RUN),
    ("seeds", *RUN),
    ("pseudo", "--method", "crf", *RUN),
    (
        "segment",
        "--backbone",
        "test_resnet",
        "--size",
        "65",
        "--steps",
        "2",
        "--batch",
        "4",
        "--workers",
        "0",
        *RUN,
    ),
    ("predict", *RUN),
    ("score", *RUN),
    ("report", *RUN),
    ("export", "--format", "coco", "--to", "masks.json", *RUN),
)
PAGES = """
from importlib.resources import files
import tagmask.reproduction.numbers  # reads its file
assert "<html" in files("tagmask.studio").joinpath("web/index.html").read_text(encoding="utf-8")
"""


def build(folder: Path) -> Path:
    """The wheel."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def check_files(wheel: Path) -> str:
    """Compare the files of the wheel with those of the source; a sentence."""
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("tagmask/")}
    source = ROOT / "src"
    here = {
        file.relative_to(source).as_posix()
        for file in (source / "tagmask").rglob("*")
        if file.is_file()
    }
    here = {name for name in here if "__pycache__" not in name}
    if inside != here:
        sys.exit(
            f"the wheel lacks {sorted(here - inside)} and has {sorted(inside - here)} that the source has not."
        )
    data = sum(not name.endswith(".py") for name in here)
    return f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {len(here)} files, {data} of them templates and data."


def size_of(address: str) -> int:
    """Bytes of a package that was installed from an address."""
    parts = urlparse(address)
    if parts.scheme == "file":
        return os.path.getsize(unquote(parts.path))
    request = urllib.request.Request(address, method="HEAD")
    with urllib.request.urlopen(request) as answer:
        return int(answer.headers["Content-Length"])


def install(wheel: Path, place: Path, extras: list[str], more: list[str]) -> str:
    """Install the wheel into an empty environment; what it took, as a sentence."""
    venv.create(place, with_pip=True)
    before = sum(file.lstat().st_size for file in place.rglob("*"))
    report, what = place / "report.json", f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    words = [
        "install",
        "--quiet",
        "--report",
        str(report),
        "-c",
        str(ROOT / "constraints.txt"),
        *more,
        what,
    ]
    subprocess.run([place / "bin/pip", *words], check=True)
    packages = {
        entry["metadata"]["name"]: size_of(entry["download_info"]["url"]) / 1e6
        for entry in json.loads(report.read_text())["install"]
    }
    largest = sorted(packages, key=lambda name: -packages[name])[:6]
    shown = ", ".join(f"{name} {packages[name]:.0f}" for name in largest)
    taken = (sum(file.lstat().st_size for file in place.rglob("*")) - before) / 1e6
    return f"{len(packages)} packages, {sum(packages.values()):.0f} MB ({shown} …); {taken:.0f} MB on disk."


def main() -> None:
    """Check, and print a line for every part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--extras", nargs="+", default=[])
    parser.add_argument("--only-files", action="store_true", help="leave out the installation")
    parser.add_argument("--find-links", help="for pip")
    options = parser.parse_args()
    more = ["--find-links", options.find_links] if options.find_links else []
    with tempfile.TemporaryDirectory() as folder:
        wheel = build(Path(folder))
        print(check_files(wheel), flush=True)
        if options.only_files:
            return
        place = Path(folder) / "environment"
        print(install(wheel, place, options.extras, more), flush=True)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        for words in COMMANDS:
            run = [place / "bin/tagmask", *words]
            subprocess.run(run, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        subprocess.run([place / "bin/python", "-c", PAGES], cwd=folder, env=environment, check=True)
    print(
        "installed into an empty environment, every stage runs and every page finds its template."
    )


if __name__ == "__main__":
    main()
