"""Logs of several clusters: nothing is merged, nothing dropped, and one of them can be picked."""

from __future__ import annotations

import pytest

from bftrainer.errors import SettingsError
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from tests.importing import idle_of

ROWS = """\
JobIDRaw|Cluster|Partition|Start|End|NNodes|NodeList
1|east|batch|1000000100|1000000120|2|n[1-2]
1|west|batch|1000000100|1000000120|2|n[1-2]
2|west|gpu|1000000150|1000000160|1|n1
2|west|gpu|1000000150|1000000160|1|n1
"""
EVENTS = """\
Cluster|NodeName|TimeStart|TimeEnd|State
east|n2|1000000130|1000000140|MAINT
west|n2|1000000150|1000000200|POWERED_DOWN
"""


@pytest.fixture
def imported(tmp_path):
    """Import the rows, seen for a hundred seconds."""
    (tmp_path / "sacct").write_text(ROWS)
    (tmp_path / "events").write_text(EVENTS)

    def run(**settings):
        given = {"start": "1000000100", "end": "1000000200", "window": "asked", "downtimes": (tmp_path / "events",)}
        return import_log("slurm", [tmp_path / "sacct"], ImportSettings(**(given | settings)))

    return run


def test_two_clusters(imported):
    """Nodes of one name on two clusters are two nodes, jobs of one number two jobs; a repeated row is one."""
    done = imported()
    assert idle_of(done.log, 1e9) == {
        "east/n1": [(120, 200)],
        "east/n2": [(120, 130), (140, 200)],
        "west/n1": [(120, 150), (160, 200)],
        "west/n2": [(120, 150)],
    }
    quality = done.quality
    assert (quality.records, quality.kept, quality.duplicates) == (4, 3, 1)
    assert quality.busy_node_s == {"job": 90, "maintenance": 10, "powered_down": 50}
    assert set(done.log.provenance["partitions"]) == {"east/batch", "west/batch", "west/gpu"}
    assert any("2 clusters (east, west)" in note for note in quality.notes)


def test_one_of_two_clusters(imported):
    """A cluster that is picked has nodes of its own names; rows of the other are counted."""
    done = imported(cluster="west")
    assert idle_of(done.log, 1e9) == {"n1": [(120, 150), (160, 200)], "n2": [(120, 150)]}
    assert dict(done.quality.dropped) == {"of another cluster": 1, "duplicate": 1}
    with pytest.raises(SettingsError, match=r"Unknown cluster 'wets'\. Did you mean 'west'"):
        imported(cluster="wets")


def test_nodes_are_offered_in_spite_of_a_cause(imported):
    """Nodes that are powered down can be offered, and others not."""
    assert idle_of(imported(cluster="west", offer=("powered-down",)).log, 1e9)["n2"] == [(120, 200)]
    with pytest.raises(SettingsError, match="Expected --offer to be one of reserved, planned, down"):
        imported(offer=("sleep",))
