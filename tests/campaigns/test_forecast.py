"""Forecasts: completion times of the tasks on many stretches, and probabilities that hold."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.campaigns.studies import ForecastPlan, forecast, quantile
from bftrainer.errors import BftrainerError, SettingsError
from bftrainer.model import NodeLog, ScalingCurve, TaskSpec
from bftrainer.report.metrics import proportion
from bftrainer.runs import ReplayConfig
from bftrainer.spot.supercomputer import SupercomputerModel

NS = 10**9
DAY_S = 86_400.0


def steady(nodes=2, length_s=1000):
    """Nodes that are idle all the time."""
    return NodeLog(
        nodes=tuple(f"n{number}" for number in range(nodes)),
        start_ns=0,
        end_ns=length_s * NS,
        time_ns=np.zeros(nodes, dtype=np.int64),
        node=np.arange(nodes, dtype=np.int32),
        idle=np.ones(nodes, dtype=bool),
    )


def task(name="J0", work=100.0, **more):
    """1 work/s on each of up to two nodes."""
    return TaskSpec(name, min_nodes=1, max_nodes=2, work=work, scaling=ScalingCurve.linear(1.0, 2), **more)


def foretold(log, tasks, deadline_s, horizon_s, **more):
    """A forecast in this process, from ten stretches unless said."""
    config = ReplayConfig(node_log=log, tasks=tasks, solver="dp", **more.pop("settings", {}))
    return forecast(ForecastPlan(config, deadline_s, horizon_s, **{"stretches": 10} | more), 1)


def test_by_hand():
    """100 work on two steady nodes are done after 50 s, wherever the stretch begins."""
    found = foretold(steady(), [task()], 60.0, 120.0)
    assert found.completion_s == (50.0,) * 10
    assert found.interval() == (50.0, 50.0)
    assert found.probability.share == 1.0
    assert found.overlap == pytest.approx(1.2)


def test_what_is_not_done_is_beyond_the_horizon():
    """Completion is unknown then; the share of tasks done by the deadline counts each of them."""
    found = foretold(steady(), [task(), task("J1", work=1e6)], 60.0, 120.0, settings={"max_tasks": 1})
    assert found.completion_s == (math.inf,) * 10
    assert found.done_shares == (0.5,) * 10
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["completion_quantiles_s"]["p50"] is None
    assert told["probability"] == 0.0


def test_dates_count_from_the_start():
    """A task of 30 s after the start is submitted 30 s into each stretch; one of the past at once."""
    tasks = [task("J0", submit_ns=500 * NS), task("J1", submit_ns=530 * NS)]
    found = foretold(steady(), tasks, 100.0, 200.0, start_ns=500 * NS)
    assert found.completion_s == (100.0,) * 10
    assert foretold(steady(), tasks, 100.0, 200.0, start_ns=700 * NS).completion_s == (100.0,) * 10
    assert foretold(steady(), [tasks[1]], 100.0, 200.0, start_ns=500 * NS).completion_s == (80.0,) * 10
    assert foretold(steady(), [tasks[1]], 100.0, 200.0).completion_s == (50.0,) * 10


def test_stretches_lie_within_what_is_replayed():
    """`since` and `until` bound them: here the part of the log that has nodes."""
    log = steady(length_s=2000)
    empty = NodeLog(log.nodes, 0, 2000 * NS, np.array([1000, 1000]) * NS, np.array([0, 1], dtype=np.int32), log.idle)
    found = foretold(empty, [task()], 60.0, 120.0, settings={"since": 1000.0, "until": 900.0})
    assert found.completion_s == (50.0,) * 10
    assert math.inf in foretold(empty, [task()], 60.0, 120.0).completion_s


@pytest.mark.slow
def test_forecasts_are_calibrated():
    """Of fifty stretches held out, the 80 % interval holds the truth in 70 to 90 % on average over four logs."""
    length_s = 2 * DAY_S
    tasks = [task(f"J{number}", work=1e4) for number in range(3)]
    first, second = {"until": 80 * length_s}, {"since": 80 * length_s}
    inside = 0
    for seed in range(4, 8):
        log = SupercomputerModel(nodes=48).generate(np.random.default_rng(seed), (0, int(180 * length_s) * NS))
        low, high = foretold(log, tasks, length_s, length_s, stretches=100, settings=first).interval()
        assert math.isfinite(high)
        truth = foretold(log, tasks, length_s, length_s, stretches=50, settings=second)
        inside += sum(low <= time_s <= high for time_s in truth.completion_s)
    assert 35 <= inside / 4 <= 45


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40), st.floats(0.0, 1.0))
def test_quantiles_are_weibulls(sample, level):
    """NumPy calls those between the order statistics k / (n + 1) of a sample weibull; infinities stay."""
    assert quantile([1.0, math.inf, math.inf], 0.6) == math.inf
    assert quantile(sample, level) == pytest.approx(float(np.quantile(sample, level, method="weibull")), abs=1e-3)


@given(st.integers(1, 10_000), st.floats(0.0, 1.0))
def test_intervals_of_a_probability_are_where_the_score_test_turns(number, share):
    """At both ends the share seen lies 1.959964 standard errors away, by the error that holds there (Wilson)."""
    hits = round(share * number)
    found = proportion(hits, number)
    assert proportion(10, 10).low == pytest.approx(0.722, abs=1e-3)
    for end in (found.low, found.high):
        if 0.0 < end < 1.0:
            error = math.sqrt(end * (1 - end) / number)
            assert abs(found.share - end) / error == pytest.approx(1.959964, rel=1e-6)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"deadline_s": -5.0}, "Expected a deadline after the start, got one -5 s after it"),
        ({"deadline_s": math.nan}, "Expected a deadline after the start"),
        ({"horizon_s": 3.0}, "Expected a horizon of at least the 60 s until the deadline, got 3 s"),
        ({"stretches": 1}, "Expected at least 2 stretches, and at most 100,000, got 1"),
        ({"horizon_s": 5000.0}, "Expected a log longer than the 5000 s of a stretch, got one of 1000 s"),
    ],
)
def test_bad_plans(given, said):
    """One line says what was expected."""
    with pytest.raises(SettingsError, match=said):
        foretold(steady(), [task()], **{"deadline_s": 60.0, "horizon_s": 120.0} | given)


def test_a_failing_replay_ends_the_forecast(monkeypatch):
    """With its reason: a forecast from some stretches would be none."""

    def refuse(**_):
        raise SettingsError("Expected luck.")

    monkeypatch.setattr("bftrainer.campaigns.studies.run_replay", refuse)
    with pytest.raises(BftrainerError, match="Stretch 0: Expected luck"):
        foretold(steady(), [task()], 60.0, 120.0)
