"""A run made by hand, for the audit to look at: three nodes, 100 s, two tasks.

Task A scales 10, 18, 24 work/s and costs 1 s to grow and 2 s to shrink; B scales 15, 20, is submitted at 50 s and is
done after 300 work. Forward time 10 s.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

START = 1_612_915_200 * 10**9  # 2021-02-10T00:00:00Z
TIME = pa.timestamp("ns", "UTC")

TASKS = """
schema = 1
[[task]]
name = "A"
min_nodes = 1
max_nodes = 3
work = 10000.0
grow_cost_s = 1.0
shrink_cost_s = 2.0
[task.scaling]
nodes = [0, 1, 2, 3]
throughput = [0, 10, 18, 24]
[[task]]
name = "B"
submit = 50
min_nodes = 1
max_nodes = 2
work = 300
[task.scaling]
nodes = [0, 1, 2]
throughput = [0, 15, 20]
"""
CHANGES = [(0, "n1", True), (0, "n2", True), (20, "n3", True), (40, "n1", False)]
# event, seconds, pool, tasks, before, after, value
DECISIONS = [
    (0, 0, 2, "A", [0], [2], 180.0),
    (1, 20, 3, "A", [2], [3], 240.0 - 18 * 1),
    (2, 40, 2, "A", [2], [2], 180.0),  # n1 left: 2 s * 24 work/s lost
    (3, 50, 2, "AB", [2, 0], [1, 1], 100.0 - 18 * 2 + 150),
    (4, 70, 2, "A", [1], [2], 180.0 - 10 * 1),  # B is done after 20 s at 15 work/s
]
MOVES = [
    (0, "n1", "A"),
    (0, "n2", "A"),
    (20, "n3", "A"),
    (40, "n1", None),
    (50, "n2", None),
    (50, "n2", "B"),
    (70, "n2", None),
    (70, "n2", "A"),
]
# A: 360 + 480 - 18 - 48 + 180 + 200 - 36 + 540 - 10
TOTALS = [
    {
        "task": "A",
        "submitted": 0,
        "started": 0,
        "completed": None,
        "work_done": 1648.0,
        "work_total": 10000.0,
        "node_s": 200.0,
    }
    | {"rescales": 3, "preemptions": 1, "rescale_cost": 64.0, "preemption_cost": 48.0},
    {
        "task": "B",
        "submitted": 50,
        "started": 50,
        "completed": 70,
        "work_done": 300.0,
        "work_total": 300.0,
        "node_s": 20.0,
    }
    | {"rescales": 0, "preemptions": 0, "rescale_cost": 0.0, "preemption_cost": 0.0},
]
STEPS = """evtTime,Thr,Rate,ReScost,evt,Nleft,Npre,Njoin,nJob,nNd,nJrun,nNrun,PreCost
2021-02-10 00:00:00,0,18,0,0,0,0,2,1,2,1,2,0
2021-02-10 00:00:20,360,24,18,1,0,0,1,1,3,1,3,0
2021-02-10 00:00:40,414,18,0,2,1,1,0,1,2,1,2,48
2021-02-10 00:00:50,180,25,36,3,0,0,0,2,2,2,2,0
2021-02-10 00:01:10,464,18,10,4,0,0,0,1,2,1,2,0
"""
SETTINGS = {
    "forward_time_s": 10.0,
    "objective": "as-given",
    "solver": "dp",
    "startup_cost": "none",
    "decide_on": "all",
    "initial": "solve",
    "first_node": 0,
    "node_count": None,
    "skip_events": 0,
    "scaling": None,
    "max_tasks": 10,
}


def instants(seconds):
    """A column of instants from seconds after the start."""
    return pa.array([None if second is None else START + round(second * 1e9) for second in seconds], TIME)


class Run:
    """The records of the hand-made run, to be changed and written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        keys = ("event", "time", "nodes", "tasks", "before", "after", "objective")
        self.decisions = [dict(zip(keys, row, strict=True)) for row in DECISIONS]
        for row in self.decisions:
            row |= {"tasks": list(row["tasks"]), "bound": row["objective"], "gap": 0.0, "held": "optimal"}
            row |= {"stop_reason": "optimal", "solver": "dp", "solve_s": 0.001}
            row |= {"decided_by": "backend", "model_rows": None, "model_columns": None, "backend_s": 0.001}
        self.moves, self.totals, self.steps = list(MOVES), [dict(row) for row in TOTALS], STEPS
        self.settings = dict(SETTINGS)
        self.sums = {"work_done": 1948.0, "rescale_loss_work": 64.0, "preemption_loss_work": 48.0, "preemptions": 1}
        self.sums |= {"rescales": 3, "used_node_s": 220.0, "idle_node_s": 220.0, "tasks_total": 2, "tasks_completed": 1}

    def write(self) -> Path:
        """Write inputs and records; returns the run directory."""
        run = self.folder / "run"
        run.mkdir()
        self.write_log(self.folder / "idle.parquet")
        (self.folder / "tasks.toml").write_text(TASKS)
        frame = pa.table({key: [row[key] for row in self.decisions] for key in self.decisions[0] if key != "time"})
        pq.write_table(
            frame.append_column("time", instants(row["time"] for row in self.decisions)), run / "decisions.parquet"
        )
        time, node, task = zip(*self.moves, strict=True)
        pq.write_table(pa.table({"time": instants(time), "node": node, "task": task}), run / "allocation.parquet")
        times = {key: instants(row[key] for row in self.totals) for key in ("submitted", "started", "completed")}
        columns = {key: [row[key] for row in self.totals] for key in self.totals[0]}
        pq.write_table(pa.table(columns | times), run / "tasks.parquet")
        (run / "step-logs.csv").write_text(self.steps)
        (run / "summary.json").write_text(json.dumps(self.summary()))
        return run

    def write_log(self, path: Path) -> None:
        """Write the node log in the native form."""
        time, node, idle = zip(*CHANGES, strict=True)
        window = ["2021-02-10T00:00:00Z", "2021-02-10T00:01:40Z"]
        meta = {"bftrainer.schema": "1", "bftrainer.provenance": "{}", "bftrainer.window": json.dumps(window)}
        meta["bftrainer.nodes"] = json.dumps(["n1", "n2", "n3"])
        columns = {"time": instants(time), "node": pa.array(node).dictionary_encode(), "idle": idle}
        pq.write_table(pa.table(columns).replace_schema_metadata(meta), path)

    def summary(self) -> dict:
        """What summary.json holds."""
        files = {"node_log": "idle.parquet", "tasks": "tasks.toml"}
        hashes = {
            kind: {"path": name, "sha256": hashlib.sha256((self.folder / name).read_bytes()).hexdigest()}
            for kind, name in files.items()
        }
        window = {"nodes_total": 3, "window_start": "2021-02-10T00:00:00Z", "window_end": "2021-02-10T00:01:40Z"}
        counts = {
            "decisions": len(self.decisions),
            "decisions_optimal": len(self.decisions),
            "end_reason": "window_end",
        }
        return {"inputs": {**hashes, "scalability": None}, "settings": self.settings} | window | counts | self.sums
