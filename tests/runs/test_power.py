"""Power of whole runs: caps that are kept, energy that adds up, emissions, and caps and intensities over time."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer import run_replay
from bftrainer.errors import InputError, InvalidTaskError, SettingsError
from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path
from bftrainer.model import Event, ScalingCurve, TaskSpec, instant_ns
from bftrainer.objectives import as_given
from bftrainer.replay import Allocator, Settings
from bftrainer.replay.power_draw import Steps, steps_between, value_at
from bftrainer.runs.run_inputs import read_series
from tests import tuned
from tests.scripted import Scripted
from tests.worlds import pool


def test_what_is_kept_is_kept_under_the_cap():
    """Without an answer in time tasks keep what they hold, but for those admitted last that a lower cap rules out."""
    tasks = tuned.recurrences(2, most=2)
    asked = Settings(objective=as_given, solver=Scripted((2, 2), None), power_cap_w=1e6)
    live = Allocator(tasks, asked, tuner=tuned.tuner(tasks))
    live.on_event(Event.join(0.0, "a", "b", "c", "d"))
    per_node = max(power_w for _, power_w in tuned.POINTS.values())
    decision = live.on_event(Event.power_cap(1.0, 3 * per_node))
    assert (decision.before, decision.after) == ((2, 2), (2, 0))
    assert decision.drawn_w <= decision.cap_w


@pytest.mark.parametrize("cap_w", [-1.0, math.nan])
def test_live_caps_are_checked(cap_w):
    """A cap that is no cap is refused, and the one before stays in force."""
    tasks = tuned.recurrences(1, most=4)
    live = Allocator(tasks, Settings(objective=as_given, solver="highs", power_cap_w=300.0), tuner=tuned.tuner(tasks))
    live.on_event(Event.join(0.0, "a", "b"))
    with pytest.raises(InputError, match=f"power cap of 0 W or more, got {cap_w}"):
        live.on_event(Event.power_cap(5.0, cap_w))
    assert live.on_event(Event.join(6.0, "c")).cap_w == 300.0


def test_emissions_are_the_integral_of_power_and_intensity(tmp_path):
    """Two idle nodes of 100 W for two hours, PUE 1.5, at 300 and then 100 g/kWh: 60 + 20 g, times 1.5."""
    carbon = tmp_path / "carbon.csv"
    carbon.write_text("time,gco2_per_kwh\n0,300\n3600,100\n", encoding="utf-8")
    task = TaskSpec("late", 1, 1, 1.0, ScalingCurve.linear(1.0, 1), submit_s=7199.0)
    result = run_replay(
        node_log=pool(7200, (0, 2)),
        tasks=(task,),
        solver="dp",
        idle_power_w=100.0,
        pue=1.5,
        carbon=carbon,
        baseline=False,
    )
    summary = result.summary()
    assert summary["emissions_gco2"] == pytest.approx(1.5 * (0.2 * 300 + 0.2 * 100))
    assert summary["site_energy_j"] == pytest.approx(1.5 * 200.0 * 7200.0)
    assert summary["average_power_w"] == pytest.approx(200.0)


def test_caps_that_are_refused():
    """Nobody knows what other tasks draw, and idle nodes draw what they draw: the task, or the time, is named."""
    with pytest.raises(InvalidTaskError, match=r"zeus section, .*power cap .*\(task J00000-"):
        run_replay(solver="highs", power_cap=1e6)
    options = {"tasks": sample_path(SAMPLE_TUNED_TASKS), "power_cap": 100.0, "idle_power_w": 100.0, "pue": 1.5}
    with pytest.raises(SettingsError, match=r"covers the idle draw, got 100 W for 2 idle nodes that draw 300 W, 0 s"):
        run_replay(node_log=pool(3600, (0, 2)), **options)


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
        ("time,power_w\n0,nan\n", "cap.csv:2: Expected power_w to be a finite number, got 'nan'."),
        ("time,power_w\nsoon,1\n", "cap.csv:2: Expected time to be an ISO date and time, got 'soon'."),
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
