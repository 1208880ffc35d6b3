"""What foresight brings: chosen on the first half of each log, judged on windows of the second, against the best fixed.

``python -m benchmarks.research.foresight LOG... --tasks SET`` prints a table in Markdown; a queue beside a log is used.
Each log is ``NAME=PATH,NODES,WINDOW_H`` or, to begin at a row, ``NAME=PATH,NODES,WINDOW_H,ROW``. Foresight and the
fixed settings are chosen on the same windows; then all are judged on others. Gains are paired by window, as shares of
the mean work of the best fixed settings (windows with hardly any work would rule a mean of ratios), and have 95 %
intervals (t).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.research.bounds import scaled
from benchmarks.research.windows import window_starts_s
from bftrainer.model import NodeLog, TaskSpec
from bftrainer.nodelogs.job_queue import queue_path
from bftrainer.nodelogs.node_log_files import read_node_log
from bftrainer.report.intervals import estimate
from bftrainer.runs import run_replay
from bftrainer.runs.readers import Readers

Options = Mapping[str, Any]
WINDOWS = 8
FIXED = [{"forward_time_s": span_s, "max_tasks": most} for span_s in (30.0, 120.0, 600.0, 1800.0) for most in (10, 30)]
CHOSEN_ON = range(0, WINDOWS, 2)
NAMES = ("age", "survival", "survival", "survival", "backfill")
USES = ("order", "order,value", "forward", "cohort,value,forward", "cohort,value,forward")


def foresights(queue: Path | None) -> list[dict[str, Any]]:
    """Models and uses to choose from: causal ones; without a queue none that asks for it."""
    found: list[dict[str, Any]] = [
        {"foresight": name, "foresight_use": use} for name, use in zip(NAMES, USES, strict=True)
    ]
    return found[:-1] if queue is None else [*found[:-1], found[-1] | {"queue": queue}]


def work(
    log: NodeLog, tasks: tuple[TaskSpec, ...], cost: float, since_s: float, length_s: float, how: Options
) -> float:
    """Work done in a window with rescale costs so many times as large."""
    result = run_replay(log, scaled(tasks, cost), solver="dp", since=since_s, until=length_s, baseline=False, **how)
    return float(result.summary()["work_done"])


def interval(gains: list[float]) -> str:
    """Mean and half width of the 95 % interval, in percent."""
    found = estimate([100 * gain for gain in gains])
    return f"{found.mean:+.1f} ± {found.half_width or 0.0:.1f} %"


def rows_of(
    name: str,
    log: NodeLog,
    queue: Path | None,
    tasks: tuple[TaskSpec, ...],
    length_s: float,
    first_s: float,
    costs: Sequence[float],
) -> None:
    """Print the rows of a log, one for each cost."""
    half_s = (log.window_s - first_s) / 2
    starts_s = [first_s + each for each in window_starts_s(half_s, length_s, WINDOWS, to_end=True)]

    def mean(cost: float, how: Options) -> float:
        return float(np.mean([work(log, tasks, cost, starts_s[at], length_s, how) for at in CHOSEN_ON]))

    for cost in costs:
        fixed = max(FIXED, key=lambda how: mean(cost, how))
        ideas = [fixed | how for how in foresights(queue)]
        trained = [mean(cost, how) for how in ideas]
        best = int(np.argmax(trained))
        horizon_s = 600.0 if cost > 5 else 60.0
        oracle = {"foresight": "oracle", "foresight_use": "order,pool", "foresight_horizon_s": horizon_s}
        found = [
            [work(log, tasks, cost, half_s + start_s, length_s, how) for how in (fixed, *ideas, fixed | oracle)]
            for start_s in starts_s
        ]
        usual = float(np.mean([row[0] for row in found]))
        gains = [interval([(row[at] - row[0]) / usual for row in found]) for at in range(1, len(found[0]))]
        gains[len(ideas) : len(ideas)] = ["-"] * (len(USES) - len(ideas))
        shown = f"Tfwd {fixed['forward_time_s']:g}, maxJ {fixed['max_tasks']}"
        columns = (name, f"x{cost:g}", shown, f"{usual:.3g}", f"{NAMES[best]} {USES[best]}", gains[best], *gains)
        print("| " + " | ".join(columns) + " |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+", metavar="NAME=PATH,NODES,HOURS[,ROW]")
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--copies", type=int, default=1, help="how often the task set is repeated")
    parser.add_argument("--costs", type=float, nargs="+", default=(1.0, 5.0, 20.0), help="factors of rescale costs")
    given = parser.parse_args()
    one = Readers().task_set(given.tasks, None, None).tasks
    tasks = tuple(replace(task, name=f"{task.name}-{copy}") for copy in range(given.copies) for task in one)
    every = [f"{name} {use}" for name, use in zip(NAMES, USES, strict=True)]
    heads = ("log", "cost", "best fixed", "its work", "chosen", "gain", *every, "clairvoyant")
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    for text in given.logs:
        name, _, rest = text.partition("=")
        path, nodes, hours, *row = rest.split(",")
        log, queue = read_node_log(path).selected(0, int(nodes)), queue_path(Path(path))
        first_s = float(log.row_arrays().time_s[int(row[0])]) if row else 0.0
        rows_of(name, log, queue if queue.exists() else None, tasks, 3600.0 * float(hours), first_s, given.costs)


if __name__ == "__main__":
    main()
