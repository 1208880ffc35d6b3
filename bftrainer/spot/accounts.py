"""Where the time of a simulated run went, what came of it, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bftrainer.errors import SettingsError
from bftrainer.model import NS_PER_S
from bftrainer.model.spot_training import SpotRun
from bftrainer.spot.checkpointing import CheckpointedTraining

_ON_DEMAND = ("nodes", "iterations", "cost", "iterations_per_currency")
COST_FIGURES = (
    *("cost", "iterations_per_currency", "samples_per_currency"),
    *(f"on_demand_{key}" for key in _ON_DEMAND),
    "value_against_on_demand",
)
"""Names of what `Prices.figures` gives."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices per node-hour, in any currency.

    Parameters
    ----------
    spot : float
        Of a preemptible node, 1e-9 to 1e9; every node that is there is paid, whether it trains or not.
    on_demand : float, optional
        Of a node that is never taken, in the same range; without it there is no comparison.
    on_demand_nodes : int, optional
        Nodes on demand that one would train on instead; by default the largest world size. Whole pipelines of them
        train, all are paid.

    Raises
    ------
    SettingsError
        If a number is out of range, or nodes on demand have no price.
    """

    spot: float
    on_demand: float | None = None
    on_demand_nodes: int | None = None

    def __post_init__(self) -> None:
        for name, price in (("a price", self.spot), ("an on-demand price", self.on_demand)):
            # Beyond that, work per currency unit may be no number any more.
            if price is not None and not 1e-9 <= price <= 1e9:
                raise SettingsError(f"Expected {name} from 1e-9 to 1e9, got {price}.")
        if self.on_demand_nodes is not None and self.on_demand is None:
            raise SettingsError("Expected a price for the nodes on demand, got none.")

    def figures(
        self, settings: CheckpointedTraining, iterations: int, node_hours: float, span_s: float
    ) -> dict[str, Any]:
        """Cost, and work per currency unit, against nodes on demand where they have a price.

        Nodes on demand train all the time: checkpoints are written beside the training.

        Parameters
        ----------
        settings : CheckpointedTraining
        iterations : int
            Done at the end.
        node_hours : float
            Held.
        span_s : float

        Raises
        ------
        SettingsError
            If the nodes on demand make no pipeline.
        """
        cost = self.spot * node_hours
        value = iterations / cost if cost else None
        samples = settings.profile.samples_per_iteration
        found = dict.fromkeys(COST_FIGURES) | {"cost": cost, "iterations_per_currency": value}
        if value is not None and samples is not None:
            found["samples_per_currency"] = value * samples
        if self.on_demand is None:
            return found
        nodes = settings.max_world_size if self.on_demand_nodes is None else self.on_demand_nodes
        world_size = min(nodes, settings.max_world_size) // settings.depth * settings.depth
        if world_size < 1:
            raise SettingsError(f"Expected nodes on demand for a pipeline of {settings.depth}, got {nodes}.")
        done = int(span_s / settings.profile.iteration_time_s(world_size))
        paid = self.on_demand * nodes * span_s / 3600.0
        other = done / paid if paid else None
        found |= dict(zip((f"on_demand_{key}" for key in _ON_DEMAND), (nodes, done, paid, other), strict=True))
        if value is not None and other:
            found["value_against_on_demand"] = value / other
        return found


TIME_ACCOUNTS = ("training_s", "redoing_s", "reconfiguring_s", "stalled_s")
"""What the span is divided into; an iteration that is broken off counts where it would have."""


def run_figures(run: SpotRun, settings: CheckpointedTraining, prices: Prices | None = None) -> dict[str, Any]:
    """Figures of a run, JSON-ready; the four times add up to the span.

    Parameters
    ----------
    run : SpotRun
    settings : CheckpointedTraining
    prices : Prices, optional
        Without them the figures of cost are None.
    """
    span_s = run.span_ns / NS_PER_S
    training = run.of("training")
    redoing_ns = sum(phase.redoing_ns for phase in training)
    used_node_ns = sum(phase.world_size * phase.length_ns for phase in training)
    samples = settings.profile.samples_per_iteration
    costs = dict.fromkeys(COST_FIGURES)
    if prices is not None:
        costs = prices.figures(settings, run.iterations, run.held_node_s / 3600.0, span_s)
    reconfigured = sum(phase.is_over for phase in run.of("reconfiguring"))
    return {
        "span_s": span_s,
        "iterations_done": run.iterations,
        "iterations_saved": run.phases[-1].saved,
        "iterations_executed": sum(phase.iterations for phase in training),
        "iterations_lost": sum(phase.lost for phase in training),
        "iterations_redone": sum(phase.repeated for phase in training),
        "iterations_per_hour": _over(run.iterations * 3600.0, span_s),
        "samples_per_s": None if samples is None else _over(run.iterations * samples, span_s),
        "training_s": (sum(phase.length_ns for phase in training) - redoing_ns) / NS_PER_S,
        "redoing_s": redoing_ns / NS_PER_S,
        "reconfiguring_s": sum(phase.length_ns for phase in run.of("reconfiguring")) / NS_PER_S,
        "stalled_s": sum(phase.length_ns for phase in run.of("stalled")) / NS_PER_S,
        "reconfigurations": reconfigured,
        "reconfiguration_restarts": run.restarts,
        "checkpoints": sum(phase.checkpoints for phase in training),
        "checkpoints_lost": sum(phase.checkpoints_lost for phase in training),
        "preemptions": run.preemptions,
        "active_preemptions": run.active_preemptions,
        "node_hours_held": run.held_node_s / 3600.0,
        "node_hours_used": used_node_ns / NS_PER_S / 3600.0,
        "mean_nodes": _over(run.held_node_s, span_s),
        "mean_world_size": _over(used_node_ns / NS_PER_S, span_s),
        "largest_world_size": max((phase.world_size for phase in training), default=0),
        **costs,
    }


def _over(part: float, whole: float) -> float | None:
    return part / whole if whole else None
