"""Real logs give the figures that are known of them."""

from __future__ import annotations

import pytest

from bftrainer.errors import LogError
from bftrainer.files.log_files import head
from bftrainer.nodelogs.inventory import read_inventory
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.downtimes import read_downtimes
from bftrainer.schedulers.formats.slurm import XDMOD_COLUMNS
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.schedulers.reading import Reading, recognise
from tests.importing import records_of


def test_phillips(sample_logs):
    """The large sacct sample: records by what they are, nodes, and the share of time in which any job ran."""
    paths, settings = [sample_logs / "sacct" / "phillips.log"], {"columns": XDMOD_COLUMNS, "zone": "UTC"}
    with pytest.raises(LogError, match=r"Nothing of the log can be trusted: .* they tell as much as 2 of equal length"):
        import_log("slurm", paths, ImportSettings(**settings))
    days = ImportSettings(start="2016-12-30T00:03", end="2017-01-01T23:55", window="asked", **settings)
    quality = import_log("slurm", paths, days).quality
    assert (quality.records, quality.kept, quality.nodes) == (4285, 4024, 46)
    assert dict(quality.dropped) == {"no nodes": 239, "zero length": 22}
    assert 1 - quality.idle_share == pytest.approx(0.225, abs=5e-4)


@pytest.mark.parametrize(
    ("name", "records", "kept", "nodes", "window", "idle"),
    [
        pytest.param(
            *("theta_2022.swf", 23_911, 23_911, 4_360, ("2022-01-02T19:23", "2022-12-30T00:55"), 0.237),
            marks=pytest.mark.slow,
        ),
        ("hpc2n.swf", 3_170, 3_145, 240, ("2002-08-02T07:56", "2002-09-23T14:08"), 0.569),
    ],
)
def test_swf(sample_logs, name, records, kept, nodes, window, idle):
    """Two SWF logs, where they can be trusted."""
    quality = import_log("swf", [sample_logs / "swf" / name]).quality
    assert (quality.records, quality.kept, quality.nodes) == (records, kept, nodes)
    assert (quality.window_start[:16], quality.window_end[:16]) == window
    assert quality.idle_share == pytest.approx(idle, abs=5e-4)
    assert quality.over_capacity_share < 1e-4


def test_bad_swf(sample_logs):
    """A model without waits and a table with semicolons are refused with the reason."""
    for name, message in (
        ("model-without-waits.swf", r"Expected waiting times \(field 3\), got none, and jobs cannot have started"),
        ("semicolon-separated.swf", r":1: Expected 18 numbers separated by blanks, got "),
    ):
        with pytest.raises(LogError, match=message):
            import_log("swf", [sample_logs / "bad" / name])


def test_slurm_json(sample_logs):
    """What slurmrestd answers: jobs of the controller and of accounting, nodes, reservations."""
    folder = sample_logs / "slurm-json"
    given = {"start": "1747754400", "end": "1747754565", "window": "asked"}
    jobs = import_log("slurm", [folder / "slurm-jobs.json"], ImportSettings(**given)).quality
    assert (jobs.records, jobs.kept, jobs.nodes, jobs.bad) == (14, 13, 6, 0)
    assert dict(jobs.dropped) == {"no nodes": 1}
    accounted = sorted(folder.glob("slurmdb-*.json"))
    given = ImportSettings(start="1747754400", end="1762529800", window="asked")
    assert import_log("slurm", accounted, given).quality.dropped == {"no nodes": 1}
    inventory = read_inventory(str(folder / "slurm-nodes.json"))
    assert (len(inventory.names), len(inventory.out_of_service)) == (100, 0)
    reading = Reading(ImportSettings())
    read_downtimes(folder / "slurm-reservations.json", reading, reading.rows, BusyKind.RESERVED)
    (reserved,) = records_of(reading)
    assert (reserved[0].count(",") + 1, *reserved[1:3]) == (512, 1748250553, 1748336953)


@pytest.mark.parametrize(("name", "preset"), [("alcf", None), ("table", "alcf")])
def test_intrepid(sample_logs, name, preset):
    """76 of 80 midplanes, busy 80 % of the time from the first start to the last end; known by its header."""
    path = sample_logs / "alcf" / "intrepid_2014.csv"
    assert recognise(head(path), str(path)).name == "alcf"
    given = ImportSettings(start="2014-01-01T00:00:32", end="2014-01-24T17:45:54", preset=preset, window="asked")
    quality = import_log(name, [path], given).quality
    assert (quality.records, quality.kept, quality.nodes) == (1254, 1254, 76)
    assert 1 - quality.idle_share == pytest.approx(0.801, abs=6e-4)


def test_grid_engine(sample_logs):
    """Accounting of Grid Engine is no log that is known, and what to do with it is said."""
    for path in (sample_logs / "sge").iterdir():
        with pytest.raises(LogError, match=r"Expected a log of a format that is known.*--format table"):
            recognise(head(path), str(path))


def test_sinfo(sample_logs):
    """The inventory of sinfo names 709 nodes and which of them take no jobs."""
    inventory = read_inventory(str(sample_logs / "slurm-nodes" / "sinfo.txt"))
    assert (len(inventory.names), len(inventory.out_of_service)) == (709, 96)


def test_torque(sample_logs):
    """Two days of TORQUE: every record is told apart, and the nodes are those of the shared machine."""
    files = sorted((sample_logs / "pbs").glob("2017*.anon"))
    done = import_log("pbs", files, ImportSettings(nodes="c[1-18]", unseen="idle", window="asked"))
    quality = done.quality
    assert (quality.records, quality.bad, quality.unknown, quality.nodes) == (1086, 0, 0, 18)
    # 330 queued, 3 deleted, and a rerun of a job that began before the log.
    assert dict(quality.dropped) == {"about no run": 334, "zero length": 35}
    assert quality.nodes_outside == 0
    assert quality.overlap_factor > 2
    assert set(done.log.provenance["partitions"]) == {"batch", "shared"}
