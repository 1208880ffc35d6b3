"""WorkBounds of a replay: what they are replays of, what they are compared at, and what is said beside them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bftrainer.campaigns.bound import WorkBounds, bound_work
from bftrainer.errors import SettingsError
from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path
from bftrainer.model import ScalingCurve, TaskSpec
from bftrainer.runs import ReplayConfig, load_inputs, run_replay
from tests.logs import random_log

LINEAR = ScalingCurve.linear(10.0, 4)


def given(work: float = 1e9, **options: object) -> ReplayConfig:
    """Three tasks that lose half a minute whenever they lose a node, on 24 nodes that come and go within two hours."""
    tasks = [TaskSpec(f"J{n}", 1, 4, work, LINEAR, grow_cost_s=20.0, shrink_cost_s=30.0) for n in range(3)]
    return ReplayConfig(random_log(5, nodes=24, flips=150), tasks, solver="dp", forward_time_s=600.0, **options)


def bounded(config: ReplayConfig, *horizons_s: float) -> WorkBounds:
    """Bounds of a configuration's replay."""
    return bound_work(load_inputs(config), horizons_s)


@pytest.fixture(scope="module")
def found():
    return bounded(given(), 60.0, 600.0, 3_600.0)


def test_bounds_are_replays_of_the_same_inputs(found):
    """Blind is the replay as given; cost-free that of the same tasks without costs; both to the last bit."""
    by_name = {each.name: each for each in found.bounds}
    config = given()
    blind = run_replay(config=config)
    free = [replace(task, grow_cost_s=0.0, shrink_cost_s=0.0) for task in config.tasks]
    ceiling = run_replay(config=replace(config, tasks=free, objective="throughput"))
    assert by_name["blind"].work == pytest.approx(blind.summary()["work_done"], rel=1e-12)
    assert by_name["cost-free"].work == pytest.approx(ceiling.summary()["work_done"], rel=1e-12)
    assert by_name["cost-free"].rescale_share == by_name["cost-free"].preemption_share == 0.0


def test_bounds_are_in_order(found):
    """Who knows more does more, who pays nothing most; shares of blind are given for each, and no note is needed."""
    assert [each.name for each in found.bounds] == ["cost-free", "clairvoyant pool", "clairvoyant order", "blind"]
    assert (np.diff([each.work for each in found.bounds]) < 0).all()
    assert [each.against_blind > 0 for each in found.bounds] == [True, True, True, False]
    assert found.time_s == 7_200.0
    assert found.outstanding_share > 0.9
    assert found.notes() == []


def test_the_best_horizon_counts():
    """Of several horizons the clairvoyant pool is the one that does most."""
    works = {each: bounded(given(), each).bounds[1].work for each in (30.0, 300.0, 3_000.0)}
    best = bounded(given(), *works).bounds[1]
    assert best.work == max(works.values())
    assert works[best.horizon_s] == best.work


def test_the_ceiling_knows_curves(found):
    """Where decisions learn curves, cost-free ones know them: the ceiling is that of known curves."""
    learning = bounded(given(scaling="learned", objective="throughput"), 60.0)
    assert learning.bounds[0].work == found.bounds[0].work
    assert learning.bounds[-1].work != found.bounds[-1].work


def test_work_that_is_done_early_is_said():
    """Where all is done in the end, work is compared when the first is done, and a note says how little that tells."""
    found = bounded(given(work=20_000.0), 60.0)
    assert found.time_s < 3_600.0
    assert found.outstanding_share == 0.0
    assert found.notes()[0].startswith("only 0 % of the work is outstanding at half-time")


def test_what_cannot_be_bounded_is_refused():
    """Work in different units does not add up; without a horizon there is no clairvoyant pool."""
    with pytest.raises(SettingsError, match="Expected at least one horizon, got none"):
        bounded(given())
    with pytest.raises(SettingsError, match="Expected tasks that count work in one unit"):
        bounded(ReplayConfig(tasks=sample_path(SAMPLE_TUNED_TASKS), solver="dp"), 60.0)
