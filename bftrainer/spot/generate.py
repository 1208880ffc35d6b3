"""Generated traces, and how near they come to what was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bftrainer.model import NodeLog
from bftrainer.model.availability import AvailabilityTrace
from bftrainer.spot.arrivals import EvenArrivals
from bftrainer.spot.minute_model import Drawn, MinuteModel
from bftrainer.spot.statistics import trace_statistics
from bftrainer.spot.supercomputer import SupercomputerModel

__all__ = ["Figure", "Generated", "generate_holes", "generate_minutes"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One statistic of a generated trace; what has no meaning for it is None.

    Parameters
    ----------
    name : str
        A key of the trace's statistics.
    asked : float
        What the model was given.
    expected : float or None
        What the model gives on average, where that differs from `asked`.
    drawn : float or None
        What was drawn, before it met the bounds of the trace.
    realised : float or None
        What the trace has.
    """

    name: str
    asked: float
    expected: float | None
    drawn: float | None
    realised: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Generated:
    """A generated trace.

    Parameters
    ----------
    log : NodeLog
    figures : tuple of Figure
    """

    log: NodeLog
    figures: tuple[Figure, ...]


def generate_minutes(
    model: MinuteModel,
    rng: np.random.Generator,
    minutes: int,
    start_ns: int,
    bounds: tuple[int, int],
    provenance: Mapping[str, Any] | None = None,
    exact_mean: bool = False,
) -> Generated:
    """Generate a spot trace minute by minute.

    Parameters
    ----------
    model : MinuteModel
    rng : numpy.random.Generator
    minutes : int
    start_ns : int
        Nanoseconds since the Unix epoch.
    bounds : tuple of int
        Nodes at the start, and at any time at most.
    provenance : mapping, optional
    exact_mean : bool
        Whether sizes shall come out with the means asked for, rather than the normal distribution have them.
    """
    used = model.exact() if exact_mean else model
    drawn = used.draw(rng, minutes)
    log = used.generate(rng, drawn, start_ns, *bounds)
    log = replace(log, provenance={**log.provenance, **(provenance or {})})
    realised = trace_statistics(AvailabilityTrace.of_log(log)).figures
    return Generated(log, tuple(_minute_figures(model, used, drawn, realised)))


def _minute_figures(asked: MinuteModel, used: MinuteModel, drawn: Drawn, realised: Mapping[str, Any]) -> list[Figure]:
    sizes = (
        ("preemption_mean", asked.preemption.mean, used.preemption.expected, drawn.taken),
        ("regular_addition_mean", asked.addition.mean, used.addition.expected, drawn.added[~drawn.is_big]),
    )
    chances = (
        ("preemption_chance", asked.preemption_chance, drawn.taken_at.size, drawn.minutes),
        ("addition_chance", asked.addition_chance, drawn.added_at.size, drawn.minutes),
        ("big_addition_share", asked.big_addition_share, int(drawn.is_big.sum()), drawn.added.size),
    )
    figures = [
        Figure(name, chance, None, count / whole if whole else None, realised[name])
        for name, chance, count, whole in chances
    ]
    figures += [
        Figure(name, mean, expected, float(size.mean()) if size.size else None, realised[name])
        for name, mean, expected, size in sizes
    ]
    return figures


def generate_holes(
    model: SupercomputerModel,
    rng: np.random.Generator,
    window_ns: tuple[int, int],
    provenance: Mapping[str, Any] | None = None,
) -> Generated:
    """Generate the idle nodes of a machine with a batch scheduler.

    Parameters
    ----------
    model : SupercomputerModel
    rng : numpy.random.Generator
    window_ns : tuple of int
        Start and end, nanoseconds since the Unix epoch.
    provenance : mapping, optional
    """
    log = model.generate(rng, window_ns, provenance)
    asked = {
        "idle_share": model.idle_share,
        "fragment_mean_s": model.fragment_s.mean,
        "fragment_median_s": float(model.fragment_s.at(np.array(0.5))),
    }
    if isinstance(model.arrivals, EvenArrivals):
        mean = model.arrivals.sizes.mean
        asked["hole_mean_nodes"] = mean
        asked["holes_per_hour"] = model.idle_share * model.nodes / model.fragment_s.mean / mean * 3600.0
        asked["hole_daily_amplitude"] = model.arrivals.cycle.harmonic()[0]
    realised = trace_statistics(AvailabilityTrace.of_log(log)).figures
    return Generated(log, tuple(Figure(name, value, None, None, realised[name]) for name, value in asked.items()))
