"""Code in the README and the docs runs; commands shown there exist with those flags."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import tagmask.cli as cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str) -> list[Any]:
    found = []
    for page in PAGES:
        for i, block in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)):
            found.append(pytest.param(block, id=f"{page.name}-{i}"))
    return found


@pytest.mark.parametrize("code", blocks("python"))
def test_python_code_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs", "exec"), {"__name__": "docs"})


def commands() -> list[str]:
    lines = [line for block in blocks("bash") for line in str(block.values[0]).replace("\\\n", " ").splitlines()]
    return sorted({line[line.index("tagmask ") :] for line in lines if re.search(r"(^|-m )tagmask ", line)})


@pytest.mark.parametrize("line", commands())
def test_commands_parse(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line, comments=True)[1:]
    asked: list[Any] = []

    def stop(settings: Any) -> Any:
        asked.append(settings)
        raise SystemExit(0)

    for place in (
        "tagmask.training.classifier.train",
        "tagmask.stages.seeds.seed_catalog",
        "tagmask.stages.photo.seed_photo",
        "tagmask.stages.score_run.score_run",
        "tagmask.stages.pseudo.make_pseudo",
        "tagmask.stages.report.write_report",
        "tagmask.pipeline.run",
        "tagmask.training.segmenter.train_segmenter",
        "tagmask.stages.predict.predict_catalog",
        "tagmask.stages.predict_photo.predict_photo",
        "tagmask.stages.export.export_run",
        "tagmask.demo.run_demo",
    ):
        monkeypatch.setattr(place, stop)
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code in (0, None)


def test_there_are_commands_and_code() -> None:
    assert len(commands()) >= 4
    assert len(blocks("python")) >= 2
