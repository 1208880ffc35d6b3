"""Objectives, solvers and observers of one's own, handed over as they are: what is decided, recorded and read back."""

from collections import Counter
from dataclasses import dataclass
from functools import partial, partialmethod

import numpy as np
import pytest

from bftrainer import ReplayConfig, run_replay
from bftrainer.campaigns.studies import AdvicePlan, advise
from bftrainer.errors import RunFailedError, SettingsError, SolverError
from bftrainer.objectives import Priority, get_objective, name_of_objective, throughput
from bftrainer.replay import Observer
from bftrainer.report.comparison import compare_runs
from bftrainer.runs import write_run
from bftrainer.runs.audit import audit
from bftrainer.runs.run_files import read_run, read_summary
from tests.replayed import written
from tests.scripted import Failing
from tests.tiny import write_inputs

HERE, SOLVER = __name__, "tests.scripted:Failing"
NO_IDEAS = RuntimeError("out of ideas")


def root(task, counts, now_s):  # noqa: ARG001
    """Less for each further node."""
    return np.sqrt(task.spec.rates[counts])


@dataclass(frozen=True)
class Boosted:
    """Another objective, times a factor."""

    objective: object
    factor: float = 2.0

    def __call__(self, task, counts, now_s):
        return self.factor * self.objective(task, counts, now_s)


@pytest.fixture
def replay(tmp_path):
    """`replay(...)`: the small world's replay."""
    write_inputs(tmp_path)
    return lambda **options: run_replay(
        tmp_path / "evt.pkl", tmp_path / "tasks.toml", **{"solver": "dp", "baseline": False} | options
    )


def decided(result):
    """Counts of each decision, and the work that came of them."""
    return [decision.after for decision in result.recording.decisions], result.summary()["work_done"]


def test_a_callable_is_an_objective(replay):
    """A function that is handed over decides as the registered name does, and another one decides otherwise."""
    by_name, own = replay(objective="throughput"), replay(objective=root)
    assert decided(replay(objective=throughput)) == decided(by_name) != decided(own)
    assert own.summary()["objective"] == own.summary()["settings"]["objective"] == f"{HERE}:root"


def test_an_object_is_a_solver(replay):
    """It is asked once for every decision, of the runs that the efficiency compares with too, and recorded."""
    solver = Failing(NO_IDEAS)
    result = replay(solver=solver)
    assert decided(result) == decided(replay())
    assert solver.asked == result.summary()["decisions"] > 0
    assert result.summary()["solver"] == SOLVER
    assert replay(solver=solver, baseline=True).efficiency == replay(baseline=True).efficiency


def test_an_object_is_a_fallback(replay):
    """A solver that fails is an error that names it; one that is handed over as fallback steps in."""
    with pytest.raises(SolverError, match="failing: raised RuntimeError: out of ideas"):
        replay(solver=Failing(NO_IDEAS, fails=True))
    spare = Failing(NO_IDEAS)
    result = replay(solver=Failing(NO_IDEAS, fails=True), fallback=spare)
    assert decided(result) == decided(replay())
    assert spare.asked == result.summary()["decisions"]
    assert result.summary()["settings"]["fallback"] == SOLVER


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (root, f"{HERE}:root"),
        (get_objective("scaling-efficiency"), "scaling-efficiency"),
        ("priority:throughput", "priority:throughput"),
        (Boosted(root, 3.0), f"{HERE}:Boosted(objective={HERE}:root, factor=3.0)"),
        (
            Priority(throughput),
            "bftrainer.objectives.modifiers:Priority(objective=bftrainer.objectives.credits:throughput)",
        ),
        (partial(root, now_s=0.5), f"functools:partial({HERE}:root, now_s=0.5)"),
        (Boosted(root).__call__, f"{HERE}:Boosted.__call__"),
    ],
)
def test_what_records_call_them(target, name):
    """By name where it is registered, else where it is defined, and what it was made with."""
    assert name_of_objective(target) == name


def test_own_parts_are_read_back_and_compared(replay, tmp_path):
    """Files of such runs are read, told apart by what they were made with, and audited as far as can be."""
    for name, factor in (("two", 2.0), ("three", 3.0)):
        written(replay(solver=Failing(NO_IDEAS), objective=Boosted(root, factor)), tmp_path / name)
        assert read_run(tmp_path / name).summary["solver"] == SOLVER
    compared = compare_runs(["two", "three"], [read_summary(tmp_path / name) for name in ("two", "three")])
    assert list(compared.settings) == ["objective"]
    assert ["factor=2.0" in compared.settings["objective"][0], "factor=3.0" in compared.settings["objective"][1]]
    unknown, known = audit(tmp_path / "two"), audit(tmp_path / "two", Boosted(root))
    assert (unknown.wrong, known.wrong) == ([], [])
    assert any("--objective" in text for text in unknown.unchecked)
    assert not any("--objective" in text for text in known.unchecked)
    assert known.checked > unknown.checked


def test_advice_takes_own_objectives(replay, tmp_path):
    """As what is given, and among those to be tried; JSON has their names."""
    replay()
    config = ReplayConfig(tmp_path / "evt.pkl", tmp_path / "tasks.toml", solver="dp", objective=root)
    advice = advise(AdvicePlan(config, "work_done", trials=3, objectives=("throughput", Boosted(root)))).to_dict()
    assert advice["given"]["objective"] == f"{HERE}:root"


class Breaking(Observer):
    """An observer that fails at an event or a decision of some number, or at the end."""

    def __init__(self, **at):
        self.at, self.calls = at, Counter()

    def note(self, method, *_):
        self.calls[method] += 1
        if self.calls[method] == self.at.get(method):
            raise ValueError(f"no {method}")

    on_event = partialmethod(note, "on_event")
    on_decision = partialmethod(note, "on_decision")
    on_end = partialmethod(note, "on_end")


@pytest.mark.parametrize(("at", "decisions"), [({"on_event": 3}, 2), ({"on_decision": 2}, 2), ({"on_end": 1}, None)])
def test_a_failing_observer_ends_the_run_with_what_is_done(replay, tmp_path, at, decisions):
    """The error names it, and holds the result until then, marked."""
    counts, _ = decided(replay())
    with pytest.raises(RunFailedError, match=f"observer Breaking: raised ValueError: no {next(iter(at))}") as caught:
        replay(observers=[Breaking(**at)])
    done = caught.value.result
    assert (done.is_partial, done.summary()["end_reason"]) == (True, "failed")
    assert decided(done)[0] == counts[:decisions]
    write_run(done, tmp_path)
    assert read_run(tmp_path).summary["partial"]


@pytest.mark.parametrize("observer", [Breaking, object(), None])
def test_an_observer_has_three_methods(replay, observer):
    """Anything else is refused before the run, by name; so is a class in the place of an object."""
    with pytest.raises(SettingsError, match="Expected an object with on_event, on_decision, on_end as observer, got "):
        replay(observers=[observer])


def test_a_failing_objective_keeps_the_replay_when_it_fails_in_the_comparison(replay):
    """Constant pools are replayed afterwards: the replay itself is whole."""
    calls, whole = [], replay(objective=root)
    replay(objective=lambda task, counts, now_s: calls.append(0) or root(task, counts, now_s))
    left = iter([1.0] * len(calls))

    def breaks(task, counts, now_s):
        return root(task, counts, now_s) / next(left, 0.0)

    with np.errstate(all="raise"), pytest.raises(RunFailedError, match="FloatingPointError") as caught:
        replay(objective=breaks, baseline=True)
    done = caught.value.result
    assert (done.is_partial, done.efficiency, done.recording.reason) == (True, None, "window_end")
    assert decided(done) == decided(whole)
