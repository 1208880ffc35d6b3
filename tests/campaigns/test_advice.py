"""Advice: settings that prove themselves on what was not searched, and words for those that do not."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from bftrainer.campaigns import studies as advice
from bftrainer.campaigns.studies import Advice, AdvicePlan, SearchedSettings, advise
from bftrainer.errors import InputError, SettingsError
from bftrainer.model import NodeLog, ScalingCurve, TaskSpec
from bftrainer.runs import ReplayConfig

NS = 10**9
# Growing costs a minute of work.
TASK = TaskSpec(
    "J0", min_nodes=1, max_nodes=6, work=1e9, scaling=ScalingCurve.linear(1.0, 6), grow_cost_s=60.0, shrink_cost_s=5.0
)


def log(calm_s, wild_s):
    """Nodes that come, one every 1,000 s, and stay; after `calm_s`, five of the six stay for 8 s of every 80 s."""
    moves = [(0, 0, True)]
    for node in range(1, 6):
        moves.append((min(1000 * node, calm_s), node, True))
    for begin in range(calm_s, calm_s + wild_s, 80):
        moves += [(begin + 8, node, False) for node in range(1, 6)] + [(begin + 80, node, True) for node in range(1, 6)]
    moves = [move for move in moves if move[0] < calm_s + wild_s]
    times, nodes, idle = zip(*sorted(moves, key=lambda move: move[0]), strict=True)
    return NodeLog(
        nodes=tuple(f"n{number}" for number in range(6)),
        start_ns=0,
        end_ns=(calm_s + wild_s) * NS,
        time_ns=np.array(times, dtype=np.int64) * NS,
        node=np.array(nodes, dtype=np.int32),
        idle=np.array(idle),
    )


def advised(node_log, **more):
    """Advice about work done, twelve trials unless said."""
    settings = {"max_tasks": 1, "forward_time_s": 10.0} | more.pop("settings", {})
    config = ReplayConfig(node_log=node_log, tasks=[TASK], solver="dp", **settings)
    return advise(AdvicePlan(config, **{"metric": "work_done", "trials": 12} | more))


def test_a_gain_that_holds_is_advised():
    """Where nodes stay, looking further ahead is better on both parts."""
    found = advised(log(6_000, 0), train_share=0.4)
    assert found.verdict == "better"
    assert found.recommendation == found.best != found.plan.current
    assert found.best.forward_time_s > 60
    assert "Use these settings" in found.sentence()


def test_a_planted_overfit_is_told():
    """Growing pays on the first part and is ruinous on the rest: words and JSON say so, and the default is advised."""
    found = advised(log(6_000, 4_000), train_share=0.6)
    trained, held_out = found.gains
    assert trained > 0.5
    assert held_out < -0.05
    assert found.verdict == "overfit"
    assert found.recommendation == found.plan.current
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["overfit"] is True
    assert "worse by" in told["sentence"]
    assert told["advised"]["forward_time_s"] == 10.0
    assert told["tried"][0] == {**found.plan.current.to_dict(), "training": found.trained[0]}
    assert max(each["training"] for each in told["tried"]) == found.trained[1]


def test_nothing_better_is_told():
    """If the given settings are the best ones, they stay."""
    best = advised(log(6_000, 0)).best
    found = advised(log(6_000, 0), settings=best.to_dict())
    assert found.verdict == "same"
    assert "Keep the given settings" in found.sentence()


def test_equal_seeds_give_equal_advice():
    """The search is drawn from the seed alone, also from one of more bits than the search library takes."""
    one, other = (advised(log(3_000, 1_000), seed=2**63 - 1).to_dict() for _ in range(2))
    assert one == other


def test_objectives_may_vary(monkeypatch):
    """Only if asked for; each named one may be tried."""
    tried = set()
    original = advice.measure_settings

    def noted(config, settings, *more):
        tried.add(settings.objective)
        return original(config, settings, *more)

    monkeypatch.setattr(advice, "measure_settings", noted)
    advised(log(2_000, 0))
    assert tried == {"as-given"}
    advised(log(2_000, 0), objectives=("throughput", "scaling-efficiency"), trials=20)
    assert tried == {"as-given", "throughput", "scaling-efficiency"}


@pytest.mark.parametrize(
    ("trained", "held_out", "metric", "verdict"),
    [
        ((1.0, 2.0), (1.0, 1.5), "work_done", "better"),
        ((1.0, 2.0), (1.0, 0.5), "work_done", "overfit"),
        ((1.0, 2.0), (1.0, 1.0), "work_done", "same"),
        ((1.0, 1.0005), (1.0, 2.0), "work_done", "same"),
        ((2.0, 1.0), (2.0, 1.0), "makespan_s", "better"),
        ((2.0, 1.0), (2.0, 3.0), "makespan_s", "overfit"),
        ((0.0, 1.0), (0.0, 0.0), "work_done", "same"),
    ],
)
def test_verdicts(trained, held_out, metric, verdict):
    """More of a metric is better, or less of it."""
    plan = AdvicePlan(ReplayConfig(), metric=metric)
    assert Advice(plan, SearchedSettings(99.0, 3, "as-given"), trained, held_out, 1.0).verdict == verdict


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"metric": "eficiency"}, "Expected a metric to improve, got 'eficiency'. Did you mean 'efficiency U'?"),
        ({"metric": "events"}, "Expected a metric to improve, got 'events'"),
        ({"metric": "wall_s"}, "Expected a metric to improve, got 'wall_s'"),
        ({"train_share": 1.0}, "Expected 0.01 <= train share <= 0.9"),
        ({"trials": 1}, "Expected at least 2 trials, got 1"),
        ({"metric": "makespan_s"}, "makespan_s on the training part"),
    ],
)
def test_bad_plans(given, said):
    """One line says what was expected."""
    with pytest.raises(SettingsError, match=said):
        advised(log(1_000, 0), **given)


def test_times_of_fewer_tasks_are_no_better():
    """SearchedSettings under which one of two tasks is done early have no makespan to be compared."""
    slow = replace(TASK, name="J1", work=1e12)
    config = ReplayConfig(node_log=log(6_000, 0), tasks=[replace(TASK, work=100.0), slow], solver="dp", max_tasks=2)
    with pytest.raises(SettingsError, match=r"makespan_s .*of runs with all 2 tasks completed"):
        advise(AdvicePlan(config, "makespan_s", trials=2))


@pytest.mark.parametrize(("name", "said"), [("throughputt", "Did you mean"), ("energy", "Expected a tuned task")])
def test_objectives_are_checked_before_the_search(name, said, monkeypatch):
    """One that is unknown, or not for these tasks, is refused before anything is replayed."""
    monkeypatch.setattr(advice, "run_replay", lambda **_: pytest.fail("replayed"))
    with pytest.raises(InputError, match=said):
        advised(log(1_000, 0), objectives=("throughput", name))


def test_from_nothing_to_something():
    """A gain over 0 has no share: JSON has null, the sentence the amounts."""
    plan = AdvicePlan(ReplayConfig(solver="dp"), "tasks_completed", trials=2)
    found = Advice(plan, SearchedSettings(60.0, 5, "as-given"), (0.0, 3.0), (2.0, 4.0), 100.0)
    assert found.verdict == "better"
    assert "better by 3 (from 0 to 3) on the training part, and by 100.00 % on the rest" in found.sentence()
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["gain"] == {"training": None, "held_out": 1.0}
