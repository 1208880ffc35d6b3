"""What a workload is, and how its cases are timed against each other."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Case", "Measurement", "Plan", "Sample", "Unmeasured", "Workload", "measure"]

VALUE_TOLERANCE = 1e-6
TURN = 100


class Unmeasured(Exception):  # noqa: N818 - an outcome that is printed, not an error
    """A case cannot be run here; the text stands in its row instead of figures."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a driver runs workloads.

    Parameters
    ----------
    seed : int
        Of all that is drawn.
    scratch : Path
        An empty directory for what a workload writes.
    quick : bool
        Whether small inputs and one run will do, to see that everything works.
    repeat : int, optional
        Runs per case instead of the workload's own number.
    """

    seed: int
    scratch: Path
    quick: bool = False
    repeat: int | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One run.

    Parameters
    ----------
    seconds : float
    value : float, optional
        What was found. All cases of a group that give one must agree on it, run by run.
    peak_bytes : int, optional
        Most memory that was resident at once.
    finished : bool
        Whether it came to its end, or to a time limit.
    cpu_s : float, optional
        Processor time of all its processes, which other work on the machine lengthens less than `seconds`.
    """

    seconds: float
    value: float | None = None
    peak_bytes: int | None = None
    finished: bool = True
    cpu_s: float | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One row of a workload's table.

    Parameters
    ----------
    group : str
        Cases of one group do the same work and are compared.
    name : str
    once : callable
        Do a run on what `draw` made for it.
    draw : callable
        Fresh input of run number n, which depends on the seed and n alone; by default n itself. That of a whole turn
        is drawn before its first run, so that drawing does not empty the caches a run would find filled.
    prepare : callable
        Called first, untimed: what happens once a process (imports, licences) is not part of a run.
    most_runs : int, optional
        Never more runs than this.
    budget_s : float
        No further run starts when the case has used up this time.
    """

    group: str
    name: str
    once: Callable[[Any], Sample]
    draw: Callable[[int], Any] = lambda run: run
    prepare: Callable[[], None] = lambda: None
    most_runs: int | None = None
    budget_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Workload:
    """A named benchmark.

    Parameters
    ----------
    name : str
    measures : str
        One sentence.
    cases : callable
        All cases of a plan.
    runs : int
        Runs per case.
    baselines : tuple of str
        Cases that the others of their group are compared with.
    """

    name: str
    measures: str
    cases: Callable[[Plan], Iterable[Case]]
    runs: int = 3
    baselines: tuple[str, ...] = ()


@dataclass(slots=True)
class Measurement:
    """The runs of one case, by number; `note` says why there are none, or fewer than planned."""

    case: Case
    samples: dict[int, Sample] = field(default_factory=dict)
    note: str = ""

    @property
    def seconds(self) -> list[float]:
        """Durations of all runs."""
        return [sample.seconds for sample in self.samples.values()]

    @property
    def median_s(self) -> float | None:
        """Median duration; None without runs."""
        return statistics.median(self.seconds) if self.samples else None

    @property
    def p95_s(self) -> float | None:
        """Smallest duration that 95 % of the runs do not exceed; None without runs."""
        ordered = sorted(self.seconds)
        return ordered[math.ceil(0.95 * len(ordered)) - 1] if ordered else None

    @property
    def cpu_s(self) -> float | None:
        """Median processor time; None where it was not taken."""
        taken = [sample.cpu_s for sample in self.samples.values() if sample.cpu_s is not None]
        return statistics.median(taken) if taken else None

    @property
    def peak_bytes(self) -> int | None:
        """Largest resident memory of any run; None where it was not watched."""
        peaks = [sample.peak_bytes for sample in self.samples.values() if sample.peak_bytes is not None]
        return max(peaks, default=None)

    def ratio(self, baseline: Measurement) -> float | None:
        """Median duration over the baseline's, on the runs that both did; None if they share none."""
        common = self.samples.keys() & baseline.samples.keys()
        if not common:
            return None
        mine, other = (statistics.median(m.samples[n].seconds for n in common) for m in (self, baseline))
        return mine / other


def measure(workload: Workload, plan: Plan) -> Iterator[Measurement]:
    """Time all cases of a workload, group by group.

    The cases of a group take turns, so that whatever else the machine does meets all of them alike; a turn is some
    runs, as alternating after each would time the caches that the others have filled.

    Raises
    ------
    RuntimeError
        If two cases of a group find different values in the same run.
    """
    runs = plan.repeat or (1 if plan.quick else workload.runs)
    for _, cases in itertools.groupby(workload.cases(plan), key=lambda case: case.group):
        yield from _measure_group([Measurement(case) for case in cases], runs)


def _measure_group(group: list[Measurement], runs: int) -> list[Measurement]:
    going = [one for one in group if _prepared(one)]
    for first in range(0, runs, TURN):
        turn = range(first, min(first + TURN, runs))
        going = [one for one in going if _has_taken(one, turn, runs)]
        for number in turn:
            _check_values(group, number)
    for one in group:
        stopped = sum(not sample.finished for sample in one.samples.values())
        if stopped:
            one.note = f"{stopped} of {len(one.samples)} ended by the time limit"
    return group


def _prepared(one: Measurement) -> bool:
    try:
        one.case.prepare()
    except Unmeasured as reason:
        one.note = str(reason)
        return False
    return True


def _has_taken(one: Measurement, turn: range, runs: int) -> bool:
    """Do a turn of a case, unless it has had its share on the way or cannot go on."""
    case = one.case
    inputs = [(number, case.draw(number)) for number in turn if number < (case.most_runs or runs)]
    for number, given in inputs:
        if math.fsum(one.seconds) >= case.budget_s:
            return False
        try:
            one.samples[number] = case.once(given)
        except Unmeasured as reason:
            one.note = str(reason)
            return False
    return len(inputs) == len(turn)


def _check_values(group: Sequence[Measurement], number: int) -> None:
    found = [
        (one.case.name, one.samples[number].value)
        for one in group
        if number in one.samples and one.samples[number].value is not None
    ]
    for name, value in found[1:]:
        first_name, first = found[0]
        if not math.isclose(value, first, rel_tol=VALUE_TOLERANCE):  # type: ignore[arg-type]
            raise RuntimeError(
                f"{group[0].case.group}, run {number}: {name} finds {value}, {first_name} finds {first}."
            )
