"""Energy, and energy against time: formulas by hand, what they decide, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer import Allocator, Settings
from bftrainer.errors import ObjectiveError
from bftrainer.model import Event, TaskSpec, TaskState
from bftrainer.objectives import energy, energy_delay, get_objective
from bftrainer.objectives.credits import best_of_modes
from tests.examples import examples
from tests.objectives.support import credit, decide, plain, scaled, tuned, tuned_tasks


def test_energy():
    """On 2 nodes 3 epochs/s for 200 W: 1.5 nodes' work at best, each joule doing 0.75 of what it does on one node."""
    assert credit(energy, tuned()) == [0.0, 1.0, 1.5 * 0.75]


def test_energy_compares_power_limits():
    """A lower limit is slower and does more with a joule: both are measured against the best of either."""
    high, low = tuned(), tuned(rates=(0.0, 1.5, 2.25), node_w=60.0, limit_w=100)
    modes = (high, low)
    assert credit(energy, high, modes=modes) == pytest.approx([0.0, 1.0 * 0.8, 1.5 * 0.6])
    assert credit(energy, low, modes=modes) == pytest.approx([0.0, 0.75 * 1.0, 1.125 * 0.75])


def test_energy_looks_at_counts_on_offer():
    """What a task may not get is no reference for what it may."""
    assert credit(energy, tuned(min_nodes=2))[2] == pytest.approx(3.0 / 1.5 * 1.0)


def test_energy_stops_where_nodes_are_wasted():
    """A task that scales with the fourth root leaves nodes idle; one that scales well takes them all."""
    poor = tuned(rates=(0.0, *np.arange(1, 5) ** 0.25))
    good = tuned(rates=(0.0, *np.arange(1, 5) ** 0.9))
    assert decide(energy, [poor], 4).after == (1,)
    assert decide(energy, [good], 4).after == (4,)


def test_energy_delay():
    """Eta = 0.5 and 500 W at most: an epoch costs 150 J on one node, 116.7 J on two; eta 0 is time, 1 energy."""
    assert credit(energy_delay, tuned(eta=0.5)) == pytest.approx([0.0, (350.0 / 3) / 150.0, 1.0])
    assert credit(energy_delay, tuned(eta=0.0)) == pytest.approx([0.0, 2.0 / 3.0, 1.0])
    assert credit(energy_delay, tuned(eta=1.0)) == pytest.approx([0.0, 1.0, 0.75])


def test_energy_delay_compares_power_limits():
    """Time is turned into energy by the highest limit on offer, so that a lower one is not cheaper by its name."""
    high, low = tuned(), tuned(rates=(0.0, 1.5, 2.25), node_w=60.0, limit_w=100)
    costs = [[(50 + 250) / 2, (100 + 250) / 3], [(30 + 250) / 1.5, (60 + 250) / 2.25]]
    for mode, cost in zip((high, low), costs, strict=True):
        expected = [0.0, *(350.0 / 3 / each for each in cost)]
        assert credit(energy_delay, mode, modes=(high, low)) == pytest.approx(expected)


def test_gpus_of_a_node_draw_each_their_limit():
    """Full power is that of all GPUs of all nodes: 2 x 3 x 250 W here."""
    costs = [(50 + 750) / 2, (100 + 750) / 3]
    expected = [0.0, costs[1] / costs[0], 1.0]
    assert credit(energy_delay, tuned(gpus_per_node=3)) == pytest.approx(expected)


def test_eta_decides():
    """Where only energy counts two tasks take a node each of four; where only time counts all four are used."""
    for eta, after in ((1.0, (1, 1)), (0.0, (2, 2))):
        assert decide(energy_delay, [tuned("J0", eta=eta), tuned("J1", eta=eta)], 4).after == after


def test_the_best_of_modes_is_found_once():
    """A task's limits are measured once, however often it is asked for; another task, limit or question is another."""
    asked: list[int] = []

    def measure(spec, counts, factor=1.0):
        asked.append(spec.run.power_limit_w)
        return factor * spec.rates[counts]

    modes = (tuned(), tuned(rates=(0.0, 1.5, 2.25), node_w=60.0, limit_w=100))
    both = TaskState(modes[0], 0, 0.0, 0.0, modes=modes)
    later = TaskState(modes[1], 2, 5.0, 0.0, modes=modes)
    assert [best_of_modes(task, measure) for task in (both, later, both)] == [3.0, 3.0, 3.0]
    assert asked == [250, 100]
    # Another task, fewer of the limits, another question.
    assert best_of_modes(TaskState(tuned(rates=(0.0, 1.0, 2.0)), 0, 0.0, 0.0), measure) == 2.0
    assert best_of_modes(TaskState(modes[1], 0, 0.0, 0.0), measure) == 2.25
    assert best_of_modes(both, measure, 2.0) == 6.0
    assert asked == [250, 100, 250, 100, 250, 100]


class TwoLimits:
    """A tuner that offers every task a high and a low limit."""

    def __init__(self) -> None:
        self.attempts: list[object] = []
        self.failures: dict[str, str] = {}

    def start(self, task: TaskSpec) -> tuple[TaskSpec, ...]:
        return tuned(task.name), tuned(task.name, (0.0, 1.5, 2.25), node_w=60.0, limit_w=100)

    def ended(self, running: TaskSpec, work_at: Mapping[int, float]) -> None:  # noqa: ARG002
        raise AssertionError("no run ends here")

    def checkpoint(self, group: str) -> Callable[[], None]:  # noqa: ARG002
        return lambda: None


def test_objectives_see_all_limits_on_offer():
    """A decision measures a task against the best of its limits, not only against the one it runs at."""
    seen: list[TaskState] = []

    def watched(task, counts, now_s):
        seen.append(task)
        return energy(task, counts, now_s)

    waiting = replace(tuned(), run=None)
    live = Allocator([waiting], Settings(watched, "dp", forward_time_s=1.0), tuner=TwoLimits())
    decision = live.on_event(Event.join(0.0, "a", "b"))
    assert [mode.run.power_limit_w for mode in seen[0].modes] == [250, 100]
    assert decision.result.objective == pytest.approx(1.5 * 0.6)


@pytest.mark.parametrize("name", ["energy", "energy-delay"])
def test_a_task_that_does_nothing_earns_nothing(name):
    """On counts that do no work there is no credit, and none to compare with."""
    idle = tuned(rates=(0.0, 1.0, 0.0), min_nodes=2)
    assert credit(get_objective(name), idle)[2] == 0.0


@pytest.mark.parametrize("name", ["energy", "energy-delay"])
def test_untuned_tasks_are_refused(name):
    """Nobody knows their power: one line that names the task, before a replay and in it."""
    objective = get_objective(name)
    said = f"objective {name}, task J0: Expected a tuned task, whose power is known, got one without a zeus section"
    with pytest.raises(ObjectiveError, match=said):
        credit(objective, plain())
    with pytest.raises(ObjectiveError, match=said):
        objective.check([tuned("J1"), plain()])
    objective.check([tuned("J1"), replace(tuned(), run=None)])


@pytest.mark.parametrize("name", ["energy", "energy-delay"])
def test_power_must_be_power(name):
    """A measured power of 0 W, or none, is told by task and count."""
    for watts in (0.0, np.nan):
        free = tuned()
        free.run.power_w[2] = watts
        with pytest.raises(ObjectiveError, match=f"{name}, task J0: Expected power > 0 W on 2 nodes, got {watts}"):
            credit(get_objective(name), free)


@examples(60)
@given(data=st.data(), pool=st.integers(1, 8), exponent=st.integers(-40, 40))
def test_scaled_power_changes_nothing(data, pool, exponent):
    """Watts or milliwatts, decisions for energy are the same; exact for powers of two, which floats scale exactly."""
    tasks = [data.draw(tuned_tasks(f"J{number}")) for number in range(data.draw(st.integers(1, 3)))]
    other = [scaled(task, 2.0**exponent) for task in tasks]
    assert decide(energy, tasks, pool).after == decide(energy, other, pool).after


@examples(60)
@given(spec=tuned_tasks(), factor=st.floats(1e-6, 1e6))
def test_scaled_power_leaves_credit(spec, factor):
    """For any factor the credit is the same to rounding."""
    assert credit(energy, scaled(spec, factor)) == pytest.approx(credit(energy, spec), rel=1e-12)
