"""How much work is done where decisions learn how tasks scale: ``python -m benchmarks.research.learned [LOG...]``.

The truth is hidden in the simulator. Beside learning stand decisions that know the curves, and decisions that believe a
fixed law from each task's true throughput on one node on, and learn nothing.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from benchmarks.research.windows import window_starts_s
from bftrainer.files.opening import SAMPLE_NODE_LOG, sample_path
from bftrainer.model import NodeLog, ScalingCurve, TaskSpec
from bftrainer.nodelogs import read_node_log
from bftrainer.objectives import throughput
from bftrainer.replay import Allocator, Cluster, ClusterTask, Recorder, Settings, replay, stop_at
from bftrainer.replay.learned_curves import LearnedCurves
from bftrainer.report.intervals import estimate
from bftrainer.report.metrics import Intervals
from bftrainer.tasksets.task_generator import generate_tasks

__all__ = ["TASK_SETS", "FixedGuess", "main", "mixed_tasks", "shares"]

WORK = 1.3e8
LAWS = {"linear": 1.0, "amdahl:0.99": 0.99, "amdahl:0.95": 0.95, "amdahl:0.9": 0.9}


class FixedGuess(LearnedCurves):
    """Believes Amdahl's law with one parallel fraction for all tasks, and each one's true throughput on one node."""

    def __init__(self, fraction: float) -> None:
        super().__init__()
        self._fraction, self._guesses = fraction, dict[int, TaskSpec]()

    def update(self, *_: object) -> None:
        """Learn nothing."""

    def believe(self, cluster: Cluster) -> dict[ClusterTask, ScalingCurve]:
        """Let decisions see the guess in the place of each active task's curve."""
        fresh = {}
        for task in cluster.active:
            if task.number not in self._guesses:
                curve = ScalingCurve.amdahl(task.spec.scaling.at(1), self._fraction, task.spec.max_nodes)
                self._guesses[task.number] = replace(task.spec, scaling=curve)
                fresh[task] = curve
            task.believed = self._guesses[task.number]
        return fresh


def mixed_tasks(count: int, rng: np.random.Generator) -> tuple[TaskSpec, ...]:
    """Tasks of which a third scales to 64 nodes almost linearly, and the others stop at 2 to 12; of no group."""
    counts = np.arange(65)
    found = []
    for number in range(count):
        stop = (64, 64, 3, 5, 12, 2)[number % 6]
        reached = np.minimum(counts, stop) ** (0.97 if stop == 64 else 0.95)
        beyond = 1.0 + 0.02 * np.log(np.maximum(counts, stop) / stop)
        rates = math.exp(rng.normal(math.log(2000.0), 0.5)) * reached * beyond
        curve = ScalingCurve(tuple(counts.tolist()), tuple(rates.tolist()))
        found.append(TaskSpec(f"M{number:05}", 1, 64, WORK, curve, grow_cost_s=18.0, shrink_cost_s=12.0))
    return tuple(found)


TASK_SETS: dict[str, Callable[[np.random.Generator], tuple[TaskSpec, ...]]] = {
    "mixed": lambda rng: mixed_tasks(300, rng),
    "nas": lambda rng: generate_tasks("nas", 300, rng, work=WORK),
    "hpo": lambda rng: generate_tasks("hpo", 300, rng, work=WORK),
}


def shares(log: NodeLog, tasks: Sequence[TaskSpec], until_s: float, noise: float, seed: int) -> dict[str, float]:
    """Work of each way to decide, as a share of that with known curves, when the first is done or time is up."""
    ways: dict[str, LearnedCurves | None] = {"known": None, "learned": LearnedCurves(noise, seed)}
    ways |= {name: FixedGuess(fraction) for name, fraction in LAWS.items()}
    settings = Settings(throughput, solver="dp", forward_time_s=120.0)
    runs = {}
    for name, learning in ways.items():
        allocator = Allocator(tasks, settings, log.nodes, log.start_ns, learning=learning)
        recorder = Recorder()
        replay(log.rows(), log.window_s, allocator, stops=[stop_at(until_s)], observers=[recorder])
        runs[name] = recorder.recording
    time_s = min(run.end_s for run in runs.values())
    work = {name: Intervals.of(run).work_at(time_s) for name, run in runs.items()}
    return {name: done / work["known"] for name, done in work.items()}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("logs", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--windows", type=click.IntRange(min=1), default=8, help="Of each log, disjoint.", show_default=True)
@click.option("--hours", type=float, default=12.0, help="Length of each.", show_default=True)
@click.option("--nodes", type=click.IntRange(min=1), help="Only the first nodes of each log.")
@click.option("--skip-events", type=click.IntRange(min=0), default=0, help="Rows to skip of each log.")
@click.option("--noise", type=float, default=0.02, help="Of what is measured in a minute.", show_default=True)
@click.option("--sets", default=",".join(TASK_SETS), help="Task sets.", show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the share of each window here.")
def main(
    logs: tuple[Path, ...],
    windows: int,
    hours: float,
    nodes: int | None,
    skip_events: int,
    noise: float,
    sets: str,
    json_path: Path | None,
) -> None:
    """Print work against that with known curves: means over the windows of LOGS and their 95 % confidence intervals.

    Without LOGS, on the embedded sample. Each window has its own tasks, the same for all ways to decide.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for path in logs or (sample_path(SAMPLE_NODE_LOG),):
        log = read_node_log(path, skip_events).select_nodes(0, nodes)
        starts_s = window_starts_s(log.window_s, hours * 3600.0, windows)
        for name in sets.split(","):
            rows: list[dict[str, float]] = []
            for window, since_s in enumerate(starts_s):
                tasks = TASK_SETS[name](np.random.default_rng(window))
                part = log.since(log.start_ns + round(since_s * 1e9))
                rows.append(shares(part, tasks, hours * 3600.0, noise, window))
                if sys.stderr.isatty():
                    click.echo(f"{path.name} {name}: {window + 1} of {windows}", err=True)
            label = f"{path.name.partition('.')[0]}, {name}"
            found[label] = {way: [row[way] for row in rows] for way in rows[0]}
            click.echo(f"{label:24}" + "".join(f"  {way} {_percent(each)}" for way, each in found[label].items()))
    if json_path is not None:
        json_path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _percent(sample: Sequence[float]) -> str:
    mean = estimate([100.0 * each for each in sample])
    return f"{mean.mean:.1f}" if mean.half_width is None else f"{mean.mean:.1f} ± {mean.half_width:.1f}"


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.research.learned")
