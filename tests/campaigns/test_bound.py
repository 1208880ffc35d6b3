"""What grants and more tasks at once are worth: what they are replays of, and what is said beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.campaigns import studies as bound
from bftrainer.campaigns.studies import (
    BOTH,
    CHOSEN,
    FREE,
    KNOWN,
    LEVELS,
    NAMED,
    WHY_LESS,
    bound_work,
    list_doubts,
    try_more_tasks,
)
from bftrainer.errors import SettingsError
from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path
from bftrainer.model import ScalingCurve, TaskSpec
from bftrainer.report.glossary import more_tasks_in_words
from bftrainer.runs import ReplayConfig, load_inputs, run_replay
from tests.report.test_ledger import log_of
from tests.worlds import random_log

LINEAR = ScalingCurve.linear(10.0, 4)


def given(work: float = 1e9, **options: object) -> ReplayConfig:
    """Three tasks that lose half a minute whenever they lose a node, on 24 nodes that come and go within two hours."""
    tasks = [TaskSpec(f"J{n}", 1, 4, work, LINEAR, grow_cost_s=20.0, shrink_cost_s=30.0) for n in range(3)]
    return ReplayConfig(random_log(5, nodes=24, flips=150), tasks, solver="dp", forward_time_s=600.0, **options)


def bounded(config: ReplayConfig, *notices_s: float) -> dict:
    """Bounds of a configuration's replay."""
    return bound_work(load_inputs(config), notices_s)


@pytest.fixture(scope="module")
def found():
    return bounded(given(), 600.0, 60.0)


def test_bounds_are_replays_of_the_same_inputs(found):
    """Each is the replay with these options; changes are free for the same tasks without costs; all to the last bit."""
    works, config = {each["name"]: each["work"] for each in found["bounds"]}, given()
    ways = {NAMED: {}, "notice 60 s": {"notice_s": 60.0}, CHOSEN: {"give_way": "chosen"}}
    ways[BOTH] = {"give_way": "chosen", "notice_s": 120.0}
    for name, options in ways.items():
        work = run_replay(config=replace(config, baseline=False, **options)).summary()["work_done"]
        assert works[name] == pytest.approx(work, rel=1e-12), name
    free = [replace(task, grow_cost_s=0.0, shrink_cost_s=0.0) for task in config.tasks]
    ceiling = run_replay(config=replace(config, tasks=free, objective="throughput", baseline=False))
    assert works[FREE] == pytest.approx(ceiling.summary()["work_done"], rel=1e-12)


def test_bounds_are_in_order(found):
    """Named comes first, then notices as they grow, choice, all that could be known, and the only bound."""
    assert [each["name"] for each in found["bounds"]] == [
        NAMED,
        "notice 60 s",
        "notice 600 s",
        CHOSEN,
        BOTH,
        KNOWN,
        FREE,
    ]
    by_name = {each["name"]: each for each in found["bounds"]}
    assert by_name[NAMED]["against_named"] == 0.0
    assert by_name[NAMED]["work"] < by_name[CHOSEN]["work"] < by_name[FREE]["work"]
    assert by_name[CHOSEN]["departure_share"] < by_name[NAMED]["departure_share"]
    assert by_name[FREE]["rescale_share"] == by_name[FREE]["departure_share"] == 0.0
    assert found["time_s"] == 7_200.0
    assert found["outstanding_share"] > 0.9


def test_an_order_that_does_not_hold_is_said(found):
    """Where more is granted and less done, a note names both."""
    swapped = [each | {"work": 1.0} if each["name"] == CHOSEN else each for each in found["bounds"]]
    notes = list_doubts(found | {"bounds": swapped})
    assert f"chosen does less than named: {WHY_LESS}." in notes


def test_the_ceiling_knows_curves(found):
    """Where decisions learn curves, those with free changes know them: the ceiling is that of known curves."""
    learning = bounded(given(scaling="learned", objective="throughput"), 60.0)
    assert learning["bounds"][-1]["work"] == found["bounds"][-1]["work"]
    assert learning["bounds"][0]["work"] != found["bounds"][0]["work"]


def test_work_that_is_done_early_is_said():
    """Where all is done in the end, work is compared when the first is done, and a note says how little that tells."""
    found = bounded(given(work=20_000.0), 60.0)
    assert found["time_s"] < 3_600.0
    assert found["outstanding_share"] == 0.0
    assert found["notes"][0].startswith("only 0 % of the work is outstanding at half of the log (")


def test_what_cannot_be_bounded_is_refused():
    """Work in different units does not add up; there must be a notice; the published replayer knows no grants."""
    with pytest.raises(SettingsError, match="Expected at least one notice, got none"):
        bounded(given())
    with pytest.raises(SettingsError, match="Expected tasks that count work in one unit"):
        bounded(ReplayConfig(tasks=sample_path(SAMPLE_TUNED_TASKS), solver="dp"), 60.0)
    with pytest.raises(SettingsError, match="with compat published"):
        bounded(given(compat="published"), 60.0)


def run_eight_tasks(max_tasks=1, **options):
    """An hour of eight idle nodes, and more tasks of two nodes than are admitted."""
    tasks = [TaskSpec(f"J{number}", 1, 2, 1e6, ScalingCurve.linear(1.0, 2)) for number in range(8)]
    log = log_of([(node, 0, 3600) for node in range(8)], 3600, 8)
    return run_replay(config=ReplayConfig(log, tasks, solver="dp", max_tasks=max_tasks, **options))


def test_more_tasks_use_what_one_leaves():
    """One task of two nodes leaves six of eight free, which 30 at once hold: four times the work, to the digit."""
    result = try_more_tasks(run_eight_tasks())
    summary = result.summary()
    levels = summary["more_tasks"]["levels"]
    assert [*levels] == [str(level) for level in LEVELS]
    assert levels["30"]["work_done"] == pytest.approx(4 * summary["work_done"])
    assert (
        more_tasks_in_words(summary) == "30 would have done 300.00 % more work, 70 would have done 300.00 % more work"
    )


def test_runs_that_are_not_limited_are_left_as_they_are():
    """Where all nodes are held, where a comparison is not asked for, and where as many run already."""
    for result in (run_eight_tasks(max_tasks=8), run_eight_tasks(baseline=False), run_eight_tasks(max_tasks=70)):
        assert try_more_tasks(result) is result
        assert "more_tasks" not in result.summary()


def test_large_runs_get_the_command_instead(monkeypatch):
    """Beyond a number of events times tasks nothing is replayed, whatever the clock says."""
    monkeypatch.setattr(bound, "MOST_WORK", 1)
    monkeypatch.setattr(bound, "run_replay", lambda **_: pytest.fail("replayed"))
    summary = try_more_tasks(run_eight_tasks()).summary()
    assert summary["more_tasks"] == {"levels": {}}
    assert "try a larger -maxJ, as 30 or 70" in more_tasks_in_words(summary)
