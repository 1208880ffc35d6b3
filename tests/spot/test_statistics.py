"""Figures of traces, checked by hand and against the published ones."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from bftrainer.model import NS_PER_S, NodeLog
from bftrainer.nodelogs.availability import AvailabilityTrace, ChangeTrace, CountTrace, read_availability
from bftrainer.spot.generation import churn_log
from bftrainer.spot.statistics import survival, trace_statistics

S = 10**9
MIN = 60 * S


def counts(*rows):
    times, values = zip(*rows, strict=True)
    return CountTrace(np.array(times, dtype=np.int64) * S, np.array(values, dtype=np.int64))


def figures(trace):
    return trace_statistics(trace).figures


def small_log():
    """Node a is there from 0 s to 600 s, b from 60 s to the end at 3600 s, c from 600 s to 900 s."""
    time = np.array([0, 60, 600, 600, 900], dtype=np.int64) * S
    node = np.array([0, 1, 0, 2, 2], dtype=np.int32)
    return NodeLog(("a", "b", "c", "d"), 0, 3600 * S, time, node, np.array([True, True, False, True, False]))


def test_a_node_log_by_hand():
    """Nodes over time, fragments, lifetimes and events of four nodes in an hour."""
    found = figures(AvailabilityTrace.from_log(small_log()))
    # 0, 60, 600, 900, 3600 s: 1, 2, 2, 1, 1 nodes
    assert (found["events"], found["transitions"], found["nodes"], found["span_s"]) == (5, 5, 4, 3600.0)
    assert found["node_hours"] == pytest.approx((60 + 2 * 540 + 2 * 300 + 2700) / 3600)
    assert found["mean_nodes"] == pytest.approx(found["node_hours"])
    assert found["idle_share"] == pytest.approx(found["node_hours"] / 4)
    assert (found["median_nodes"], found["max_nodes"], found["end_nodes"]) == (1.0, 2, 1)
    # a was there before, b outlives the window
    assert (found["fragments"], found["fragments_cut_at_start"], found["fragments_cut_at_end"]) == (1, 1, 1)
    assert (found["fragment_mean_s"], found["fragment_under_600_s_share"], found["lifetime_median_s"]) == (
        300.0,
        1.0,
        300.0,
    )
    assert (found["nodes_joined"], found["nodes_left"]) == (2, 2)
    assert (found["holes"], found["hole_mean_nodes"], found["holes_per_hour"]) == (2, 1.0, 2.0)
    assert found["events_by_hour_of_day"][:2] == [4.0, None]  # the last row is where hour 1 begins


def test_a_spot_trace_by_hand():
    """As a spot trace the same says that a came at 0: one of three dies at 300 s, one of the others at 600 s.

    The third is seen for 3,540 s: until then the mean is 300 + 300 * 2/3 + 2940 * 1/3 s.
    """
    found = figures(AvailabilityTrace.from_log(replace(small_log(), provenance={"availability": "spot"})))
    assert (found["events"], found["nodes"]) == (5, 4)
    assert (found["fragments"], found["fragments_cut_at_start"], found["fragments_cut_at_end"]) == (2, 0, 1)
    assert (found["fragment_mean_s"], found["fragment_under_600_s_share"]) == (450.0, 0.5)
    assert found["lifetime_median_s"] == 600.0
    assert found["lifetime_p90_s"] is None
    assert found["lifetime_mean_s"] == pytest.approx(1480.0)


def test_a_count_trace_by_hand():
    """Rows, additions and preemptions of a trace of eleven minutes.

    Rows at 0, 1, 3, 6, 11 min: 2, 14, 11, 12, 9 nodes. Additions 12 (big) and 1, preemptions 3 and 3.
    """
    found = figures(AvailabilityTrace.from_log(counts((0, 2), (60, 14), (180, 11), (360, 12), (660, 9)).log()))
    assert found["row_interval_mean_s"] == 165.0
    assert found["row_interval_std_s"] == pytest.approx(np.std([60, 120, 180, 300], ddof=1))
    assert found["preemptions_per_minute"] == pytest.approx(6 / 11)
    assert found["additions_per_minute"] == pytest.approx(13 / 11)
    assert found["preemption_chance"] == found["addition_chance"] == pytest.approx(2 / 11)
    assert (found["preemption_mean"], found["preemption_std"]) == (3.0, 0.0)
    assert (found["big_addition_share"], found["regular_addition_mean"], found["regular_addition_std"]) == (
        0.5,
        1.0,
        None,
    )
    assert found["termination_interval_mean_s"] == 480.0
    # Two events in a minute are one minute that sees one.
    found = figures(AvailabilityTrace.from_log(counts((0, 9), (10, 8), (20, 7), (200, 6), (600, 6)).log()))
    assert (found["preemption_chance"], found["preemption_minute_share"]) == pytest.approx((0.3, 0.2))
    # What terminations alone cannot tell is null.
    found = figures(AvailabilityTrace("terminations", ChangeTrace(np.array([0, MIN]), np.array([1, 2]))))
    assert (found["preemptions"], found["nodes"]) == (3, None)


@pytest.mark.parametrize(
    "trace",
    [
        AvailabilityTrace.from_log(CountTrace(np.array([5]), np.array([0])).log()),
        AvailabilityTrace.from_log(CountTrace(np.array([5]), np.array([3])).log()),
        AvailabilityTrace("terminations", ChangeTrace(np.array([5]), np.array([3]))),
        AvailabilityTrace("terminations", ChangeTrace(np.empty(0, np.int64), np.empty(0, np.int64))),
        AvailabilityTrace.from_log(churn_log((0, 0), 2, [])),
        AvailabilityTrace.from_log(churn_log((0, MIN), 0, [])),
    ],
)
def test_traces_that_say_little(trace):
    """No nodes, no length, no rows: figures are missing, nothing fails and nothing is NaN."""
    found = trace_statistics(trace).as_json()
    json.dumps(found, allow_nan=False)
    assert not any(isinstance(value, float) and not math.isfinite(value) for value in found.values())


def test_nodes_that_are_there_at_the_start_count_from_their_age_on():
    """The window opens at 60 s. n0 is there from 10 to 100 s, n1 from 70 to 90 s, n2 from 70 s on; n3 since ever.

    At an age of 20 s n1 goes, of n1 and n2; at 90 s n0, which is seen from its 50th second on, of n0 and n2.
    """
    changes = [(0, 3, True), (10, 0, True), (70, 1, True), (70, 2, True), (90, 1, False), (100, 0, False)]
    time, node, idle = (np.array(column) for column in zip(*changes, strict=True))
    names = ("n0", "n1", "n2", "n3")
    log = NodeLog(names, 60 * NS_PER_S, 200 * NS_PER_S, time * NS_PER_S, node.astype(np.int32), idle)
    found = trace_statistics(AvailabilityTrace.from_log(log))
    assert (found.survival.time_s.tolist(), found.survival.share.tolist()) == ([20.0, 90.0], [0.5, 0.25])
    assert [found.figures[name] for name in ("fragments", "fragments_cut_at_start", "fragment_mean_s")] == [1, 2, 20.0]


def share_after(curve, time_s):
    """Share of the nodes that stay longer than a time."""
    return np.append(1.0, curve.share)[np.searchsorted(curve.time_s, time_s, side="right")]


def test_survival_of_the_classic_textbook_sample():
    """Remission times of 21 patients: 0.8571 after 6 weeks, 0.6902 after 13, 0.4482 after 23 (Freireich 1963).

    Until the 35th week, when the last of them was seen, the mean is 23.29 weeks.
    """
    died = [6, 6, 6, 7, 10, 13, 16, 22, 23]
    cut = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    curve = survival(np.array(died + cut, dtype=float), np.array([False] * len(died) + [True] * len(cut)))
    assert [round(share_after(curve, week), 4) for week in (6, 13, 23)] == [0.8571, 0.6902, 0.4482]
    assert (curve.quantile(0.5), share_after(curve, 0.0)) == (23.0, 1.0)
    assert curve.thin(5).time_s.size <= 5
    assert round(curve.mean_s, 2) == 23.29


def test_the_published_spot_trace(published):
    """153 events, 79 nodes, 10.77 h, 135.7 node-hours, 12.6 nodes on average, 5 at the end."""
    path = published.parent / "spot" / "g4dn-trace.csv"
    if not path.is_file():
        pytest.skip(f"no {path}")
    found = figures(read_availability(path, print))
    assert (found["events"], found["nodes"], found["end_nodes"]) == (153, 79, 5)
    assert round(found["span_s"] / 3600, 2) == 10.77
    assert (round(found["node_hours"], 1), round(found["mean_nodes"], 1)) == (135.7, 12.6)


def test_the_published_summit_log(published):
    """The figures known of the whole log."""
    found = figures(read_availability(published / "ndstat-10sdn6-evt.tar.gz", print))
    assert (found["events"], found["nodes"], found["fragments"]) == (23_883, 4_734, 423_354)
    assert round(found["span_s"] / 3600, 2) == 358.18
    assert (round(found["node_hours"], 1), round(found["mean_nodes"], 1)) == (140_182.3, 391.4)
    assert (round(found["fragment_mean_s"], 1), found["fragment_median_s"]) == (1191.9, 475.0)
    assert round(found["fragment_under_600_s_share"], 3) == 0.558
