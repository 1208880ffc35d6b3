"""What choosing who gives way, and notice, bring on logs: ``python -m benchmarks.grants [LOG...]``.

Each row is the best fixed forward time of its costs and number of tasks; gains are over named nodes without notice, as
shares of their mean work, with 95 % intervals over pairs of windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from bftrainer.campaigns.idle_time import KINDS, measure_idle_time
from bftrainer.files.opening import SAMPLE_NODE_LOG, sample_path
from bftrainer.model import NodeLog, TaskSpec
from bftrainer.nodelogs import read_node_log
from bftrainer.report.metrics import estimate
from bftrainer.runs import ReplayConfig, load_inputs, run_replay

FORWARD_S = (60.0, 120.0, 240.0, 360.0, 900.0, 3600.0)
COSTS, ACTIVE = (1, 5, 20), (10, 30)
SHORT_S, LONG_S = 120.0, 300.0
GRANTS: dict[str, dict[str, Any]] = {
    "chosen": {"give_way": "chosen"},
    f"notice {SHORT_S:g} s": {"notice_s": SHORT_S},
    f"notice {LONG_S:g} s": {"notice_s": LONG_S},
    f"chosen, notice {SHORT_S:g} s": {"give_way": "chosen", "notice_s": SHORT_S},
}


@dataclass(frozen=True)
class Setting:
    """Windows of a log, tasks, and how many of them are active."""

    log: NodeLog
    starts_s: Sequence[float]
    length_s: float
    tasks: tuple[TaskSpec, ...]
    active: int

    def measure_work(self, **options: Any) -> list[float]:
        """Work that is done in each window."""
        options |= {"node_log": self.log, "tasks": self.tasks, "max_tasks": self.active, "until": self.length_s}
        runs = (run_replay(solver="dp", baseline=False, since=start_s, **options) for start_s in self.starts_s)
        return [run.summary()["work_done"] for run in runs]

    def row(self) -> str:
        """The best forward time and the gain of each grant, as a row of a table."""
        named = {forward_s: self.measure_work(forward_time_s=forward_s) for forward_s in FORWARD_S}
        best_s = max(named, key=lambda forward_s: sum(named[forward_s]))
        base, cells = named[best_s], [f"{self.active}", f"{best_s:g}"]
        mean = sum(base) / len(base)
        for options in GRANTS.values():
            pairs = zip(self.measure_work(forward_time_s=best_s, **options), base, strict=True)
            gain = estimate([100.0 * (granted - without) / mean for granted, without in pairs]) if mean > 0 else None
            cells.append("-" if gain is None else f"{gain.mean:+.1f} ± {gain.half_width:.1f}")
        return " | ".join(cells)


def list_task_sets(tasks: Sequence[TaskSpec], log: NodeLog) -> dict[str, tuple[TaskSpec, ...]]:
    """The tasks at several times their costs, and as many of each kind of models, which save checkpoints."""
    idle = measure_idle_time(log)
    sets: dict[str, tuple[TaskSpec, ...]] = {}
    for cost in COSTS:
        sets[f"{cost} times"] = tuple(
            replace(task, grow_cost_s=cost * task.grow_cost_s, shrink_cost_s=cost * task.shrink_cost_s)
            for task in tasks
        )
    for kind in KINDS:
        interval_s = kind.interval_s(idle["departures_per_idle_node_s"], idle["departure_events_per_s"])
        task = kind.task(interval_s)
        sets[f"{kind.name} models"] = tuple(replace(task, name=f"{task.name}-{place}") for place in range(len(tasks)))
    return sets


@click.command()
@click.argument("logs", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--windows", type=click.IntRange(min=2), default=12, help="Windows of each log.", show_default=True)
@click.option("--hours", type=float, default=8.0, help="Length of a window.", show_default=True)
@click.option("--nodes", type=int, help="Only the first nodes of each log.  [default: all]")
@click.option("--skip-events", type=click.IntRange(min=0), default=0, help="Rows to skip of each log.")
@click.option("-bdfn", "tasks", type=click.Path(exists=True, path_type=Path), help="Tasks.  [default: the sample's]")
@click.option("-scfn", "scalability", type=click.Path(exists=True, path_type=Path), help="Their scalability.")
def main(
    logs: tuple[Path, ...], windows: int, hours: float, nodes: int | None, skip_events: int, tasks: Path | None,
    scalability: Path | None,
) -> None:  # fmt: skip
    """Print a table for LOGS, by default the embedded sample."""
    specs = load_inputs(ReplayConfig(tasks=tasks, scalability=scalability, solver="dp")).tasks
    specs = tuple(replace(task, submit_s=0.0, submit_ns=None) for task in specs)
    head = ["log", "costs", "tasks", "`-Tfwd`", *GRANTS]
    click.echo(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for path in logs or (sample_path(SAMPLE_NODE_LOG),):
        log = read_node_log(path, skip_events)
        log = log.select_nodes(0, None if nodes is None else min(nodes, len(log.nodes)))
        if windows * hours * 3600.0 > log.window_s:
            raise click.UsageError(f"Expected {windows} windows of {hours:g} h to fit {log.window_s / 3600:.1f} h.")
        starts_s = [number * log.window_s / windows for number in range(windows)]
        for name, task_set in list_task_sets(specs, log).items():
            for active in ACTIVE:
                setting = Setting(log, starts_s, hours * 3600.0, task_set, active)
                click.echo(f"| {path.name.partition('.')[0]} | {name} | {setting.row()} |")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.grants")
