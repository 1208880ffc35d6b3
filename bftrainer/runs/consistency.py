"""Check that a run's summary is valid, and that its tables are of the same run."""

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
from bftrainer.report.ledger import PARTS
from bftrainer.runs.config import OPTIONS
from bftrainer.runs.run_tables import ALLOCATION, DECISIONS, POWER, STEPS, TASKS

if TYPE_CHECKING:
    from pydantic import BaseModel

# Figures that pages and checks use besides those of the glossary, and their units.
_FIGURES: dict[str, Unit] = {"efficiency_horizon_s": "s", "efficiency_eq_nodes": "nodes", "solve_wall_share": "share"}
# Bounds of figures by unit. Work less costs may be negative, and shares of it anything.
_SLACK = 1e-9
_BOUNDS: dict[Unit, dict[str, float]] = {
    "count": {"ge": 0, "multiple_of": 1},
    **{unit: {"ge": 0} for unit in ("s", "wall_s", "node_s", "nodes", "J", "W", "g", "rate")},
}
_BOUNDS_OF_SHARES: dict[str, dict[str, float]] = {
    **{key: {"ge": 0, "le": 1 + _SLACK} for key in ("occupancy", "idle_node_s_share", "time_share")},
    **{key: {"ge": 0} for key in ("rescale_loss_share", "preemption_loss_share", "solve_wall_share", "gap_max")},
}
# Figures that are parts of other figures.
_PARTS = (
    *(("tasks_completed", "tasks_started"), ("tasks_started", "tasks_total"), ("tasks_completed", "tasks_total")),
    *(("used_node_s", "idle_node_s"), ("eq_nodes", "nodes_total")),
)
# Figures that every run has.
_ALWAYS = (
    *("window_s", "nodes_total", "tasks_total", "tasks_completed", "idle_node_s"),
    *("decisions", "decisions_optimal", "decisions_incumbent", "decisions_kept", "large_idle"),
)


def check_summary(summary: Mapping[str, Any], file: Path) -> None:
    """Refuse a summary without the keys that every run has, or with invalid values.

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
    """Refuse a window whose ends are not times, or whose length does not match them."""
    ends = []
    for key in ("window_start", "window_end"):
        try:
            ends.append(instant_ns(summary[key]))
        except (ValueError, OverflowError) as error:
            raise RunDirectoryError(f"{file}: {key}: Expected a time, got {summary[key]!r} ({error}).") from None
    length_s = (ends[1] - ends[0]) / NS_PER_S
    if not math.isclose(length_s, summary["window_s"], rel_tol=_SLACK, abs_tol=1e-6):
        between = f"{length_s:g} s from window_start to window_end"
        raise RunDirectoryError(f"{file}: window_s: Expected the {between}, got {summary['window_s']:g}.")


@cache
def _schema() -> type[BaseModel]:
    """Pydantic model of a summary; further keys are allowed."""
    from pydantic import BaseModel, ConfigDict, Field, create_model

    class Part(BaseModel):
        """Base of the models: no conversion of text to numbers, or of numbers to booleans."""

        model_config = ConfigDict(extra="allow", strict=True)

    class Source(Part):
        """File of an input."""

        path: str
        sha256: str

    class Assumed(Part):
        """Assumption about how tasks scale."""

        note: str
        figures: list[str]

    def figures(units: Mapping[str, Unit]) -> dict[str, Any]:
        """Fields of numbers within the bounds of their units."""
        bounds: dict[str, Any] = {
            key: _BOUNDS.get(unit, {}) | _BOUNDS_OF_SHARES.get(key, {}) for key, unit in units.items()
        }
        numbers = {key: Annotated[float, Field(**bounds[key])] for key in units}
        return {key: (kind, ...) if key in _ALWAYS else (kind | None, None) for key, kind in numbers.items()}

    shares = ("occupancy", "rescale_loss_share", "preemption_loss_share", "idle_node_s_share", "time_share")
    below = create_model("Below", __base__=Part, **figures({"large_idle": "count", **dict.fromkeys(shares, "share")}))
    fields = figures({key: term.unit for key, term in GLOSSARY.items() if "." not in key} | _FIGURES)
    options = {name: option.type for name, option in OPTIONS.items() if option.is_setting}
    options |= {"since": str, "until_s": float}
    parts: dict[str, Any] = dict.fromkeys(("idle_node_s", *PARTS), (float | None, ...))
    settings: dict[str, Any] = {name: (kind | None, None) for name, kind in options.items()}
    settings["decide_on"] = (str, ...)
    fields |= {name: settings[name] for name in ("seed", "solver", "objective", "forward_time_s", "max_tasks")}
    fields |= {
        **dict.fromkeys(("window_start", "window_end"), (str, ...)),
        "partial": (bool, ...),
        "command": (str, ""),
        "settings": (create_model("Settings", __base__=Part, **settings), ...),
        "inputs": (dict[str, Source | list[Source] | None] | None, None),
        "versions": (dict[str, str] | None, None),
        "solvers": (dict[str, Any], ...),
        "decided_by": (dict[str, int] | None, None),
        "ledger": (create_model("Ledger", __base__=Part, **parts) | None, None),
        "limited_by": (str | None, None),
        "below_large_idle": (below | None, None),
        "node_log_notes": (list[str] | None, None),
        "node_log_zone": (str | None, None),
        "assumed_scaling": (Assumed | None, None),
        "bounds": (_bounds_schema(Part) | None, None),
    }
    return create_model("Summary", __base__=Part, **fields)


def _bounds_schema(part: type[BaseModel]) -> Any:
    """Pydantic model of the work of other ways to decide."""
    from pydantic import create_model

    one: dict[str, Any] = {"name": (str, ...), "horizon_s": (float | None, None), "against_blind": (float | None, ...)}
    bounds: Any = list[create_model("Bound", __base__=part, **one)]  # type: ignore[misc]
    every: dict[str, Any] = {"bounds": (bounds, ...), "time_s": (float, ...), "notes": (list[str], ...)}
    return create_model("Bounds", __base__=part, **every)


_REL, _ABS = 1e-6, 1e-6
"""Tolerance: sums in another order, and times in nanoseconds, differ by less."""


def check_one_run(run: FinishedRun, directory: Path) -> None:
    """Refuse a directory in which a table disagrees with the summary, or with another table.

    Raises
    ------
    RunDirectoryError
        Naming the file and the difference.
    """
    for file, what, expected, found in _claims(run):
        if expected is not None and not math.isclose(float(expected), float(found), rel_tol=_REL, abs_tol=_ABS):
            raise RunDirectoryError(
                f"{directory / file}: Expected {what} {expected:,.12g} as in the rest of the run, got {found:,.12g}: "
                "is the file another run's?"
            )


def _claims(run: FinishedRun) -> Iterator[tuple[str, str, Any, Any]]:
    """Facts that are recorded twice: file, fact, value in the rest of the run (None: not given), value there."""
    summary, steps, decisions, tasks = run.summary, run.steps, run.decisions, run.tasks
    time_s, began_s = steps["time_s"], decisions["time_s"]
    within = ((time_s >= 0) & (time_s <= run.window_s + _ABS)).sum()
    length_s = np.diff(np.append(time_s, run.window_s))
    file = STEPS.file
    yield file, "number of events", summary.get("events"), time_s.size
    yield file, "number of events in the window", time_s.size, within
    for name in ("idle", "used"):
        yield file, f"{name}_node_s", summary.get(f"{name}_node_s"), float(length_s @ steps[name])
    file = DECISIONS.file
    yield file, "number of decisions", summary["decisions"], began_s.size
    for kind in HELD:
        count = (decisions["held"] == kind).sum()
        yield file, f"number of decisions held as {kind}", summary[f"decisions_{kind}"], count
    # Times in the two files are parsed differently, which makes a nanosecond of difference at most.
    at_events = np.isin(np.round(began_s, 6), np.round(time_s, 6)).sum()
    yield file, "number of decisions at events", began_s.size, at_events
    if began_s.size:
        yield file, "longest decision in s", summary.get("solve_s_max"), decisions["solve_s"].max()
        share, wall_s = summary.get("solve_wall_share"), summary.get("wall_s")
        solve_s = None if share is None or wall_s is None else share * wall_s
        yield file, "time of all decisions in s", solve_s, decisions["solve_s"].sum()
    for what, key, found in (
        ("number of tasks", "tasks_total", tasks["name"].size),
        ("number of tasks that started", "tasks_started", np.isfinite(tasks["started_s"]).sum()),
        ("number of completed tasks", "tasks_completed", np.isfinite(tasks["completed_s"]).sum()),
        ("number of preemptions", "preemptions", tasks["preemptions"].sum()),
        ("number of rescales", "rescales", tasks["rescales"].sum()),
        ("work done", "work_done", tasks["work_done"].sum()),
        ("node-seconds", "used_node_s", tasks["node_s"].sum()),
    ):
        yield TASKS.file, what, summary.get(key), found
    begin_s, end_s, task, nodes = run.holdings.spans(run.window_s)
    held_s = np.bincount(task, weights=(end_s - begin_s) * nodes, minlength=tasks["name"].size)
    for name, expected, found in zip(tasks["name"], tasks["node_s"].tolist(), held_s.tolist(), strict=True):
        yield ALLOCATION.file, f"node-seconds of task {name}", expected, found
    if run.power is not None:
        drawn_j = float((run.power["end_s"] - run.power["begin_s"]) @ run.power["tasks_w"])
        yield POWER.file, "energy in J", summary.get("energy_j"), drawn_j
