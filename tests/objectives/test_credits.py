"""Objectives on their own: formulas by hand, what they decide and refuse, and what all of them keep to."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer import Allocator, Settings
from bftrainer.errors import InvalidTaskError, SettingsError
from bftrainer.model import Event, ScalingCurve, TaskState, is_static
from bftrainer.objectives import (
    Priority,
    as_given,
    deadline,
    energy,
    energy_delay,
    get_objective,
    scaling_efficiency,
    throughput,
)
from tests.examples import examples
from tests.objectives.support import at, credit, decide, plain, scaled, tuned, tuned_tasks

SUMS = ("as-given", "throughput", "scaling-efficiency", "energy", "energy-delay", "deadline")
NAMES = (
    *SUMS,
    *(f"priority:{name}" for name in SUMS),
    *("quota:user=3:energy", "quota:group=50%:priority:deadline"),
    *("fair-share:user:energy", "priority:fair-share:deadline"),
)
CURVE = ScalingCurve((0, 1, 2, 4), (0.0, 2.0, 4.0, 6.0), (0.0, 1.0, 1.5, 2.5))
RATED = plain(scaling=CURVE, weight=3.0)
LOW = tuned(rates=(0.0, 1.5, 2.25), node_w=60.0, limit_w=100)
MODES = {"modes": (tuned(), LOW)}
LATE = [0.0, 0.1, 0.2, 0.3, 0.4]
DUE = plain(deadline_s=50.0)
RESCALING = plain(deadline_s=50.0, grow_cost_s=10.0, shrink_cost_s=30.0)


@pytest.mark.parametrize(
    ("objective", "spec", "state", "expected"),
    [
        # The file's credit, linear between its points; where there is none, the throughput.
        (as_given, RATED, {}, [0.0, 1.0, 1.5, 2.0, 2.5]),
        (as_given, plain(scaling=replace(CURVE, credit=None)), {}, [0.0, 2.0, 4.0, 5.0, 6.0]),
        (throughput, RATED, {}, [0.0, 2.0, 4.0, 5.0, 6.0]),
        (scaling_efficiency, RATED, {}, [0.0, 1.0, 2.0, 2.5, 3.0]),
        (Priority(), RATED, {}, [0.0, 3.0, 4.5, 6.0, 7.5]),
        (Priority(scaling_efficiency), RATED, {}, [0.0, 3.0, 6.0, 7.5, 9.0]),
        # On 2 nodes 3 epochs/s for 200 W: 1.5 nodes' work at best, a joule doing 0.75 of what it does on one node.
        (energy, tuned(), {}, [0.0, 1.0, 1.5 * 0.75]),
        # Power limits are measured against the best of either; counts that a task may not get are no reference.
        (energy, tuned(), MODES, [0.0, 1.0 * 0.8, 1.5 * 0.6]),
        (energy, LOW, MODES, [0.0, 0.75 * 1.0, 1.125 * 0.75]),
        (energy, tuned(min_nodes=2), {}, [0.0, 0.0, 3.0 / 1.5]),
        # Eta = 0.5 and 500 W at most: an epoch costs 150 J on one node, 116.7 J on two; eta 0 is time, 1 energy.
        (energy_delay, tuned(eta=0.5), {}, [0.0, (350.0 / 3) / 150.0, 1.0]),
        (energy_delay, tuned(eta=0.0), {}, [0.0, 2.0 / 3.0, 1.0]),
        (energy_delay, tuned(eta=1.0), {}, [0.0, 1.0, 0.75]),
        # Time becomes energy by the highest limit on offer, so that a lower one is not cheaper by its name.
        (energy_delay, LOW, MODES, [0.0, (350.0 / 3) / (280.0 / 1.5), (350.0 / 3) / (310.0 / 2.25)]),
        # Full power is that of all GPUs of all nodes: 2 x 3 x 250 W.
        (energy_delay, tuned(gpus_per_node=3), {}, [0.0, (850.0 / 3) / (800.0 / 2), 1.0]),
        # 100 work in 50 s takes 2 work/s: two nodes or more earn 0.9 of these, and a tenth of all they do.
        (deadline, DUE, {}, [0.0, 0.1, 0.2 + 1.8, 0.3 + 1.8, 0.4 + 1.8]),
        # With 40 work done at 30 s, 60 work in 20 s take 3 work/s.
        (deadline, DUE, {"now_s": 30.0, "progress": 40.0}, [0.0, 0.1, 0.2, 0.3 + 2.7, 0.4 + 2.7]),
        # Growing from 1 node loses 10 work, so that 110 are to be done in 50 s; shrinking loses 30 s of work.
        (deadline, RESCALING, {"nodes": 1}, [0.0, 0.1, 0.2, 0.3 + 1.8, 0.4 + 1.8]),
        (deadline, RESCALING, {"nodes": 2}, [0.0, 0.1, 0.2 + 1.8, 0.3 + 1.8, 0.4 + 1.8]),
        (deadline, RESCALING, {"nodes": 3}, [0.0, 0.1, 0.2, 0.3 + 1.8, 0.4 + 1.8]),
        # A task below its minimum starts for nothing.
        (deadline, replace(RESCALING, min_nodes=2), {"nodes": 1}, [0.0, 0.1, 0.2 + 1.8, 0.3 + 1.8, 0.4 + 1.8]),
        # No deadline, one that four nodes miss, one that has passed, and work that is done: best effort.
        *[(deadline, plain(deadline_s=deadline_s), {}, LATE) for deadline_s in (None, 24.9, 0.0, -5.0)],
        (deadline, DUE, {"progress": 120.0}, LATE),
        (deadline, plain(rates=(0.0, 0.0), deadline_s=50.0), {}, [0.0, 0.0]),
        # A task that is exactly in time on all its nodes is in time, whatever its rates round to.
        (deadline, plain(rates=(0.0, 0.1, 0.3), work=0.3 * 3, deadline_s=3.0), {}, [0.0, 1 / 15, 0.2 + 1.8]),
        # A deadline by date is seconds after the window's start.
        (deadline, plain(deadline_ns=10**18 + 50 * 10**9), {"start_ns": 10**18}, [0.0, 0.1, 2.0, 2.1, 2.2]),
    ],
)
def test_credit_by_hand(objective, spec, state, expected):
    """Credit of 0, 1, 2, ... nodes, of the counts that a task may get."""
    counts = [0, *range(spec.min_nodes, spec.max_nodes + 1)]
    assert np.array(credit(objective, spec, **state))[counts] == pytest.approx(np.array(expected)[counts])


SLOW, FAST = plain("slow", deadline_s=1000.0), plain("urgent", deadline_s=50.0)
ETA = {eta: [tuned("J0", eta=eta), tuned("J1", eta=eta)] for eta in (0.0, 1.0)}


@pytest.mark.parametrize(
    ("objective", "tasks", "pool", "after"),
    [
        # With equal curves, nodes go to the task that weighs more.
        (as_given, [plain("light"), plain("heavy", weight=2.0)], 2, (2, 0)),
        (Priority(), [plain("light"), plain("heavy", weight=2.0)], 2, (0, 2)),
        # A task that scales with the fourth root leaves nodes idle; one that scales well takes them all.
        (energy, [tuned(rates=(0.0, *np.arange(1, 5) ** 0.25))], 4, (1,)),
        (energy, [tuned(rates=(0.0, *np.arange(1, 5) ** 0.9))], 4, (4,)),
        # Where only energy counts two tasks take a node each of four; where only time counts all four are used.
        (energy_delay, ETA[1.0], 4, (1, 1)),
        (energy_delay, ETA[0.0], 4, (2, 2)),
        # Who needs all nodes now comes first; nobody gets more than it needs while others are short.
        (deadline, [SLOW, FAST], 2, (0, 2)),
        (deadline, [DUE, replace(DUE, name="J1")], 4, (2, 2)),
        # Four nodes save the first task just in time, and not a second later: then the other one gets three of them.
        (deadline, [plain("J0", deadline_s=25.0), plain("J1", deadline_s=34.0)], 4, (4, 0)),
        (deadline, [plain("J0", deadline_s=20.0), plain("J1", deadline_s=34.0)], 4, (0, 4)),
    ],
)
def test_decisions_by_hand(objective, tasks, pool, after):
    """Nodes of the first decision."""
    assert decide(objective, tasks, pool).after == after


@pytest.mark.parametrize("name", NAMES)
@examples(40)
@given(data=st.data())
def test_credit_is_usable(name, data):
    """Credit is finite, never negative, 0 on 0 nodes, and each count's own whatever else is asked for."""
    spec = data.draw(tuned_tasks())
    other = tuned(rates=(0.5 * spec.rates).tolist(), node_w=20.0, min_nodes=spec.min_nodes)
    nodes, progress = data.draw(st.integers(0, spec.max_nodes)), data.draw(st.floats(0.0, 110.0))
    state = TaskState(spec, nodes, progress, 0.0, modes=data.draw(st.sampled_from([(), (spec, other)])))
    now_s = data.draw(st.floats(0.0, 300.0))
    counts = np.arange(spec.max_nodes + 1)
    earned = get_objective(name)(state, counts, now_s)
    assert earned.shape == counts.shape
    assert np.isfinite(earned).all()
    assert (earned >= 0.0).all()
    assert earned[0] == 0.0
    some = np.array(data.draw(st.lists(st.sampled_from(counts.tolist()), unique=True)), dtype=np.int64)
    assert get_objective(name)(state, some, now_s).tolist() == earned[some].tolist()


@pytest.mark.parametrize("name", NAMES)
def test_static_ones_ignore_time_and_progress(name):
    """Those that are computed once a task say the same at any time and progress; with deadlines it is not so."""
    objective, counts, spec = get_objective(name), np.arange(3), tuned(deadline_s=1e5)
    fresh, later = (objective(at(spec, nodes=1, progress=done), counts, done).tolist() for done in (0.0, 50.0))
    assert is_static(objective) == ("deadline" not in name) == (fresh == later)


@examples(60)
@given(data=st.data(), pool=st.integers(1, 8), exponent=st.integers(-40, 40))
def test_scaled_power_changes_nothing(data, pool, exponent):
    """Watts or milliwatts, decisions for energy are the same; exact for powers of two, which floats scale exactly."""
    tasks = [data.draw(tuned_tasks(f"J{number}")) for number in range(data.draw(st.integers(1, 3)))]
    other = [scaled(task, 2.0**exponent) for task in tasks]
    assert decide(energy, tasks, pool).after == decide(energy, other, pool).after
    factor = data.draw(st.floats(1e-6, 1e6))
    assert credit(energy, scaled(tasks[0], factor)) == pytest.approx(credit(energy, tasks[0]), rel=1e-12)


def test_objectives_see_all_limits_on_offer():
    """A decision measures a task against the best of its limits, not only against the one it runs at."""
    seen: list[TaskState] = []

    def watched(task, counts, now_s):
        seen.append(task)
        return energy(task, counts, now_s)

    tuner = Mock(attempts=[], failures={}, start=lambda task: (tuned(task.name), replace(LOW, name=task.name)))
    live = Allocator([replace(tuned(), run=None)], Settings(watched, "dp", forward_time_s=1.0), tuner=tuner)
    decision = live.on_event(Event.join(0.0, "a", "b"))
    assert [mode.run.power_limit_w for mode in seen[0].modes] == [250, 100]
    assert decision.result.objective == pytest.approx(1.5 * 0.6)


def test_refusals():
    """No speed on one node, no weight; untuned tasks where power counts, before a replay and in it."""
    lame = plain(scaling=ScalingCurve((0, 1, 4), (0.0, 0.0, 6.0)))
    with pytest.raises(SettingsError, match=r"task J0: Expected throughput > 0 on one node, got 0\.0"):
        credit(scaling_efficiency, lame)
    with pytest.raises(InvalidTaskError, match=r"weight > 0, got 0\.0"):
        plain(weight=0.0)
    for name in ("energy", "energy-delay"):
        objective = get_objective(name)
        said = f"objective {name}, task J0: Expected a tuned task, whose power is known, got one without a zeus section"
        with pytest.raises(SettingsError, match=said):
            credit(objective, plain())
        with pytest.raises(SettingsError, match=said):
            objective.check([tuned("J1"), plain()])
        objective.check([tuned("J1"), replace(tuned(), run=None)])
        # On counts that do no work there is no credit; a measured power of 0 W, or none, is told by task and count.
        assert credit(objective, tuned(rates=(0.0, 1.0, 0.0), min_nodes=2))[2] == 0.0
        for watts in (0.0, np.nan):
            free = tuned()
            free.run.power_w[2] = watts
            with pytest.raises(SettingsError, match=f"{name}, task J0: Expected power > 0 W on 2 nodes, got {watts}"):
                credit(objective, free)
