"""GPUs and cores of shared nodes: what no job holds is offered, and both levels are told."""

from __future__ import annotations

import pytest

from bftrainer.errors import SettingsError
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from tests.importing import idle_of

DAY = {"start": "2026-09-01", "end": "2026-09-02", "zone": "UTC", "window": "asked"}
HEADER = "JobIDRaw|Start|End|NNodes|NodeList|AllocTRES\n"
MIDNIGHT = 1788220800
SHOWN = "NodeName={} CPUTot=64 Gres=gpu:a100:4(S:0-1) State=IDLE\n   CfgTRES=cpu=64,mem=1T,gres/gpu=4\n\n"


@pytest.fixture
def imported(tmp_path):
    """Import rows of sacct, or lines of PBS."""

    def run(text, name="slurm", **settings):
        (tmp_path / "log").write_text(text)
        (tmp_path / "nodes").write_text("".join(SHOWN.format(node) for node in ("n1", "n2")))
        given = DAY | {"nodes": str(tmp_path / "nodes"), "unseen": "idle"} | settings
        return import_log(name, [tmp_path / "log"], ImportSettings(**given))

    return run


def hours(done):
    """Idle hours of each unit that is not idle all day."""
    return {name: some for name, some in idle_of(done.log, MIDNIGHT, 3600).items() if some != [(0, 24)]}


def test_one_gpu_of_four(imported):
    """A node of four GPUs with a job on one of them for a day: 75 % of its GPU-time is idle, none of its node-time."""
    row = "1|2026-09-01T00:00:00|2026-09-02T00:00:00|1|n1|cpu=8,gres/gpu:a100=1,node=1\n"
    done = imported(HEADER + row, unit="gpu", exclude_nodes="n2")
    assert done.log.nodes == ("n1/gpu0", "n1/gpu1", "n1/gpu2", "n1/gpu3")
    assert (done.quality.idle_share, done.quality.whole_idle_share, done.quality.nodes) == (0.75, 0.0, 4)
    assert hours(done) == {"n1/gpu0": []}
    cores = imported(HEADER + row, unit="core", exclude_nodes="n2")
    assert cores.quality.idle_share == 1 - 8 / 64


def test_the_lowest_free_gpus(imported):
    """Jobs take the lowest GPUs that are free, keep them, and get one more on their first nodes."""
    text = HEADER + (
        "1|2026-09-01T00:00:00|2026-09-01T12:00:00|1|n1|gres/gpu=2\n"
        "2|2026-09-01T06:00:00|2026-09-01T18:00:00|1|n1|gres/gpu=1\n"
        "3|2026-09-01T12:00:00|2026-09-02T00:00:00|2|n[1-2]|gres/gpu=3\n"
    )
    assert hours(imported(text, unit="gpu")) == {
        "n1/gpu0": [],
        "n1/gpu1": [],
        "n1/gpu2": [(0, 6), (18, 24)],
        "n2/gpu0": [(0, 12)],
    }


def test_more_than_there_are(imported):
    """A job that asks for more than a node has free takes what there is, and that is said."""
    row = "|2026-09-01T00:00:00|2026-09-02T00:00:00|1|n1|gres/gpu=3\n"
    done = imported(f"{HEADER}1{row}2{row}", unit="gpu")
    assert hours(done) == {f"n1/gpu{at}": [] for at in range(4)}
    assert any("1 times a job held more gpus" in note for note in done.quality.notes)


@pytest.mark.parametrize(("unit", "busy"), [("core", {"n1": 2, "n2": 3}), ("gpu", {"n1": 1, "n2": 2})])
def test_slots_of_pbs(imported, unit, busy):
    """Slots are cores, ngpus of virtual nodes are GPUs; each host has its own number."""
    told = f"start={MIDNIGHT} end={MIDNIGHT + 3600} exec_host=n1/0*2+n2/0-1,4 "
    told += "exec_vnode=(n1[0]:ncpus=2:ngpus=1)+(n2:ncpus=3:ngpus=2)"
    done = imported(f"09/01/2026 01:00:00;E;1.s;{told}\n", "pbs", unit=unit)
    units = [f"{node}/{unit}{at}" for node, count in busy.items() for at in range(count)]
    assert hours(done) == {name: [(1, 24)] for name in units}


def test_units_that_nobody_counts(imported):
    """Neither a log nor an inventory without numbers is guessed at."""
    row = "1|2026-09-01T00:00:00|2026-09-02T00:00:00|1|n1|gres/gpu=1\n"
    with pytest.raises(SettingsError, match=r"Missing --gpus-per-node, .* how many gpus n1 has"):
        imported(HEADER + row, unit="gpu", nodes="n1")
    assert imported(HEADER + row, unit="gpu", nodes="n1", gpus_per_node=2).quality.idle_share == 0.5
    with pytest.raises(SettingsError, match="--unit gpu: the log does not say how many gpus jobs held"):
        imported(HEADER.replace("AllocTRES", "JobName") + row, unit="gpu")


def test_by_partition_and_type(imported):
    """Idle share and intervals are told for each partition, or for each type of nodes, also of their GPUs."""
    header = HEADER.replace("|Start", "|Partition|Start")
    row = "1|batch|2026-09-01T06:00:00|2026-09-01T12:00:00|1|n1|gres/gpu=2\n"
    found = imported(header + row, by="partition").quality.by
    assert found == {
        "batch": {
            "nodes": 1,
            "idle_share": 0.75,
            "idle_node_s": 18 * 3600,
            "holes": 2,
            "hole_mean_s": 9 * 3600,
            "hole_median_s": 9 * 3600,
        }
    }
    kinds = imported(header + row, by="node-type", unit="gpu").quality.by
    assert {kind: (some["nodes"], some["idle_share"]) for kind, some in kinds.items()} == {
        "64 cores, 4 GPUs": (8, 1 - 12 / 192)
    }
    with pytest.raises(SettingsError, match="--by node-type: neither the log nor --nodes"):
        imported(header + row, by="node-type", nodes="n1")
