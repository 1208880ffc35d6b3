"""Whether a run's summary is one, and its tables are of the same run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from bftrainer.errors import RunDirectoryError, suggestion
from bftrainer.model import NS_PER_S, instant_ns
from bftrainer.model.records import HELD, FinishedRun
from bftrainer.report.glossary import GLOSSARY, Unit
from bftrainer.runs.config import OPTIONS

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["check_one_run", "check_summary", "finite", "whole"]

# Other figures than the glossary's that pages tell of, and what they are counted in.
_FIGURES: dict[str, Unit] = {"efficiency_horizon_s": "s", "efficiency_eq_nodes": "nodes"}
# Bounds by what a figure is counted in. Work less costs may be less than nothing, and shares of it anything.
_SLACK = 1e-9
_BOUNDS: dict[Unit, dict[str, float]] = {
    "count": {"ge": 0, "multiple_of": 1},
    **{unit: {"ge": 0} for unit in ("s", "wall_s", "node_s", "nodes", "J", "W", "g", "rate")},
}
_BOUNDS_OF_SHARES: dict[str, dict[str, float]] = {
    **{key: {"ge": 0, "le": 1 + _SLACK} for key in ("occupancy", "idle_node_s_share", "time_share")},
    **{key: {"ge": 0} for key in ("rescale_loss_share", "preemption_loss_share", "gap_max")},
}
# Figures that are parts of others.
_PARTS = (
    *(("tasks_completed", "tasks_started"), ("tasks_started", "tasks_total"), ("tasks_completed", "tasks_total")),
    *(("used_node_s", "idle_node_s"), ("eq_nodes", "nodes_total")),
)
# Those that every run has.
_ALWAYS = (
    *("window_s", "nodes_total", "tasks_total", "tasks_completed", "idle_node_s"),
    *("decisions", "decisions_optimal", "decisions_incumbent", "decisions_kept"),
)


def check_summary(summary: Mapping[str, Any], file: Path) -> None:
    """Refuse a summary that lacks what every run has, or has something else there.

    Raises
    ------
    RunDirectoryError
        The message names file and key.
    """
    from pydantic import ValidationError

    try:
        _schema().model_validate(summary)
    except ValidationError as faults:
        fault = faults.errors()[0]
        key = ".".join(map(str, fault["loc"]))
        if fault["type"] == "missing":
            what = f"Expected the summary of a replay, found no {key!r} in it."
            raise RunDirectoryError(f"{file}: {what}{suggestion(key, summary)}") from None
        raise RunDirectoryError(f"{file}: {key}: {fault['msg']}, got {str(fault['input'])[:80]!r}.") from None
    _check_window(summary, file)
    for part, whole_of_it in _PARTS:
        less, more = summary.get(part), summary.get(whole_of_it)
        if less is not None and more is not None and less > more * (1 + _SLACK):
            raise RunDirectoryError(f"{file}: Expected {part} <= {whole_of_it}, got {less} > {more}.")
    held = sum(summary[f"decisions_{what}"] for what in HELD)
    if held != summary["decisions"]:
        raise RunDirectoryError(f"{file}: Expected {summary['decisions']} decisions of all kinds, got {held}.")


def _check_window(summary: Mapping[str, Any], file: Path) -> None:
    """Refuse a window whose ends are no times, or are not as far apart as it is long."""
    ends = []
    for key in ("window_start", "window_end"):
        try:
            ends.append(instant_ns(summary[key]))
        except (ValueError, OverflowError) as error:
            raise RunDirectoryError(f"{file}: {key}: Expected a time, got {summary[key]!r} ({error}).") from None
    length_s = (ends[1] - ends[0]) / NS_PER_S
    if not math.isclose(length_s, summary["window_s"], rel_tol=_SLACK, abs_tol=1e-6):
        told = f"{length_s:g} s from window_start to window_end"
        raise RunDirectoryError(f"{file}: window_s: Expected the {told}, got {summary['window_s']:g}.")


@cache
def _schema() -> type[BaseModel]:
    """The summary as a pydantic model; whatever else it holds is let through."""
    from pydantic import BaseModel, ConfigDict, Field, create_model

    class Part(BaseModel):
        """No number is read from text, nor a truth from a number."""

        model_config = ConfigDict(extra="allow", strict=True)

    class Source(Part):
        """An input's file."""

        path: str
        sha256: str

    class Assumed(Part):
        """What was assumed of how tasks scale."""

        note: str
        figures: list[str]

    def figure(key: str, unit: Unit, *, needed: bool = False) -> Any:
        """A number within the bounds of what it is counted in."""
        bounds: dict[str, Any] = {**_BOUNDS.get(unit, {}), **_BOUNDS_OF_SHARES.get(key, {})}
        number = Annotated[float, Field(**bounds)]
        return (number, ...) if needed else (number | None, None)

    names = ("occupancy", "rescale_loss_share", "preemption_loss_share", "idle_node_s_share", "time_share")
    shares: dict[str, Any] = {name: figure(name, "share") for name in names}
    below = create_model("Below", __base__=Part, large_idle=figure("large_idle", "count", needed=True), **shares)
    units = {key: term.unit for key, term in GLOSSARY.items()} | _FIGURES
    fields: dict[str, Any] = {key: figure(key, unit, needed=key in _ALWAYS) for key, unit in units.items()}
    options = {name: option.type for name, option in OPTIONS.items() if option.is_setting}
    options |= {"since": str, "until_s": float}
    settings: dict[str, Any] = {name: (kind | None, None) for name, kind in options.items()}
    settings["decide_on"] = (str, ...)
    fields |= {
        **dict.fromkeys(("window_start", "window_end"), (str, ...)),
        "partial": (bool, ...),
        "command": (str, ""),
        "settings": (create_model("Settings", __base__=Part, **settings), ...),
        "inputs": (dict[str, Source | list[Source] | None] | None, None),
        "versions": (dict[str, str] | None, None),
        "solvers": (dict[str, Any], ...),
        "decided_by": (dict[str, int] | None, None),
        "below_large_idle": (below | None, None),
        "assumed_scaling": (Assumed | None, None),
    }
    return create_model("Summary", __base__=Part, **fields)


def finite(text: str) -> float:
    """A number of a summary, which none of its writers would write were it beyond all bounds.

    Raises
    ------
    ValueError
        If it is, or none at all.
    """
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"Expected a finite number, got {text}")
    return value


def whole(text: str) -> int:
    """A whole number of a summary, of 64 bits.

    Raises
    ------
    ValueError
        If it has more.
    """
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"Expected a number of 64 bits, got {text[:20]}...")
    return value


_REL, _ABS = 1e-6, 1e-6
"""Sums in another order, and times kept in nanoseconds, differ by less."""


def check_one_run(run: FinishedRun, directory: Path) -> None:
    """Refuse a directory in which a table disagrees with the summary, or with another table.

    Raises
    ------
    RunDirectoryError
        Naming the file, and what differs.
    """
    for file, what, expected, found in _claims(run):
        if expected is not None and not math.isclose(float(expected), float(found), rel_tol=_REL, abs_tol=_ABS):
            raise RunDirectoryError(
                f"{directory / file}: Expected {what} {expected:,.12g} as in the rest of the run, got {found:,.12g}: "
                "is the file another run's?"
            )


def _claims(run: FinishedRun) -> Iterator[tuple[str, str, Any, Any]]:
    """All that is told twice: file, what is compared, what the rest of the run says (None: nothing), what it says."""
    summary, steps, decisions, tasks = run.summary, run.steps, run.decisions, run.tasks
    time_s, held = steps["time_s"], decisions["held"]
    yield "step-logs.csv", "number of events", summary.get("events"), time_s.size
    yield (
        "step-logs.csv",
        "number of events in the window",
        time_s.size,
        _within(time_s, run.window_s),
    )
    length_s = np.diff(np.append(time_s, run.window_s))
    for name in ("idle", "used"):
        yield "step-logs.csv", f"{name}_node_s", summary.get(f"{name}_node_s"), float(length_s @ steps[name])
    file = "decisions.parquet"
    yield file, "number of decisions", summary["decisions"], decisions["time_s"].size
    for kind in HELD:
        yield (
            file,
            f"number of decisions held as {kind}",
            summary[f"decisions_{kind}"],
            (held == kind).sum(),
        )
    # Times of two files are read in two manners, a nanosecond apart at most.
    at_events = np.isin(np.round(decisions["time_s"], 6), np.round(time_s, 6)).sum()
    yield file, "number of decisions at events", decisions["time_s"].size, at_events
    if decisions["solve_s"].size:
        yield file, "longest decision in s", summary.get("solve_s_max"), decisions["solve_s"].max()
    file = "tasks.parquet"
    yield file, "number of tasks", summary["tasks_total"], tasks["name"].size
    yield file, "number of tasks that started", summary.get("tasks_started"), np.isfinite(tasks["started_s"]).sum()
    yield file, "number of completed tasks", summary["tasks_completed"], np.isfinite(tasks["completed_s"]).sum()
    for name in ("preemptions", "rescales"):
        yield file, f"number of {name}", summary.get(name), tasks[name].sum()
    yield file, "work done", summary.get("work_done"), tasks["work_done"].sum()
    yield file, "node-seconds", summary.get("used_node_s"), tasks["node_s"].sum()
    begin_s, end_s, task, nodes = run.holdings.spans(run.window_s)
    held_s = np.bincount(task, weights=(end_s - begin_s) * nodes, minlength=tasks["name"].size)
    for name, expected, found in zip(tasks["name"], tasks["node_s"].tolist(), held_s.tolist(), strict=True):
        yield "allocation.parquet", f"node-seconds of task {name}", expected, found
    if run.power is not None:
        drawn_j = float((run.power["end_s"] - run.power["begin_s"]) @ run.power["tasks_w"])
        yield "power.parquet", "energy in J", summary.get("energy_j"), drawn_j


def _within(time_s: np.ndarray, window_s: float) -> int:
    return int(((time_s >= 0) & (time_s <= window_s + _ABS)).sum())
