"""What choosing who gives way, and notice, bring on logs: ``python -m benchmarks.grants [LOG...]``.

Each row is the best fixed forward time of its costs and number of tasks; gains are over named nodes without notice, as
shares of their mean work, with 95 % intervals over pairs of windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
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
COSTS, ACTIVE, WINDOW_S = (1, 5, 20), (10, 30), 8 * 3600.0
GRANTS: dict[str, dict[str, Any]] = {
    "chosen": {"give_way": "chosen"},
    **{f"notice {notice_s:g} s": {"notice_s": notice_s} for notice_s in (60.0, 120.0, 300.0)},
    "chosen, notice 120 s": {"give_way": "chosen", "notice_s": 120.0},
}


def measure_grants(config: ReplayConfig, windows: int) -> list[str]:
    """The best forward time and the gain of each grant, as cells."""
    log = config.node_log
    starts_s = [number * log.window_s / windows for number in range(windows)]

    def measure_work(**options: Any) -> list[float]:
        """Work that is done in each window."""
        configs = (replace(config, since=start_s, until=WINDOW_S, **options) for start_s in starts_s)
        return [run_replay(inputs=load_inputs(each)).summary()["work_done"] for each in configs]

    named = {forward_s: measure_work(forward_time_s=forward_s) for forward_s in FORWARD_S}
    best_s = max(named, key=lambda forward_s: sum(named[forward_s]))
    base, cells = named[best_s], [f"{config.max_tasks}", f"{best_s:g}"]
    mean = sum(base) / len(base)
    for options in GRANTS.values():
        pairs = zip(measure_work(forward_time_s=best_s, **options), base, strict=True)
        gain = estimate([100.0 * (granted - without) / mean for granted, without in pairs]) if mean > 0 else None
        cells.append("-" if gain is None else f"{gain.mean:+.1f} ± {gain.half_width:.1f}")
    return cells


def list_task_sets(tasks: tuple[TaskSpec, ...], log: NodeLog) -> Iterator[tuple[str, tuple[TaskSpec, ...]]]:
    """The tasks at several times their costs, and as many of each kind of models, which save checkpoints."""
    for cost in COSTS:
        scaled = tuple(
            replace(task, grow_cost_s=cost * task.grow_cost_s, shrink_cost_s=cost * task.shrink_cost_s)
            for task in tasks
        )
        yield f"{cost} times", scaled
    idle = measure_idle_time(log)
    for kind in KINDS:
        task = kind.task(kind.interval_s(idle["departures_per_idle_node_s"], idle["departure_events_per_s"]))
        yield f"{kind.name} models", tuple(task.rename(f"{task.name}-{place}") for place in range(len(tasks)))


@click.command()
@click.argument("logs", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--windows", type=click.IntRange(min=2), default=12, help="Windows of 8 h of each log.", show_default=True
)
@click.option("--nodes", type=int, help="Only the first nodes of each log.  [default: all]")
@click.option("--skip-events", type=click.IntRange(min=0), default=0, help="Rows to skip of each log.")
@click.option("-bdfn", "tasks", type=click.Path(exists=True, path_type=Path), help="Tasks.  [default: the sample's]")
@click.option("-scfn", "scalability", type=click.Path(exists=True, path_type=Path), help="Their scalability.")
def main(logs: tuple[Path, ...], windows: int, nodes: int | None, skip_events: int, **files: Path) -> None:
    """Print a table for LOGS, by default the embedded sample."""
    tasks = load_inputs(ReplayConfig(**files, solver="dp")).tasks
    tasks = tuple(replace(task, submit_s=0.0, submit_ns=None) for task in tasks)
    head = ["log", "costs", "tasks", "`-Tfwd`", *GRANTS]
    click.echo(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for path in logs or (sample_path(SAMPLE_NODE_LOG),):
        log = read_node_log(path, skip_events)
        log = log.select_nodes(0, None if nodes is None else min(nodes, len(log.nodes)))
        if windows * WINDOW_S > log.window_s:
            raise click.UsageError(f"Expected {windows} windows of 8 h to fit {log.window_s / 3600:.1f} h.")
        config = ReplayConfig(node_log=log, solver="dp", baseline=False)
        for name, task_set in list_task_sets(tasks, log):
            for active in ACTIVE:
                cells = measure_grants(replace(config, tasks=task_set, max_tasks=active), windows)
                click.echo(f"| {' | '.join([path.name.partition('.')[0], name, *cells])} |")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.grants")
