"""Power of a run: its cap, draw and emissions; and the tuning of its tuned tasks."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.errors import InvalidTaskError, SettingsError, TrainingTraceError
from bftrainer.files.documents import number_cell, table_rows
from bftrainer.model import NS_PER_S, NodeLog, TaskSpec, instant_ns
from bftrainer.model.records import PowerRecord, Recording, TunedRecord
from bftrainer.runs.config import ReplayConfig
from bftrainer.zeus.policies.trace import TrainingTrace
from bftrainer.zeus.tuned_task import GroupTuner

CAP_COLUMN, CARBON_COLUMN = "power_w", "gco2_per_kwh"
J_PER_KWH = 3.6e6
Steps = tuple[tuple[float, float], ...]
"""A step function: times in seconds since the window's start, increasing, and the value that holds from each one on."""
NO_CAP: Steps = ((-math.inf, math.inf),)


def value_at(steps: Steps, time_s: float) -> float:
    """Value at a time; before the first time, the first value."""
    return steps[max(bisect_right(steps, time_s, key=itemgetter(0)) - 1, 0)][1]


def steps_between(steps: Steps, begin_s: float, end_s: float) -> Steps:
    """Steps of an interval: its begin, and the times before its end from which on another value holds."""
    first, last = bisect_right(steps, begin_s, key=itemgetter(0)), bisect_left(steps, end_s, key=itemgetter(0))
    known = ((begin_s, value_at(steps, begin_s)), *steps[first:last])
    return tuple(next(same) for _, same in itertools.groupby(known, itemgetter(1))) if begin_s < end_s else ()


def read_series(path: Path, column: str, start_ns: int, window_s: float) -> Steps:
    """Read a step function that covers the window.

    Parameters
    ----------
    path : Path
        CSV, gzipped or not, with columns time (ISO 8601, naive: UTC; or seconds since the window's start) and `column`.
        Each value holds until the next row's time; the last one as long as the one before it; a single one forever.
    column : str
        Name of the values' column.
    start_ns : int
        The window's start, nanoseconds since the Unix epoch.
    window_s : float
        Length of the window, seconds.

    Raises
    ------
    SettingsError
        If the file cannot be read, a cell is not a time or number, times do not increase, or the window is not
        covered; names file and line.
    """
    steps = list[tuple[float, float]]()
    for where, cells in table_rows(path, ("time", column), SettingsError):
        time_s, value = _time(where, cells["time"], start_ns), number_cell(where, column, cells[column], SettingsError)
        if value < 0:
            raise SettingsError(f"{where}: Expected {column} of 0 or more, got {value:g}.")
        if steps and not time_s > steps[-1][0]:
            raise SettingsError(f"{where}: Expected times that increase, got {time_s:g} s after {steps[-1][0]:g} s.")
        steps.append((time_s, value))
    if not steps:
        raise SettingsError(f"{path}: Expected rows, found none.")
    end_s = math.inf if len(steps) == 1 else steps[-1][0] + (steps[-1][0] - steps[-2][0])
    if steps[0][0] > 0 or end_s < window_s:
        what = f"Expected values from the window's start to its end at {window_s:g} s"
        until = "" if end_s == math.inf else f" to {end_s:g} s"
        raise SettingsError(f"{path}: {what}, got them from {steps[0][0]:g} s{until}.")
    return tuple(steps)


def _time(where: str, cell: str, start_ns: int) -> float:
    """Seconds since the window's start of such a number, or of a time."""
    try:
        seconds = float(cell)
    except ValueError:
        seconds = math.nan  # not a number, perhaps a date
    if math.isfinite(seconds):
        return seconds
    try:
        return (instant_ns(cell.strip()) - start_ns) / NS_PER_S
    except (ValueError, OverflowError):
        raise SettingsError(f"{where}, column time: Expected an ISO time or seconds, got {cell!r}.") from None


def read_steps(value: float | Path | None, column: str, log: NodeLog) -> Steps | None:
    """Step function of an option that is a number or a file with such a column; see `read_series`."""
    if isinstance(value, Path):
        return read_series(value, column, log.start_ns, log.window_s)
    return None if value is None else ((-math.inf, value),)


def read_cap(config: ReplayConfig, log: NodeLog, tasks: Sequence[TaskSpec]) -> Steps:
    """Read the cap on what harvested nodes draw at the meter, infinite without one; check that it can be kept.

    Raises
    ------
    SettingsError
        If the series does not cover the window, or the cap is at any time below what idle nodes draw in any case.
    InvalidTaskError
        If there is a task whose power is unknown.
    """
    cap_w = read_steps(config.power_cap, CAP_COLUMN, log)
    if cap_w is None:
        return NO_CAP
    pool, rows = 0, list(log.rows()) if config.idle_power_w else []
    for (time_s, joined, left), end_s in zip(rows, [*(row[0] for row in rows[1:]), log.window_s], strict=False):
        pool += len(joined) - len(left)
        idle_w = pool * config.idle_power_w * config.pue
        least = min((watts for _, watts in steps_between(cap_w, time_s, end_s)), default=math.inf)
        if least < idle_w:
            raise SettingsError(
                f"Expected a power cap that covers the idle draw, got {least:g} W for {pool} idle nodes that draw "
                f"{idle_w:g} W, {time_s:g} s after the window's start."
            )
    unknown = next((task.name for task in tasks if task.tuning is None), None)
    if unknown is not None:
        raise InvalidTaskError(f"No zeus section, which a power cap requires (task {unknown}).")
    return cap_w


def power_summary(record: PowerRecord, carbon: Steps | None, pue: float, window_s: float) -> dict[str, Any]:
    """Energy, average power and emissions of a run; emissions are None without a carbon intensity (gCO2/kWh).

    Energies and powers are those of the nodes; those with site in their name are multiplied by the PUE.
    """
    samples = record.samples
    tasks_w, idle_w, length_s = samples["tasks_w"], samples["idle_w"], samples["end_s"] - samples["begin_s"]
    tasks_j, idle_j = math.fsum(tasks_w * length_s), math.fsum(idle_w * length_s)
    grams = None
    if carbon is not None:
        grams = math.fsum(
            pue * (piece.tasks_w + piece.idle_w) * (end_s - begin_s) / J_PER_KWH * intensity
            for piece in samples
            for (begin_s, intensity), (end_s, _) in itertools.pairwise(
                (*steps_between(carbon, piece.begin_s, piece.end_s), (piece.end_s, 0.0))
            )
        )
    return {
        "energy_j": tasks_j,
        "idle_energy_j": idle_j,
        "site_energy_j": pue * (tasks_j + idle_j),
        "average_power_w": (tasks_j + idle_j) / window_s if window_s else None,
        "peak_power_w": float(np.max(tasks_w + idle_w, initial=0.0)),
        "pue": pue,
        "idle_node_w": record.idle_node_w,
        "emissions_gco2": grams,
    }


def read_tuning(tasks: Sequence[TaskSpec], config: ReplayConfig) -> Callable[[], GroupTuner] | None:
    """Read the traces that the tasks' zeus sections name; return what makes a new tuner, None if no task has one.

    Raises
    ------
    InvalidTaskError
        If a trace cannot be read.
    """
    traces: dict[tuple[str, str], TrainingTrace] = {}
    for task in tasks:
        if task.tuning is None or (files := (task.tuning.train_trace, task.tuning.power_trace)) in traces:
            continue
        try:
            traces[files] = TrainingTrace(*files)
        except TrainingTraceError as error:
            raise InvalidTaskError(f"{str(error).removesuffix('.')} (task {task.name}).") from None
    policies = config.policy, config.power_policy
    return partial(GroupTuner, tuple(tasks), traces, config.seed, config.power_options, policies) if traces else None


def with_tuning(recording: Recording, metered: PowerRecord, tuner: GroupTuner) -> Recording:
    """Add the outcome of tuning to the recording of each tuned task."""
    ended = defaultdict[str, list[int]](list)
    for attempt in tuner.attempts:
        ended[attempt.task].append(attempt.attempt)
    tasks = list(recording.tasks)
    for number, task in enumerate(tasks):
        spec, run, reached = task.spec, task.spec.run, task.completed_s is not None
        if spec.tuning is None:
            continue
        # The last try may have been cut short, by the replay's end or because the group was given up.
        under_way = run is not None and run.attempt not in ended[spec.name]
        outcome = TunedRecord(
            energy_j=metered.energy_j.get(number, 0.0),
            train_s=metered.train_s.get(number, 0.0),
            attempts=len(ended[spec.name]) + under_way,
            batch_size=None if run is None else run.batch_size,
            power_limit_w=None if run is None else run.power_limit_w,
            reached=reached,
            failure=None if reached else tuner.failures.get(spec.tuning_group),
        )
        tasks[number] = replace(task, tuned=outcome)
    return replace(recording, tasks=tuple(tasks))
