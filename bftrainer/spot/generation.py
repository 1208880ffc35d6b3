"""Generate traces of preemptible nodes, from options or fitted to another trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bftrainer.errors import SettingsError, UnusedOptionsError, at_place
from bftrainer.model import NS_PER_S, NodeLog
from bftrainer.nodelogs.availability import CHANGE_COLUMNS, read_availability, write_changes
from bftrainer.nodelogs.availability_trace import MOST_NODES, AvailabilityTrace, ChangeTrace, CountTrace
from bftrainer.spot.arrivals import Distribution, DrainArrivals, EvenArrivals, LogNormal, Quantiles
from bftrainer.spot.minute_model import Drawn, MinuteModel, MinuteOptions
from bftrainer.spot.statistics import DailyCycle, Holes, completed_lengths, trace_statistics
from bftrainer.spot.supercomputer import SUMMIT_CYCLE, SUMMIT_HOLES, SupercomputerModel


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
        Number of nodes at the start, and the largest number at any time.
    provenance : mapping, optional
    exact_mean : bool
        Whether the drawn sizes have the means asked for; by default the normal distribution behind them has.
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
    realised = _measured(log)
    return Generated(log, tuple(Figure(name, value, None, None, realised[name]) for name, value in asked.items()))


def _measured(log: NodeLog) -> dict[str, float | None]:
    """The same figures as in a log's statistics, in little memory."""
    holes, counts, (length_ns, number) = Holes.ungrouped(log), CountTrace.of(log), completed_lengths(log)
    cycle, total, upto = holes.cycle(), int(number.sum()), np.cumsum(number)
    middle = np.searchsorted(upto, [(total - 1) // 2, total // 2], side="right")
    mean_nodes = float(counts.count[:-1] @ (np.diff(counts.time_ns) / NS_PER_S)) / log.window_s
    return {
        "idle_share": mean_nodes / len(log.nodes),
        "fragment_mean_s": float(length_ns @ (number / total)) / NS_PER_S if total else None,
        "fragment_median_s": float(length_ns[middle].mean()) / NS_PER_S if total else None,
        "hole_mean_nodes": float(holes.nodes.mean()) if holes.nodes.size else None,
        "holes_per_hour": holes.per_hour,
        "hole_daily_amplitude": None if cycle is None else cycle.harmonic()[0],
    }


ModelName = Literal["minutes", "supercomputer"]
MAX_DAYS = 36_525.0
INITIAL_NODES, MAX_NODES = 32, 64


@dataclass(frozen=True, slots=True)
class HoleOptions:
    """Options of the supercomputer model; None stands for its default, or for the value fitted to a log.

    Parameters
    ----------
    nodes : int, optional
        Number of nodes of the machine; sizes of holes fitted to another machine scale with it.
    idle_share : float, optional
    fragment_mean_s, fragment_median_s : float, optional
        Mean and median of log-normal lengths of fragments; both or neither.
    hole_mean, hole_median : float, optional
        Mean and median of log-normal sizes of holes, in nodes; both or neither.
    daily_amplitude, peak_hour : float, optional
        Daily cycle: excess over the average at its peak, from 0 to below 1, and the hour of the peak (UTC).
    drains_per_day : float, optional
        Number of drains per day, which make the large holes; they replace the daily cycle.
    """

    nodes: int | None = None
    idle_share: float | None = None
    fragment_mean_s: float | None = None
    fragment_median_s: float | None = None
    hole_mean: float | None = None
    hole_median: float | None = None
    daily_amplitude: float | None = None
    peak_hour: float | None = None
    drains_per_day: float | None = None

    def __post_init__(self) -> None:
        for one, other in (("fragment_mean_s", "fragment_median_s"), ("hole_mean", "hole_median")):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                raise SettingsError(f"Expected both {one} and {other}, or neither.")
        if self.daily_amplitude is not None and not 0 <= self.daily_amplitude < 1:
            raise SettingsError(f"Expected 0 <= daily_amplitude < 1, got {self.daily_amplitude}.")
        if self.peak_hour is not None and not 0 <= self.peak_hour < 24:
            raise SettingsError(f"Expected 0 <= peak_hour < 24, got {self.peak_hour}.")
        if self.drains_per_day is not None and (self.daily_amplitude is not None or self.peak_hour is not None):
            raise SettingsError("Expected drains or a daily cycle, got both.")


@dataclass(frozen=True, slots=True)
class GenerationConfig:
    """Configuration of a generated trace.

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
    minutes : MinuteOptions
    holes : HoleOptions

    Raises
    ------
    SettingsError
        If a number is out of range.
    """

    days: float
    seed: int = 0
    model: ModelName | None = None
    like: Path | None = None
    start_ns: int = 0
    minutes: MinuteOptions = field(default_factory=MinuteOptions)
    holes: HoleOptions = field(default_factory=HoleOptions)

    def __post_init__(self) -> None:
        if not 0 < self.days <= MAX_DAYS:
            raise SettingsError(f"Expected 0 < days <= {MAX_DAYS:.0f}, got {self.days}.")
        if self.start_ns + round(self.days * 86_400) * NS_PER_S > np.iinfo(np.int64).max:
            raise SettingsError(f"Expected a window that ends before the year 2262, got one of {self.days} days.")
        if self.seed < 0:
            raise SettingsError(f"Expected seed >= 0, got {self.seed}.")


def generate_trace(config: GenerationConfig, warn: Callable[[str], None] = lambda _: None) -> Generated:
    """Generate a trace; the same configuration gives the same trace.

    Raises
    ------
    InputError
        If a setting is out of range or belongs to the other model, or the trace `like` cannot be used.
    """
    like = None if config.like is None else read_availability(config.like, warn)
    name = config.model
    if name is None:
        name = "minutes" if like is not None and like.kind != "nodes" else "supercomputer"
    _check_options(name, config)
    rng = np.random.default_rng(config.seed)
    provenance = {"source": "bftrainer trace generate", "model": name, "seed": config.seed}
    if name == "minutes":
        minutes = max(1, round(config.days * 1440))
        model, bounds = minute_setup(config.minutes, like, config.like)
        exact = bool(config.minutes.exact_mean)
        return generate_minutes(model, rng, minutes, config.start_ns, bounds, provenance, exact)
    end_ns = config.start_ns + max(1, round(config.days * 86_400)) * NS_PER_S
    return generate_holes(_machine(config.holes, like, config.like), rng, (config.start_ns, end_ns), provenance)


def _check_options(name: ModelName, config: GenerationConfig) -> None:
    other, options = ("supercomputer", config.holes) if name == "minutes" else ("minutes", config.minutes)
    given = [one.name for one in fields(options) if getattr(options, one.name) is not None]
    if given:
        # An option has the name of its field without the unit, which its help gives.
        names = [f"--{name.removesuffix('_s').removesuffix('_per_day').replace('_', '-')}" for name in given]
        raise UnusedOptionsError(dict.fromkeys(names, f"of the model {other} alone"))


def minute_setup(
    options: MinuteOptions, like: AvailabilityTrace | None, path: Path | None = None
) -> tuple[MinuteModel, tuple[int, int]]:
    """The minute model with these options, and the number of nodes at the start and at most.

    Parameters
    ----------
    options : MinuteOptions
    like : AvailabilityTrace or None
        A trace to fit.
    path : Path, optional
        File of that trace, for messages.

    Raises
    ------
    SettingsError
        If an option is out of range, or the trace cannot be fitted.
    """
    model, initial, most = MinuteModel(), INITIAL_NODES, MAX_NODES
    if like is not None:
        figures = trace_statistics(like).figures
        with at_place(path, SettingsError):
            model = MinuteModel.fitted(figures)
        initial, most = round(figures["mean_nodes"] or 0), max(1, figures["max_nodes"])
    if options.max_nodes is not None:
        most = options.max_nodes
        initial = min(initial, most)
    if options.initial_nodes is not None:
        initial = options.initial_nodes
    if not 1 <= most <= MOST_NODES:
        raise SettingsError(f"Expected 1 <= max_nodes <= {MOST_NODES:,}, got {most:,}.")
    return options.changed(model), (initial, most)


def _machine(options: HoleOptions, like: AvailabilityTrace | None, path: Path | None) -> SupercomputerModel:
    """The supercomputer model with the options asked for."""
    base = SupercomputerModel()
    if like is not None:
        with at_place(path, SettingsError):
            if like.log is None:
                raise SettingsError("Expected a log of nodes for the model supercomputer, got terminations alone.")
            base = SupercomputerModel.fitted(like.log)
    nodes = base.nodes if options.nodes is None else options.nodes
    fragment_s = base.fragment_s
    if options.fragment_mean_s is not None and options.fragment_median_s is not None:
        fragment_s = LogNormal.of(options.fragment_mean_s, options.fragment_median_s)
    sizes: Distribution = SUMMIT_HOLES
    cycle = SUMMIT_CYCLE
    if isinstance(base.arrivals, EvenArrivals):
        sizes, cycle = base.arrivals.sizes, base.arrivals.cycle
    if options.hole_mean is not None and options.hole_median is not None:
        if options.hole_median < 1:
            raise SettingsError(f"Expected a median hole of at least 1 node, got {options.hole_median}.")
        sizes = LogNormal.of(options.hole_mean, options.hole_median)
    elif isinstance(sizes, Quantiles) and nodes != base.nodes:
        sizes = Quantiles(sizes.share, tuple(max(1.0, size * nodes / base.nodes) for size in sizes.value))
    if options.daily_amplitude is not None or options.peak_hour is not None:
        amplitude, peak = cycle.harmonic()
        amplitude = amplitude if options.daily_amplitude is None else options.daily_amplitude
        cycle = DailyCycle.cosine(amplitude, peak if options.peak_hour is None else options.peak_hour)
    share = base.idle_share if options.idle_share is None else options.idle_share
    made = replace(base, nodes=nodes, idle_share=share, fragment_s=fragment_s, arrivals=EvenArrivals(sizes, cycle))
    if options.drains_per_day is not None:
        most = max(1, math.ceil(0.6 * nodes))
        made = replace(made, arrivals=DrainArrivals(sizes, most, drains_per_day=options.drains_per_day))
    return made


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
