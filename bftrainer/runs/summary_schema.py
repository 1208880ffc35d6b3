"""What a run's summary holds, checked before anything is made of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from bftrainer.errors import RunDirectoryError, suggestion
from bftrainer.model import NS_PER_S, instant_ns
from bftrainer.report.glossary import GLOSSARY, Unit

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["check_summary", "finite", "whole"]

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
    held = sum(summary[f"decisions_{what}"] for what in ("optimal", "incumbent", "kept"))
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

    class Settings(Part):
        """Those that pages name, and those that choose from the log what was replayed."""

        decide_on: str
        scaling: str | None = None
        skip_events: int | None = None
        first_node: int | None = None
        node_count: int | None = None

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
    fields |= {
        **dict.fromkeys(("window_start", "window_end"), (str, ...)),
        "partial": (bool, ...),
        "command": (str, ""),
        "settings": (Settings, ...),
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
