"""Generate traces of preemptible nodes, from options or fitted to another trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from bftrainer.errors import SettingsError, at_place, unused_options
from bftrainer.model import NS_PER_S, NodeLog
from bftrainer.nodelogs.availability import read_availability
from bftrainer.nodelogs.availability_trace import AvailabilityTrace
from bftrainer.spot.minute_model import MinuteModel, mean_size
from bftrainer.spot.statistics import count_lengths, hole_figures, pool_figures, trace_statistics
from bftrainer.spot.supercomputer import HOLE_OPTIONS, SupercomputerModel

ModelName = Literal["minutes", "supercomputer"]
MAX_DAYS = 36_525.0
MINUTE_OPTIONS = (*(each.name for each in fields(MinuteModel)), "preemption_scale", "addition_scale")
"""Options of `generate_trace` for the model minutes; the other one has `HOLE_OPTIONS`."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One statistic of a generated trace, by its key; values that do not apply to it are None.

    Beside the value that was asked for are the average of the model, where that differs, the value of the random
    draws, before the bounds of the trace cut them, and that of the generated trace.
    """

    name: str
    asked: float
    expected: float | None
    drawn: float | None
    realised: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Generated:
    """A generated trace, and its statistics beside what was asked for."""

    log: NodeLog
    figures: tuple[Figure, ...]


def generate_minutes(
    model: MinuteModel,
    rng: np.random.Generator,
    minutes: int,
    start_ns: int = 0,
    provenance: Mapping[str, Any] = MappingProxyType({}),
) -> Generated:
    """Generate a spot trace minute by minute, from `start_ns` on (nanoseconds since the Unix epoch)."""
    drawn = model.draw(rng, minutes)
    log = model.generate(rng, drawn, start_ns)
    log = replace(log, provenance={**log.provenance, **provenance})
    asked = {
        "preemption_chance": model.preemption_chance,
        "addition_chance": model.addition_chance,
        "big_addition_share": model.big_addition_share,
        "preemption_mean": model.preemption_mean,
        "regular_addition_mean": model.addition_mean,
    }
    expected = {
        "preemption_mean": mean_size(model.preemption_mean, model.preemption_std),
        "regular_addition_mean": mean_size(model.addition_mean, model.addition_std),
    }
    realised = trace_statistics(AvailabilityTrace.of_log(log)).figures
    return Generated(log, _compare(asked, realised, expected, drawn.figures()))


def generate_holes(
    model: SupercomputerModel,
    rng: np.random.Generator,
    window_ns: tuple[int, int],
    provenance: Mapping[str, Any] = MappingProxyType({}),
) -> Generated:
    """Generate the idle nodes of a machine with a batch scheduler in a window (nanoseconds since the Unix epoch)."""
    log = model.generate(rng, window_ns, provenance)
    asked = {
        "idle_share": model.idle_share,
        "fragment_mean_s": model.fragment_s.mean,
        "fragment_median_s": float(model.fragment_s.at(np.array(0.5))),
        "hole_mean_nodes": model.hole_nodes.mean,
        "holes_per_hour": model.idle_share * model.nodes / model.fragment_s.mean / model.hole_nodes.mean * 3600.0,
        "hole_daily_amplitude": model.cycle.harmonic()[0],
    }
    return Generated(log, _compare(asked, pool_figures(log) | _fragment_figures(log) | hole_figures(log)))


def _compare(
    asked: Mapping[str, float],
    realised: Mapping[str, float | None],
    expected: Mapping[str, float | None] = MappingProxyType({}),
    drawn: Mapping[str, float | None] = MappingProxyType({}),
) -> tuple[Figure, ...]:
    others = (expected, drawn, realised)
    return tuple(Figure(name, value, *(other.get(name) for other in others)) for name, value in asked.items())


def _fragment_figures(log: NodeLog) -> dict[str, float]:
    """The same figures of fragments as in a log's statistics, in little memory."""
    length_ns, number = count_lengths(log)
    total = int(number.sum())
    if not total:
        return {}
    middle = np.searchsorted(np.cumsum(number), [(total - 1) // 2, total // 2], side="right")
    return {
        "fragment_mean_s": float(length_ns @ (number / total)) / NS_PER_S,
        "fragment_median_s": float(length_ns[middle].mean()) / NS_PER_S,
    }


def generate_trace(
    days: float,
    *,
    seed: int = 0,
    model: ModelName | None = None,
    like: Path | None = None,
    start_ns: int = 0,
    warn: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> Generated:
    """Generate a trace; equal arguments give equal traces.

    Parameters
    ----------
    days, start_ns
        Length, over 0, and start of the window, nanoseconds since the Unix epoch.
    seed : int
    model : {"minutes", "supercomputer"}, optional
        By default minutes if `like` is a spot, count or termination trace, else supercomputer.
    like : Path, optional
        A trace to fit the model to; `warn` is called with one line for each assumption made in reading it.
    **options
        As for `MinuteModel.changed` or `SupercomputerModel.changed`.

    Raises
    ------
    InputError
        If a setting is out of range or belongs to the other model, or the trace `like` cannot be used.
    """
    if not 0 < days <= MAX_DAYS:
        raise SettingsError(f"Expected 0 < days <= {MAX_DAYS:.0f}, got {days}.")
    end_ns = start_ns + max(1, round(days * 86_400)) * NS_PER_S
    if end_ns > np.iinfo(np.int64).max:
        raise SettingsError(f"Expected a window that ends before the year 2262, got one of {days} days.")
    if seed < 0:
        raise SettingsError(f"Expected seed >= 0, got {seed}.")
    trace = None if like is None else read_availability(like, warn)
    name = model or ("minutes" if trace is not None and trace.kind != "nodes" else "supercomputer")
    other, names = ("supercomputer", HOLE_OPTIONS) if name == "minutes" else ("minutes", MINUTE_OPTIONS)
    # Options have the parameters' names without units; `--set` stands before figures that have no option of their own.
    own = ("nodes", "idle_share", "initial_nodes", "max_nodes", "preemption_scale", "addition_scale")
    flags = {each: "--" if each in own else "--set " for each in names}
    vain = [f"{flags[each]}{each.removesuffix('_s').replace('_', '-')}" for each in names if each in options]
    if vain:
        raise unused_options(dict.fromkeys(vain, f"of the model {other} alone"))
    rng = np.random.default_rng(seed)
    provenance = {"source": "bftrainer trace generate", "model": name, "seed": seed}
    if name == "minutes":
        adjusted = fit_minutes(trace, like).changed(**options)
        return generate_minutes(adjusted, rng, max(1, round(days * 1440)), start_ns, provenance)
    with at_place(like, SettingsError):
        if trace is not None and trace.log is None:
            raise SettingsError("Expected a log of nodes for the model supercomputer, got terminations alone.")
        holes = SupercomputerModel() if trace is None or trace.log is None else SupercomputerModel.fitted(trace.log)
    return generate_holes(holes.changed(**options), rng, (start_ns, end_ns), provenance)


def fit_minutes(trace: AvailabilityTrace | None, path: Path | None) -> MinuteModel:
    """The minute model, fitted to a trace if there is one; messages name its path."""
    with at_place(path, SettingsError):
        return MinuteModel() if trace is None else MinuteModel.fitted(trace)
