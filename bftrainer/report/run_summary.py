"""The form of a run's summary: what pages, tables and comparisons read of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from bftrainer.errors import RunDirectoryError, suggestion
from bftrainer.model import NS_PER_S, instant_ns
from bftrainer.model.records import HELD, RUN_SCHEMA
from bftrainer.report.glossary import GLOSSARY
from bftrainer.report.ledger import PARTS

if TYPE_CHECKING:
    from pydantic import BaseModel

MOST = 1e100
"""Numbers beyond this have no meaning in a run, and sums of them would overflow."""
_ALWAYS = ("window_s", "nodes_total", "tasks_total", "tasks_completed", "idle_node_s", "decisions")
_BELOW = ("occupancy", "rescale_loss_share", "preemption_loss_share", "idle_node_s_share", "time_share")


def check_summary(file: Path, summary: Any) -> None:
    """Refuse what is no summary: it lacks what every run has, or has values of another type."""
    from pydantic import ValidationError

    schema = summary.get("schema") if isinstance(summary, dict) else None
    if type(schema) is not int or schema > RUN_SCHEMA:
        text = f"Expected a summary of schema {RUN_SCHEMA} or older, got {schema!r}"
        raise RunDirectoryError(f"{file}: {text}; a newer one takes a newer version of bftrainer.")
    try:
        _summary_model().model_validate(summary)
        start_ns, end_ns = (instant_ns(summary[f"window_{which}"]) for which in ("start", "end"))
        if not math.isclose((end_ns - start_ns) / NS_PER_S, summary["window_s"], rel_tol=1e-9, abs_tol=1e-6):
            raise ValueError(f"they are not window_s apart, {summary['window_s']:g} s")
    except ValidationError as faults:
        fault = faults.errors()[0]
        key = ".".join(map(str, fault["loc"]))
        hint = suggestion(key, summary) if fault["type"] == "missing" else f" It is {str(fault['input'])[:80]!r}."
        raise RunDirectoryError(f"{file}: {key}: {fault['msg']}.{hint}") from None
    except (ValueError, OverflowError) as error:
        raise RunDirectoryError(f"{file}: window_start, window_end: Expected times ({error}).") from None


@cache
def _summary_model() -> type[BaseModel]:
    """Pydantic model of a summary; further keys are allowed."""
    from pydantic import ConfigDict, Field, create_model

    config = ConfigDict(extra="allow", strict=True)  # no conversion of text to numbers, or of numbers to booleans
    number: Any = Annotated[float, Field(gt=-MOST, lt=MOST, allow_inf_nan=False)]

    def part(required: Mapping[str, Any], optional: Mapping[str, Any] = {}) -> Any:
        """Model of a part, by the types of its keys."""
        fields: dict[str, Any] = {key: (kind | None, None) for key, kind in optional.items()}
        return create_model("Part", __config__=config, **fields | {key: (kind, ...) for key, kind in required.items()})

    source: Any = part({"path": str, "sha256": str})
    shares = {part: number | None for part in ("idle_node_s", *PARTS) if part != "given_back"}
    model: type[BaseModel] = part(
        {
            **dict.fromkeys((*_ALWAYS, *(f"decisions_{held}" for held in HELD)), number),
            **dict.fromkeys(("window_start", "window_end"), str),
            "partial": bool,
            "solvers": dict[str, Any],
            "settings": dict[str, str | number | bool | None],
        },
        {
            **dict.fromkeys((name for name in GLOSSARY if "." not in name), number),
            **dict.fromkeys(("command", "limited_by", "node_log_zone", "solver", "objective"), str),
            **dict.fromkeys(("seed", "max_tasks", "forward_time_s"), number),
            "node_log_notes": list[str],
            "inputs": dict[str, source | list[source] | None],
            "versions": dict[str, str],
            "decided_by": dict[str, int],
            "ledger": part(shares, {"given_back": number}),
            "below_large_idle": part({"large_idle": number}, dict.fromkeys(_BELOW, number)),
            "assumed_scaling": part({"note": str, "figures": list[str]}),
        },
    )
    return model
