"""Real logs give the figures that are known of them."""

from __future__ import annotations

import pytest

from bftrainer.errors import LogError
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.reading import ImportSettings

SACCT_COLUMNS = (
    *("JobID", "JobIDRaw", "Cluster", "Partition", "QOS", "Account", "Group", "GID", "User", "UID", "Submit"),
    *("Eligible", "Start", "End", "Elapsed", "ExitCode", "State", "NNodes", "NCPUS", "ReqCPUS", "ReqMem", "ReqTRES"),
    *("AllocTRES", "Timelimit", "NodeList", "JobName"),
)


def sacct(folder, name, start, end, **settings):
    """Import one of the sacct samples."""
    given = ImportSettings(start=start, end=end, columns=SACCT_COLUMNS, **({"zone": "UTC"} | settings))
    return import_log("slurm", [folder / "sacct" / name], given)


def test_phillips(sample_logs):
    """The large sacct sample: records by what they are, nodes, and the share of time in which any job ran."""
    quality = sacct(sample_logs, "phillips.log", "2016-12-30T00:03", "2017-01-01T23:55").quality
    assert (quality.records, quality.kept, quality.nodes) == (4285, 4024, 46)
    assert dict(quality.dropped) == {"no nodes": 239, "zero length": 22}
    assert quality.busy_node_s["job"] / (46 * quality.window_s) == pytest.approx(0.225, abs=5e-4)
    assert 1 - quality.idle_share == pytest.approx(0.225, abs=5e-4)


@pytest.mark.parametrize(
    ("name", "records", "kept", "nodes"),
    [
        ("accounting-logs.log", 4, 3, 39),
        ("accounting-logs-with-job-arrays.log", 6, 6, 32),
        ("utf8-multibyte-chars.log", 1, 1, 1),
        ("non-ended-job-state.log", 2, 1, 1),
    ],
)
def test_sacct_corner_cases(sample_logs, name, records, kept, nodes):
    """Arrays, other encodings, jobs that wait or go on: each is kept or dropped for what it is."""
    quality = sacct(sample_logs, name, "2015-01-01", "2021-01-01").quality
    assert (quality.records, quality.kept, quality.nodes) == (records, kept, nodes)
    assert quality.bad == 0


def test_sacct_states_that_nobody_knows(sample_logs):
    """The sample with unknown states holds a job of no length and one that never started."""
    with pytest.raises(LogError, match=r"2 records \(1 zero length, 1 never started\)"):
        sacct(sample_logs, "unknown-job-state.log", "2015-01-01", "2021-01-01")


@pytest.mark.parametrize(
    ("name", "records", "kept", "nodes", "utilisation"),
    [
        pytest.param("theta_2022.swf", 23_911, 23_911, 4_360, 0.760, marks=pytest.mark.slow),
        ("hpc2n.swf", 3_170, 3_145, 240, 0.419),
    ],
)
def test_swf(sample_logs, name, records, kept, nodes, utilisation):
    """Two SWF logs, from the first start to the last end."""
    quality = import_log("swf", [sample_logs / "swf" / name]).quality
    assert (quality.records, quality.kept, quality.nodes) == (records, kept, nodes)
    assert 1 - quality.idle_share == pytest.approx(utilisation, abs=5e-4)
    assert quality.over_capacity_share < 1e-4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model-without-waits.swf", r"Expected waiting times \(field 3\), got none, and jobs cannot have started"),
        ("semicolon-separated.swf", r":1: Expected 18 numbers separated by blanks, got fields separated by semicolons"),
    ],
)
def test_bad_swf(sample_logs, name, message):
    """A model without waits and a table with semicolons are refused with the reason."""
    with pytest.raises(LogError, match=message):
        import_log("swf", [sample_logs / "bad" / name])


def test_sinfo(sample_logs):
    """The inventory of sinfo names 709 nodes and which of them take no jobs."""
    from bftrainer.nodelogs.inventory import read_inventory

    inventory = read_inventory(str(sample_logs / "slurm-nodes" / "sinfo.txt"))
    assert (len(inventory.names), len(inventory.out_of_service)) == (709, 96)


def test_torque(sample_logs):
    """Two days of TORQUE: every record is told apart, and the nodes are those of the shared machine."""
    files = sorted((sample_logs / "pbs").glob("2017*.anon"))
    done = import_log("pbs", files, ImportSettings(nodes="c[1-18]", unseen="idle"))
    quality = done.quality
    assert (quality.records, quality.bad, quality.unknown, quality.nodes) == (1086, 0, 0, 18)
    # 330 queued, 3 deleted, and a rerun of a job that began before the log.
    assert dict(quality.dropped) == {"about no run": 334, "zero length": 35}
    assert quality.nodes_outside == 0
    assert quality.overlap_factor > 2
    assert set(done.log.provenance["partitions"]) == {"batch", "shared"}


def test_pbs_corner_cases(sample_logs):
    """PBS Pro and TORQUE lines of every shape: one has no nodes, two are on the same nodes at once."""
    given = ImportSettings(start="2009-12-21", end="2020-12-08")
    quality = import_log("pbs", [sample_logs / "pbs" / "corner-cases.log"], given).quality
    assert (quality.records, quality.kept, quality.bad) == (9, 8, 0)
    assert dict(quality.dropped) == {"no nodes": 1}
    assert quality.nodes == 4 + 1 + 5 + 1 + 1
