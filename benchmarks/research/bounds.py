"""Bounds of decisions on many logs, as a Markdown table: ``python -m benchmarks.research.bounds``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from benchmarks.research.windows import window_starts_s
from bftrainer.model import TaskSpec
from bftrainer.nodelogs import read_node_log
from bftrainer.report.intervals import estimate
from bftrainer.runs import ReplayConfig, load_inputs, run_replay
from bftrainer.runs.bounds import WorkBound, WorkBounds, bounds
from bftrainer.tasksets import read_task_set

SCALES = (1.0, 5.0, 20.0)
MAX_TASKS = (10, 30)
HORIZONS_S = (60.0, 600.0)


def scaled(tasks: Sequence[TaskSpec], factor: float) -> tuple[TaskSpec, ...]:
    """The tasks, submitted when a window begins, with so many times their rescale costs."""
    costs = [{name: factor * getattr(task, name) for name in ("grow_cost_s", "shrink_cost_s")} for task in tasks]
    return tuple(replace(task, submit_ns=None, submit_s=0.0, **cost) for task, cost in zip(tasks, costs, strict=True))


def of_window(config: ReplayConfig) -> WorkBounds:
    """Bounds of one window."""
    return bounds(load_inputs(config), lambda inputs: run_replay(inputs=inputs).recording, None, HORIZONS_S)


def row(found: Sequence[WorkBounds]) -> list[str]:
    """Cells of a setting: what blind decisions lose, what others gain, and in how many windows their order holds.

    Gains are paired by window, as shares of the mean work of blind decisions, which in a window may be next to none.
    """
    by_name: dict[str, list[WorkBound]] = {}
    for each in found:
        for bound in each.bounds:
            by_name.setdefault(bound.name, []).append(bound)
    lost = estimate([100 * bound.preemption_share for bound in by_name["blind"]])
    cells = [f"{lost.mean:.1f}"]
    blind = [bound.work for bound in by_name["blind"]]
    base = sum(blind) / len(blind)
    for name in ("clairvoyant order", "clairvoyant pool", "cost-free"):
        pairs = zip(by_name[name], blind, strict=True)
        gain = estimate([100 * (bound.work - work) / base for bound, work in pairs])
        cells.append(f"{gain.mean:+.1f} ± {gain.half_width or 0.0:.1f}")
    ordered = sum(not any("order" in note for note in each.notes()) for each in found)
    return [*cells, f"{ordered} of {len(found)}"]


@click.command()
@click.argument("logs", nargs=-1, required=True, metavar="NAME=LOG...")
@click.option("--tasks", "files", multiple=True, required=True, metavar="NAME=FILE", help="Task sets.")
@click.option("--scale", "scales", multiple=True, type=float, default=SCALES, show_default=True)
@click.option("--windows", default=8, show_default=True)
@click.option("--hours", default=6.0, show_default=True)
@click.option("--nodes", type=int, default=1024, show_default=True, help="First nodes of each log.")
@click.option("--skip-events", type=int, default=0, show_default=True)
def main(
    logs: tuple[str, ...],
    files: tuple[str, ...],
    scales: tuple[float, ...],
    windows: int,
    hours: float,
    nodes: int,
    skip_events: int,
) -> None:
    """Print bounds of each log, task set, scale of costs and number of tasks at once, with 95 % intervals."""
    columns = ("log", "tasks", "cost", "maxJ", "lost, blind (%)", "order (%)", "pool (%)", "cost-free (%)", "in order")
    click.echo(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for named in logs:
        name, _, path = named.partition("=")
        whole = read_node_log(Path(path), skip_events)
        log = whole.selected(0, min(nodes, len(whole.nodes)))
        starts_s = window_starts_s(log.window_s, 3600 * hours, windows)
        for task_set in files:
            which, _, file = task_set.partition("=")
            tasks = read_task_set(Path(file)).tasks
            for scale in scales:
                costly = scaled(tasks, scale)
                given = ReplayConfig(log, costly, until=3600 * hours, solver="dp", forward_time_s=120.0, baseline=False)
                for most in MAX_TASKS:
                    cells = row([of_window(replace(given, max_tasks=most, since=since_s)) for since_s in starts_s])
                    click.echo(f"| {name} | {which} | x{scale:g} | {most} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.research.bounds")
