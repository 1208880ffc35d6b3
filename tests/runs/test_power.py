"""Power of whole runs: caps that are kept, energy that adds up, emissions."""

from __future__ import annotations

import math

import numpy as np
import pyarrow.parquet as pq
import pytest

from bftrainer import run_replay
from bftrainer.errors import InputError, InvalidTaskError, SettingsError
from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path
from bftrainer.model import Event, ScalingCurve, TaskSpec
from bftrainer.objectives import as_given
from bftrainer.replay import Allocator, Settings
from bftrainer.runs import write_run
from tests import tuned
from tests.scripted import Scripted
from tests.worlds import pool


def test_a_falling_cap_takes_nodes_away_at_once():
    """When the cap falls to what two nodes draw, a task on four keeps two, by a decision at that instant."""
    nodes = ("n0", "n1", "n2", "n3")
    per_node = max(power_w for _, power_w in tuned.POINTS.values())
    recording, _, _ = tuned.run(
        tuned.recurrences(1, most=4),
        [(0.0, nodes, ())],
        1e6,
        solver="highs",
        power_cap_w=1e6,
        power_caps_w=[(10.0, 2 * per_node)],
    )
    first, second = recording.decisions[:2]
    assert (first.after, second.time_s, second.after) == ((4,), 10.0, (2,))


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


def test_files_add_up(tmp_path):
    """Energies in tasks.parquet, power.parquet and summary.json agree, and so do counts of attempts."""
    result = run_replay(
        tasks=sample_path(SAMPLE_TUNED_TASKS), solver="dp", max_events=600, idle_power_w=150.0, baseline=False
    )
    write_run(result, tmp_path)
    tasks, power, attempts = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("tasks", "power", "attempts"))
    summary = result.summary()
    length = np.subtract(power["end_s"], power["begin_s"])
    assert math.fsum(tasks["energy_j"].to_pylist()) == pytest.approx(summary["energy_j"], rel=1e-9)
    assert float(length @ power["tasks_w"].to_numpy()) == pytest.approx(summary["energy_j"], rel=1e-9)
    assert float(length @ power["idle_w"].to_numpy()) == pytest.approx(summary["idle_energy_j"], rel=1e-9)
    assert sum(summary["batch_sizes"].values()) == attempts.num_rows
    assert sum(attempts["reached"].to_pylist()) == summary["tasks_reached"]


def test_caps_that_are_refused():
    """Nobody knows what other tasks draw, and idle nodes draw what they draw: the task, or the time, is named."""
    with pytest.raises(InvalidTaskError, match=r"zeus section, .*power cap .*\(task J00000-"):
        run_replay(solver="highs", power_cap=1e6)
    options = {"tasks": sample_path(SAMPLE_TUNED_TASKS), "power_cap": 100.0, "idle_power_w": 100.0, "pue": 1.5}
    with pytest.raises(SettingsError, match=r"covers the idle draw, got 100 W for 2 idle nodes that draw 300 W, 0 s"):
        run_replay(node_log=pool(3600, (0, 2)), **options)
