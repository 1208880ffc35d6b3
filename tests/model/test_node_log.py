import numpy as np
import pytest

from bftrainer.errors import LogError
from bftrainer.model import NodeLog


def empty(nodes=("a",), **provenance):
    """A log in which no node is ever idle."""
    none = np.array([], dtype=np.int64)
    return NodeLog(nodes, 0, 10, none, none.astype(np.int32), none.astype(np.bool_), provenance)


def test_log_without_transitions_has_no_rows():
    """A window in which no node is ever idle is a log all the same, with no rows; its nodes have names."""
    assert list(empty().rows()) == []
    with pytest.raises(LogError, match=r"nodes to be names, got ''"):
        empty(("a", ""))


def test_selected_nodes_keep_the_rows():
    """A log seen through some of its nodes skips the rows that change nothing, as it did."""
    times = np.array([0, 5], dtype=np.int64)
    log = NodeLog(("a", "b"), 0, 9, times, np.array([0, 1], np.int32), np.array([True, True]), {}, np.array([2, 3]))
    assert log.select_nodes(0, 1).skip_rows(2).start_ns == log.skip_rows(2).start_ns == 3


def test_the_zone_is_the_one_that_was_given():
    """Of merged logs, if it is one; what is no text, or differs, is unknown."""
    oslo = {"zone": "Europe/Oslo"}
    assert empty(**oslo).zone == empty(merged=[oslo, {"zone": None}]).zone == "Europe/Oslo"
    others = empty(), empty(zone=[1]), empty(merged=[oslo, {"zone": "UTC"}])
    assert [log.zone for log in others] == [None, None, None]
