"""Objectives and solvers of one's own, handed over as they are: what is decided, recorded, read back and compared."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from bftrainer import ReplayConfig, run_replay
from bftrainer.campaigns.advice import AdvicePlan, advise
from bftrainer.errors import RunFailedError, SettingsError, SolverError
from bftrainer.objectives import Priority, get_objective, name_of_objective, throughput
from bftrainer.plugins import full_name
from bftrainer.replay import Observer
from bftrainer.report.comparison import compare_runs
from bftrainer.runs import write_run
from bftrainer.runs.audit import audit
from bftrainer.runs.run_files import read_run, read_summary
from solvers.dynamic_programme import DynamicProgramme
from tests.tiny import write_inputs

HERE = __name__


def root(task, counts, now_s):  # noqa: ARG001
    """Less for each further node."""
    return np.sqrt(task.spec.rates[counts])


def power(task, counts, now_s, exponent):  # noqa: ARG001
    """The throughput to some power."""
    return task.spec.rates[counts] ** exponent


@dataclass(frozen=True)
class Boosted:
    """Another objective, times a factor."""

    objective: object
    factor: float = 2.0

    def __call__(self, task, counts, now_s):
        return self.factor * self.objective(task, counts, now_s)


class Counting:
    """The dynamic programme, which counts what it is asked."""

    name = "counting"
    exact = True
    extra_rows = False
    requires = ()

    def __init__(self):
        self.asked = 0

    def solve(self, problem, limits):
        self.asked += 1
        return DynamicProgramme().solve(problem, limits)


class Failing(Counting):
    """Fails whenever it is asked."""

    def solve(self, problem, limits):  # noqa: ARG002
        raise RuntimeError("out of ideas")


@pytest.fixture
def replay(tmp_path):
    """`replay(...)`: the small world's replay."""
    write_inputs(tmp_path)
    return lambda **options: run_replay(
        tmp_path / "evt.pkl", tmp_path / "tasks.toml", **{"solver": "dp", "baseline": False} | options
    )


def outcome(result):
    """What a run came to, without clocks and names."""
    summary = result.summary()
    kept = ("work_done", "events", "decisions", "rescales", "preemptions", "turnaround_mean_s", "occupancy")
    return [summary[key] for key in kept]


def test_a_callable_is_an_objective(replay):
    """A function that is handed over decides as the registered name does, and another one decides otherwise."""
    by_name, by_hand = replay(objective="throughput"), replay(objective=throughput)
    assert outcome(by_hand) == outcome(by_name)
    own = replay(objective=root)
    assert own.summary()["objective"] == own.summary()["settings"]["objective"] == f"{HERE}:root"
    assert outcome(replay(objective=lambda task, counts, now_s: root(task, counts, now_s))) == outcome(own)
    called = [decision.after for decision in own.recording.decisions]
    assert called != [decision.after for decision in by_name.recording.decisions]


def test_an_object_is_a_solver(replay):
    """It is asked once for every decision, of the runs that the efficiency compares with too, and recorded."""
    solver = Counting()
    result = replay(solver=solver)
    assert outcome(result) == outcome(replay(solver="dp"))
    assert solver.asked == result.summary()["decisions"] > 0
    assert result.summary()["solver"] == f"{HERE}:Counting"
    with_baseline = replay(solver=solver, baseline=True).summary()
    assert with_baseline["efficiency"] == replay(solver="dp", baseline=True).summary()["efficiency"]


def test_an_object_is_a_fallback(replay):
    """A solver that fails is an error that names it; one that is handed over as fallback steps in."""
    with pytest.raises(SolverError, match="counting: raised RuntimeError: out of ideas"):
        replay(solver=Failing())
    spare = Counting()
    result = replay(solver=Failing(), fallback=spare)
    assert outcome(result) == outcome(replay())
    assert spare.asked == result.summary()["decisions"]
    settings = result.summary()["settings"]
    assert (settings["solver"], settings["fallback"]) == (f"{HERE}:Failing", f"{HERE}:Counting")


@pytest.mark.parametrize(
    ("found", "name"),
    [
        (root, f"{HERE}:root"),
        (throughput, "throughput"),
        (get_objective("scaling-efficiency"), "scaling-efficiency"),
        ("priority:throughput", "priority:throughput"),
        (Boosted(root), f"{HERE}:Boosted(objective={HERE}:root, factor=2.0)"),
        (Boosted(root, 3.0), f"{HERE}:Boosted(objective={HERE}:root, factor=3.0)"),
        (
            Priority(throughput),
            "bftrainer.objectives.modifiers:Priority(objective=bftrainer.objectives.credits:throughput)",
        ),
        (partial(power, exponent=0.5), f"functools:partial({HERE}:power, exponent=0.5)"),
        (Boosted(root).__call__, f"{HERE}:Boosted.__call__"),
    ],
)
def test_what_records_call_them(found, name):
    """By name where it is registered, else where it is defined, and what it was made with; never an address."""
    assert name_of_objective(found) == name
    assert " at 0x" not in full_name(lambda: None)


def test_own_parts_are_read_back_and_compared(replay, tmp_path):
    """Files of such runs are read, audited as far as can be, and told apart by what they were made with."""
    for name, options in (("two", {"objective": Boosted(root)}), ("three", {"objective": Boosted(root, 3.0)})):
        (tmp_path / name).mkdir()
        write_run(replay(solver=Counting(), **options), tmp_path / name)
        assert read_run(tmp_path / name).summary["solver"] == f"{HERE}:Counting"
    found = compare_runs(["two", "three"], [read_summary(tmp_path / name) for name in ("two", "three")])
    assert list(found.settings) == ["objective"]
    assert "factor=2.0" in found.settings["objective"][0]
    assert "factor=3.0" in found.settings["objective"][1]
    json.dumps(found.to_dict())


def test_advice_takes_own_objectives(replay, tmp_path):
    """As what is given, and among those to be tried; JSON has their names."""
    replay()
    config = ReplayConfig(tmp_path / "evt.pkl", tmp_path / "tasks.toml", solver="dp", objective=root)
    found = advise(AdvicePlan(config, "work_done", trials=3, objectives=("throughput", Boosted(root)))).to_dict()
    assert found["given"]["objective"] == f"{HERE}:root"
    json.dumps(found)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"objective": 3}, "name of an objective or a callable, got 3"),
        ({"solver": 3}, "solver to be a name or an object with name and solve, got 3"),
        ({"solver": Counting}, "got the class Counting: make one of it"),
        ({"fallback": object}, "fallback to be a name or an object with name and solve, got the class object"),
        ({"solver": lambda: None}, "object with name and solve"),
    ],
)
def test_what_is_neither(options, said):
    """One line says what was expected, before anything is read."""
    with pytest.raises(SettingsError, match=said):
        run_replay("absent.parquet", **options)


def test_the_audit_copes(replay, tmp_path):
    """An objective that the audit does not know is no error of the run: it says what it has not checked, or is told."""
    (tmp_path / "own").mkdir()
    write_run(replay(objective=root, solver=Counting()), tmp_path / "own")
    unknown, known = audit(tmp_path / "own"), audit(tmp_path / "own", root)
    assert (unknown.wrong, known.wrong) == ([], [])
    assert any("--objective" in what for what in unknown.unchecked)
    assert not any("--objective" in what for what in known.unchecked)
    assert known.checked > unknown.checked


def decided(result):
    """Counts of each decision."""
    return [decision.after for decision in result.recording.decisions]


class Breaking(Observer):
    """An observer that fails at an event or a decision of some number, or at the end."""

    def __init__(self, **at):
        self.at, self.seen = at, {"on_event": 0, "on_decision": 0, "on_end": 0}

    def note(self, what):
        self.seen[what] += 1
        if self.seen[what] == self.at.get(what):
            raise ValueError(f"no {what}")

    def on_event(self, cluster, change):  # noqa: ARG002
        self.note("on_event")

    def on_decision(self, cluster, adopted):  # noqa: ARG002
        self.note("on_decision")

    def on_end(self, cluster, reason):  # noqa: ARG002
        self.note("on_end")


@pytest.mark.parametrize(
    ("at", "decisions"),
    [({"on_event": 3}, 2), ({"on_decision": 2}, 2), ({"on_end": 1}, None)],
    ids=["event", "decision", "end"],
)
def test_a_failing_observer_ends_the_run_with_what_is_done(replay, tmp_path, at, decisions):
    """The error names it, and holds the result until then, marked."""
    whole = replay()
    with pytest.raises(RunFailedError, match=f"observer Breaking: raised ValueError: no {next(iter(at))}") as caught:
        replay(observers=[Breaking(**at)])
    done = caught.value.result
    assert (done.is_partial, done.summary()["end_reason"]) == (True, "failed")
    count = len(whole.recording.decisions) if decisions is None else decisions
    assert decided(done) == decided(whole)[:count]
    write_run(done, tmp_path)
    assert read_run(tmp_path).summary["partial"]


@pytest.mark.parametrize("observer", [Breaking, object(), None])
def test_an_observer_has_three_methods(replay, observer):
    """Anything else is refused before the run, by name; so is a class in the place of an object."""
    with pytest.raises(SettingsError, match="Expected an object with on_event, on_decision, on_end as observer, got "):
        replay(observers=[observer])


def test_a_failing_objective_keeps_the_replay_when_it_fails_in_the_comparison(replay):
    """Constant pools are replayed afterwards: the replay itself is whole."""
    whole, calls = replay(objective=root), iter(range(10**6))
    asked = []
    replay(objective=lambda task, counts, now_s: asked.append(0) or root(task, counts, now_s))

    def breaks(task, counts, now_s):
        return root(task, counts, now_s) / (next(calls) < len(asked))

    with np.errstate(all="raise"), pytest.raises(RunFailedError, match="FloatingPointError") as caught:
        replay(objective=breaks, baseline=True)
    done = caught.value.result
    assert (done.is_partial, done.efficiency, done.recording.reason) == (True, None, "window_end")
    assert decided(done) == decided(whole)
