"""What foresight brings: chosen on the first half of each log, judged on windows of the second, against the best fixed.

``python -m benchmarks.research.foresight LOG...`` prints a table in Markdown; a queue beside a log is used.
Each log is given as ``NAME=PATH,NODES,WINDOW_H``, the task set with ``--tasks``. Gains are paired by window, with 95 %
intervals (t).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from bftrainer.model import NodeLog, TaskSpec
from bftrainer.nodelogs.job_queue import queue_path
from bftrainer.nodelogs.node_log_files import read_node_log
from bftrainer.runs import run_replay
from bftrainer.runs.readers import Readers

Options = Mapping[str, Any]
WINDOWS = 8
FIXED = [{"forward_time_s": span_s, "max_tasks": most} for span_s in (30.0, 120.0, 600.0, 1800.0) for most in (10, 30)]
POOLS = ((300.0, 0.5), (600.0, 0.4))


def foresights(queue: Path | None) -> list[dict[str, Any]]:
    """Models and uses to choose from: causal ones."""
    found: list[dict[str, Any]] = []
    for name in ("age", "backfill") if queue else ("age",):
        more = {"foresight": name} | ({"queue": queue} if name == "backfill" else {})
        found.append(more | {"foresight_use": "order"})
        for horizon_s, least in POOLS:
            pool = {"foresight_use": "order,pool", "foresight_horizon_s": horizon_s, "foresight_least": least}
            found.append(more | pool)
    return [*found, {"foresight": "survival", "foresight_use": "order,value"}]


def work(
    log: NodeLog, tasks: tuple[TaskSpec, ...], cost: float, since_s: float, length_s: float, how: Options
) -> float:
    """Work done in a window with rescale costs so many times as large."""
    dear = tuple(
        replace(task, grow_cost_s=task.grow_cost_s * cost, shrink_cost_s=task.shrink_cost_s * cost) for task in tasks
    )
    result = run_replay(log, dear, solver="dp", since=since_s, until=length_s, baseline=False, **how)
    return float(result.summary()["work_done"])


def interval(gains: list[float]) -> str:
    """Mean and half width of the 95 % interval, in percent."""
    half = student.ppf(0.975, len(gains) - 1) * np.std(gains, ddof=1) / math.sqrt(len(gains))
    return f"{100 * np.mean(gains):+.1f} ± {100 * half:.1f} %"


def shown(how: Options) -> str:
    """Options in a few words."""
    words = {"forward_time_s": "Tfwd", "max_tasks": "maxJ", "foresight_horizon_s": "", "foresight_least": "p"}
    parts = (f"{words.get(name, '')} {value:g}" if name in words else str(value) for name, value in how.items())
    return ", ".join(part.strip() for part in parts if not part.endswith(".csv"))


def rows_of(name: str, log: NodeLog, queue: Path | None, tasks: tuple[TaskSpec, ...], length_s: float) -> None:
    """Print the rows of a log, one for each cost."""
    half_s = log.window_s / 2

    def mean(cost: float, how: Options, places: range) -> float:
        starts = np.linspace(0, half_s - length_s, WINDOWS)
        return float(np.mean([work(log, tasks, cost, starts[at], length_s, how) for at in places]))

    for cost in (1.0, 5.0, 20.0):
        fixed = max(FIXED, key=lambda how: mean(cost, how, range(WINDOWS)))
        best = max(
            (fixed | how for how in foresights(queue)), key=lambda how: mean(cost, how, range(0, WINDOWS, WINDOWS // 2))
        )
        oracle = {
            "foresight": "oracle",
            "foresight_use": "order,pool",
            "foresight_horizon_s": 600.0 if cost > 5 else 60.0,
        }
        starts = half_s + np.linspace(0, half_s - length_s, WINDOWS)
        found = [
            [work(log, tasks, cost, float(start_s), length_s, how) for how in (fixed, best, fixed | oracle)]
            for start_s in starts
        ]
        # Windows with hardly any work would rule a mean of ratios.
        usual = float(np.mean([row[0] for row in found]))
        gains, bounds = ([(row[at] - row[0]) / usual for row in found] for at in (1, 2))
        foreseen = {key: value for key, value in best.items() if key not in fixed}
        columns = (name, f"x{cost:g}", shown(fixed), shown(foreseen), interval(gains), interval(bounds))
        print("| " + " | ".join(columns) + " |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+", metavar="NAME=PATH,NODES,HOURS")
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--copies", type=int, default=6, help="how often the task set is repeated")
    given = parser.parse_args()
    one = Readers().task_set(given.tasks, None, None).tasks
    tasks = tuple(
        replace(task, name=f"{task.name}-{copy}", submit_s=0.0, submit_ns=None)
        for copy in range(given.copies)
        for task in one
    )
    print("| log | cost | best fixed | foresight | gain | clairvoyant |\n|---|---|---|---|---|---|")
    for text in given.logs:
        name, _, rest = text.partition("=")
        path, nodes, hours = rest.split(",")
        log, queue = read_node_log(path).selected(0, int(nodes)), queue_path(Path(path))
        rows_of(name, log, queue if queue.exists() else None, tasks, 3600.0 * float(hours))


if __name__ == "__main__":
    main()
