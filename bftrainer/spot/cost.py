"""What preemptible nodes cost, and what training on them is worth against nodes on demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bftrainer.errors import SettingsError
from bftrainer.spot.checkpointing import CheckpointedTraining

__all__ = ["COST_FIGURES", "Prices"]

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
