"""Replays of the published Summit log, against figures that were worked out independently of this code."""

import shutil
from pathlib import Path

import pytest

from bftrainer import ReplayConfig, run_replay
from bftrainer.runs import Inputs, load_inputs

# maxJ: U with decisions on all events, and on rows of the log only.
EFFICIENCY = {5: (0.761, 0.699), 10: (0.899, 0.838), 20: (0.952, 0.906), 30: (0.971, 0.932)}
# maxJ: shares lost to the pool's variability, to looking ahead, to preemption and to rescaling (on all events).
LOSSES = {
    5: (0.17, 0.006, 0.025, 0.009),
    10: (0.08, 0.006, 0.022, 0.007),
    20: (0.05, 0.006, 0.018, 0.004),
    30: (0.03, 0.006, 0.017, 0.003),
}


def config(folder: Path, **changes: object) -> ReplayConfig:
    """The published log from row 1,000 on, and its thousand tasks, by the dynamic programme."""
    options = {
        "node_log": folder / "ndstat-10sdn6-evt.tar.gz",
        "tasks": folder / "hps-shufflenet-Jbnd-1000J.pkl",
        "scalability": folder / "hps-shufflenet-JNPs-1000J.pkl",
        "skip_events": 1000,
        "solver": "dp",
    }
    return ReplayConfig(**(options | changes))


@pytest.fixture(scope="module")
def first_nodes(published: Path) -> Inputs:
    """The first 1,024 nodes, read once."""
    return load_inputs(config(published, node_count=1024, forward_time_s=120.0))


@pytest.mark.slow
@pytest.mark.parametrize("decide_on", ["all", "nodes"])
@pytest.mark.parametrize("max_tasks", EFFICIENCY)
def test_efficiency(published, first_nodes, max_tasks, decide_on):
    """U and the losses on the first 1,024 nodes are within 0.02 of an independent computation."""
    read = {"node_log": first_nodes.log, "tasks": first_nodes.tasks, "scalability": None, "skip_events": 0}
    settings = config(published, **read, forward_time_s=120.0, max_tasks=max_tasks, decide_on=decide_on)
    summary = run_replay(config=settings).summary()
    expected = EFFICIENCY[max_tasks][decide_on == "nodes"]
    assert summary["efficiency"] == pytest.approx(expected, abs=0.02)
    if decide_on == "all":
        losses = [summary[f"loss_{name}_share"] for name in ("variability", "horizon")]
        losses += [summary[f"{name}_loss_work"] / summary["ideal_work"] for name in ("preemption", "rescale")]
        assert losses == pytest.approx(LOSSES[max_tasks], abs=0.02)
    assert summary["decisions"] == summary["decisions_optimal"]


def test_names_in_small_letters(published, tmp_path):
    """Ten published tasks whose files are called jbnd.pkl and jnps.pkl are replayed with their measured scaling."""
    for there, here in (("Jbnd", "jbnd"), ("JNPs", "jnps")):
        shutil.copy(published / f"hps-shufflenet-{there}-10J.pkl", tmp_path / f"{here}.pkl")
    log = published / "ndstat-10sdn6-evt.tar.gz"
    summary = run_replay(log, tmp_path / "jbnd.pkl", forward_time_s=10.0, solver="dp").summary()
    assert summary["assumed_scaling"] is None
    assert (summary["tasks_completed"], summary["tasks_total"]) == (10, 10)
    assert summary["makespan_s"] / 3600 == pytest.approx(10.67, abs=0.005)
    assert summary["efficiency"] == pytest.approx(0.9370, abs=0.00005)
