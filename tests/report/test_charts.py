"""Charts: values at the right pixels, round ticks, shares by hand."""

import math

import numpy as np
import pytest

from tagmask.errors import TagmaskError
from tagmask.report.charts import (
    BOTTOM,
    LEFT,
    MAX_POINTS,
    RIGHT,
    TOP,
    Axis,
    Line,
    Mark,
    confusion_chart,
    histogram,
    line_chart,
    linear_axis,
    log_axis,
    row_shares,
    thinned,
)

NAMES = ["background", "cat", "dog"]


def test_axis_has_round_ticks_that_cover_the_values() -> None:
    axis = linear_axis(0.13, 0.92, 200, 0)
    assert axis.ticks == pytest.approx((0, 0.2, 0.4, 0.6, 0.8, 1.0))
    assert (axis.place(0), axis.place(1), axis.place(0.25)) == (200, 0, 150)
    tight = linear_axis(20, 650, 0, 630, tight=True)
    assert tight.ticks == (200, 400, 600)
    assert (tight.place(20), tight.place(650)) == (0, 630)
    assert linear_axis(3, 3, 0, 100).place(3) == 50


def test_log_axis_spans_whole_decades() -> None:
    axis = log_axis(0.002, 0.9, 300, 0)
    assert axis.ticks == pytest.approx((0.001, 0.01, 0.1, 1))
    assert axis.place(0.01) == pytest.approx(200)
    assert len(log_axis(1e-12, 1, 0, 1).ticks) <= 8


def test_ticks_have_short_labels() -> None:
    ticks = (0.0, 1e-4, 0.25, 1500.0, 2e6)
    assert [text for _, text in Axis(0, 2e6, 0, 1, ticks).labels()] == [
        "0",
        "1e-4",
        "0.25",
        "1500",
        "2e6",
    ]


def test_a_line_runs_through_its_points() -> None:
    chart = line_chart(
        "t", [Line("a", [0, 5, 10], [0, 50, 100], [Mark(5, 50, "oracle: 50")])], "x", "y", zero=True
    )
    middle = ((LEFT + RIGHT) / 2, (BOTTOM + TOP) / 2)
    assert chart.points(chart.lines[0]) == [
        (LEFT, BOTTOM),
        middle,
        (RIGHT, TOP),
    ]  # upwards is smaller in SVG
    assert chart.lines[0].marks[0].text == "oracle: 50"


def test_charts_leave_out_what_is_not_a_number() -> None:
    lines = [Line("a", [1, 2, 3], [math.nan, 1, 2]), Line("b", [1], [math.inf])]
    chart = line_chart("t", lines, "x", "y")
    assert [(line.name, line.x, line.y) for line in chart.lines] == [("a", [2, 3], [1, 2])]
    with pytest.raises(TagmaskError, match='"t" has no point'):
        line_chart("t", [Line("a", [], [])], "x", "y")


def test_values_over_many_decades_get_a_logarithmic_axis() -> None:
    assert line_chart("t", [Line("a", [1, 2], [0.01, 1])], "x", "y").y.log
    assert not line_chart("t", [Line("a", [1, 2], [0.03, 1])], "x", "y").y.log
    assert not line_chart("t", [Line("a", [1, 2], [0.01, 1])], "x", "y", zero=True).y.log


def test_long_lines_are_averaged() -> None:
    x, y = thinned(np.arange(8 * MAX_POINTS, dtype=float), np.ones(8 * MAX_POINTS))
    assert len(x) == MAX_POINTS
    assert x[0] == 3.5
    assert set(y) == {1.0}


def test_histogram_counts_by_hand() -> None:
    bars = histogram("t", [5, 95, 99, 100], "IoU %").bars
    assert bars[0] == (0, 10, 1)
    assert bars[-1] == (90, 100, 3)
    assert sum(count for _, _, count in bars) == 4


def test_confusions_are_shares_of_the_truth() -> None:
    counts = np.array([[8, 0, 0, 0], [1, 2, 0, 1], [0, 0, 0, 0]], np.int64)
    np.testing.assert_allclose(row_shares(counts)[1], [0.25, 0.5, 0, 0.25])
    assert row_shares(counts)[2].tolist() == [0, 0, 0, 0]
    matrix = confusion_chart("t", counts, NAMES)
    assert matrix.squares == [(0, 0, 1.0), (1, 0, 0.25), (1, 1, 0.5), (1, 3, 0.25)]
    assert matrix.columns == [*NAMES, "unsure"]
    assert matrix.worst == [("cat", "background", 0.25), ("cat", "unsure", 0.25)]
    assert confusion_chart("t", counts[:, [0, 1, 2, 2]], NAMES).columns == NAMES
