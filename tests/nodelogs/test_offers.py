"""Offers of idle nodes and planned departures: causal, and told apart from what was never idle."""

import re
from dataclasses import replace

import pytest

from bftrainer import run_replay
from bftrainer.errors import SettingsError
from bftrainer.files.opening import SAMPLE_NODE_LOG, sample_path
from bftrainer.model import ScalingCurve, TaskSpec
from bftrainer.nodelogs import read_node_log, write_node_log
from bftrainer.nodelogs.edit import filter_log, note_unknown_ages
from bftrainer.nodelogs.node_spans import idle_spans
from bftrainer.report.metrics import idle_node_s
from bftrainer.runs import ReplayConfig, load_inputs
from tests.nodelogs.test_intervals import rows
from tests.report.test_ledger import log_of

S = 1_000_000_000


def spans(log):
    """Idle spans as (node, from, to) in seconds."""
    return rows(idle_spans(log))


def test_a_node_is_offered_once_it_has_been_idle_so_long():
    """Every hole loses its first part, what is no longer than that all of it; ages from before a window count."""
    log = log_of([(0, 0, 100), (1, 10, 30), (2, 50, 200)], 200)
    assert spans(filter_log(log, offer_after_ns=20 * S)) == [(0, 20, 100), (2, 70, 200)]
    assert (idle_node_s(log, 200.0), idle_node_s(log, 60.0)) == (270.0, 60 + 20 + 10)
    # The window opens at 60 s. Idle since 10 s: offered at once; since 50 s: at 80 s; until 70 s only: never.
    log = replace(log_of([(0, 10, 200), (1, 50, 200), (2, 55, 70)], 200), start_ns=60 * S)
    assert spans(filter_log(log, offer_after_ns=30 * S)) == [(0, 60, 200), (1, 80, 200)]
    # Idle for 15 s in all, of which 10 s are within the window.
    assert spans(filter_log(log, min_hole_ns=15 * S)) == [(0, 60, 200), (1, 60, 200), (2, 60, 70)]


@pytest.mark.parametrize("options", [{"since": 60.0}, {"skip_events": 2}, {"skip_events": 2, "since": 0.0}])
def test_rows_before_the_window_tell_the_age(tmp_path, options):
    """Rows at 0, 10, 60 and 150 s; the window opens at 60 s, when n0 has been idle for 50 s, and n1 becomes so."""
    log = log_of([(0, 10, 200), (1, 60, 150)], 200)
    path = tmp_path / "log.parquet"
    write_node_log(path, log)
    for given in (log, path):
        inputs = load_inputs(ReplayConfig(node_log=given, tasks=(), solver="dp", offer_after_s=30.0, **options))
        assert list(inputs.log.rows()) == [(0.0, [0], []), (30.0, [1], []), (90.0, [], [1])]
        assert inputs.log.start_ns == 60 * S
        assert inputs.notes == ()


def test_an_unknown_age_is_told():
    """Two nodes are idle where the log begins; 20 s later they are 20 s old at least, and 30 s later old enough."""
    log = log_of([(0, 0, 200), (1, 0, 200), (2, 10, 200)], 200)
    for since, notes in ((0.0, 1), (20.0, 1), (30.0, 0)):
        inputs = load_inputs(ReplayConfig(node_log=log, tasks=(), solver="dp", offer_after_s=30.0, since=since))
        assert len(inputs.notes) == notes
        assert next(inputs.log.rows()) == (30.0 - since, [0, 1], [])
    assert note_unknown_ages(log, 0, 30 * S) == [
        "2 nodes are idle where the log begins, since when is unknown: their delay counts from there."
    ]


def test_a_planned_departure_is_known_from_the_start_on(tmp_path):
    """A node that leaves sooner than a start pays for is declined; a plan that does not come true is forgotten.

    30 s on a second node are worth 30; losing it again costs 20 or 40.
    """
    log = log_of([(0, 0, 200), (1, 0, 200)], 200)
    plan = tmp_path / "plan.csv"
    plan.write_text("node,time\nn1,1970-01-01T00:00:30\n")
    curve = ScalingCurve.linear(1.0, 2)
    for shrink_s, counts in ((10.0, [2, 2]), (20.0, [1, 2])):
        task = TaskSpec("J", min_nodes=1, max_nodes=2, work=1e6, scaling=curve, shrink_cost_s=shrink_s)
        later = TaskSpec("K", min_nodes=3, max_nodes=3, work=1.0, scaling=ScalingCurve.linear(1.0, 3), submit_s=60.0)
        result = run_replay(log, [task, later], solver="dp", baseline=False, planned_departures=plan)
        assert [decision.after[0] for decision in result.recording.decisions] == counts


def test_nothing_is_foreseen():
    """Cutting the log later changes nothing of what was offered before."""
    log = read_node_log(sample_path(SAMPLE_NODE_LOG), 0)
    cut_ns = log.start_ns + 80_000 * S
    whole, part = (filter_log(each, offer_after_ns=600 * S) for each in (log, log.ending(cut_ns)))
    assert spans(whole.ending(cut_ns)) == spans(part)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("node,when\nn0,1\n", "plan.csv:1: Expected columns node, time, each once, got node, when."),
        ("node,time\nn0,soon\n", "plan.csv:2: Expected time to be an ISO date and time, got 'soon'."),
        ("node,time\nn9,2021-02-10T00:00:00\n", "plan.csv:2, column node: Expected a node of the log, got 'n9'."),
    ],
)
def test_bad_departures_are_refused(tmp_path, text, said):
    """The message names file and line, or the node."""
    path = tmp_path / "plan.csv"
    path.write_text(text)
    with pytest.raises(SettingsError, match=re.escape(said)):
        run_replay(log_of([(0, 0, 100)], 100), [], solver="dp", planned_departures=path)
