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
from bftrainer.nodelogs.availability import AvailabilityTrace, read_availability
from bftrainer.spot.minute_model import MinuteModel
from bftrainer.spot.statistics import trace_statistics
from bftrainer.spot.supercomputer import HOLE_OPTIONS, SupercomputerModel

ModelName = Literal["minutes", "supercomputer"]
MAX_DAYS = 36_525.0
MINUTE_OPTIONS = (*(field.name for field in fields(MinuteModel)), "preemption_scale", "addition_scale")
"""Options of `generate_trace` for the model minutes; the other one has `HOLE_OPTIONS`."""
_FLAGS = ("nodes", "idle_share", "initial_nodes", "max_nodes", "preemption_scale", "addition_scale")


@dataclass(frozen=True, slots=True)
class Figure:
    """One statistic of a generated trace by its key: the value asked for, and that of the trace."""

    name: str
    asked: float
    realised: float | None


@dataclass(frozen=True, slots=True, eq=False)
class GeneratedTrace:
    """A generated trace, and its statistics beside what was asked for."""

    log: NodeLog
    figures: tuple[Figure, ...]


def generate_minutes(
    model: MinuteModel,
    rng: np.random.Generator,
    minutes: int,
    start_ns: int = 0,
    provenance: Mapping[str, Any] = MappingProxyType({}),
) -> GeneratedTrace:
    """Generate a spot trace minute by minute, from `start_ns` on (nanoseconds since the Unix epoch)."""
    log = model.generate(rng, model.draw(rng, minutes), start_ns)
    log = replace(log, provenance={**log.provenance, **provenance})
    targets = {
        "preemption_chance": model.preemption_chance,
        "addition_chance": model.addition_chance,
        "big_addition_share": model.big_addition_share,
        "preemption_mean": model.preemption_mean,
        "regular_addition_mean": model.addition_mean,
    }
    return _compare(log, targets)


def generate_holes(
    model: SupercomputerModel,
    rng: np.random.Generator,
    window_ns: tuple[int, int],
    provenance: Mapping[str, Any] = MappingProxyType({}),
) -> GeneratedTrace:
    """Generate the idle nodes of a machine with a batch scheduler in a window (nanoseconds since the Unix epoch)."""
    targets = {
        "idle_share": model.idle_share,
        "fragment_mean_s": model.fragment_s.mean,
        "fragment_median_s": float(model.fragment_s.values(np.array(0.5))),
        "hole_mean_nodes": model.hole_nodes.mean,
        "holes_per_hour": model.idle_share * model.nodes / model.fragment_s.mean / model.hole_nodes.mean * 3600.0,
        "hole_daily_amplitude": model.cycle.harmonic().amplitude,
    }
    return _compare(model.generate(rng, window_ns, provenance), targets)


def _compare(log: NodeLog, targets: Mapping[str, float]) -> GeneratedTrace:
    """Set statistics of a log beside what was asked for."""
    realised = trace_statistics(AvailabilityTrace.from_log(log)).figures
    return GeneratedTrace(log, tuple(Figure(name, value, realised[name]) for name, value in targets.items()))


def generate_trace(
    days: float,
    *,
    seed: int = 0,
    model: ModelName | None = None,
    like: Path | None = None,
    start_ns: int = 0,
    warn: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> GeneratedTrace:
    """Generate a trace; equal arguments give equal traces.

    The window begins at `start_ns`, nanoseconds since the Unix epoch. The model is fitted to the trace `like`, of which
    `warn` takes assumptions, and by default the one that suits it: minutes unless it is a node log. Options are those
    of `MinuteModel.adjust` or `SupercomputerModel.adjust`. An `InputError` if a setting is out of range or belongs to
    the other model, or the trace cannot be used.
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
    flags = {option: "--" if option in _FLAGS else "--set " for option in names if option in options}
    if unused := [flag + option.removesuffix("_s").replace("_", "-") for option, flag in flags.items()]:
        raise unused_options(dict.fromkeys(unused, f"of the model {other} alone"))
    rng = np.random.default_rng(seed)
    provenance = {"source": "bftrainer trace generate", "model": name, "seed": seed}
    if name == "minutes":
        minutes = fit_minutes(trace, like).adjust(**options)
        return generate_minutes(minutes, rng, max(1, round(days * 1440)), start_ns, provenance)
    with at_place(like, SettingsError):
        if trace is not None and trace.log is None:
            raise SettingsError("Expected a log of nodes for the model supercomputer, got terminations alone.")
        holes = SupercomputerModel() if trace is None or trace.log is None else SupercomputerModel.fit(trace.log)
    return generate_holes(holes.adjust(**options), rng, (start_ns, end_ns), provenance)


def fit_minutes(trace: AvailabilityTrace | None, path: Path | None) -> MinuteModel:
    """The minute model, fitted to a trace if there is one; messages name its path."""
    with at_place(path, SettingsError):
        return MinuteModel() if trace is None else MinuteModel.fit(trace)
