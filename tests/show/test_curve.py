"""The curve plot: values at their place, oracle and other choices distinct, whole files only."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

from tagmask.errors import TagmaskError
from tagmask.scoring import Curve, sweep
from tagmask.show.curve import curve_plot, draw_curves


def curve(value: float) -> Curve:
    """One class on the left half of the picture, its map `value` there and 0.2 elsewhere: perfect from 0.2 on."""
    target = np.zeros((4, 10), np.uint8)
    target[:, :5] = 1
    return sweep([([0], np.where(target == 1, value, 0.2)[None], target)], num_classes=2)


def lines(figure: Figure) -> list[Line2D]:
    return list(figure.axes[0].get_lines())


def data(line: Line2D) -> npt.NDArray[np.float64]:
    """(2, points): thresholds and scores."""
    return np.array([line.get_xdata(), line.get_ydata()], np.float64)


def test_line_and_symbols_are_at_the_scores() -> None:
    drawn = lines(
        draw_curves({"seeds": curve(0.8)}, {"seeds": {"otsu": 0.5, "cross_entropy": 0.1}})
    )
    names = [line.get_label() for line in drawn]
    assert names == [
        "seeds",
        "oracle: 100.0 at 0.2",
        "otsu: 100.0 at 0.5",
        "cross entropy: 25.0 at 0.1",
    ]
    # Below 0.2 all is foreground: IoU 0 and 1/2; then perfect; from 0.8 on all is background: again 25 %.
    np.testing.assert_allclose(data(drawn[0])[0], np.arange(100) / 100)
    np.testing.assert_allclose(data(drawn[0])[1], [25.0] * 20 + [100.0] * 60 + [25.0] * 20)
    assert [data(line).ravel().tolist() for line in drawn[1:]] == [
        [0.2, 100],
        [0.5, 100],
        [0.1, 25],
    ]


def test_oracle_and_choices_differ_in_shape_and_filling() -> None:
    chosen = {"otsu": 0.5, "edges": 0.3}
    a, oracle, otsu, edges, b, *_ = lines(
        draw_curves({"a": curve(0.8), "b": curve(0.6)}, {"a": chosen, "b": chosen})
    )
    assert len({str(line.get_marker()) for line in (oracle, otsu, edges)}) == 3
    assert oracle.get_markerfacecolor() == oracle.get_color() == a.get_color()
    assert (
        otsu.get_markerfacecolor() == edges.get_markerfacecolor() == "none"
    )  # hides no star below it
    assert a.get_linestyle() != b.get_linestyle()  # distinct without colour
    assert a.get_color() != b.get_color()


def test_each_curve_can_have_its_own_thresholds() -> None:
    figure = draw_curves(
        {"a": curve(0.8), "b": curve(0.6)}, {"a": {"otsu": 0.5}, "b": {"otsu": 0.7, "edges": 0.3}}
    )
    drawn = [str(line.get_label()) for line in lines(figure)]
    assert drawn[2] == "otsu: 100.0 at 0.5"
    assert drawn[5:] == ["otsu: 25.0 at 0.7", "edges: 100.0 at 0.3"]
    first, second = (line.get_marker() for line in lines(figure) if "otsu" in str(line.get_label()))
    assert first == second


def test_png_has_the_colours_of_the_curves(tmp_path: Path) -> None:
    curves = {"without affinity": curve(0.4), "with affinity": curve(0.9)}
    curve_plot(tmp_path / "deep" / "curve.png", curves, {"with affinity": {"otsu": 0.3}})
    with Image.open(tmp_path / "deep" / "curve.png") as image:
        pixels = np.asarray(image.convert("RGB"))
    assert pixels.shape == (546, 1092, 3)  # 4.2 × 8.4 inches of 130 pixels
    for colour in ((0, 0x72, 0xB2), (0xD5, 0x5E, 0)):
        assert (pixels == colour).all(axis=2).sum() > 500  # the line and its star
    assert [file.name for file in tmp_path.rglob("*.*")] == ["curve.png"]


def test_the_file_appears_only_when_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, seen = tmp_path / "curve.png", []
    write = Figure.savefig

    def watched(self: Figure, target: Path, **options: Any) -> None:
        write(self, target, **options)
        seen.append((file.exists(), target.stat().st_size))

    monkeypatch.setattr(Figure, "savefig", watched)
    curve_plot(file, {"seeds": curve(0.8)}, {})
    assert seen == [(False, file.stat().st_size)]

    def fails(self: Figure, target: Path, **options: Any) -> None:
        target.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(Figure, "savefig", fails)
    before = file.read_bytes()
    with pytest.raises(OSError, match="disk full"):
        curve_plot(file, {"seeds": curve(0.6)}, {})
    assert file.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["curve.png"]


@pytest.mark.slow
def test_plotting_leaves_pyplot_alone_and_importing_leaves_matplotlib_alone() -> None:
    program = (
        "import sys, tagmask.show.curve, tagmask.show.seeds, tagmask.show.affinity\n"
        "assert 'matplotlib' not in sys.modules\n"
        "from tests.show.test_curve import curve\n"
        "tagmask.show.curve.draw_curves({'seeds': curve(0.8)}, {})\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])


def test_bad_input_is_refused_with_value_and_remedy(tmp_path: Path) -> None:
    curves = {"seeds": curve(0.8)}
    with pytest.raises(TagmaskError, match="no curve to plot; give at least one"):
        curve_plot(tmp_path / "curve.png", {}, {})
    with pytest.raises(
        TagmaskError, match=r"threshold 0\.123 is not on the curve .* nearest is 0\.12"
    ):
        curve_plot(tmp_path / "curve.png", curves, {"seeds": {"otsu": 0.123}})
    with pytest.raises(
        TagmaskError, match='given for "maps", the curves are seeds; name one of these'
    ):
        curve_plot(tmp_path / "curve.png", curves, {"maps": {"otsu": 0.5}})
    assert not list(tmp_path.iterdir())
