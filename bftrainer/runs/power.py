"""Power cap and carbon intensity of a run: numbers, or step functions from files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from bftrainer.errors import InvalidTaskError, SettingsError
from bftrainer.files.documents import number_cell, table_rows
from bftrainer.model import NS_PER_S, NodeLog, TaskSpec, instant_ns
from bftrainer.replay.power_draw import Steps, steps_between
from bftrainer.runs.config import ReplayConfig

CAP_COLUMN, CARBON_COLUMN = "power_w", "gco2_per_kwh"
NO_CAP: Steps = ((-math.inf, math.inf),)


def read_series(path: Path, column: str, start_ns: int, window_s: float) -> Steps:
    """Read a step function that covers the window.

    A CSV file, gzipped or not, with columns time (ISO 8601, naive: UTC; or seconds since the window's start) and
    `column`. Each value holds until the next row's time; the last one as long as the one before it; a single one
    forever. `SettingsError` names file and line.
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
    """Read the cap on what harvested nodes draw at the meter, infinite without one.

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
