"""Model of `summary.json`: metrics by `metrics.csv`, all else declared here, from which its docs are made.

It checks what is read; no value is converted, so that numbers stay as they were written.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from bftrainer.model.records import HELD, RUN_SCHEMA
from bftrainer.terms import GLOSSARY

Number = Annotated[float, Field(gt=-1e100, lt=1e100, allow_inf_nan=False)]  # sums of larger ones would overflow
_ALWAYS: tuple[str, ...] = ("window_s", "nodes_total", "tasks_total", "tasks_completed", "idle_node_s", "decisions")
_ALWAYS += tuple(f"decisions_{kind}" for kind in HELD)


class _Part(BaseModel):
    """A part of a summary; further keys are allowed, as plug-ins and other versions may have them."""

    model_config = ConfigDict(extra="allow", strict=True, use_attribute_docstrings=True)


def _metrics(group: str, default: Any = None) -> dict[str, Any]:
    """Metrics of a group by their names in it; null where a run does not know them."""
    names = [key.rpartition(".")[2] for key in GLOSSARY if key.rpartition(".")[0] == group]
    return dict.fromkeys(names, (Number | None, default))


_InputFile: Any = create_model("_InputFile", __base__=_Part, path=(str, ...), sha256=(str, ...))
_AssumedScaling: Any = create_model("_AssumedScaling", __base__=_Part, note=(str, ...), figures=(list[str], ...))
_Ledger: Any = create_model(
    "_Ledger",
    __base__=_Part,
    **{"idle_node_s": (Number, ...)} | _metrics("ledger", ...) | {"given_back": (Number | None, None)},
)
_BelowLargeIdle: Any = create_model(
    "_BelowLargeIdle", __base__=_Part, **_metrics("") | _metrics("below_large_idle") | {"large_idle": (Number, ...)}
)


class Besides(_Part):
    """Keys of a summary that are no metrics; a text also describes the keys above it that have none."""

    schema_: int = Field(alias="schema", le=RUN_SCHEMA)
    """1; counts up when the meaning of a file changes"""
    partial: bool
    """whether the run was interrupted or failed"""
    end_reason: str | None = None
    """`finished` (nothing is left to do), `window_end`, `until`, `max_events`, `interrupted`, or `failed`: the
    objective or an observer did"""
    command: str | None = None
    """as it was typed; empty for runs from Python"""
    versions: dict[str, str] | None = None
    """of Python and the packages that computed the result"""
    engine: str | None = None
    """`replay`, or `live`: a [harvest](harvest.md)"""
    inputs: dict[str, _InputFile | list[_InputFile] | None] | None = None
    """per input, `node_log`, `tasks` and `scalability`: `path` as given and `sha256`; null if it was not a file. Also
    `planned_departures`, and `power_cap` and `carbon` if they are files, and, if tasks are tuned, a list `traces` of
    what their sections name"""
    settings: dict[str, str | Number | bool | None]
    """all that the outcome depends on, see below"""
    seed: Number | None = None
    solver: str | None = None
    objective: str | None = None
    forward_time_s: Number | None = None
    max_tasks: Number | None = None
    """as in the settings"""
    window_start: str
    window_end: str
    """start of the window (skipped rows come before it), end of the replay, in ISO 8601"""
    node_log_notes: list[str] | None = None
    """what was trimmed, assumed or not checked when the log was made, one sentence each; see [what can be
    trusted](import.md#what-can-be-trusted)"""
    node_log_zone: str | None = None
    """time zone of the site's clocks, if the import was given one (`--tz`); null if not"""
    ledger: _Ledger | None = None
    """where the idle node-time went, see below"""
    limited_by: str | None = None
    """the largest part of the ledger but `useful`, where that is 1 % or more, else `pool`; null without idle nodes"""
    pue: Number | None = None
    idle_node_w: Number | None = None
    """as in the settings; W"""
    batch_sizes: dict[str, int] | None = None
    power_limits_w: dict[str, int] | None = None
    """how many runs used which"""
    failures: list[str] | None = None
    """why groups were given up"""
    learned_tasks: Number | None = None
    learned_probes: Number | None = None
    learned_error: Number | None = None
    learned_error_used: Number | None = None
    """how well [learned curves](tasks.md#learned-curves) came to be known"""
    decided_by: dict[str, int] | None = None
    """how many decisions were found by what, as in `decisions.parquet`: `trivial`, `pruning`, `search`, `backend`,
    `remembered`, `kept`"""
    solvers: dict[str, Any]
    """per solver that answered: `decisions` and the three times, with those of a solver that failed before it"""
    below_large_idle: _BelowLargeIdle | None = None
    """the figures of the pool and of losses over the intervals with fewer than `large_idle` idle nodes; with
    `time_share` and `idle_node_s_share`, what part of time and of idle node-time these are"""
    more_tasks: dict[str, Any] | None = None
    """only where too few tasks at once limited the run: by `levels` (30, 70) the `work_done`, `window_s` and
    `tasks_completed` of a replay by `dp`; none where events times tasks are above 500,000, or `dp` cannot decide it"""
    assumed_scaling: _AssumedScaling | None = None
    """null if all tasks have a scaling of their own; else the `model` that was assumed, its `work_per_s_on_one_node`,
    for how many `tasks`, whether it `is_default` or was asked for by `--scaling`, the `figures` that rest on it, and a
    `note` that says so and names the options that mend it"""


SummaryModel = create_model(
    "SummaryModel",
    __base__=Besides,
    __doc__="All keys of a summary.",
    **_metrics("") | dict.fromkeys(_ALWAYS, (Number, ...)),
)
