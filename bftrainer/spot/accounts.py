"""Where the time of a simulated run went, and what came of it."""

from __future__ import annotations

from typing import Any

from bftrainer.model import NS_PER_S
from bftrainer.model.spot_records import SpotRun
from bftrainer.spot.checkpointing import CheckpointedTraining
from bftrainer.spot.cost import COST_FIGURES, Prices

__all__ = ["TIME_ACCOUNTS", "run_figures"]

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
