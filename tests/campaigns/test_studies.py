"""Studies by many replays: advice that proves itself, forecasts that hold, and what grants and more tasks bring."""

import json
import math
from dataclasses import replace

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.campaigns import studies
from bftrainer.errors import BftrainerError, InputError, SettingsError
from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path
from bftrainer.model import ScalingCurve, TaskSpec
from bftrainer.report.glossary import more_tasks_in_words
from bftrainer.report.metrics import proportion
from bftrainer.runs import ReplayConfig, load_inputs, run_replay
from bftrainer.spot.supercomputer import SupercomputerModel
from tests.report.test_ledger import log_of
from tests.worlds import random_log

NS = 10**9
DAY_S = 86_400.0
# Growing costs a minute of work.
TASK = TaskSpec(
    "J0", min_nodes=1, max_nodes=6, work=1e9, scaling=ScalingCurve.linear(1.0, 6), grow_cost_s=60.0, shrink_cost_s=5.0
)


def log(calm_s, wild_s):
    """Nodes that come, one every 1,000 s, and stay; after `calm_s`, five of the six stay for 8 s of every 80 s."""
    end_s = calm_s + wild_s
    spans = [(0, 0, end_s)]
    for node in range(1, 6):
        spans.append((node, min(1000 * node, calm_s), calm_s + 8))
        spans += [(node, begin_s, begin_s + 8) for begin_s in range(calm_s + 80, end_s, 80)]
    return log_of(spans, end_s, 6)


def advised(node_log, **more):
    """Advice about work done, twelve trials unless said."""
    settings = {"max_tasks": 1, "forward_time_s": 10.0} | more.pop("settings", {})
    config = ReplayConfig(node_log=node_log, tasks=[TASK], solver="dp", **settings)
    return studies.advise(studies.AdvicePlan(config, **{"metric": "work_done", "trials": 12} | more))


def test_a_gain_that_holds_is_advised():
    """Where nodes stay, looking further ahead is better on both parts; optuna says as much as before."""
    before = optuna.logging.get_verbosity()
    found = advised(log(6_000, 0), train_share=0.4)
    assert optuna.logging.get_verbosity() == before
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
    original = studies.measure_settings

    def noted(config, settings, *more):
        tried.add(settings.objective)
        return original(config, settings, *more)

    monkeypatch.setattr(studies, "measure_settings", noted)
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
    plan = studies.AdvicePlan(ReplayConfig(), metric=metric)
    assert (
        studies.Advice(plan, studies.SearchedSettings(99.0, 3, "as-given"), trained, held_out, 1.0).verdict == verdict
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"metric": "eficiency"}, "Expected a metric to improve, got 'eficiency'. Did you mean 'efficiency U'?"),
        ({"metric": "events"}, "Expected a metric to improve, got 'events'"),
        ({"metric": "wall_s"}, "Expected a metric to improve, got 'wall_s'"),
        ({"train_share": 1.0}, "Expected 0.01 <= train share <= 0.9"),
        ({"trials": 1}, "Expected at least 2 trials, got 1"),
        ({"metric": "makespan_s"}, "makespan_s on the training part"),
    ],
)
def test_bad_plans_of_advice(settings, said):
    """One line says what was expected."""
    with pytest.raises(SettingsError, match=said):
        advised(log(1_000, 0), **settings)


def test_times_of_fewer_tasks_are_no_better():
    """SearchedSettings under which one of two tasks is done early have no makespan to be compared."""
    slow = replace(TASK, name="J1", work=1e12)
    config = ReplayConfig(node_log=log(6_000, 0), tasks=[replace(TASK, work=100.0), slow], solver="dp", max_tasks=2)
    with pytest.raises(SettingsError, match=r"makespan_s .*of runs with all 2 tasks completed"):
        studies.advise(studies.AdvicePlan(config, "makespan_s", trials=2))


@pytest.mark.parametrize(("name", "said"), [("throughputt", "Did you mean"), ("energy", "Expected a tuned task")])
def test_objectives_are_checked_before_the_search(name, said, monkeypatch):
    """One that is unknown, or not for these tasks, is refused before anything is replayed."""
    monkeypatch.setattr(studies, "run_replay", lambda **_: pytest.fail("replayed"))
    with pytest.raises(InputError, match=said):
        advised(log(1_000, 0), objectives=("throughput", name))


def test_from_nothing_to_something():
    """A gain over 0 has no share: JSON has null, the sentence the amounts."""
    plan = studies.AdvicePlan(ReplayConfig(solver="dp"), "tasks_completed", trials=2)
    found = studies.Advice(plan, studies.SearchedSettings(60.0, 5, "as-given"), (0.0, 3.0), (2.0, 4.0), 100.0)
    assert found.verdict == "better"
    assert "better by 3 (from 0 to 3) on the training part, and by 100.00 % on the rest" in found.sentence()
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["gain"] == {"training": None, "held_out": 1.0}


# --- Forecasts

STEADY = log_of([(node, 0, 1000) for node in range(2)], 1000, 2)
"""Nodes that are idle all the time."""


def task(name="J0", work=100.0, **more):
    """1 work/s on each of up to two nodes."""
    return TaskSpec(name, min_nodes=1, max_nodes=2, work=work, scaling=ScalingCurve.linear(1.0, 2), **more)


def foretold(log, tasks, deadline_s, horizon_s, **more):
    """A forecast in this process, from ten stretches unless said."""
    config = ReplayConfig(node_log=log, tasks=tasks, solver="dp", **more.pop("settings", {}))
    return studies.forecast(studies.ForecastPlan(config, deadline_s, horizon_s, **{"stretches": 10} | more), 1)


def test_by_hand():
    """100 work on two steady nodes are done after 50 s, wherever the stretch begins."""
    found = foretold(STEADY, [task()], 60.0, 120.0)
    assert found.completion_s == (50.0,) * 10
    assert found.to_dict()["interval80_s"] == [50.0, 50.0]
    assert found.probability.share == 1.0
    assert found.overlap == pytest.approx(1.2)


def test_what_is_not_done_is_beyond_the_horizon():
    """Completion is unknown then; the share of tasks done by the deadline counts each of them."""
    found = foretold(STEADY, [task(), task("J1", work=1e6)], 60.0, 120.0, settings={"max_tasks": 1})
    assert found.completion_s == (math.inf,) * 10
    assert found.done_shares == (0.5,) * 10
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["completion_quantiles_s"]["p50"] is None
    assert told["probability"] == 0.0


def test_dates_count_from_the_start():
    """A task of 30 s after the start is submitted 30 s into each stretch; one of the past at once."""
    tasks = [task("J0", submit_ns=500 * NS), task("J1", submit_ns=530 * NS)]
    found = foretold(STEADY, tasks, 100.0, 200.0, start_ns=500 * NS)
    assert found.completion_s == (100.0,) * 10
    assert foretold(STEADY, tasks, 100.0, 200.0, start_ns=700 * NS).completion_s == (100.0,) * 10
    assert foretold(STEADY, [tasks[1]], 100.0, 200.0, start_ns=500 * NS).completion_s == (80.0,) * 10
    assert foretold(STEADY, [tasks[1]], 100.0, 200.0).completion_s == (50.0,) * 10


def test_stretches_lie_within_what_is_replayed():
    """`since` and `until` bound them: here the part of the log that has nodes."""
    empty = log_of([(node, 1000, 2000) for node in range(2)], 2000, 2)
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
        drawn = SupercomputerModel(nodes=48).generate(np.random.default_rng(seed), (0, int(180 * length_s) * NS))
        known = foretold(drawn, tasks, length_s, length_s, stretches=100, settings=first)
        low, high = (studies.quantile(known.completion_s, level) for level in (0.1, 0.9))
        assert math.isfinite(high)
        truth = foretold(drawn, tasks, length_s, length_s, stretches=50, settings=second)
        inside += sum(low <= time_s <= high for time_s in truth.completion_s)
    assert 35 <= inside / 4 <= 45


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40), st.floats(0.0, 1.0))
def test_quantiles_are_weibulls(sample, level):
    """NumPy calls those between the order statistics k / (n + 1) of a sample weibull; infinities stay."""
    assert studies.quantile([1.0, math.inf, math.inf], 0.6) == math.inf
    assert studies.quantile(sample, level) == pytest.approx(
        float(np.quantile(sample, level, method="weibull")), abs=1e-3
    )


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
    ("settings", "said"),
    [
        ({"deadline_s": -5.0}, "Expected a deadline after the start, got one -5 s after it"),
        ({"deadline_s": math.nan}, "Expected a deadline after the start"),
        ({"horizon_s": 3.0}, "Expected a horizon of at least the 60 s until the deadline, got 3 s"),
        ({"stretches": 1}, "Expected 2 to 100,000 stretches, got 1"),
        ({"horizon_s": 5000.0}, "Expected a log longer than the 5000 s of a stretch, got one of 1000 s"),
    ],
)
def test_bad_forecasts(settings, said):
    """One line says what was expected."""
    with pytest.raises(SettingsError, match=said):
        foretold(STEADY, [task()], **{"deadline_s": 60.0, "horizon_s": 120.0} | settings)


def test_a_failing_replay_ends_the_forecast(monkeypatch):
    """With its reason: a forecast from some stretches would be none."""

    def refuse(**_):
        raise SettingsError("Expected luck.")

    monkeypatch.setattr("bftrainer.campaigns.studies.run_replay", refuse)
    with pytest.raises(BftrainerError, match="Stretch 0: Expected luck"):
        foretold(STEADY, [task()], 60.0, 120.0)


# --- Grants and more tasks


def eager(work: float = 1e9, **options: object) -> ReplayConfig:
    """Three tasks that lose half a minute whenever they lose a node, on 24 nodes that come and go within two hours."""
    curve = ScalingCurve.linear(10.0, 4)
    tasks = [TaskSpec(f"J{n}", 1, 4, work, curve, grow_cost_s=20.0, shrink_cost_s=30.0) for n in range(3)]
    return ReplayConfig(random_log(5, nodes=24, flips=150), tasks, solver="dp", forward_time_s=600.0, **options)


def bounded(config: ReplayConfig, *notices_s: float) -> dict:
    """Bounds of a configuration's replay."""
    return studies.bound_work(load_inputs(config), notices_s)


@pytest.fixture(scope="module")
def found():
    return bounded(eager(), 600.0, 60.0)


def test_bounds_are_replays_of_the_same_inputs(found):
    """Each is the replay with these options; changes are free for the same tasks without costs; all to the last bit."""
    works, config = {each["name"]: each["work"] for each in found["bounds"]}, eager()
    ways = {studies.NAMED: {}, "notice 60 s": {"notice_s": 60.0}, studies.CHOSEN: {"give_way": "chosen"}}
    ways[studies.BOTH] = {"give_way": "chosen", "notice_s": 120.0}
    for name, options in ways.items():
        work = run_replay(config=replace(config, baseline=False, **options)).summary()["work_done"]
        assert works[name] == pytest.approx(work, rel=1e-12), name
    free = [replace(task, grow_cost_s=0.0, shrink_cost_s=0.0) for task in config.tasks]
    ceiling = run_replay(config=replace(config, tasks=free, objective="throughput", baseline=False))
    assert works[studies.FREE] == pytest.approx(ceiling.summary()["work_done"], rel=1e-12)


def test_bounds_are_in_order(found):
    """Named comes first, then notices as they grow, choice, all that could be known, and the only bound."""
    names = [each["name"] for each in found["bounds"]]
    assert names == [
        studies.NAMED,
        "notice 60 s",
        "notice 600 s",
        studies.CHOSEN,
        studies.BOTH,
        studies.KNOWN,
        studies.FREE,
    ]
    by_name = {each["name"]: each for each in found["bounds"]}
    assert by_name[studies.NAMED]["against_named"] == 0.0
    assert by_name[studies.NAMED]["work"] < by_name[studies.CHOSEN]["work"] < by_name[studies.FREE]["work"]
    assert by_name[studies.CHOSEN]["departure_share"] < by_name[studies.NAMED]["departure_share"]
    assert by_name[studies.FREE]["rescale_share"] == by_name[studies.FREE]["departure_share"] == 0.0
    assert found["time_s"] == 7_200.0
    assert found["outstanding_share"] > 0.9


def test_an_order_that_does_not_hold_is_said(found):
    """Where more is granted and less done, a note names both."""
    swapped = [each | {"work": 1.0} if each["name"] == studies.CHOSEN else each for each in found["bounds"]]
    notes = studies.list_doubts(found | {"bounds": swapped})
    assert f"chosen does less than named: {studies.WHY_LESS}." in notes


def test_the_ceiling_knows_curves(found):
    """Where decisions learn curves, those with free changes know them: the ceiling is that of known curves."""
    learning = bounded(eager(scaling="learned", objective="throughput"), 60.0)
    assert learning["bounds"][-1]["work"] == found["bounds"][-1]["work"]
    assert learning["bounds"][0]["work"] != found["bounds"][0]["work"]


def test_work_that_is_done_early_is_said():
    """Where all is done in the end, work is compared when the first is done, and a note says how little that tells."""
    found = bounded(eager(work=20_000.0), 60.0)
    assert found["time_s"] < 3_600.0
    assert found["outstanding_share"] == 0.0
    assert found["notes"][0].startswith("only 0 % of the work is outstanding at half of the log (")


def test_what_cannot_be_bounded_is_refused():
    """Work in different units does not add up; there must be a notice; the published replayer knows no grants."""
    with pytest.raises(SettingsError, match="Expected at least one notice, got none"):
        bounded(eager())
    with pytest.raises(SettingsError, match="Expected tasks that count work in one unit"):
        bounded(ReplayConfig(tasks=sample_path(SAMPLE_TUNED_TASKS), solver="dp"), 60.0)
    with pytest.raises(SettingsError, match="with compat published"):
        bounded(eager(compat="published"), 60.0)


def run_eight_tasks(max_tasks=1, **options):
    """An hour of eight idle nodes, and more tasks of two nodes than are admitted."""
    tasks = [TaskSpec(f"J{number}", 1, 2, 1e6, ScalingCurve.linear(1.0, 2)) for number in range(8)]
    log = log_of([(node, 0, 3600) for node in range(8)], 3600, 8)
    return run_replay(config=ReplayConfig(log, tasks, solver="dp", max_tasks=max_tasks, **options))


def test_more_tasks_use_what_one_leaves():
    """One task of two nodes leaves six of eight free, which 30 at once hold: four times the work, to the digit."""
    result = studies.try_more_tasks(run_eight_tasks())
    summary = result.summary()
    levels = summary["more_tasks"]["levels"]
    assert [*levels] == [str(level) for level in studies.LEVELS]
    assert levels["30"]["work_done"] == pytest.approx(4 * summary["work_done"])
    assert (
        more_tasks_in_words(summary) == "30 would have done 300.00 % more work, 70 would have done 300.00 % more work"
    )


def test_runs_that_are_not_limited_are_left_as_they_are():
    """Where all nodes are held, where a comparison is not asked for, and where as many run already."""
    for result in (run_eight_tasks(max_tasks=8), run_eight_tasks(baseline=False), run_eight_tasks(max_tasks=70)):
        assert studies.try_more_tasks(result) is result
        assert "more_tasks" not in result.summary()


def test_large_runs_get_the_command_instead(monkeypatch):
    """Beyond a number of events times tasks nothing is replayed, whatever the clock says."""
    monkeypatch.setattr(studies, "MOST_WORK", 1)
    monkeypatch.setattr(studies, "run_replay", lambda **_: pytest.fail("replayed"))
    summary = studies.try_more_tasks(run_eight_tasks()).summary()
    assert summary["more_tasks"] == {"levels": {}}
    assert "try a larger -maxJ, as 30 or 70" in more_tasks_in_words(summary)
