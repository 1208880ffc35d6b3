"""What more tasks at once would have done in a run that few of them limited: short replays by `dp`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bftrainer.errors import BftrainerError
from bftrainer.runs.run import RunResult, run_replay

LEVELS = (30, 70)
"""Tasks at once that are tried."""
MOST_WORK = 500_000
"""Events times tasks of a run up to which they are tried; this does not depend on a clock."""
_REMEDIED = ("admission", "below_best")
"""What limits a run that more tasks at once may help."""


def try_more_tasks(result: RunResult) -> RunResult:
    """Add what more tasks at once would have done, where that limited the run; else the result as it is.

    Returns
    -------
    RunResult
        Its `more_tasks` has `work_done` and `window_s` of a replay with each of `LEVELS`; no levels where the run is
        too large to try them, or cannot be decided by `dp`.
    """
    summary, config = result.summary(), result.config
    levels = [level for level in LEVELS if config.max_tasks < level]
    is_limited = summary["limited_by"] in _REMEDIED and summary["tasks_total"] > config.max_tasks
    if result.is_partial or not config.baseline or not levels or not is_limited:
        return result
    tried: dict[str, Any] = {}
    if summary["events"] * summary["tasks_total"] <= MOST_WORK:
        for level in levels:
            options: dict[str, Any] = {"max_tasks": level, "solver": "dp", "baseline": False}
            try:
                other = run_replay(config=replace(config, **options), details=False).summary()
            except BftrainerError:
                return replace(result, more_tasks={"levels": {}})
            tried[str(level)] = {name: other[name] for name in ("work_done", "window_s", "tasks_completed")}
    return replace(result, more_tasks={"levels": tried})
