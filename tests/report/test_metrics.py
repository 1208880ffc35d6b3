"""The report's numbers, from records made by hand, and means of repeated ones with their intervals."""

import math
from dataclasses import replace

import numpy as np
import pytest

from bftrainer.model import ScalingCurve, TaskSpec
from bftrainer.model.columns import Table
from bftrainer.model.records import AllocationChange, DecisionRecord, EventRecord, Recording, TaskRecord
from bftrainer.report.glossary import solver_use_in_words
from bftrainer.report.metrics import Intervals, decision_metrics, estimate, pool_metrics, student_quantile, task_metrics
from solvers import DecidedBy, Held, SolveResult, StopReason


def event(time_s: float, elapsed_s: float, **changes: float) -> EventRecord:
    """An event at which nothing is booked and nothing goes on, but for the changes."""
    names = (
        *("gross", "rescale_booked", "preemption_cost", "rate", "rescale_cost"),
        *("left", "joined", "preempted", "idle", "running", "used"),
    )
    return EventRecord(0, time_s, elapsed_s, tasks=(), **(dict.fromkeys(names, 0) | changes))


def timeline(*events: EventRecord) -> Table[EventRecord]:
    """These events."""
    return Table.of(EventRecord, events)


RECORDING = Recording(
    # 4 of 6 idle nodes at 40/s for 10 s; then 2 of 2 at 20/s, which cost 50 to get to, for 5 s.
    timeline=timeline(
        event(100.0, 0.0, idle=6, used=4, rate=40.0),
        event(110.0, 10.0, gross=400.0, preemption_cost=30.0, idle=2, used=2, rate=20.0, rescale_cost=50.0),
        event(115.0, 5.0, gross=100.0, rescale_booked=50.0),
    ),
    decisions=Table.of(DecisionRecord, ()),
    allocation=Table.of(AllocationChange, ()),
    tasks=(),
    reason="finished",
)


def test_pool_metrics():
    """Integrals, shares of gross work, and work booked over work promised."""
    metrics = pool_metrics(Intervals.of(RECORDING))
    assert metrics == {
        "idle_node_s": 6 * 10 + 2 * 5,
        "eq_nodes": 70 / 15,
        "used_node_s": 4 * 10 + 2 * 5,
        "occupancy": 50 / 70,
        "work_done": 420.0,
        "rescale_loss_work": 50.0,
        "rescale_loss_share": 50 / 500,
        "preemption_loss_work": 30.0,
        "preemption_loss_share": 30 / 500,
        "return_on_investment": 420 / (400 + 100 - 50),
    }


def test_work_at():
    """Work by a time: whole intervals as booked, a begun one as promised with its cost already off."""
    intervals = Intervals.of(RECORDING)
    assert [intervals.work_at(time_s) for time_s in (90.0, 100.0, 105.0, 110.0)] == [0.0, 0.0, 200.0, 370.0]
    assert intervals.work_at(112.0) == 370.0 + 2 * 20.0 - 50.0
    assert intervals.work_at(115.0) == intervals.work_at(1e9) == 420.0


def record(submitted_s: float, started_s: float | None, completed_s: float | None, **counts: int) -> TaskRecord:
    """A task with such times."""
    spec = TaskSpec("J", 1, 1, 1.0, ScalingCurve.linear(1.0, 1))
    fields = dict.fromkeys(("work_done", "node_s", "rescale_cost", "preemption_cost"), 0.0)
    fields |= {"work_total": 1.0, "rescales": 0, "preemptions": 0}
    return TaskRecord(spec, submitted_s, started_s, completed_s, **(fields | counts))


def test_task_metrics():
    """Turnaround and waiting from submission, makespan from the first submission to the last completion."""
    tasks = [
        record(-10.0, 0.0, 90.0, rescales=2),  # turnaround 100, waits 10
        record(20.0, 50.0, 70.0, preemptions=3),  # turnaround 50, waits 30
        record(30.0, 110.0, None, rescales=1),  # waits 80
        record(40.0, None, None),
    ]
    assert task_metrics(tasks, node_s=7200.0) == {
        "tasks_total": 4,
        "tasks_started": 3,
        "tasks_completed": 2,
        "makespan_s": 100.0,
        "turnaround_mean_s": 75.0,
        "turnaround_p90_s": 95.0,
        "wait_mean_s": 40.0,
        "preemptions": 3,
        "rescales": 3,
        "preemptions_per_node_hour": 1.5,
        "rescales_per_node_hour": 1.5,
    }


def decided(held: Held, stopped: StopReason, solver: str, solve_s: float, bound: float = 100.0) -> DecisionRecord:
    """A decision worth 100 that a solver answered."""
    counts = None if held is Held.NOTHING else (1,)
    value = math.nan if counts is None else 100.0
    result = SolveResult(counts, value, bound, stopped, held, solver, solve_s)
    return DecisionRecord(0, 0.0, 1, (0,), (0,), (1,), value, bound, result.gap, stopped, held, solver, solve_s)


def test_decision_metrics():
    """Decisions are counted by what they hold, gaps and times taken over all and per solver."""
    records = [
        decided(Held.OPTIMAL, StopReason.OPTIMAL, "a", 1.0),
        decided(Held.OPTIMAL, StopReason.OPTIMAL, "a", 3.0),
        decided(Held.INCUMBENT, StopReason.TIME_LIMIT, "a", 5.0, bound=104.0),
        decided(Held.INCUMBENT, StopReason.HEURISTIC, "b", 7.0, bound=math.inf),
        decided(Held.NOTHING, StopReason.TIME_LIMIT, "b", 9.0),
    ]
    metrics = decision_metrics(Table.of(DecisionRecord, records))
    assert [metrics[name] for name in ("decisions", "decisions_optimal", "decisions_incumbent", "decisions_kept")] == [
        *(5, 2, 2, 1)
    ]
    assert metrics["gap_max"] == pytest.approx(0.04)
    assert (metrics["solve_s_median"], metrics["solve_s_max"]) == (5.0, 9.0)
    assert metrics["solve_s_p95"] == pytest.approx(float(np.percentile([1, 3, 5, 7, 9], 95)))
    assert {name: part["decisions"] for name, part in metrics["solvers"].items()} == {"a": 3, "b": 2}
    assert metrics["solvers"]["b"]["solve_s_median"] == 8.0


def test_nothing_recorded_has_no_shares():
    """Without intervals, tasks that ran or decisions there are no averages, and no division by zero."""
    metrics = pool_metrics(Intervals.of(replace(RECORDING, timeline=timeline(event(0.0, 0.0)))))
    assert metrics["work_done"] == metrics["idle_node_s"] == 0.0
    metrics |= task_metrics([record(0.0, None, None)], node_s=0.0)
    assert (metrics["tasks_total"], metrics["tasks_started"], metrics["tasks_completed"]) == (1, 0, 0)
    metrics |= decision_metrics(Table.of(DecisionRecord, ()))
    assert metrics["decisions"] == 0
    unknown = ("eq_nodes", "occupancy", "rescale_loss_share", "return_on_investment", "makespan_s", "turnaround_mean_s")
    unknown += ("turnaround_p90_s", "wait_mean_s", "rescales_per_node_hour", "gap_max", "solve_s_median", "solve_s_max")
    assert {metrics[name] for name in unknown} == {None}


def test_who_decided_is_counted():
    """Decisions are counted by what found them, those that the backend was asked about besides, and its time summed."""
    times = {
        DecidedBy.TRIVIAL: (None, 1),
        DecidedBy.PRUNING: (None, 2),
        DecidedBy.SEARCH: (0.5, 1),
        DecidedBy.BACKEND: (0.25, 3),
        DecidedBy.REMEMBERED: (None, 1),
    }
    records = []
    for by, (spent_s, number) in times.items():
        decision = decided(Held.OPTIMAL, StopReason.OPTIMAL, "cbc", 1.0)
        records += [replace(decision, decided_by=by, backend_s=spent_s)] * number
    metrics = decision_metrics(Table.of(DecisionRecord, records))
    assert metrics["decided_by"] == {by.value: number for by, (_, number) in times.items()} | {"kept": 0}
    assert (metrics["backend_asked"], metrics["backend_s"]) == (4, 1.25)
    text = solver_use_in_words(metrics)
    assert text.startswith("cbc was asked in 50.00 % of decisions; ")
    assert all(part in text for part in ("pruning settled 2", "search settled 1", "remembered in 1", "choose in 1"))
    alone = decision_metrics(Table.of(DecisionRecord, [decided(Held.OPTIMAL, StopReason.OPTIMAL, "dp", 1.0)]))
    assert solver_use_in_words(alone) is None  # the solver decided all
    assert solver_use_in_words({key: value for key, value in alone.items() if key != "decided_by"}) is None


# --- repeated runs

# Student, "Tables for estimating the probability that the mean of a unique sample of observations lies between ...",
# as every collection of tables has it: two-sided, 95 % and 99 %.
TABLE = {1: (12.706, 63.657), 2: (4.303, 9.925), 3: (3.182, 5.841), 9: (2.262, 3.250), 30: (2.042, 2.750)}


def test_quantiles_are_those_of_the_tables():
    """They agree with the printed tables to their last digit; with many degrees of freedom, the normal one."""
    for freedom, quantiles in TABLE.items():
        assert tuple(round(student_quantile(freedom, level), 3) for level in (0.95, 0.99)) == quantiles
    assert student_quantile(5000, 0.95) == pytest.approx(1.95996, abs=5e-4)


def test_estimate_by_hand():
    """Of 1, 2 and 3: mean 2, standard error 1/sqrt(3), two degrees of freedom; one value has no spread."""
    three = estimate([1.0, 2.0, 3.0])
    assert (three.mean, three.number) == (2.0, 3)
    assert three.half_width == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert (estimate([4.0]).mean, estimate([4.0]).half_width) == (4.0, None)
    assert estimate([7.0] * 5).half_width == 0.0
