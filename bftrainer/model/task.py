"""Malleable training tasks: bounds, scalability curve, what rescaling and saving cost, and how they are tuned."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import InvalidTaskError
from bftrainer.model.instants import NS_PER_S
from bftrainer.model.type_checks import convert_fields, real_number, require, whole_number

MOST_NODES = 10_000_000
"""Largest node count of a task: tables over counts have to fit in memory."""
_MOST_NS = np.iinfo(np.int64).max
SAVING_FIELDS = ("checkpoint_s", "restart_s", "checkpoint_interval_s")
"""Fields of a task that say what saving takes."""
LEAST_INTERVAL_S = 1.0
"""Nothing is saved more often."""


@dataclass(frozen=True, slots=True)
class ScalingCurve:
    """Throughput and credit of a malleable task against its node count, linear between points.

    Parameters
    ----------
    nodes : tuple of int, shape (K,)
        Node counts, strictly increasing, first 0.
    throughput : tuple of float, shape (K,)
        Work per second at those counts, first 0.
    credit : tuple of float, shape (K,), optional
        What the default objective maximises at those counts, first 0; None means the throughput.

    Raises
    ------
    InvalidTaskError
        If lengths differ, counts are not whole or do not increase strictly from 0, or a throughput or credit is not
        a number, negative, not finite, or not 0 on 0 nodes.

    References
    ----------
    Liu et al., arXiv:2106.12091, section 3.
    """

    nodes: tuple[int, ...]
    throughput: tuple[float, ...]
    credit: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        convert_fields(self, InvalidTaskError)
        nodes = list(self.nodes)
        if len(nodes) < 2:
            raise InvalidTaskError(f"Expected at least two node counts, got {nodes}.")
        require(
            InvalidTaskError,
            (nodes[0] == 0, f"node counts to start at 0, got {nodes[0]}"),
            (all(a < b for a, b in itertools.pairwise(nodes)), f"node counts to increase strictly, got {nodes}"),
            (nodes[-1] <= MOST_NODES, f"node counts of at most {MOST_NODES:,}, got {nodes[-1]}"),
        )
        for name, values in (("throughput", self.throughput), ("credit", self.credit)):
            if values is not None and len(values) != len(nodes):
                what = f"{len(nodes)} values of {name}, one per node count"
                raise InvalidTaskError(f"Expected {what}, got {len(values)}.")
            for value in values or ():
                if not 0 <= value < math.inf:
                    raise InvalidTaskError(f"Expected {name} to be finite and >= 0, got {value}.")
            if values and values[0] != 0:
                raise InvalidTaskError(f"Expected {name} 0 on 0 nodes, got {values[0]}.")

    @classmethod
    def linear(cls, rate_1: float, max_nodes: int) -> ScalingCurve:
        """Linear scaling: `rate_1` work/s per node, up to `max_nodes` nodes."""
        rate, most = real_number("rate_1", rate_1, InvalidTaskError), _most_nodes(max_nodes)
        return cls((0, most), (0.0, rate * most))

    @classmethod
    def amdahl(cls, rate_1: float, parallel_fraction: float, max_nodes: int) -> ScalingCurve:
        """Amdahl's law: `rate_1 / ((1 - f) + f / n)` work/s on n nodes, f the parallel fraction.

        References
        ----------
        Amdahl, AFIPS 1967, doi:10.1145/1465482.1465560.
        """
        fraction = real_number("parallel_fraction", parallel_fraction, InvalidTaskError)
        require(InvalidTaskError, (0.0 <= fraction <= 1.0, f"0 <= parallel_fraction <= 1, got {fraction}"))
        rate, counts = real_number("rate_1", rate_1, InvalidTaskError), tuple(range(_most_nodes(max_nodes) + 1))
        return cls(counts, (0.0, *(rate / ((1.0 - fraction) + fraction / n) for n in counts[1:])))

    @property
    def max_nodes(self) -> int:
        """Largest node count of the curve."""
        return self.nodes[-1]

    def at(self, count: float) -> float:
        """Work per second on `count` nodes; linear between points."""
        return float(np.interp(count, self.nodes, self.throughput))

    def values(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Work per second at `counts`, same shape; linear between points."""
        return np.interp(counts, self.nodes, self.throughput)

    def credits(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Credit at `counts`, same shape; the throughput where no credit is given."""
        return np.interp(counts, self.nodes, self.throughput if self.credit is None else self.credit)


def _most_nodes(value: object) -> int:
    """Check `max_nodes`: a whole number of at most `MOST_NODES`."""
    most = whole_number("max_nodes", value, InvalidTaskError)
    if most > MOST_NODES:
        raise InvalidTaskError(f"Expected max_nodes <= {MOST_NODES:,}, got {most}.")
    return most


@dataclass(frozen=True, slots=True)
class NodePoints:
    """Seconds against the node count: linear between points, constant before the first and after the last.

    Parameters
    ----------
    nodes : tuple of int, shape (K,)
        Node counts of 1 or more, strictly increasing.
    seconds : tuple of float, shape (K,)

    Raises
    ------
    InvalidTaskError
        If lengths differ, there is no point, counts are not whole or do not increase strictly, or seconds are no
        numbers.
    """

    nodes: tuple[int, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        convert_fields(self, InvalidTaskError)
        increases = all(a < b for a, b in itertools.pairwise((0, *self.nodes)))
        count, seconds = len(self.nodes), len(self.seconds)
        require(
            InvalidTaskError,
            (count > 0 and increases, f"node counts that increase strictly from 1 or more, got {list(self.nodes)}"),
            (seconds == count, f"{count} seconds, one per node count, got {seconds}"),
        )


Seconds = float | NodePoints
"""Seconds at any node count, or by node count."""


@dataclass(frozen=True, slots=True, eq=False)
class SavingCosts:
    """Seconds that saving takes at every node count; arrays of shape (max_nodes + 1,).

    Parameters
    ----------
    checkpoint_s, restart_s : ndarray of float64
        Time to save, and time to load and warm up.
    interval_s : ndarray of float64, or None
        Time between the end of a save and the begin of the next; None for the Young/Daly optimum.
    """

    checkpoint_s: NDArray[np.float64]
    restart_s: NDArray[np.float64]
    interval_s: NDArray[np.float64] | None

    @classmethod
    def tabulate(cls, fields: Mapping[str, Seconds | None], max_nodes: int) -> SavingCosts | None:
        """Tables of the fields `SAVING_FIELDS`; None if none of them is given.

        Raises
        ------
        InvalidTaskError
            If one is negative or not finite, the interval is below `LEAST_INTERVAL_S`, or `checkpoint_s` is missing.
        """
        tables = {name: _table(name, value, max_nodes) for name, value in fields.items() if value is not None}
        if tables and "checkpoint_s" not in tables:
            raise InvalidTaskError(f"Expected checkpoint_s with {next(iter(tables))}, got none.")
        restart_s = tables.get("restart_s", np.zeros(max_nodes + 1))
        return cls(tables["checkpoint_s"], restart_s, tables.get("checkpoint_interval_s")) if tables else None


def _table(name: str, by_nodes: Seconds, max_nodes: int) -> NDArray[np.float64]:
    """The seconds at 0 to `max_nodes` nodes, checked."""
    nodes, seconds = (by_nodes.nodes, by_nodes.seconds) if isinstance(by_nodes, NodePoints) else ((1,), (by_nodes,))
    least = LEAST_INTERVAL_S if name == "checkpoint_interval_s" else 0.0
    for value in seconds:
        if not (math.isfinite(value) and value >= least):
            raise InvalidTaskError(f"Expected {name} to be finite and >= {least:g}, got {value}.")
    return np.interp(np.arange(max_nodes + 1), nodes, seconds)


@dataclass(frozen=True, slots=True)
class TuningSpec:
    """The job that a tuned task is a recurrence of, and how it is tuned.

    Parameters
    ----------
    train_trace, power_trace : str
        Files of measured training runs and of their power.
    dataset, network, optimizer : str
        Names of the job's parts in these files.
    target_metric : float
        Validation metric to reach.
    max_epochs : int
        Epochs after which a run gives up.
    default_batch_size : int
        Batch size to start with.
    eta : float
        Weight of energy against time, 0 to 1.
    beta : float
        A run stops before it costs this many times the cheapest run; inf for never.
    seed : int, optional
        Seed of the group's policy and paths; None for the replay's seed.
    idle_power_w : float, optional
        Power of one of its GPUs while the task holds it without training, in watts; None for the power of an idle node
        of the pool.
    policy, power_policy : str, optional
        Names of the policies that choose batch sizes and power limits; None for the replay's.

    Raises
    ------
    InvalidTaskError
        If a field is of another type, a number out of range, or a name empty.
    """

    train_trace: str
    power_trace: str
    dataset: str
    network: str
    optimizer: str
    target_metric: float
    max_epochs: int
    default_batch_size: int
    eta: float = 0.5
    beta: float = 2.0
    seed: int | None = None
    idle_power_w: float | None = None
    policy: str | None = None
    power_policy: str | None = None

    def __post_init__(self) -> None:
        convert_fields(self, InvalidTaskError, "zeus.{}")
        texts = ("train_trace", "power_trace", "dataset", "network", "optimizer", "policy", "power_policy")
        require(
            InvalidTaskError,
            *((getattr(self, name) != "", f"zeus.{name} to be text, got ''") for name in texts),
            (math.isfinite(self.target_metric), f"a finite zeus.target_metric, got {self.target_metric}"),
            (self.max_epochs >= 1, f"zeus.max_epochs >= 1, got {self.max_epochs}"),
            (self.default_batch_size >= 1, f"zeus.default_batch_size >= 1, got {self.default_batch_size}"),
            (0.0 <= self.eta <= 1.0, f"zeus.eta from 0 (time) to 1 (energy), got {self.eta}"),
            (self.beta > 0.0, f"zeus.beta > 0 (inf: never stop early), got {self.beta}"),
            ((self.seed or 0) >= 0, f"zeus.seed >= 0, got {self.seed}"),
            (
                0.0 <= (self.idle_power_w or 0.0) < math.inf,
                f"zeus.idle_power_w of 0 W or more, got {self.idle_power_w}",
            ),
        )


@dataclass(frozen=True, slots=True, eq=False)
class TunedRun:
    """One run of a tuned task at one power limit.

    Parameters
    ----------
    attempt : int
        Number of this attempt of the task, from 0.
    batch_size, power_limit_w : int
        Settings of the run.
    reaches : bool
        Whether it reaches its target; if not, it stops early and the task is tried again.
    power_w : ndarray of float64, shape (max_nodes + 1,)
        Power at every count while it trains, in watts.
    profiling_work : float
        Work at the start of the run that tries all power limits; 0 if this batch size was profiled before.
    profiling_power_w : ndarray of float64, shape (max_nodes + 1,)
        Power at every count during that work, in watts.
    """

    attempt: int
    batch_size: int
    power_limit_w: int
    reaches: bool
    power_w: NDArray[np.float64]
    profiling_work: float
    profiling_power_w: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One malleable training task, as its owner describes it.

    Parameters
    ----------
    name : str
        Unique in its task set.
    min_nodes, max_nodes : int
        Bounds on the node count while it runs.
    work : float
        Work units to do (samples, or whatever the throughput counts).
    scaling : ScalingCurve
        Must reach `max_nodes`.
    grow_cost_s, shrink_cost_s : float
        Seconds of progress lost when it gains nodes, and when it gives up or loses nodes; not used with `checkpoint_s`.
    submit_s : float
        Submission, in seconds from the window's start; not used if `submit_ns` is given.
    submit_ns : int, optional
        Submission, in nanoseconds since the Unix epoch (UTC).
    weight : float
        Priority, > 0.
    deadline_s : float, optional
        Deadline, in seconds from the window's start; not used if `deadline_ns` is given.
    deadline_ns : int, optional
        Deadline, in nanoseconds since the Unix epoch (UTC).
    gpus_per_node : int
    group, user : str, optional
    tuning : TuningSpec, optional
        The job whose batch size and power limit are tuned; `work` and `scaling` then only apply until the task is
        admitted and gets a run.
    run : TunedRun, optional
        Current run of a tuned task; `work` is then in epochs, and `scaling` in epochs/s.
    checkpoint_s, restart_s : float or NodePoints, optional
        Seconds that it takes to save its progress, and to load it and warm up: see `bftrainer.replay.cluster_task`.
    checkpoint_interval_s : float or NodePoints, optional
        Seconds that it trains between saves; None for the Young/Daly optimum.

    Attributes
    ----------
    saves : SavingCosts or None
        What saving takes at every count; None without `checkpoint_s`.
    rates : ndarray of float64, shape (max_nodes + 1,)
        Throughput at every count, read-only: work/s.
    credits : ndarray of float64, shape (max_nodes + 1,)
        Credit at every count, read-only.

    Raises
    ------
    InvalidTaskError
        If a field is of another type, a bound, a cost or the amount of work is out of range, or the curve ends before
        `max_nodes`. Numbers of numpy are converted to Python's.
    """

    name: str
    min_nodes: int
    max_nodes: int
    work: float
    scaling: ScalingCurve
    grow_cost_s: float = 0.0
    shrink_cost_s: float = 0.0
    submit_s: float = 0.0
    submit_ns: int | None = None
    weight: float = 1.0
    deadline_s: float | None = None
    deadline_ns: int | None = None
    gpus_per_node: int = 1
    group: str | None = None
    user: str | None = None
    tuning: TuningSpec | None = None
    run: TunedRun | None = None
    checkpoint_s: Seconds | None = None
    restart_s: Seconds | None = None
    checkpoint_interval_s: Seconds | None = None
    saves: SavingCosts | None = field(init=False, repr=False, compare=False)
    rates: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    credits: NDArray[np.float64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            convert_fields(self, InvalidTaskError)
            self._check()
            saves = SavingCosts.tabulate({name: getattr(self, name) for name in SAVING_FIELDS}, self.max_nodes)
        except InvalidTaskError as fault:
            raise InvalidTaskError(f"{str(fault).removesuffix('.')} (task {self.name}).") from None
        object.__setattr__(self, "saves", saves)
        counts = np.arange(self.max_nodes + 1)
        for name, table in (("rates", self.scaling.values(counts)), ("credits", self.scaling.credits(counts))):
            table.flags.writeable = False
            object.__setattr__(self, name, table)

    def _check(self) -> None:
        least, most, reach = self.min_nodes, self.max_nodes, self.scaling.max_nodes
        require(
            InvalidTaskError,
            (bool(self.name), "a name, got ''"),
            (least >= 1, f"min_nodes >= 1, got {least}"),
            (least <= most, f"min_nodes <= max_nodes, got {least} > {most}"),
            (most <= reach, f"max_nodes within the scaling curve (to {reach}), got {most}"),
            (0 < self.work < math.inf, f"work > 0, got {self.work}"),
            (0 < self.weight < math.inf, f"weight > 0, got {self.weight}"),
            (0 <= self.grow_cost_s < math.inf, f"grow_cost_s >= 0, got {self.grow_cost_s}"),
            (0 <= self.shrink_cost_s < math.inf, f"shrink_cost_s >= 0, got {self.shrink_cost_s}"),
            (math.isfinite(self.submit_s), f"a finite submission time, got {self.submit_s}"),
            (math.isfinite(self.deadline_s or 0.0), f"a finite deadline, got {self.deadline_s}"),
            *(
                (abs(time_ns or 0) <= _MOST_NS, f"{name} between the years 1678 and 2262, got {time_ns}")
                for name, time_ns in (("submit_ns", self.submit_ns), ("deadline_ns", self.deadline_ns))
            ),
            (self.gpus_per_node >= 1, f"gpus_per_node >= 1, got {self.gpus_per_node}"),
            (
                self.tuning is None or self.scaling.at(1) > 0,
                "throughput above 0 on one node, which a tuned task's speed-up refers to, got 0",
            ),
        )

    def rename(self, name: str) -> TaskSpec:
        """The same task by another name; its tables are shared, as thousands of copies would be slow and large."""
        renamed = copy(self)
        object.__setattr__(renamed, "name", name)
        return renamed

    @property
    def tuning_group(self) -> str:
        """Name of the group that it is tuned with: `group`, or its own name without one."""
        return self.name if self.group is None else self.group

    def change_s(self, count: int) -> tuple[float, float]:
        """Seconds of progress that it loses if a decision gives it more nodes than `count`, and if fewer."""
        if self.saves is None:
            return self.grow_cost_s, self.shrink_cost_s
        return (self.saves.checkpoint_s.item(count) + self.saves.restart_s.item(count),) * 2

    def start_s(self, at: int | slice) -> Any:
        """Seconds of progress that a start from nothing costs if it is not free, at a count or at several."""
        return self.grow_cost_s if self.saves is None else self.saves.restart_s[at]

    def submission_s(self, start_ns: int) -> float:
        """Submission in seconds after the instant `start_ns` (nanoseconds since the epoch); may be negative."""
        return self.submit_s if self.submit_ns is None else (self.submit_ns - start_ns) / NS_PER_S


@dataclass(slots=True, eq=False)
class TaskState:
    """A task in the middle of a replay, as an objective sees it; made anew for each question.

    Parameters
    ----------
    spec : TaskSpec
    nodes : int
        Nodes it holds before the decision.
    progress : float
        Work units done so far.
    submitted_s : float
        Submission, seconds since the window's start.
    start_ns : int
        The window's start, nanoseconds since the Unix epoch.
    modes : tuple of TaskSpec
        Forms in which it may run, including `spec`: one for each power limit available; by default only `spec`.
    """

    spec: TaskSpec
    nodes: int
    progress: float
    submitted_s: float
    start_ns: int = 0
    modes: tuple[TaskSpec, ...] = ()

    def __post_init__(self) -> None:
        if not self.modes:
            self.modes = (self.spec,)

    @property
    def deadline_s(self) -> float:
        """Deadline, seconds since the window's start; infinity without one."""
        spec = self.spec
        if spec.deadline_ns is not None:
            return (spec.deadline_ns - self.start_ns) / NS_PER_S
        return math.inf if spec.deadline_s is None else spec.deadline_s


class Tuner(Protocol):
    """Chooses batch sizes and power limits as tasks are admitted, and learns from how their runs end."""

    @property
    def failures(self) -> Mapping[str, str]:
        """Reason of failure, for each group that cannot continue."""
        ...

    def start(self, task: TaskSpec) -> tuple[TaskSpec, ...]:
        """The task's next run, as one task per available power limit, the chosen one first; empty if its group failed.

        Each of them has the work and rates of the run, and a `TunedRun`.
        """
        ...

    def ended(self, running: TaskSpec, work_at: Mapping[int, float]) -> None:
        """Report the end of a run that `start` gave; `work_at` is the net work done at each power limit."""
        ...

    def checkpoint(self, group: str) -> Callable[[], None]:
        """Save a group's state; returns a function that restores it, and so undoes later starts and ends of runs.

        Call the functions of several groups in reverse order.
        """
        ...
