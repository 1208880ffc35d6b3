"""What pages claim of replays, tutorials and objectives; what they show as output is compared with that anyway."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.published import published
from bftrainer import run_replay
from bftrainer.files.opening import SAMPLE_TASKS, sample_path
from bftrainer.model import ScalingCurve, TaskState, is_static
from bftrainer.nodelogs.availability import read_availability
from bftrainer.objectives import get_objective
from bftrainer.spot import trace_statistics
from bftrainer.tasksets import read_task_set
from tests.docs.claims import Claims, summary

__all__ = ["CLAIMS"]

CLAIMS = Claims()
claim = CLAIMS.of


@claim("README.md", "Seventy tasks at a time, 64 nodes each at most, can hold every node that is idle here; the ten")
def _():
    if published() is None:
        pytest.skip("the published log is not here")
    steps, run = pd.read_csv("summit/step-logs.csv"), summary("summit")
    assert 10 * 64 < steps.nNd.max() <= 70 * 64
    assert steps.nNrun.max() > 640
    assert run["occupancy"] > 0.98


@claim("docs/replay.md", "With the default of 10 s it is not, and the node stays idle.")
def _():
    run = run_replay(Path("idle.csv"), Path("tasks.toml"), solver="dp", forward_time_s=10.0, baseline=False)
    assert [(event.idle, event.used) for event in run.recording.events][:2] == [(2, 2), (3, 2)]
    rates = run.recording.tasks[0].spec.rates
    assert ((rates[3] - rates[2]) * 60, rates[2] * 20) == (4800.0, 3800.0)


@claim(
    "docs/replay.md",
    "`cbc`, finds optima of the same value in more time; of several that are equal it may take another one",
)
def _():
    exact, model = (run_replay(solver=name, max_events=400, baseline=False).recording for name in ("dp", "cbc"))
    pairs = list(zip(exact.decisions, model.decisions, strict=False))
    differing = (number for number, (one, other) in enumerate(pairs) if one.after != other.after)
    parted = next(differing, len(pairs))
    for one, other in pairs[: parted + 1]:
        assert one.objective == pytest.approx(other.objective, rel=1e-9)
    work = [sum(event.work for event in recording.events) for recording in (exact, model)]
    assert work[1] == pytest.approx(work[0], rel=0.01)


@claim("docs/replay.md", "Small: few rescales, nodes left idle. Large: eager")
def _():
    small, large = (
        run_replay(solver="dp", max_events=300, baseline=False, forward_time_s=s).summary() for s in (10, 300)
    )
    assert small["rescales"] < large["rescales"]
    assert small["occupancy"] < large["occupancy"]


@claim(
    "docs/report.md",
    "Looking 300 s ahead instead of 10 s, tasks grow more often, and here pay more for it than they gain.",
)
def _():
    careful, eager = summary("careful"), summary("eager")
    assert careful["rescales"] < eager["rescales"]
    assert careful["rescale_loss_share"] < eager["rescale_loss_share"]
    assert careful["efficiency"] > eager["efficiency"]


@claim(
    "docs/tutorial-training.md",
    "Fewer runs at a time finish earlier one by one, more at a time use more of the large holes",
)
def _():
    found = pd.read_parquet("atonce-sweep/sweep.parquet").sort_values(["forward_time_s", "max_tasks"])
    for _, rows in found.groupby("forward_time_s"):
        assert rows["turnaround_mean_s"].is_monotonic_increasing
        assert rows["makespan_s"].is_monotonic_decreasing


@claim("docs/tutorial-training.md", "three hours earlier than it was, and the last of the others hardly waits for that")
def _():
    ends = {name: pd.read_parquet(f"{name}/tasks.parquet")["completed"] for name in ("try", "urgent")}
    assert ends["try"].iloc[0] - ends["urgent"].iloc[0] > pd.Timedelta("3h")
    assert ends["urgent"].max() - ends["try"].max() < pd.Timedelta("2min")
    assert list(ends["urgent"].index) == list(ends["try"].index)


@claim("docs/tutorial-research.md", "It does a fifth less work, as slow models get their part.")
def _():
    work = {name: pd.read_parquet(f"{name}/tasks.parquet") for name in ("throughput", "root")}
    assert 0.75 < work["root"]["work_done"].sum() / work["throughput"]["work_done"].sum() < 0.85
    rates = {spec.name: spec.rates[1] for spec in read_task_set("tasks.toml").tasks}
    slow = {name: rows["task"].map(rates) < np.median(list(rates.values())) for name, rows in work.items()}
    share = {name: rows.node_s[slow[name]].sum() / rows.node_s.sum() for name, rows in work.items()}
    assert share["root"] > share["throughput"]


@claim("docs/tutorial-research.md", "A trace from a model, not from a machine: its statistics are what you ask for")
def _():
    found = trace_statistics(read_availability(Path("world.parquet"), print)).figures
    assert (found["nodes"], found["span_s"]) == (128, 2 * 86400.0)
    assert found["idle_share"] == pytest.approx(0.0827, rel=0.03)


@claim(
    "docs/tutorial-administrators.md",
    "*Dropped* should be jobs that never ran, as those here that wait; *nodes* all of the machine's.",
)
def _(end, jobs, NODES):  # noqa: N803 - as the page has it
    account = json.loads(Path("idle.quality.json").read_text())
    assert account["dropped"] == {"no nodes": sum(begins >= end for begins, _, _ in jobs)}
    assert account["nodes"] == NODES


@claim(
    "docs/tutorial-administrators.md",
    "here one is submitted every hour and a half, a hundred passes over 1.3 million images each",
)
def _():
    tasks = read_task_set("tasks.toml").tasks
    assert {after.submit_s - before.submit_s for before, after in pairwise(tasks)} == {5400.0}
    assert {round(task.work / 100 / 1e6, 1) for task in tasks} == {1.3}


@claim(
    "docs/tutorial-administrators.md",
    "leave out the holes that are shorter than ten minutes, and set the runs side by side",
)
def _():
    found = {
        name: trace_statistics(read_availability(Path(f"{name}.parquet"), print)).figures for name in ("idle", "long")
    }
    assert found["idle"]["fragment_under_600_s_share"] > found["long"]["fragment_under_600_s_share"] == 0.0


@claim(
    "docs/objectives.md",
    "four nodes for `big` give 300/s, more than any division",
    "two and two give 57/30 + 180/100 = 3.7, four for `small` only 3.4",
)
def _(small, big):
    rates = small.rates, big.rates
    for unit, best in (((1.0, 1.0), {(0, 4): 300.0}), ((30.0, 100.0), {(2, 2): 3.7})):
        worth = {(n, 4 - n): rates[0][n] / unit[0] + rates[1][4 - n] / unit[1] for n in range(5)}
        assert {max(worth, key=worth.__getitem__): pytest.approx(max(worth.values()))} == best
    assert rates[0][4] / 30.0 == pytest.approx(3.4)


@claim(
    "docs/objectives.md",
    "Multiplying all power by a constant changes no decision.",
    "Nodes that scale worse than with the square root of their number lower it",
)
def _(credit, tuned, replace, high, COUNTS):  # noqa: N803 - as the page has it
    once, thrice = (credit("energy", tuned(250, 2.0, watts)) for watts in (200.0, 600.0))
    assert once == thrice
    energy = get_objective("energy")
    for power, falls in ((0.4, True), (0.6, False)):
        curve = ScalingCurve(tuple(range(5)), (0.0, *(n**power / 3600 for n in range(1, 5))))
        spec = replace(high, scaling=curve)
        rising = np.diff(energy(TaskState(spec, 0, 0.0, 0.0, modes=(spec,)), COUNTS, 0.0)[1:])
        assert (rising < 0).all() if falls else (rising > 0).all()


@claim("docs/objectives.md", "possible: 1.8 x 0.635 = 1.144. The low limit earns more on every count.")
def _(credit, high, low):
    high, low = credit("energy", high, low)
    assert round(0.01 * 1.8 / 2 / (1.7 / 120), 3) == 0.635
    assert all(less < more for less, more in zip(high[1:], low[1:], strict=True))


@claim(
    "docs/objectives.md",
    "With eta = 0 this is the share of the task's full speed, with eta = 1 the share of its most work per joule",
)
def _(credit, tuned, SCALING, COUNTS):  # noqa: N803 - as the page has it
    speed, saving = (credit("energy-delay", tuned(250, 2.0, 200.0, eta=eta))[0] for eta in (0.0, 1.0))
    scaling, counts = SCALING, np.maximum(COUNTS, 1)
    assert speed == (scaling / scaling.max()).round(3).tolist()
    assert saving == (scaling / counts / (scaling / counts).max()).round(3).tolist()


@claim(
    "docs/objectives.md",
    "With `priority:fair-share` a task of weight 2 is owed twice as much",
    "`fair-share:priority` makes equal what the weights made different.",
)
def _(tasks_of, replace, nodes_of):
    owed, plain = tasks_of("astro", "bio")
    tasks = [replace(owed, weight=2.0), plain]
    assert nodes_of("priority:fair-share", tasks, 12) == {"astro": 8, "bio": 4}
    assert nodes_of("fair-share:priority", tasks, 12) == {"astro": 4, "bio": 8}


@claim(
    "docs/objectives.md",
    "Credit grows to three times the throughput as the task completes.",
    "All of those above but `deadline` do.",
)
def _(big, COUNTS):  # noqa: N803 - as the page has it
    from finish import nearly_done  # type: ignore[import-not-found]

    spec = big
    done = nearly_done(TaskState(spec, 1, spec.work, 0.0), COUNTS, 0.0)
    assert done.tolist() == (3.0 * spec.rates[COUNTS]).tolist()
    listed = ("as-given", "throughput", "scaling-efficiency", "energy", "energy-delay", "deadline")
    assert [name for name in listed if not is_static(get_objective(name))] == ["deadline"]


@claim("docs/objectives.md", "the group AlexNet, the fastest, holds at most as many nodes as all others together.")
def _():
    tasks = read_task_set(sample_path(SAMPLE_TASKS)).tasks
    assert max(tasks, key=lambda task: task.rates[1]).group == "AlexNet"
    for row in pd.read_parquet("fair-itrOut/decisions.parquet").itertuples():
        fast = sum(n for task, n in zip(row.tasks, row.after, strict=True) if "AlexNet" in task)
        assert fast <= sum(row.after) - fast
