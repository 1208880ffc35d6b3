"""Saves of tasks in the replay: when they happen, what they cost, and what a hit loses."""

import math
from typing import Any

import numpy as np
import pytest

from benchmarks.published import ROOT
from bftrainer.model import Event, TaskSpec
from bftrainer.model.records import Recording
from bftrainer.objectives import as_given
from bftrainer.replay import Allocator, Settings
from bftrainer.replay.cluster_task import mean_loss_s
from tests.replay.support import linear_task, replay_rows

RATE = 10.0
NEVER = 1e9


def task(work: float = 1e6, most: int = 2, **changes: Any) -> TaskSpec:
    """10 work/s and node; it saves for 5 s every 20 s, and restarts in 7 s."""
    saving: dict[str, Any] = {"checkpoint_s": 5.0, "restart_s": 7.0, "checkpoint_interval_s": 20.0}
    return linear_task("J", RATE, most, **(saving | {"work": work} | changes))


def replayed(spec: TaskSpec, *rows: tuple[float, list[str], list[str]], end_s: float = NEVER, **more: Any) -> Recording:
    """Replay one task on rows of (time, joined, left)."""
    return replay_rows([spec], rows, end_s, **({"forward_time_s": 600.0} | more))


@pytest.mark.parametrize(
    ("work", "completed_s"),
    [(100.0, 10.0), (200.0, 20.0), (201.0, 25.1), (1000.0, 100.0 + 4 * 5.0), (1001.0, 100.1 + 5 * 5.0)],
)
def test_completion_is_exact(work, completed_s):
    """Work is complete after its training and the saves before its end; none is made of what is complete."""
    done = replayed(task(work), (0.0, ["a"], [])).tasks[0]
    assert done.completed_s == pytest.approx(completed_s, abs=1e-9)
    assert done.saving_cost == pytest.approx((completed_s - work / RATE) * RATE)
    assert done.work_done == work


@pytest.mark.parametrize(
    ("hit_s", "unsaved_s"), [(8.0, 8.0), (20.0, 20.0), (23.0, 20.0), (25.0, 0.0), (30.0, 5.0), (80.0, 5.0)]
)
def test_a_hit_loses_what_is_not_saved(hit_s, unsaved_s):
    """A task that loses a node loses the training since the last save that was whole, and a restart, at its rate."""
    done = replayed(task(most=1), (0.0, ["a"], []), (hit_s, ["b"], ["a"]), end_s=hit_s).tasks[0]
    assert done.preemption_cost == pytest.approx((unsaved_s + 7.0) * RATE)


def at_constant_hazard(checkpoint_s: float, hazard: float, hits: int, seed: int) -> tuple[float, float]:
    """Seconds of training that a hit of a one-node task loses on average, and the share of the time not kept.

    Its node leaves, and another one comes, after exponential times: each quantile of them once, in random order.
    """
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.permutation(-np.log1p(-(np.arange(hits) + 0.5) / hits) / hazard))
    rows = [(float(time_s), ["ba"[place % 2]], ["ab"[place % 2]]) for place, time_s in enumerate(times)]
    spec = task(1e18, 1, checkpoint_s=checkpoint_s, checkpoint_interval_s=None)
    done = replayed(spec, (0.0, ["a"], []), *rows, end_s=float(times[-1])).tasks[0]
    assert done.preemptions == hits
    lost = done.preemption_cost / RATE - 7.0 * hits
    return lost / hits, (lost + done.saving_cost / RATE) / times[-1]


CONSTANT = [(5.0, 1e-4), (60.0, 1 / 43_200), (30.0, 1 / 3_600), (300.0, 1 / 7_200)]


@pytest.mark.long
@pytest.mark.parametrize(("checkpoint_s", "hazard"), CONSTANT)
def test_young_daly_loses_what_the_closed_form_says(checkpoint_s, hazard):
    """On a constant hazard, work lost to hits, and with saves, is within 2 % of the exact exponential form.

    That is the table of docs/research.md. The first-order formula, a waste of sqrt(2 c h), holds within 5 %
    where c h < 0.005, and no longer above 0.04.
    """
    lost, waste = at_constant_hazard(checkpoint_s, hazard, 2_000, seed=1)
    interval_s = math.sqrt(2.0 * checkpoint_s / hazard)
    exact = mean_loss_s(interval_s, checkpoint_s, hazard)
    kept = hazard * interval_s / math.expm1(hazard * (interval_s + checkpoint_s))
    assert lost == pytest.approx(exact, rel=0.02)
    assert waste == pytest.approx(1.0 - kept, rel=0.02)
    row = f"| {checkpoint_s:g} s | one in {1 / hazard / 3600:.3g} h | {checkpoint_s * hazard:.4f} "
    row += f"| {lost:,.0f} s | {exact:,.0f} s "
    row += f"| {100 * waste:.1f} % | {100 * (1 - kept):.1f} % | {100 * math.sqrt(2 * checkpoint_s * hazard):.1f} % |"
    assert row in (ROOT / "docs" / "research.md").read_text()
    near = abs(waste / math.sqrt(2.0 * checkpoint_s * hazard) - 1.0) < 0.05
    assert near or checkpoint_s * hazard > 0.005
    assert not near or checkpoint_s * hazard < 0.04


def test_late_and_early_reports_of_completion_are_taken():
    """Live tasks complete when they say so: no save is booked after their work should have been done."""
    for reported_s, saving in ((60.0, 5.0 * RATE), (12.0, 0.0)):
        allocator = Allocator([task(210.0, 1)], Settings(objective=as_given, solver="dp"), ["a"])
        allocator.on_event(Event.join(0.0, "a"))
        (done,) = allocator.apply(reported_s, completed=[allocator.cluster.tasks[0]]).completed
        assert done.saving_loss == pytest.approx(saving)
        assert done.net == pytest.approx(210.0)
