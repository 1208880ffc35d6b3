"""Scaling curves from measured throughput."""

from __future__ import annotations

import tomllib

import pytest

from bftrainer.errors import InvalidTaskError
from bftrainer.model import ScalingCurve
from bftrainer.tasksets.measurements import read_throughput_csv, scaling_section


def test_repeated_measurements_are_averaged(tmp_path):
    """The curve goes through the means, in order of node count, with 0 added; columns may stand in either order."""
    (tmp_path / "t.csv").write_text("throughput,nodes\n30,4\n10,1\n34,4\n8,1\n0,0\n\n")
    assert read_throughput_csv(tmp_path / "t.csv") == ScalingCurve((0, 1, 4), (0.0, 9.0, 32.0))


def test_large_numbers_are_averaged(tmp_path):
    """Means of throughputs whose sum is too large for a number are numbers."""
    (tmp_path / "t.csv").write_text("nodes,throughput\n1,1e308\n1,1e308\n")
    assert read_throughput_csv(tmp_path / "t.csv").at(1) == 1e308


def test_section_is_toml():
    """The section printed is what a task set takes."""
    text = scaling_section(ScalingCurve((0, 1, 2), (0.0, 10.0, 19.0)))
    assert tomllib.loads("[[task]]\n" + text)["task"][0]["scaling"] == {
        "nodes": [0, 1, 2],
        "throughput": [0.0, 10.0, 19.0],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes\n1\n", ":1: Expected columns nodes, throughput, each once, got nodes."),
        ("nodes,throughput\n", ": Expected at least one measurement on one node or more, got none."),
        ("nodes,throughput\n0,0\n", ": Expected at least one measurement on one node or more, got none."),
        ("nodes,throughput\n1,2\n1.5,3\n", ":3: Expected nodes to be a whole number, got '1.5'."),
        ("nodes,throughput\n1,fast\n", ":2: Expected throughput to be a number, got 'fast'."),
        ("nodes,throughput\n1,nan\n", ":2: Expected throughput to be finite, got nan."),
        ("nodes,throughput\n1,-2\n", ":2: Expected throughput above 0, on 0 nodes 0, got -2 on 1."),
        ("nodes,throughput\n-1,2\n", ":2: Expected nodes >= 0, got -1."),
        ("nodes,throughput\n1,0\n", ":2: Expected throughput above 0, on 0 nodes 0, got 0 on 1."),
        ("nodes,throughput\n1\n", ":2: Expected 2 values, got 1."),
    ],
)
def test_bad_tables(tmp_path, text, message):
    """A bad row is refused in one line that names file and line."""
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InvalidTaskError) as caught:
        read_throughput_csv(tmp_path / "t.csv")
    assert str(caught.value).endswith(f"t.csv{message}")
