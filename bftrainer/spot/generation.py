"""Generate traces of preemptible nodes, from options or fitted to another trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bftrainer.errors import SettingsError, UnusedOptionsError, at_place
from bftrainer.model import NS_PER_S, NodeLog
from bftrainer.nodelogs.availability import CHANGE_COLUMNS, read_availability, write_changes
from bftrainer.nodelogs.availability_trace import AvailabilityTrace, ChangeTrace
from bftrainer.spot.minute_model import MinuteModel, expected_size
from bftrainer.spot.statistics import Holes, completed_lengths, pool_figures, trace_statistics
from bftrainer.spot.supercomputer import SupercomputerModel

ModelName = Literal["minutes", "supercomputer"]
MAX_DAYS = 36_525.0
MINUTE_OPTIONS = (*(each.name for each in fields(MinuteModel)), "preemption_scale", "addition_scale", "exact_mean")
HOLE_OPTIONS = tuple(signature(SupercomputerModel.changed).parameters)[1:]
"""Options of `generate_trace` for either model."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One statistic of a generated trace; values that do not apply to it are None.

    Parameters
    ----------
    name : str
        A key of the trace's statistics.
    asked : float
        Value that the model was asked for.
    expected : float or None
        Average of the model, where that differs from `asked`.
    drawn : float or None
        Value of the random draws, before the bounds of the trace cut them.
    realised : float or None
        Value in the generated trace.
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
    provenance: Mapping[str, Any] | None = None,
    *,
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
    provenance : mapping, optional
    exact_mean : bool
        Whether the drawn sizes have the means asked for; by default the normal distribution behind them has.
    """
    used = model.exact() if exact_mean else model
    drawn = used.draw(rng, minutes)
    log = used.generate(rng, drawn, start_ns)
    log = replace(log, provenance={**log.provenance, **(provenance or {})})
    realised = trace_statistics(AvailabilityTrace.of_log(log)).figures
    regular = drawn.added[~drawn.is_big]
    share = float(drawn.is_big.mean()) if drawn.is_big.size else None
    figures = [
        Figure("preemption_chance", model.preemption_chance, None, drawn.taken_at.size / minutes, None),
        Figure("addition_chance", model.addition_chance, None, drawn.added_at.size / minutes, None),
        Figure("big_addition_share", model.big_addition_share, None, share, None),
    ]
    for name, kind, sizes in (
        ("preemption_mean", "preemption", drawn.taken),
        ("regular_addition_mean", "addition", regular),
    ):
        expected = expected_size(getattr(used, f"{kind}_mean"), getattr(used, f"{kind}_std"))
        mean = float(sizes.mean()) if sizes.size else None
        figures.append(Figure(name, getattr(model, f"{kind}_mean"), expected, mean, None))
    return Generated(log, tuple(replace(figure, realised=realised[figure.name]) for figure in figures))


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
        "hole_mean_nodes": model.hole_nodes.mean,
        "holes_per_hour": model.idle_share * model.nodes / model.fragment_s.mean / model.hole_nodes.mean * 3600.0,
        "hole_daily_amplitude": model.cycle.harmonic()[0],
    }
    realised = pool_figures(log) | _fragment_figures(log) | Holes.of(log).figures()
    return Generated(log, tuple(Figure(name, value, None, None, realised.get(name)) for name, value in asked.items()))


def _fragment_figures(log: NodeLog) -> dict[str, float]:
    """The same figures of fragments as in a log's statistics, in little memory."""
    length_ns, number = completed_lengths(log)
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
    days : float
        Length, over 0.
    seed : int
    model : {"minutes", "supercomputer"}, optional
        By default minutes if `like` is a spot, count or termination trace, else supercomputer.
    like : Path, optional
        A trace to fit the model to.
    start_ns : int
        Start of the window, nanoseconds since the Unix epoch.
    warn : callable
        Called with one line for each assumption made in reading `like`.
    **options
        As for `MinuteModel.changed`, and `exact_mean`; or as for `SupercomputerModel.changed`.

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
    # A command's option has the name of the parameter without the unit, which its help gives.
    vain = [f"--{each.removesuffix('_s').replace('_', '-')}" for each in names if each in options]
    if vain:
        raise UnusedOptionsError(dict.fromkeys(vain, f"of the model {other} alone"))
    rng = np.random.default_rng(seed)
    provenance = {"source": "bftrainer trace generate", "model": name, "seed": seed}
    if name == "minutes":
        minutes, exact = max(1, round(days * 1440)), options.pop("exact_mean", False)
        adjusted = fit_minutes(trace, like).changed(**options)
        return generate_minutes(adjusted, rng, minutes, start_ns, provenance, exact_mean=exact)
    return generate_holes(_fit_holes(trace, like).changed(**options), rng, (start_ns, end_ns), provenance)


def fit_minutes(trace: AvailabilityTrace | None, path: Path | None) -> MinuteModel:
    """The minute model, fitted to a trace if there is one; messages name its path."""
    with at_place(path, SettingsError):
        return MinuteModel() if trace is None else MinuteModel.fitted(trace)


def _fit_holes(trace: AvailabilityTrace | None, path: Path | None) -> SupercomputerModel:
    with at_place(path, SettingsError):
        if trace is None:
            return SupercomputerModel()
        if trace.log is None:
            raise SettingsError("Expected a log of nodes for the model supercomputer, got terminations alone.")
        return SupercomputerModel.fitted(trace.log)


def sibling(path: Path, what: str) -> Path:
    """Path of a file beside the log at `path`: `synth.parquet` gives `synth-spot.csv` for `what` = "spot"."""
    stem = path.name.removesuffix(".gz")
    return path.with_name(f"{Path(stem).stem}-{what}.csv")


def write_pair(path: Path, log: NodeLog) -> tuple[Path, Path]:
    """Write files `dt,preemptions` and `dt,additions` beside the log at `path`; returns their paths.

    Raises
    ------
    OutputError
        If they cannot be written.
    """
    places = sibling(path, "preemptions"), sibling(path, "additions")
    write_changes(places[0], ChangeTrace.of(log, joins=False), CHANGE_COLUMNS["terminations"][1])
    write_changes(places[1], ChangeTrace.of(log, joins=True), CHANGE_COLUMNS["additions"][1])
    return places
