"""Reading JSON in pieces: the same values as json.loads, wherever the pieces end."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagmask.data import json_stream
from tagmask.data.json_stream import stream_lists
from tagmask.errors import TagmaskError


@pytest.mark.parametrize(
    "text",
    [
        '{"images": [{"id": 1}, {"id"',
        '{"images": 3}',
        "[1, 2]",
        "",
        '{"images": [1 2]}',
        '{"a": nonsense}',
    ],
)
def test_invalid_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(
        TagmaskError, match=r"a\.json is not valid JSON at character \d+ .*download it again"
    ):
        list(stream_lists(tmp_path / "a.json", {"images"}))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(
    first=st.lists(JSON),
    other=JSON,
    second=st.lists(JSON),
    chunk=st.integers(1, 20),
    indent=st.sampled_from([None, 2]),
)
def test_streaming_gives_what_json_gives(
    first: list[Any],
    other: Any,
    second: list[Any],
    chunk: int,
    indent: int | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.getbasetemp() / "stream.json"
    path.write_text(
        json.dumps({"x": first, "skip": other, "y": second}, indent=indent, ensure_ascii=False),
        "utf-8",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "_CHUNK", chunk)
        entries = list(stream_lists(path, {"x", "y"}))
    assert entries == [("x", entry) for entry in first] + [("y", entry) for entry in second]


@pytest.mark.parametrize("number", ["0.5", "1e5", "-2.5E-3", "120"])
@pytest.mark.parametrize("chunk", range(1, 8))
def test_numbers_are_never_cut(
    tmp_path: Path, number: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_stream, "_CHUNK", chunk)
    (tmp_path / "a.json").write_text(f'{{"skip": {number}, "x": [{number},{number}]}}')
    assert [entry for _, entry in stream_lists(tmp_path / "a.json", {"x"})] == [float(number)] * 2
