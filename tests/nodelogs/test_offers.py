"""What of the idle time is offered: causal, told apart from what was never idle, and audited by other code."""

from __future__ import annotations

import numpy as np
import pytest

from bftrainer import run_replay
from bftrainer.errors import SettingsError
from bftrainer.files.opening import SAMPLE_NODE_LOG, sample_path
from bftrainer.model import iso
from bftrainer.nodelogs import read_node_log
from bftrainer.nodelogs.node_spans import idle_spans
from bftrainer.nodelogs.offers import idle_node_s, offered_log, read_departures
from bftrainer.runs import write_run
from bftrainer.runs.audit import audit
from tests.report.test_ledger import log_of

S = 1_000_000_000


def spans(log):
    """Idle spans as (node, from, to) in seconds."""
    found = idle_spans(log)
    return [
        (node, start // S, end // S)
        for node, start, end in zip(found.node.tolist(), found.start_ns.tolist(), found.end_ns.tolist(), strict=True)
    ]


def test_a_node_is_offered_once_it_has_been_idle_so_long():
    """Every hole loses its first part; what is no longer than that is never offered."""
    log = log_of([(0, 0, 100), (1, 10, 30), (2, 50, 200)], 200)
    assert spans(offered_log(log, 20 * S)) == [(0, 20, 100), (2, 70, 200)]
    assert idle_node_s(log, 200.0) == 270.0
    assert idle_node_s(log, 60.0) == 60 + 20 + 10


def test_a_known_departure_ends_the_offer_before_it():
    """Not offered in the lead before; offered again afterwards if the node did not leave; a departure at the end."""
    log = log_of([(0, 0, 100), (1, 0, 200)], 200)
    departures = {"n0": [100 * S], "n1": [60 * S, 200 * S]}
    assert spans(offered_log(log, 0, departures, 30 * S)) == [(0, 0, 70), (1, 0, 30), (1, 60, 170)]


def test_nothing_is_foreseen():
    """Cutting the log later changes nothing of what was offered before."""
    log = read_node_log(sample_path(SAMPLE_NODE_LOG), 0)
    cut_ns = log.start_ns + 80_000 * S
    whole, part = (offered_log(each, 600 * S) for each in (log, log.ending(cut_ns)))
    assert spans(whole.ending(cut_ns)) == spans(part)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("node,when\nn0,1\n", "plan.csv:1: Expected columns node, time, each once, got node, when."),
        ("node,time\nn0,soon\n", "plan.csv:2, column time: Expected an ISO time, got 'soon'."),
        ("node,time\nn9,2021-02-10T00:00:00\n", "Expected departures of the log's nodes, got 'n9'."),
    ],
)
def test_bad_departures_are_refused(tmp_path, text, said):
    """The message names file and line, or the node."""
    path = tmp_path / "plan.csv"
    path.write_text(text)
    with pytest.raises(SettingsError, match=said.replace(".", r"\.").replace("'n9'", "'n9'")):
        run_replay(log_of([(0, 0, 100)], 100), [], solver="dp", planned_departures=path)


def test_offers_are_audited(tmp_path):
    """An audit of its own code finds the same pool at every event of a replay with both kinds of offers."""
    log = read_node_log(sample_path(SAMPLE_NODE_LOG), 0)
    found = idle_spans(log)
    picked = np.random.default_rng(1).choice(len(found), 300, replace=False)
    rows = [f"{log.nodes[found.node[place]]},{iso(int(found.end_ns[place]))}" for place in picked]
    plan = tmp_path / "plan.csv"
    plan.write_text("\n".join(["node,time", *rows]) + "\n")
    assert sum(map(len, read_departures(plan).values())) == 300
    result = run_replay(
        sample_path(SAMPLE_NODE_LOG),
        sample_path(SAMPLE_NODE_LOG).with_name("sample-tasks.toml"),
        solver="dp",
        baseline=False,
        offer_after_s=300.0,
        planned_departures=plan,
        forward_time_s=600.0,
        until=60_000.0,
    )
    assert result.summary()["ledger"]["not_offered"] > 0.1
    (tmp_path / "run").mkdir()
    write_run(result, tmp_path / "run")
    assert audit(tmp_path / "run").wrong == []
