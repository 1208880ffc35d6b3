"""Malleable training tasks: bounds, scalability curve, rescaling costs."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import InvalidTaskError
from bftrainer.model.saving_costs import SAVING_FIELDS, NodePoints, SavingCosts, Seconds
from bftrainer.model.tuning import TunedRun, TuningSpec
from bftrainer.model.type_checks import number_list, real_number, whole_number

NS_PER_S = 1_000_000_000
MOST_NODES = 10_000_000
"""Largest node count of a task: tables over counts have to fit in memory."""

_WHOLE_FIELDS = ("min_nodes", "max_nodes", "gpus_per_node", "submit_ns", "deadline_ns")
_REAL_FIELDS = ("work", "weight", "grow_cost_s", "shrink_cost_s", "submit_s", "deadline_s", *SAVING_FIELDS)
_OPTIONAL_FIELDS = ("submit_ns", "deadline_ns", "deadline_s", *SAVING_FIELDS)


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
        for name, made, kind in (
            ("nodes", whole_number, int),
            ("throughput", real_number, float),
            ("credit", real_number, float),
        ):
            values = getattr(self, name)
            if values is None and name == "credit":
                continue
            if not (type(values) is tuple and set(map(type, values)) <= {kind}):
                what = "node counts" if name == "nodes" else name
                object.__setattr__(self, name, number_list(what, values, made, InvalidTaskError))
        nodes = self.nodes
        if len(nodes) < 2:
            raise InvalidTaskError(f"Expected at least two node counts, got {list(nodes)}.")
        if nodes[0] != 0:
            raise InvalidTaskError(f"Expected node counts to start at 0, got {nodes[0]}.")
        if any(b <= a for a, b in itertools.pairwise(nodes)):
            raise InvalidTaskError(f"Expected node counts to increase strictly, got {list(nodes)}.")
        if nodes[-1] > MOST_NODES:
            raise InvalidTaskError(f"Expected node counts of at most {MOST_NODES:,}, got {nodes[-1]}.")
        _check_curve("throughput", self.throughput, len(nodes))
        if self.credit is not None:
            _check_curve("credit", self.credit, len(nodes))

    @classmethod
    def linear(cls, rate_1: float, max_nodes: int) -> ScalingCurve:
        """Linear scaling: `rate_1` work/s per node, up to `max_nodes` nodes."""
        most, rate = _most_nodes(max_nodes), real_number("rate_1", rate_1, InvalidTaskError)
        return cls((0, most), (0.0, rate * most))

    @classmethod
    def amdahl(cls, rate_1: float, parallel_fraction: float, max_nodes: int) -> ScalingCurve:
        """Amdahl's law: `rate_1 / ((1 - f) + f / n)` work/s on n nodes, f the parallel fraction.

        References
        ----------
        Amdahl, AFIPS 1967, doi:10.1145/1465482.1465560.
        """
        fraction = real_number("parallel_fraction", parallel_fraction, InvalidTaskError)
        if not 0.0 <= fraction <= 1.0:
            raise InvalidTaskError(f"Expected 0 <= parallel_fraction <= 1, got {fraction}.")
        rate = real_number("rate_1", rate_1, InvalidTaskError)
        counts = tuple(range(_most_nodes(max_nodes) + 1))
        serial = 1.0 - fraction
        return cls(counts, (0.0, *(rate / (serial + fraction / n) for n in counts[1:])))

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


def _is_text(value: object) -> bool:
    """Whether it is text that can be written: bytes of an argument that are no text stand as surrogates."""
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in value))


def _check_curve(name: str, values: tuple[float, ...], length: int) -> None:
    if len(values) != length:
        raise InvalidTaskError(f"Expected {length} values of {name}, one per node count, got {len(values)}.")
    for value in values:
        if not math.isfinite(value) or value < 0:
            raise InvalidTaskError(f"Expected {name} to be finite and >= 0, got {value}.")
    if values[0] != 0:
        raise InvalidTaskError(f"Expected {name} 0 on 0 nodes, got {values[0]}.")


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
        Seconds that it takes to save its progress, and to load it and warm up: see `bftrainer.replay.saving`.
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
        self._check_types()
        self._check()
        counts = np.arange(self.max_nodes + 1)
        for name, table in (("rates", self.scaling.values(counts)), ("credits", self.scaling.credits(counts))):
            table.flags.writeable = False
            object.__setattr__(self, name, table)
        try:
            saves = SavingCosts.of({name: getattr(self, name) for name in SAVING_FIELDS}, self.max_nodes)
        except InvalidTaskError as fault:
            self._refuse(str(fault).removesuffix("."))
        object.__setattr__(self, "saves", saves)

    def _check_types(self) -> None:
        for name in ("name", "group", "user"):
            value = getattr(self, name)
            if not _is_text(value) and (value is not None or name == "name"):
                self._refuse(f"Expected {name} to be text, got {value!r}")
        if not isinstance(self.scaling, ScalingCurve):
            self._refuse(f"Expected scaling to be a ScalingCurve, got {self.scaling!r}")
        for name, kind in (("tuning", TuningSpec), ("run", TunedRun)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                self._refuse(f"Expected {name} to be a {kind.__name__}, got {value!r}")
        for names, made in ((_WHOLE_FIELDS, whole_number), (_REAL_FIELDS, real_number)):
            for name in names:
                value = getattr(self, name)
                given_by_points = name in SAVING_FIELDS and isinstance(value, NodePoints)
                if given_by_points or (value is None and name in _OPTIONAL_FIELDS):
                    continue
                try:
                    object.__setattr__(self, name, made(name, value, InvalidTaskError))
                except InvalidTaskError as fault:
                    self._refuse(str(fault).removesuffix("."))

    def _check(self) -> None:
        if not self.name:
            self._refuse("Expected a name, got ''")
        if self.min_nodes < 1:
            self._refuse(f"Expected min_nodes >= 1, got {self.min_nodes}")
        if self.min_nodes > self.max_nodes:
            self._refuse(f"Expected min_nodes <= max_nodes, got {self.min_nodes} > {self.max_nodes}")
        if self.max_nodes > self.scaling.max_nodes:
            self._refuse(
                f"Expected max_nodes within the scaling curve (to {self.scaling.max_nodes}), got {self.max_nodes}"
            )
        for name, value in (("work", self.work), ("weight", self.weight)):
            if not (math.isfinite(value) and value > 0):
                self._refuse(f"Expected {name} > 0, got {value}")
        for name, value in (("grow_cost_s", self.grow_cost_s), ("shrink_cost_s", self.shrink_cost_s)):
            if not (math.isfinite(value) and value >= 0):
                self._refuse(f"Expected {name} >= 0, got {value}")
        for name, when in (("submission time", self.submit_s), ("deadline", self.deadline_s)):
            if when is not None and not math.isfinite(when):
                self._refuse(f"Expected a finite {name}, got {when}")
        for name, at_ns in (("submit_ns", self.submit_ns), ("deadline_ns", self.deadline_ns)):
            if at_ns is not None and abs(at_ns) > np.iinfo(np.int64).max:
                self._refuse(f"Expected {name} between the years 1678 and 2262, got {at_ns}")
        if self.gpus_per_node < 1:
            self._refuse(f"Expected gpus_per_node >= 1, got {self.gpus_per_node}")
        if self.tuning is not None and not self.scaling.at(1) > 0:
            self._refuse("Expected throughput above 0 on one node, which a tuned task's speed-up refers to, got 0")

    def _refuse(self, message: str) -> NoReturn:
        raise InvalidTaskError(f"{message} (task {self.name}).")

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

    def submitted_after_s(self, start_ns: int) -> float:
        """Submission in seconds after the instant `start_ns` (nanoseconds since the epoch); may be negative."""
        return self.submit_s if self.submit_ns is None else (self.submit_ns - start_ns) / NS_PER_S

    def due_after_s(self, start_ns: int) -> float:
        """Deadline in seconds after the instant `start_ns` (nanoseconds since the epoch); infinity without one."""
        if self.deadline_ns is not None:
            return (self.deadline_ns - start_ns) / NS_PER_S
        return math.inf if self.deadline_s is None else self.deadline_s


@dataclass(frozen=True, slots=True, eq=False)
class TaskState:
    """A task in the middle of a replay, as an objective sees it.

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
            object.__setattr__(self, "modes", (self.spec,))

    @property
    def deadline_s(self) -> float:
        """Deadline, seconds since the window's start; infinity without one."""
        return self.spec.due_after_s(self.start_ns)
