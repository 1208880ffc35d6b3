"""Step series: what they hold when, and which files are refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import SettingsError
from bftrainer.model import instant_ns
from bftrainer.replay.power_draw import Steps, steps_between, value_at
from bftrainer.runs.run_inputs import read_series

START_NS = instant_ns("2026-01-05")


@pytest.fixture
def series(tmp_path):
    """Read CSV text as a power cap over a window of 100 s."""

    def read(text: str) -> Steps:
        """Write and read it."""
        path = tmp_path / "cap.csv"
        path.write_text(text, encoding="utf-8")
        return read_series(path, "power_w", START_NS, 100.0)

    return read


def test_values_hold_until_the_next(series):
    """A value holds from its time on; the last one as long as the step before."""
    cap = series("time,power_w\n0,500\n60,200\n")
    assert [value_at(cap, time_s) for time_s in (0.0, 59.9, 60.0, 99.0)] == [500.0, 500.0, 200.0, 200.0]
    assert steps_between(cap, 0.0, 100.0) == ((0.0, 500.0), (60.0, 200.0))
    assert steps_between(cap, 70.0, 80.0) == ((70.0, 200.0),)


def test_dates_and_seconds_mean_the_same(series):
    """Times are seconds from the window's start, or dates, in UTC unless they say otherwise."""
    dates = series("power_w,time\n500,2026-01-05T00:00:00\n200,2026-01-05T02:01:00+02:00\n")
    assert dates == series("time,power_w\n0,500\n60,200\n")


def test_one_row_holds_for_ever(series):
    """A lone value is a constant."""
    assert value_at(series("time,power_w\n0,500\n"), 1e9) == 500.0


@given(st.lists(st.tuples(st.floats(0.1, 50.0), st.floats(0.0, 1e6)), min_size=1, max_size=8), st.floats(0, 100))
def test_steps_are_the_values_of_an_interval(steps, begin_s):
    """From its begin on, an interval's steps ascend, differ from one another, and are what holds at each time."""
    times, time_s = [], 0.0
    for gap, _ in steps:
        times.append(time_s)
        time_s += gap
    series = tuple((time_s, value) for time_s, (_, value) in zip(times, steps, strict=True))
    found = steps_between(series, begin_s, begin_s + 77.0)
    assert found[0][0] == begin_s
    assert all(a[0] < b[0] < begin_s + 77.0 and a[1] != b[1] for a, b in itertools.pairwise(found))
    inside = [time_s for time_s in times if begin_s < time_s < begin_s + 77.0]
    held = {time_s: [value for at_s, value in found if at_s <= time_s][-1] for time_s in (begin_s, *inside)}
    assert held == {time_s: value_at(series, time_s) for time_s in held}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,power\n0,1\n", "cap.csv:1: Expected columns time, power_w, each once, got time, power."),
        ("time,power_w\n", "Expected rows, found none."),
        ("time,power_w\n0,-1\n", "cap.csv:2: Expected power_w of 0 or more, got -1."),
        ("time,power_w\n0,nan\n", "cap.csv:2: Expected power_w to be finite, got nan."),
        ("time,power_w\nsoon,1\n", "cap.csv:2, column time: Expected an ISO time or seconds, got 'soon'."),
        ("time,power_w\n0,1\n0,2\n", "cap.csv:3: Expected times that increase, got 0 s after 0 s."),
        ("time,power_w\n5,1\n", "Expected values from the window's start to its end at 100 s, got them from 5 s."),
        ("time,power_w\n0,1\n40,1\n", "to its end at 100 s, got them from 0 s to 80 s."),
    ],
)
def test_bad_series(series, text, said):
    """Each fault is named with its line, or what is missing of the window."""
    with pytest.raises(SettingsError) as refused:
        series(text)
    assert said in str(refused.value)
