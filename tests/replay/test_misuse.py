"""The allocator's boundary: values of other types are refused by field, and what fails has not happened."""

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from bftrainer import Allocator, Settings
from bftrainer.errors import InputError, SolverError
from bftrainer.model import Event, EventKind, NodeLog, ScalingCurve, TaskSpec, TuningSpec
from bftrainer.objectives import as_given
from solvers import Limits
from tests import tuned
from tests.scripted import Failing

CURVE = ScalingCurve.linear(1.0, 4)
TASK = TaskSpec("J0", 1, 4, 1000.0, CURVE)
TUNING: dict[str, Any] = {
    **dict.fromkeys(("train_trace", "power_trace", "dataset", "network", "optimizer"), "x"),
    "target_metric": 0.5,
    "max_epochs": 9,
    "default_batch_size": 8,
}
# What is none of it: text for numbers, numbers for text, nothing, and what cannot be hashed or compared.
ODD = [None, "x", "1", b"n", True, 1, -1, 1.5, math.nan, 10**400, [], ["a"], [["a"]], {}, {"a": 1}, {1.5}, 1j]
ODD += [object(), Decimal(1), np.array(["a"]), np.array([1, 2]), np.float64(1.5), print, TASK, Event, "\x1b[2J" * 500]


def settings(**changes: Any) -> Settings:
    """Exact decisions."""
    return Settings(**({"objective": as_given, "solver": "dp"} | changes))


def live(**changes: Any) -> Allocator:
    """An allocator with two nodes, on which its task runs."""
    given = {"tasks": [TASK], "settings": settings(), "nodes": ["n8", "n9"]} | changes
    allocator = Allocator(**given)
    allocator.on_event(Event.join(0.0, "n8", "n9"))
    return allocator


NOUNS: dict[Any, dict[str, Any]] = {
    TaskSpec: {"name": "J", "min_nodes": 1, "max_nodes": 2, "work": 1.0, "scaling": CURVE},
    ScalingCurve: {"nodes": (0, 1), "throughput": (0.0, 1.0)},
    TuningSpec: TUNING,
    NodeLog: {"nodes": ("a",), "start_ns": 0, "end_ns": 9}
    | {"time_ns": np.array([1]), "node": np.array([0]), "idle": np.array([True])},
}


def changing(call: Any, name: str, usual: dict[str, Any] | None = None) -> Any:
    """A call with one of its arguments changed."""
    return lambda value: call(**((usual or {}) | {name: value}))


CALLS = {
    "tasks of": lambda value: live(tasks=[TASK, value]),
    "nodes of": lambda value: live(nodes=["n8", value]),
    "event": lambda value: live().on_event(value),
    "one of events": lambda value: live().on_event(Event.join(1.0, "n1"), value),
}
CALLS |= {name: changing(live, name) for name in ("tasks", "settings", "nodes", "start_ns", "tuner")}
CALLS |= {
    f"settings {name}": changing(lambda **fields: live(settings=settings(**fields)), name)
    for name in Settings.__dataclass_fields__
}
CALLS |= {
    f"limits {name}": changing(lambda **fields: live(settings=settings(limits=Limits(**fields))), name)
    for name in Limits.__dataclass_fields__
}
CALLS |= {
    f"event {name}": changing(
        lambda **fields: live().on_event(Event(**fields)), name, {"time_s": 1.0, "kind": EventKind.JOIN}
    )
    for name in Event.__dataclass_fields__
}
CALLS |= {
    f"{kind.__name__} {name}": changing(kind, name, usual)
    for kind, usual in NOUNS.items()
    for name, field in kind.__dataclass_fields__.items()
    if field.init
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_values_of_other_types(call):
    """Each is taken for what it is, or refused in one line: nothing else is raised."""
    messages = []
    for value in ODD:
        try:
            call(value)
        except (InputError, SolverError) as error:
            messages.append(str(error))
    assert messages
    assert all(said.isprintable() and 0 < len(said) <= 500 for said in messages)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Event.join(0.0, ["a", "b"]), "nodes of an event to be names, got ['a', 'b'] among them"),
        (lambda: Event.join("0", "a"), "time_s of an event to be a number, got '0'"),
        (lambda: Event.completion(0.0, None), "tasks of an event to be names, got None among them"),
        (lambda: Event.submission(0.0, "J0"), "spec of an event to be a TaskSpec, got 'J0'"),
        (lambda: Event(0.0, 1), "kind of an event to be an EventKind, got 1"),
        (lambda: settings(seed="1"), "seed to be whole, got '1'"),
        (lambda: settings(objective="throughput"), "objective to be a callable"),
        (lambda: settings(forward_time_s=math.nan), "forward_time_s > 0"),
        (lambda: settings(startup_cost="half"), "startup_cost to be one of none, full"),
        (lambda: live(settings=settings(solver="ddp")), "Did you mean 'dp'"),
        (lambda: Allocator([TASK], {}), "settings to be Settings, got {}"),
        (lambda: Allocator(["J0"], settings()), "tasks to be a sequence of TaskSpec, got 'J0' among them"),
        (lambda: Allocator([TASK, TASK], settings()), "unique task names"),
        (lambda: Allocator([], settings(), ["a", "a"]), "unique node names"),
        (lambda: ScalingCurve(3, (0.0,)), "nodes as a list of numbers, got 3"),
        (lambda: ScalingCurve.amdahl(1.0, 0.5, 10**12), "max_nodes <= 10,000,000, got 1000000000000"),
    ],
)
def test_the_field_is_named(made, said):
    """With what it should be, and what it was."""
    with pytest.raises(InputError) as caught:
        made()
    assert said in str(caught.value)


# --- what fails has not happened -------------------------------------------------------------------------------------


def facts(allocator: Allocator) -> Any:
    """All that an allocator knows, as values."""
    cluster = allocator.cluster
    return (
        [(task.status, task.nodes, task.spec.work, task.progress, task.rate, task.pending) for task in cluster.tasks],
        [
            (task.spec.name, task.spec.run and (task.spec.run.attempt, task.spec.run.batch_size))
            for task in cluster.tasks
        ],
        (list(cluster.owner), list(cluster.free), [task.number for task in cluster.active]),
        (cluster.time_s, cluster.pool, allocator.power_cap_w, list(allocator.node_names)),
    )


def shown(decision: Any) -> Any:
    """A decision but for how long it took."""
    return (decision.time_s, decision.tasks, decision.before, decision.after, decision.added, decision.removed,
            decision.batch_sizes, decision.power_limits_w)  # fmt: skip


OTHER = TaskSpec("J1", 1, 4, 50.0, CURVE)
HISTORY = [
    [Event.join(5.0, "a", "b", "c"), Event.submission(5.0, OTHER)],
    [Event.leave(9.0, "n9", "a"), Event.join(9.0, "d")],
    [Event.completion(12.0, "J0")],
    [Event.submission(20.0, TaskSpec("J2", 1, 2, 5.0, CURVE)), Event.join(20.0, "n9")],
]
ERRORS = pytest.mark.parametrize("error", [SolverError("no"), KeyboardInterrupt(), ZeroDivisionError()])


def replayed(allocator: Allocator, solver: Failing, history: Any, *, failing: bool) -> list[Any]:
    """Decisions of a history; each of its events fails at first, if so wanted."""
    decisions = []
    for events in history:
        if failing:
            before = facts(allocator)
            solver.fails = True
            with pytest.raises((SolverError, KeyboardInterrupt)):
                allocator.on_event(*events)
            assert facts(allocator) == before
            # Others may come instead of them.
            with pytest.raises((SolverError, KeyboardInterrupt)):
                allocator.on_event(Event.join(events[0].time_s, "other"))
            assert facts(allocator) == before
        solver.fails = False
        decisions.append(shown(allocator.on_event(*events)))
    return [*decisions, facts(allocator)]


@ERRORS
@pytest.mark.parametrize("initial", ["solve", "random"])
def test_a_failed_event_has_not_happened(error, initial):
    """Nothing changes, and a second try decides as if the first had not been."""
    ends = []
    for failing in (False, True):
        solver = Failing(error)
        allocator = live(settings=settings(solver=solver, initial=initial, seed=3), start_ns=0)
        ends.append(replayed(allocator, solver, HISTORY, failing=failing))
    assert ends[0] == ends[1]


@ERRORS
def test_a_tuner_forgets_what_has_not_happened(error):
    """Runs that a failed event ended or started were never told to it: the group learns the same, draws included."""
    tasks = tuned.recurrences(6, most=2)
    ends = []
    for failing in (False, True):
        solver, tuner = Failing(error), tuned.tuner(tasks, power_options="all")
        allocator = Allocator(tasks, settings(solver=solver, max_tasks=2), tuner=tuner)
        allocator.on_event(Event.join(0.0, "n1", "n2", "n3"))
        decisions: list[Any] = []
        for step in range(4):
            running = [task.spec.name for task in allocator.cluster.active]
            time_s = 1e4 * (step + 1)
            history = [[Event.completion(time_s, running[0]), Event.power_cap(time_s, 1e9)]]
            decisions += replayed(allocator, solver, history, failing=failing)
        ends.append((decisions, tuner.attempts, tuner.failures))
    assert ends[0] == ends[1]
    assert len(ends[0][1]) >= 4
