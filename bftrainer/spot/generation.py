"""Generate traces of preemptible nodes, from options or fitted to another trace; the model that goes by minutes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from itertools import chain, count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import LogError, SettingsError, add_place, ineffective_options
from bftrainer.model import NS_PER_S, NodeLog, iso
from bftrainer.model.type_checks import require
from bftrainer.nodelogs import availability
from bftrainer.nodelogs.availability import FORM, AvailabilityTrace, node_names, read_availability, read_changes
from bftrainer.nodelogs.hostlist import MOST_NODES
from bftrainer.spot.statistics import MINUTE_NS, trace_statistics
from bftrainer.spot.supercomputer import HOLE_OPTIONS, SupercomputerModel

BIG_SIZES = (11, 31)
"""Smallest and largest size of a big addition; sizes are uniform between them, both included."""


def draw_sizes(rng: np.random.Generator, mean: float, std: float, count: int) -> NDArray[np.int64]:
    """Draw the sizes of `count` changes, ``max(1, |round(Normal(mean, std))|)``."""
    return np.maximum(1, np.abs(np.rint(mean + std * rng.standard_normal(count)))).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class MinuteChanges:
    """Changes drawn for some minutes, before the bounds on the number of nodes cut them.

    Nodes are `taken`, in the minutes of the indices `taken_at`, and `added`, of which some additions are big.
    """

    minutes: int
    taken_at: NDArray[np.int64]
    taken: NDArray[np.int64]
    added_at: NDArray[np.int64]
    added: NDArray[np.int64]
    is_big: NDArray[np.bool_]

    def limit(self, start_ns: int, initial: int, most: int) -> Iterator[tuple[int, int, int]]:
        """Times, nodes taken and nodes added, limited to the nodes available and to `most`.

        Preemptions fall in the middle of their minute, additions at its end.
        """
        nodes = initial
        steps = np.concatenate((2 * self.taken_at, 2 * self.added_at + 1))
        sizes = np.concatenate((-self.taken, self.added))
        order = np.argsort(steps, kind="stable")
        for step, size in zip(steps[order].tolist(), sizes[order].tolist(), strict=True):
            change = max(-nodes, min(size, most - nodes))
            nodes += change
            if change:
                yield start_ns + (step + 1) * MINUTE_NS // 2, max(0, -change), max(0, change)


@dataclass(frozen=True, slots=True)
class MinuteModel:
    """Each minute nodes may be taken, and others added; the defaults were measured on a trace of 64 spot instances.

    Parameters
    ----------
    preemption_chance, addition_chance : float
        Probability of a preemption, or an addition, in a minute, 0 to 1.
    big_addition_share : float
        Share of additions that are big, 0 to 1: uniform from 11 to 31 nodes.
    preemption_mean, preemption_std, addition_mean, addition_std : float
        Of the normal distributions behind the sizes of preemptions and of regular additions, see `draw_sizes`.
    initial_nodes, max_nodes : int
        Number of nodes at the start, and largest number at any time.

    Raises
    ------
    SettingsError
        If a number is out of range.
    """

    preemption_chance: float = 0.16338
    addition_chance: float = 0.14366
    big_addition_share: float = 0.0588
    preemption_mean: float = 2.4138
    preemption_std: float = 2.0862
    addition_mean: float = 2.5417
    addition_std: float = 1.9456
    initial_nodes: int = 32
    max_nodes: int = 64

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name.endswith(("_chance", "_share")) and not 0 <= value <= 1:
                raise SettingsError(f"Expected {name} from 0 to 1, got {value}.")
            if name.endswith(("_mean", "_std")) and not 0 <= value < 1e6:
                raise SettingsError(f"Expected a {name.rpartition('_')[2]} of sizes from 0 to 1e6, got {value}.")
        initial, most = self.initial_nodes, self.max_nodes
        require(
            SettingsError,
            (1 <= most <= MOST_NODES, f"1 <= max_nodes <= {MOST_NODES:,}, got {most:,}"),
            (0 <= initial <= most, f"0 <= initial nodes <= the {most} nodes there are at most, got {initial}"),
        )

    @classmethod
    def fit(cls, trace: AvailabilityTrace) -> MinuteModel:
        """Fit the model to a trace: it opens with the mean number of nodes; what never happens gets chance 0.

        A `SettingsError` if the trace does not give preemptions and additions, or has more than one per minute.
        """
        figures = trace_statistics(trace).figures
        for name in ("preemption_chance", "addition_chance"):
            chance = figures[name]
            if chance is None:
                raise SettingsError("Expected a trace that tells preemptions and additions over time, got one without.")
            if chance > 1:
                got = f"got {name} {chance:.3g}; try --model supercomputer."
                raise SettingsError(f"Expected at most one event a minute for the model minutes, {got}")
        return cls(
            preemption_chance=figures["preemption_chance"],
            preemption_mean=figures["preemption_mean"] or 1.0,
            preemption_std=figures["preemption_std"] or 0.0,
            addition_chance=figures["addition_chance"],
            addition_mean=figures["regular_addition_mean"] or 1.0,
            addition_std=figures["regular_addition_std"] or 0.0,
            big_addition_share=figures["big_addition_share"] or 0.0,
            initial_nodes=round(figures["mean_nodes"] or 0),
            max_nodes=max(1, figures["max_nodes"]),
        )

    def adjust(
        self, *, preemption_scale: float = 1.0, addition_scale: float = 1.0, **values: float | int
    ) -> MinuteModel:
        """The model with other values of its fields, and then with its chances multiplied by the scales.

        A `SettingsError` if a value is out of range, or a scale is negative or makes a chance larger than 1.
        """
        if "max_nodes" in values:
            values.setdefault("initial_nodes", min(self.initial_nodes, values["max_nodes"]))
        model = replace(self, **values)  # type: ignore[arg-type]
        chances = {}
        for name, scale in (("preemption", preemption_scale), ("addition", addition_scale)):
            chance = getattr(model, f"{name}_chance")
            if not 0 <= scale * chance <= 1:
                most = f" <= {1 / chance:.4g} (a chance of 1 a minute)" if chance else ""
                raise SettingsError(f"Expected 0 <= {name} scale{most}, got {scale}.")
            chances[f"{name}_chance"] = scale * chance
        return replace(model, **chances)

    def draw(self, rng: np.random.Generator, minutes: int) -> MinuteChanges:
        """Draw the changes of some minutes.

        Preemptions and additions come from streams of their own: another level of one leaves the other as it is, and
        a higher level has the minutes of a lower one among its own.
        """
        taking, adding = rng.spawn(2)
        taken_at = np.flatnonzero(taking.random(minutes) < self.preemption_chance)
        added_at = np.flatnonzero(adding.random(minutes) < self.addition_chance)
        taken = draw_sizes(taking, self.preemption_mean, self.preemption_std, taken_at.size)
        added = draw_sizes(adding, self.addition_mean, self.addition_std, added_at.size)
        is_big = adding.random(added_at.size) < self.big_addition_share
        added[is_big] = adding.integers(*BIG_SIZES, endpoint=True, size=int(is_big.sum()))
        return MinuteChanges(minutes, taken_at, taken, added_at, added, is_big)

    def generate(self, rng: np.random.Generator, drawn: MinuteChanges, start_ns: int = 0) -> NodeLog:
        """Make a log of drawn changes, from `start_ns` on; the nodes to take are drawn among those available."""
        window_ns = (start_ns, start_ns + drawn.minutes * MINUTE_NS)
        shares = iter(rng.random(int(drawn.taken.sum())).tolist())
        changes = drawn.limit(start_ns, self.initial_nodes, self.max_nodes)
        return churn_log(window_ns, self.initial_nodes, changes, lambda live: int(next(shares) * live), {FORM: "spot"})


def churn_log(
    window_ns: tuple[int, int],
    initial: int,
    changes: Iterable[tuple[int, int, int]],
    pick: Callable[[int], int] = lambda live: live - 1,
    provenance: Mapping[str, Any] = MappingProxyType({}),
) -> NodeLog:
    """Make a log of nodes `n0001`, `n0002`, ... that are taken and added; a new node gets the lowest free number.

    Of `initial` nodes at the window's start, at each time of `changes` (time_ns, taken, added) within it, ascending,
    some are taken before others are added, which get other names. `pick` gives, of so many live nodes in order of
    arrival, the index of the next one to take. If there are too few to take: `LogError`.
    """
    rows, live, free, fresh = list[tuple[int, int, bool]](), list[int](), list[int](), count()
    for time_ns, taken, added in ((window_ns[0], 0, initial), *changes):
        if taken > len(live):
            raise LogError(f"{iso(time_ns)}: Expected to take at most the {len(live)} nodes there are, got {taken}.")
        gone = []
        for _ in range(taken):
            place = pick(len(live))
            live[place], live[-1] = live[-1], live[place]
            gone.append(live.pop())
        come = [heapq.heappop(free) if free else next(fresh) for _ in range(added)]
        for node in gone:
            heapq.heappush(free, node)
        live += come
        rows += chain(((time_ns, node, False) for node in gone), ((time_ns, node, True) for node in come))
    return availability.make_node_log(node_names(next(fresh)), window_ns, rows, provenance)


def read_pair(preemptions: Path, additions: Path, initial_nodes: int) -> NodeLog:
    """Read preemptions and additions of nameless nodes, of which `initial_nodes` come first: last in, first out."""
    pair = read_changes(preemptions), read_changes(additions, "additions")
    times = np.unique(np.concatenate([changes.time_ns for changes in pair]))
    if not times.size:
        raise LogError(f"{preemptions}: Expected preemptions or additions, got neither there nor in {additions}.")
    numbers = [np.bincount(np.searchsorted(times, some.time_ns), some.number, times.size) for some in pair]
    (start_ns, taken, added), *later = np.vstack((times, np.array(numbers, dtype=np.int64))).T.tolist()
    if taken > initial_nodes:
        raise LogError(f"{preemptions}:2: Expected to take at most the {initial_nodes} nodes there are, got {taken}.")
    with add_place(preemptions, LogError):
        # Changes at the first instant are part of the state in which the window opens.
        return churn_log((start_ns, int(times[-1])), initial_nodes - taken + added, later, provenance={FORM: "spot"})


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
        raise ineffective_options(dict.fromkeys(unused, f"of the model {other} alone"))
    rng = np.random.default_rng(seed)
    provenance = {"source": "bftrainer trace generate", "model": name, "seed": seed}
    if name == "minutes":
        minutes = fit_minutes(trace, like).adjust(**options)
        return generate_minutes(minutes, rng, max(1, round(days * 1440)), start_ns, provenance)
    with add_place(like, SettingsError):
        if trace is not None and trace.log is None:
            raise SettingsError("Expected a log of nodes for the model supercomputer, got terminations alone.")
        holes = SupercomputerModel() if trace is None or trace.log is None else SupercomputerModel.fit(trace.log)
    return generate_holes(holes.adjust(**options), rng, (start_ns, end_ns), provenance)


def fit_minutes(trace: AvailabilityTrace | None, path: Path | None) -> MinuteModel:
    """The minute model, fitted to a trace if there is one; messages name its path."""
    with add_place(path, SettingsError):
        return MinuteModel() if trace is None else MinuteModel.fit(trace)
