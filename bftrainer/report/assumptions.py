"""What a run had to assume, and which of its figures rest on that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ASSUMED", "MARK", "ON_SCALING", "Assumption", "assumption"]

ON_SCALING = (
    *("used_node_s", "occupancy", "work_done", "rescale_loss_work", "rescale_loss_share", "preemption_loss_work"),
    *("preemption_loss_share", "efficiency", "efficiency_horizon_s", "ideal_work", "loss_variability_share"),
    *("loss_horizon_share", "return_on_investment", "tasks_completed", "tasks_started", "makespan_s"),
    *("turnaround_mean_s", "turnaround_p90_s", "wait_mean_s", "preemptions", "rescales"),
    *("preemptions_per_node_hour", "rescales_per_node_hour", "energy_j", "idle_energy_j", "average_power_w"),
    *("peak_power_w", "site_energy_j", "emissions_gco2", "train_s", "attempts", "tasks_reached", "tasks_failed"),
)
"""Figures of a summary that follow from how tasks scale, directly or by the decisions; others are the log's alone."""

ASSUMED = "assumed scaling"
MARK = "*"
"""What stands beside a figure that rests on an assumption, where there is room for words and where there is none."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """What was assumed in a run.

    Parameters
    ----------
    note : str
        What it is, and the options that mend it, without a full stop.
    figures : frozenset of str
        What rests on it, as the summary names it.
    """

    note: str
    figures: frozenset[str]

    def bears(self, key: str) -> bool:
        """Whether a figure rests on it; ``below_large_idle.occupancy`` does if occupancy does."""
        return key.rpartition(".")[2] in self.figures


def assumption(summary: Mapping[str, Any]) -> Assumption | None:
    """The scaling that was assumed in the run of a summary; None if that of all tasks was given."""
    found = summary.get("assumed_scaling")
    if found is not None:
        return Assumption(found["note"], frozenset(found["figures"]))
    # Earlier versions kept only the law.
    law = (summary.get("settings") or {}).get("scaling")
    if law is None or "assumed_scaling" in summary:
        return None
    return Assumption(f"{law} from 1 work/s on one node; -scfn names measured scaling", frozenset(ON_SCALING))
