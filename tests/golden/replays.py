"""Replays, and the figures of each: from the files that a run writes, which docs/files.md describes.

A hand-over is a row of `allocation.parquet`. Its three integers are the time in ns since the Unix epoch, the number of
the node (its place among the names in that file, sorted) and that of the task (its row in `tasks.parquet`; -1: the node
is released). Their digest is the SHA-256 of all of them as little-endian int64, row by row, sorted: no version of a
library changes it.
"""

import hashlib
import json
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.golden.running import check_command

SUMMARY = (
    *("end_reason", "nodes_total", "window_start", "window_end", "window_s", "events", "decisions", "limited_by"),
    *("idle_node_s", "used_node_s", "eq_nodes", "occupancy", "ledger", "work_done", "ideal_work", "efficiency"),
    *("efficiency_horizon_s", "efficiency_eq_nodes", "return_on_investment", "loss_variability_share"),
    *("loss_horizon_share", "rescale_loss_work", "preemption_loss_work", "saving_loss_work", "rescales", "preemptions"),
    *("tasks_total", "tasks_started", "tasks_completed", "makespan_s", "turnaround_mean_s", "turnaround_p90_s"),
    *("wait_mean_s", "decisions_optimal", "decisions_incumbent", "decisions_kept", "below_large_idle"),
    *("energy_j", "idle_energy_j", "site_energy_j", "average_power_w", "peak_power_w", "emissions_gco2"),
    *("tasks_reached", "tasks_failed", "attempts", "train_s", "batch_sizes", "power_limits_w", "failures"),
)
"""Keys of `summary.json`; those of energy and tuning only where a run has them."""

START, END = "2021-02-10", "2021-02-13T00:00:00Z"  # of the embedded sample
FILES = {
    # The cap falls in the first hours and rises again: a change of it is an event.
    "cap.csv": f"time,power_w\n{START}T00:00Z,250000\n{START}T02:00Z,30000\n{START}T05:00Z,90000\n{END},90000\n",
    "carbon.csv": f"time,gco2_per_kwh\n{START}T00:00:00Z,380\n{START}T06:00:00Z,120\n{END},120\n",
    "departures.csv": f"node,time\nn0050,{START}T03:00:00Z\nn0217,{START}T04:30:00Z\nn0051,{START}T09:00:00Z\n",
    "saving.toml": """\
schema = 1
[[task]]
name = "large"
min_nodes = 1
max_nodes = 16
work = 5e5
checkpoint_s = {nodes = [1, 4, 16], seconds = [37, 9.2, 2.3]}
restart_s = {nodes = [1, 4, 16], seconds = [55, 27, 20]}
scaling = {model = "linear", rate_1 = 1.0}
[[task]]
name = "fixed"
submit = 3600
min_nodes = 2
max_nodes = 12
work = 4e5
checkpoint_s = 30
restart_s = 60
checkpoint_interval_s = 600
scaling = {model = "amdahl", rate_1 = 2.0, parallel_fraction = 0.95}
[[task]]
name = "plain"
submit = 7200
min_nodes = 1
max_nodes = 8
work = 1e5
grow_cost_s = 20
shrink_cost_s = 5
scaling = {nodes = [0, 1, 2, 4, 8], throughput = [0, 1.0, 1.9, 3.4, 5.0]}
""",
}
GENERATED = ("tasks", "generate", "--scenario", "nas", "--count", "30", "--seed", "3", "--start", START)
GENERATED = (*GENERATED, "--checkpoint-s", "30", "--restart-s", "60", "-o", "generated.toml")
"""A task set that saves; made first, in the directory of each replay that names it."""

DP = ("--solver", "dp")
TUNED = ("--sample", "tuned", "--objective", "scaling-efficiency", "-Tfwd", "120")
CAPPED = ("--power-cap", "cap.csv", "--power-options", "pareto", "--idle-power", "100", "--carbon", "carbon.csv")
REPLAYS: dict[str, tuple[str, ...]] = {
    "sample, dp": DP,
    "sample, cbc": ("--solver", "cbc"),
    "sample, equal-share": ("--solver", "equal-share"),
    "sample, seldom and costly": (*DP, "-Tfwd", "300", "-maxJ", "5", "--startup-cost", "full", "--initial", "empty"),
    "sample, random start": (*DP, "--initial", "random", "--seed", "3", "--max-events", "1500"),
    "sample, part": (*DP, "-nis", "100", "-nN", "200", "--since", f"{START}T06:00", "--until", "90000"),
    "sample, offers": (*DP, "--offer-after", "300", "--planned-departures", "departures.csv"),
    "sample, decide on nodes": (*DP, "--decide-on", "nodes"),
    "sample, published": (*DP, "--compat", "published"),
    "sample, published heuristic": ("--solver", "equal-share", "--compat", "published"),
    "sample, own objective": (*DP, "--objective", "tests.golden.own_objective:square_root"),
    "sample, fair share": ("--solver", "cbc", "--objective", "fair-share:throughput", "--max-events", "200"),
    "sample, learned": (*DP, "--scaling", "learned", "-Tfwd", "120", "--seed", "5"),
    "sample, learned on nodes": (*DP, "--scaling", "learned", "-Tfwd", "120", "--decide-on", "nodes"),
    "saving": (*DP, "-Tfwd", "600", "--tasks", "saving.toml", "--startup-cost", "full"),
    "saving, decide on nodes": (*DP, "-Tfwd", "600", "--tasks", "saving.toml", "--decide-on", "nodes"),
    "saving, generated": (*DP, "-Tfwd", "120", "--tasks", "generated.toml", "--until", "86400"),
    "tuned": (*DP, *TUNED, "--seed", "5"),
    "tuned, capped": (*DP, *TUNED, *CAPPED, "--pue", "1.2"),
    "tuned, capped, cbc": ("--solver", "cbc", *TUNED, *CAPPED, "--max-events", "300"),
}
"""Options of each, beside the embedded sample; the own objective stands in `own_objective.py`."""

SUMMIT = ("-ndmap", "ndstat-10sdn6-evt.tar.gz", "-bdfn", "hps-shufflenet-Jbnd-1000J.pkl", "--skip-events", "1000")
PUBLISHED: dict[str, tuple[str, ...]] = {
    "summit, 10 s and 10 tasks": (*SUMMIT, *DP, "-Tfwd", "10", "-maxJ", "10"),
    "summit, 60 s and 70 tasks": (*SUMMIT, *DP, "-Tfwd", "60", "-maxJ", "70"),
    "summit, cbc": (*SUMMIT, "--solver", "cbc", "-Tfwd", "10", "-maxJ", "10", "--max-events", "1500"),
}
"""Options of each on the published data, with names of files in their folder."""

SECONDS = ("sample, cbc", "sample, fair share", "sample, learned", "sample, learned on nodes", "tuned, capped")
"""Those that take seconds."""


def replay(options: tuple[str, ...], data: Path | None = None) -> dict[str, Any]:
    """Figures of a replay with these options; files of the published data are found in `data`."""
    with TemporaryDirectory() as folder, chdir(folder):
        for name, text in FILES.items():
            Path(name).write_text(text)
        if "generated.toml" in options:
            check_command(*GENERATED)
        words = [data / word if data and (data / word).is_file() else word for word in options]
        check_command("replay", *words, "--output-dir", "run")
        return figures(Path(folder, "run"))


def figures(run: Path) -> dict[str, Any]:
    """The kept figures of a run's directory."""
    summary = json.loads((run / "summary.json").read_text())
    found = {key: summary[key] for key in SUMMARY if key in summary}
    tasks = pq.read_table(run / "tasks.parquet")
    allocation = pq.read_table(run / "allocation.parquet")
    start_ns = int(np.datetime64(summary["window_start"].removesuffix("Z"), "ns").astype(np.int64))
    found["completed_ns"] = [None if time is None else time - start_ns for time in _ns(tasks["completed"])]
    for column in ("rescales", "preemptions"):
        found[f"{column}_of_tasks"] = tasks[column].to_pylist()
    rows = hand_overs(allocation, tasks["task"].to_pylist())
    found["hand_overs"] = {"rows": len(rows), "sha256": hashlib.sha256(rows.tobytes()).hexdigest()}
    return found


def hand_overs(allocation: Any, tasks: list[str]) -> np.ndarray:
    """Time, node and task of each hand-over, sorted; shape (rows, 3), little-endian int64."""
    nodes = {name: number for number, name in enumerate(sorted(set(allocation["node"].to_pylist())))}
    numbers: dict[str | None, int] = {name: number for number, name in enumerate(tasks)} | {None: -1}
    rows = np.array(
        [
            _ns(allocation["time"]),
            [nodes[name] for name in allocation["node"].to_pylist()],
            [numbers[name] for name in allocation["task"].to_pylist()],
        ],
        dtype="<i8",
    )
    return np.ascontiguousarray(rows[:, np.lexsort(rows[::-1])].T)


def _ns(times: Any) -> list[int | None]:
    """Times of a column as ns since the Unix epoch."""
    return times.cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_pylist()
