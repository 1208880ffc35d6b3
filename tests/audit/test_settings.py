"""Runs of all settings that change what a decision is: each is audited, or the part that cannot be says so."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.parquet as pq
import pytest

from bftrainer.audit import audit
from tests.replayed import plain_run, saving_run, saving_tasks, tuned_run, tuned_tasks
from tests.tuned import DEFAULT

PLAIN: dict[str, dict[str, Any]] = {
    "cbc": {"solver": "cbc"},
    "highs without pruning": {"solver": "highs", "prune": False},
    "nodes only": {"decide_on": "nodes"},
    "full start-up": {"startup_cost": "full"},
    "random start": {"initial": "random", "seed": 3},
    "empty start on nodes only": {"initial": "empty", "decide_on": "nodes"},
    "equal share": {"solver": "equal-share"},
    "equal share as published": {"solver": "equal-share", "strict_published": True},
    "cut off by events": {"max_events": 4},
    "cut off by events, nodes only": {"max_events": 4, "decide_on": "nodes"},
    "a part of the log": {"since": 70.0, "until": 600.0},
    "stopped where a task is submitted": {"until": 50.0},
    "stopped where a node leaves": {"until": 500.0},
    "stopped where a node leaves, nodes only": {"until": 500.0, "decide_on": "nodes"},
    "some nodes": {"first_node": 1, "node_count": 3, "skip_events": 2},
    "with dedicated nodes": {"baseline": True},
    "idle power": {"idle_power_w": 100.0, "carbon": 300.0, "pue": 1.5},
    "throughput": {"objective": "throughput"},
    "scaling efficiency": {"objective": "scaling-efficiency"},
    "deadline": {"objective": "deadline"},
    "priority": {"objective": "priority:throughput"},
    "quota": {"objective": "quota:user=2,group/g=75%:as-given", "solver": "highs"},
    "fair share": {"objective": "fair-share", "solver": "highs"},
    "fair share of users": {"objective": "fair-share:user:throughput", "solver": "highs"},
    "priority over fair share": {"objective": "priority:fair-share:task", "solver": "highs"},
    "fair share of priorities": {"objective": "fair-share:priority:as-given", "solver": "highs"},
    "a gap": {"solver": "cbc", "mip_gap": 0.2},
    "an effort": {"solver": "cbc", "effort": 1},
}
TUNED: dict[str, dict[str, Any]] = {
    "one limit": {"power_options": "chosen", "power_cap": None, "solver": "dp"},
    "all limits": {"power_options": "all", "power_cap": None, "solver": "dp", "objective": "energy"},
    "all limits under a cap": {"power_options": "all", "objective": "energy-delay"},
    "nodes only": {"decide_on": "nodes", "power_cap": None, "solver": "dp"},
    "random start under a cap": {"initial": "random", "startup_cost": "full"},
    "cut off": {"max_events": 9, "power_cap": 1_200.0},
    "nodes only, cut off": {"max_events": 6, "decide_on": "nodes"},
    "cbc": {"solver": "cbc", "until": 900.0},
    "stopped where a node leaves": {"until": 700.0},
}
# One task at a time: the policy prunes batch sizes, and runs miss their target; or the group is given up at once.
ALONE: dict[str, dict[str, Any]] = {
    "pruning": {"max_tasks": 1, "power_options": "chosen"},
    "pruning, nodes only": {"max_tasks": 1, "decide_on": "nodes", "power_cap": None, "solver": "dp"},
    "given up": {"default": 128},
    "given up, alone": {"default": 128, "max_tasks": 1, "decide_on": "nodes"},
}
UNCHECKED = "what else the run wrote"


@pytest.mark.parametrize("options", PLAIN.values(), ids=PLAIN.keys())
def test_plain_runs(tmp_path, options):
    """Nothing is wrong, and nothing but the summary's rest is left unchecked."""
    found = audit(plain_run(tmp_path, **options))
    assert [(part.claim, part.problems[:3]) for part in found.failed] == []
    # What proves nothing and bounds nothing cannot be checked for being the best.
    heuristic = {
        "decisions proven optimal are optimal, and none is worth more than the best",
        "nothing possible is worth more than a bound, and gaps follow from the bounds",
    }
    allowed = {UNCHECKED} | (heuristic if options.get("solver") == "equal-share" else set())
    assert {part.claim for part in found.unchecked} <= allowed


@pytest.mark.parametrize("options", (TUNED | ALONE).values(), ids=(TUNED | ALONE).keys())
def test_tuned_runs(tmp_path, options):
    """The same with tuned tasks, under caps and without."""
    found = audit(tuned_run(tmp_path, **options))
    assert [(part.claim, part.problems[:3]) for part in found.failed] == []
    assert {part.claim for part in found.unchecked} == {UNCHECKED}


SAVING = ("nodes only", "full start-up", "random start", "cut off by events", "with dedicated nodes", "deadline")


@pytest.mark.parametrize("name", SAVING)
def test_plain_runs_that_save(tmp_path, name):
    """The same with tasks that save."""
    found = audit(saving_run(tmp_path, **PLAIN[name]))
    assert [(part.claim, part.problems[:3]) for part in found.failed] == []
    assert {part.claim for part in found.unchecked} == {UNCHECKED}


@pytest.mark.parametrize("options", (TUNED | ALONE).values(), ids=(TUNED | ALONE).keys())
def test_tuned_runs_that_save(tmp_path, options):
    """The same with tuned tasks that save while they profile and train, and lose what is unsaved."""
    tasks = saving_tasks(tmp_path, tuned_tasks(tmp_path, options.get("default", DEFAULT)), 30.0)
    run = tuned_run(tmp_path, **(options | {"tasks": tasks}))
    found = audit(run)
    assert [(part.claim, part.problems[:3]) for part in found.failed] == []
    assert {part.claim for part in found.unchecked} == {UNCHECKED}
    assert json.loads((run / "summary.json").read_text())["saving_loss_work"] > 0


@pytest.mark.parametrize(("options", "kinds"), list(zip(ALONE.values(), ("miss", "miss", "fail", "fail"), strict=True)))
def test_what_tuning_meets(tmp_path, options, kinds):
    """The runs above are those that they should be: some attempts miss, and groups fail."""
    run = tuned_run(tmp_path, **options)
    reached = pq.read_table(run / "attempts.parquet")["reached"].to_pylist()
    failed = json.loads((run / "summary.json").read_text())["tasks_failed"]
    assert False in reached
    assert (failed == 12) is (kinds == "fail")


def test_fair_share_under_quotas_is_not_checkable(tmp_path):
    """What the audit cannot compute is said, with the number of decisions; values and limits are checked anyway."""
    found = audit(plain_run(tmp_path, objective="quota:user=2:fair-share", solver="highs"))
    assert found.failed == []
    left = {part.claim.split(" ")[0]: dict(part.left_out) for part in found.unchecked if part.claim != UNCHECKED}
    assert left.keys() == {"decisions", "nothing"}
    assert all("fair-share under further limits" in why for reasons in left.values() for why in reasons)
