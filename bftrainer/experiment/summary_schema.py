"""What a run's summary holds, checked before anything is made of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bftrainer.errors import RunDirectoryError, suggestion
from bftrainer.model import instant_ns
from bftrainer.report.glossary import GLOSSARY

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["check_summary", "finite", "whole"]

# Other figures than the glossary's that pages tell of.
_FIGURES = ("efficiency_horizon_s", "efficiency_eq_nodes")
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
    for key in ("window_start", "window_end"):
        try:
            instant_ns(summary[key])
        except (ValueError, OverflowError) as error:
            raise RunDirectoryError(f"{file}: {key}: Expected a time, got {summary[key]!r} ({error}).") from None


@cache
def _schema() -> type[BaseModel]:
    """The summary as a pydantic model; whatever else it holds is let through."""
    from pydantic import BaseModel, ConfigDict, create_model

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
        skip_events: int | None = None
        first_node: int | None = None
        node_count: int | None = None

    known: Any = (float | None, None)
    needed: Any = (float, ...)
    shares: dict[str, Any] = dict.fromkeys(("occupancy", "rescale_loss_share", "preemption_loss_share"), known)
    below = create_model("Below", __base__=Part, large_idle=needed, idle_node_s_share=known, **shares)
    fields: dict[str, Any] = dict.fromkeys((*GLOSSARY, *_FIGURES), known)
    fields |= dict.fromkeys(_ALWAYS, needed)
    fields |= {
        **dict.fromkeys(("window_start", "window_end"), (str, ...)),
        "partial": (bool, ...),
        "command": (str, ""),
        "settings": (Settings, ...),
        "inputs": (dict[str, Source | list[Source] | None] | None, None),
        "versions": (dict[str, str] | None, None),
        "solvers": (dict[str, Any], ...),
        "below_large_idle": (below | None, None),
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
