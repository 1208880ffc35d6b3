"""The evaluations of papers made again, with a page and data of each; that of BFTrainer is one sweep of replays."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.campaigns.engines import LocalEngine
from bftrainer.campaigns.paired import ratio_less_one
from bftrainer.campaigns.reproduce_simulations import reproduce_bamboo, reproduce_zeus
from bftrainer.campaigns.reproduction_page import COLUMNS, Comparison, Reported, Reproduction, mean_of
from bftrainer.campaigns.sweep import PointResult, run_sweep
from bftrainer.campaigns.sweep_directory import TASKS
from bftrainer.campaigns.sweep_file import SCHEMA, SweepSpec
from bftrainer.errors import BftrainerError, SettingsError
from bftrainer.files.directories import claimed, list_written, result_directory, written_files
from bftrainer.files.documents import write_csv
from bftrainer.files.opening import SAMPLE_NODE_LOG, sample_path
from bftrainer.files.writing import replacing
from bftrainer.model import TaskSpec
from bftrainer.nodelogs.offers import idle_node_s
from bftrainer.report.intervals import Estimate
from bftrainer.runs.run_inputs import read_log
from bftrainer.tasksets.native_tasks import toml_text
from bftrainer.tasksets.task_generator import DEFAULT_WORK, generate_tasks

PUBLISHED = {
    "bftrainer": "the Summit log ndstat-10sdn6-evt.tar.gz, published with arXiv:2106.12091 in "
    "https://github.com/BFTrainer/Replayer (dataset)",
    "zeus": "a folder with summary_train.csv and summary_power_v100.csv, published with Zeus in "
    "https://github.com/ml-energy/zeus (examples/research_reproducibility/zeus_nsdi23/trace)",
    "bamboo": "the spot trace g4dn-trace.csv, published with Bamboo in https://github.com/uclasystem/bamboo",
}
"""Papers, and the log that the whole evaluation of each needs."""
_BASE: dict[str, Any] = {"solver": "dp", "objective": "throughput", "forward_time_s": 120.0, "max_tasks": 30}
# What U is drawn against, few levels, and all.
_LEVELS: dict[str, tuple[str, tuple[Any, ...], tuple[Any, ...]]] = {
    "forward_time_s": ("Tfwd (s)", (10.0, 120.0, 600.0), (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0)),
    "max_tasks": ("maxJ", (5, 30), (5, 10, 20, 30, 50, 70)),
    "max_nodes": ("Jmax (nodes)", (8, 64), (4, 8, 16, 32, 64)),
    "cost_scale": ("rescaling cost (times the published)", (1.0, 5.0), (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)),
}
_CHOICES: dict[str, dict[str, Any]] = {
    "equal shares, not the optimum": {"solver": "equal-share"},
    "for scaling efficiency": {"objective": "scaling-efficiency"},
    "at rows of the log only": {"decide_on": "nodes"},
}
_OF_TASKS = ("max_nodes", "cost_scale")
_SETS = ("hpo", "nas")
_IMAGES_PER_NODE_S = 2500.0  # of the published models, about

_Cell = tuple[str, str, Any]
"""An option or a choice, the task set, and the option's level."""


def check_log(paper: str, log: Path | None, *, quick: bool) -> None:
    """Refuse a whole evaluation without its log, and a log whose path a sweep's file cannot hold.

    Raises
    ------
    SettingsError
        Saying where the log is published.
    """
    if paper == "bftrainer" and log is not None and any("\ud800" <= sign <= "\udfff" for sign in str(log.absolute())):
        raise SettingsError(f"{log}: Expected a path in Unicode, as sweep.toml holds it.")
    if log is None and not quick:
        raise SettingsError(f"Expected --log, {PUBLISHED[paper]}; or --quick, with data that ship with bftrainer.")


def steps(paper: str, *, quick: bool) -> int:
    """How often the progress of an evaluation is told."""
    return len(_cells(quick)) * _windows(quick) if paper == "bftrainer" else 1


def reproduced(
    paper: str,
    log: Path | None,
    directory: Path,
    made: str,
    on_done: Callable[[object], None],
    workers: int | None = None,
    *,
    quick: bool = False,
    resume: bool = False,
    force: bool = False,
) -> Reproduction:
    """Make an evaluation again, and write it to a directory: page.html, data.csv, summary.json.

    Parameters
    ----------
    paper : {"bftrainer", "zeus", "bamboo"}
        The directory of the first is that of a sweep, with these files besides; the others' hold nothing else.
    log : Path, optional
        The published log, folder of traces or spot trace; by default data that ship with bftrainer.
    directory : Path
    made : str
        How it is made, for the page.
    on_done : callable
        Called `steps` times.
    workers : int, optional
        Processes; by default one per processor.
    quick, resume, force : bool
        Whether few settings are enough; whether to continue in the directory, or to replace what is there.

    Raises
    ------
    BftrainerError
        If the log or the directory cannot be used, or a simulation fails.
    """
    check_log(paper, log, quick=quick)
    if paper == "bftrainer":
        notes: list[str] = []
        spec = _sweep(log, directory, quick, notes)
        points = run_sweep(spec, directory, LocalEngine(workers), on_done, resume=resume, force=force).points
        for each in points:
            if each.error is not None:
                raise BftrainerError(f"{directory}: Point {each.point.number} failed: {each.error}")
        found = _figures(dict(zip(_cells(quick), _parts(points, _windows(quick)), strict=True)), log, notes)
        with claimed(directory):
            list_written(directory, {*_FILES, *written_files(directory)})
            _write(found, directory, made)
            list_written(directory, written_files(directory), final=True)
        return found
    with result_directory([directory], force=force) as place:
        found = (reproduce_zeus if paper == "zeus" else reproduce_bamboo)(
            log, LocalEngine(workers).workers, quick=quick
        )
        _write(found, place.working, made)
        on_done(found)
    return found


_FILES = ("page.html", "data.csv", "summary.json")


def _write(found: Reproduction, directory: Path, made: str) -> None:
    summary = json.dumps({"made": made, **found.to_dict()}, indent=1, allow_nan=False) + "\n"
    for name, content in (("page.html", found.page(made)), ("summary.json", summary.encode())):
        with replacing(directory / name) as stream:
            stream.write(content)
    with replacing(directory / "data.csv") as stream:
        write_csv(stream, COLUMNS, found.rows())


def _parts(points: Sequence[PointResult], size: int) -> list[Sequence[PointResult]]:
    return [points[at : at + size] for at in range(0, len(points), size)]


def _windows(quick: bool) -> int:
    return 4 if quick else 8


def _cells(quick: bool) -> list[_Cell]:
    """What is drawn: each of all windows, which are points of the sweep in turn."""
    levels = {name: few if quick else every for name, (_, few, every) in _LEVELS.items()} | dict.fromkeys(
        _CHOICES, (None,)
    )
    return [(name, tasks, level) for (name, of), tasks in product(levels.items(), _SETS) for level in of]


def _sweep(log: Path | None, directory: Path, quick: bool, notes: list[str]) -> SweepSpec:
    """The sweep that `bftrainer sweep` would read from the directory's sweep.toml."""
    place = sample_path(SAMPLE_NODE_LOG) if log is None else log.absolute()
    node_log, log_notes = read_log(place)
    notes += log_notes
    length_s = node_log.window_s / _windows(quick)
    # Enough tasks for a window with twice the mean idle node-time.
    work = 2 * idle_node_s(node_log, node_log.window_s) / _windows(quick) * _IMAGES_PER_NODE_S
    base = _BASE | ({"node_log": str(place)} if log else {})
    count = max(50, math.ceil(work / DEFAULT_WORK))
    points: list[dict[str, Any]] = []
    task_sets: dict[str, tuple[TaskSpec, ...]] = {}
    for name, of, level in _cells(quick):
        changes = {name: level} if name in _OF_TASKS else {}
        tasks = f"{TASKS}/{of}-{count}{f'-{name}-{level}' if changes else ''}.toml"
        task_sets[tasks] = _tasks(of, count, **changes)
        options = {"tasks": tasks} | ({} if changes else _CHOICES.get(name, {name: level}))
        points += [options | {"window": [at * length_s, (at + 1) * length_s]} for at in range(_windows(quick))]
    text = toml_text({"schema": SCHEMA, "base": base, "point": points})
    return SweepSpec(directory / "sweep.toml", text.encode(), base, tuple(points), task_sets)


def _tasks(of: str, count: int, max_nodes: int = 64, cost_scale: float = 1.0) -> tuple[TaskSpec, ...]:
    """Generated tasks of a set, of at most so many nodes, with their costs times a factor."""
    tasks = generate_tasks(of, count, np.random.default_rng(0), max_nodes=max_nodes)  # type: ignore[arg-type]
    return tuple(
        replace(task, grow_cost_s=task.grow_cost_s * cost_scale, shrink_cost_s=task.shrink_cost_s * cost_scale)
        for task in tasks
    )


def _figures(cells: Mapping[_Cell, Sequence[PointResult]], log: Path | None, notes: Sequence[str]) -> Reproduction:
    reading = "Work done, as a share of that of the same tasks on as many dedicated nodes."
    comparisons = []
    for name, (axis, *_) in _LEVELS.items():
        lines = {of: {cell[2]: _mean(runs) for cell, runs in cells.items() if cell[:2] == (name, of)} for of in _SETS}
        comparisons.append(Comparison(name, reading, "efficiency U", axis, lines, within=(0.0, math.inf)))
    best = max(
        (at for of in comparisons for line in of.lines.values() for at in line.values()),
        key=lambda at: at.mean if at.number else -1.0,
    )
    usual = {of: cells["max_tasks", of, _BASE["max_tasks"]] for of in _SETS}
    reading = "Against the exact optimum for throughput at all events; differences of the same windows."
    for metric, label in (("work_done", "work done"), ("efficiency", "efficiency U")):
        lines = {of: {name: _paired(cells[name, of, None], usual[of], metric) for name in _CHOICES} for of in _SETS}
        comparisons.append(Comparison(metric, reading, f"change in {label}", "way to decide", lines, even=0.0))
    done = sum(each.figures["tasks_completed"] == each.figures["tasks_total"] for of in cells.values() for each in of)
    number, sample = len(next(iter(cells.values()))), "a generated log of 512 nodes; " if log is None else ""
    caveats = (
        "Decisions are the exact optimum of the published problem, by dynamic programming instead of a MILP solver.",
        f"{number} disjoint windows of equal length, tasks submitted from the start of each; differences are paired.",
        "Task sets: hpo, trials of one model; nas, seven models; generated with the published throughputs on Summit.",
        *([f"All tasks are done before the end of {done} replays; their U is that until then."] if done else []),
        *notes,
    )
    why = f"Not comparable: {sample}the paper's windows, tasks and settings are not at hand."
    claim = Reported("best efficiency U", "up to 93 %", comparisons[0].text(best), why)
    usually = f"unless varied, Tfwd {_BASE['forward_time_s']:g} s and maxJ {_BASE['max_tasks']}"
    settings = f"{'Embedded sample' if log is None else log.name} in {number} windows; {usually}"
    source = "Liu, Kettimuthu, Papka and Foster, arXiv:2106.12091"
    return Reproduction("BFTrainer", source, settings, (claim,), tuple(comparisons), caveats)


def _mean(cell: Sequence[PointResult]) -> Estimate:
    return mean_of([each.figures["efficiency"] for each in cell])


def _paired(cell: Sequence[PointResult], other: Sequence[PointResult], metric: str) -> Estimate:
    """Mean of the relative differences of runs in the same windows."""
    ratios = [ratio_less_one(one, two, metric) for one, two in zip(cell, other, strict=True)]
    return mean_of([ratio for ratio in ratios if ratio is not None])
