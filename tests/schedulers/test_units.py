"""GPUs and cores of shared nodes: what no job holds is offered, and both levels are told."""

from __future__ import annotations

import pytest

from bftrainer.errors import SettingsError
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from tests.importing import idle_of

DAY = {"start": "2026-09-01", "end": "2026-09-02", "zone": "UTC", "window": "asked", "unseen": "idle"}
HEADER = "JobIDRaw|Partition|Start|End|NNodes|NodeList|AllocTRES\n"
MIDNIGHT = 1788220800
SHOWN = "NodeName={} CPUTot=64 Gres=gpu:a100:4(S:0-1) State=IDLE\n   CfgTRES=cpu=64,mem=1T,gres/gpu=4\n\n"


@pytest.fixture
def imported(tmp_path):
    """Import rows of sacct, or lines of PBS."""

    def run(text, name="slurm", **settings):
        (tmp_path / "log").write_text(text)
        (tmp_path / "nodes").write_text("".join(SHOWN.format(node) for node in ("n1", "n2")))
        return import_log(
            name, [tmp_path / "log"], ImportSettings(**(DAY | {"nodes": str(tmp_path / "nodes")} | settings))
        )

    return run


def row(number, start, end, nodes, held):
    """A row of sacct from hour to hour."""
    hours = f"{MIDNIGHT + start * 3600}|{MIDNIGHT + end * 3600}"
    return f"{number}|batch|{hours}|{2 if '-' in nodes else 1}|{nodes}|{held}\n"


def hours(done):
    """Idle hours of each unit that is not idle all day."""
    return {name: some for name, some in idle_of(done.log, MIDNIGHT, 3600).items() if some != [(0, 24)]}


ONE = row(1, 0, 24, "n1", "cpu=8,gres/gpu:a100=1,node=1")


def test_one_gpu_of_four(imported):
    """A node of four GPUs with a job on one of them for a day: 75 % of its GPU-time is idle, none of its node-time."""
    done = imported(HEADER + ONE, unit="gpu", exclude_nodes="n2")
    assert done.log.nodes == ("n1/gpu0", "n1/gpu1", "n1/gpu2", "n1/gpu3")
    assert (done.quality.idle_share, done.quality.whole_idle_share, done.quality.nodes) == (0.75, 0.0, 4)
    assert hours(done) == {"n1/gpu0": []}
    assert imported(HEADER + ONE, unit="core", exclude_nodes="n2").quality.idle_share == 1 - 8 / 64


def test_the_lowest_free_gpus(imported):
    """Jobs take the lowest GPUs that are free, keep them, and get one more on their first nodes."""
    jobs = row(1, 0, 12, "n1", "gres/gpu=2"), row(2, 6, 18, "n1", "gres/gpu=1"), row(3, 12, 24, "n[1-2]", "gres/gpu=3")
    spans = {"n1/gpu0": [], "n1/gpu1": [], "n1/gpu2": [(0, 6), (18, 24)], "n2/gpu0": [(0, 12)]}
    assert hours(imported(HEADER + "".join(jobs), unit="gpu")) == spans
    # A job that asks for more than a node has free takes what there is, and that is said.
    done = imported(HEADER + row(1, 0, 24, "n1", "gres/gpu=3") + row(2, 0, 24, "n1", "gres/gpu=3"), unit="gpu")
    assert hours(done) == {f"n1/gpu{at}": [] for at in range(4)}
    assert any("1 times a job held more gpus" in note for note in done.quality.notes)


@pytest.mark.parametrize(("unit", "busy"), [("core", {"n1": 2, "n2": 3}), ("gpu", {"n1": 1, "n2": 2})])
def test_slots_of_pbs(imported, unit, busy):
    """Slots are cores, ngpus of virtual nodes are GPUs; each host has its own number."""
    fields = f"start={MIDNIGHT} end={MIDNIGHT + 3600} exec_host=n1/0*2+n2/0-1,4 "
    fields += "exec_vnode=(n1[0]:ncpus=2:ngpus=1)+(n2:ncpus=3:ngpus=2)"
    done = imported(f"09/01/2026 01:00:00;E;1.s;{fields}\n", "pbs", unit=unit)
    assert hours(done) == {f"{node}/{unit}{at}": [(1, 24)] for node, count in busy.items() for at in range(count)}


def test_units_that_nobody_counts(imported):
    """Neither a log nor an inventory without numbers is guessed at."""
    with pytest.raises(SettingsError, match=r"Missing --gpus-per-node, .* how many gpus n1 has"):
        imported(HEADER + ONE, unit="gpu", nodes="n1")
    assert imported(HEADER + ONE, unit="gpu", nodes="n1", gpus_per_node=2).quality.idle_share == 0.5
    with pytest.raises(SettingsError, match="--unit gpu: the log does not say how many gpus jobs held"):
        imported(HEADER.replace("AllocTRES", "JobName") + ONE, unit="gpu")


def test_by_partition_and_type(imported):
    """Idle share and intervals are told for each partition, or for each type of nodes, also of their GPUs."""
    text = HEADER + row(1, 6, 12, "n1", "gres/gpu=2")
    figures = {"nodes": 1, "idle_share": 0.75, "idle_node_s": 18 * 3600, "holes": 2}
    assert imported(text, by="partition").quality.by == {
        "batch": figures | {"hole_mean_s": 9 * 3600, "hole_median_s": 9 * 3600}
    }
    kinds = imported(text, by="node-type", unit="gpu").quality.by
    shares = {kind: (some["nodes"], some["idle_share"]) for kind, some in kinds.items()}
    assert shares == {"64 cores, 4 GPUs": (8, 1 - 12 / 192)}
    with pytest.raises(SettingsError, match="--by node-type: neither the log nor --nodes"):
        imported(text, by="node-type", nodes="n1")
