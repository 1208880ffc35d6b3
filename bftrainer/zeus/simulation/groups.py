"""Groups of recurring jobs that overlap: as cluster traces record them, and tuned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, NamedTuple

from bftrainer.errors import NotConvergedError, TrainingTraceError
from bftrainer.zeus.simulation.recurring import NEVER_RAN_FACTOR, Corrections, Run, Tuning
from bftrainer.zeus.simulation.tables import Table, read_table

__all__ = ["MAX_GROUP_RETRIES", "Group", "GroupJob", "GroupTuning", "group_jobs", "read_groups"]

# Times that a job of a group is run again: published results need up to 26; without a bound some groups never end.
MAX_GROUP_RETRIES = 100

TIMES = ("start_time", "end_time", "runtime_ratio")


class GroupJob(NamedTuple):
    """One job of a group.

    Parameters
    ----------
    start_s, end_s : float
        When it started and ended in the cluster.
    runtime_ratio : float
        How long it took, relative to the traced job.
    """

    start_s: float
    end_s: float
    runtime_ratio: float


class Group(NamedTuple):
    """Recurrences of one job.

    Parameters
    ----------
    name : str
        The group's name.
    dataset : str
        Dataset of the traced job that stands for it.
    jobs : tuple of GroupJob
        By start time.
    """

    name: str
    dataset: str
    jobs: tuple[GroupJob, ...]


def read_groups(source: Any) -> dict[str, Group]:
    """Read a table of groups.

    Parameters
    ----------
    source : path or DataFrame
        Columns group, dataset, start_time, end_time (s), runtime_ratio; plain or packed CSV.

    Returns
    -------
    dict of str to Group
        In the order of their first rows; jobs of a group by start time, rows of equal time in their order.

    Raises
    ------
    TrainingTraceError
        If the table is malformed, or a group has two datasets.
    """
    table = read_table(source, ("group", "dataset", *TIMES), "groups")
    names, datasets = table.texts("group"), table.texts("dataset")
    found: dict[str, tuple[str, list[GroupJob]]] = {}
    for row, job in enumerate(_jobs(table)):
        dataset, jobs = found.setdefault(names[row], (datasets[row], []))
        if datasets[row] != dataset:
            raise TrainingTraceError(
                f"{table.where(row)}, column dataset: Expected one dataset a group, got {datasets[row]!r} after "
                f"{dataset!r} in group {names[row]}."
            )
        jobs.append(job)
    return {
        name: Group(name, dataset, tuple(sorted(jobs, key=lambda job: job.start_s)))
        for name, (dataset, jobs) in found.items()
    }


def group_jobs(group: Any) -> list[GroupJob]:
    """The jobs of a group given as a `Group`, a data frame or a sequence of jobs, in the order given.

    Raises
    ------
    TrainingTraceError
        If a job is not three numbers, ends before it starts, or a number is not usable.
    """
    if isinstance(group, Group):
        group = group.jobs
    if isinstance(group, Sequence) and not isinstance(group, str):
        columns = zip(*(_group_job(row, job) for row, job in enumerate(group)), strict=True)
        return _jobs(Table("group", dict(zip(TIMES, map(list, columns), strict=True)), [])) if group else []
    return _jobs(read_table(group, TIMES, "group_df"))


def _group_job(row: int, values: Any) -> GroupJob:
    try:
        return GroupJob(*values)
    except TypeError:
        raise TrainingTraceError(f"group, row {row}: Expected {', '.join(TIMES)}, got {values!r}.") from None


def _jobs(table: Table) -> list[GroupJob]:
    starts = table.numbers("start_time", "a finite time in seconds", math.isfinite)
    ends = table.numbers("end_time", "a finite time in seconds", math.isfinite)
    ratios = table.numbers("runtime_ratio", "a finite ratio above 0", lambda x: 0 < x < math.inf)
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if end < start:
            raise TrainingTraceError(f"{table.where(row)}: Expected end_time >= start_time, got {end} < {start}.")
    return [GroupJob(*job) for job in zip(starts, ends, ratios, strict=True)]


@dataclass(frozen=True, slots=True)
class _Flight:
    """A job in flight; what it will have done is known at its launch."""

    run: Run
    job: GroupJob
    spent_j: float


class GroupTuning:
    """A group's jobs, launched and reaped in the order of time.

    Parameters
    ----------
    tuning : Tuning
        The job being tuned.
    corrections : Corrections
        Departures from the published behaviour.
    max_retries : int
        Times that a job is run again before giving up.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 4.4, "Handling concurrent job submissions".
    """

    def __init__(self, tuning: Tuning, corrections: Corrections, max_retries: int) -> None:
        self.tuning, self.corrections, self.max_retries = tuning, corrections, max_retries
        default = tuning.job.default_bs
        assert default is not None  # checked before tuning starts
        self.best_batch_size = default
        self._flying: list[tuple[float, int, _Flight]] = []
        self._launched = 0

    def simulate(self, jobs: Sequence[GroupJob]) -> None:
        """Run all jobs to their targets."""
        for index, job in enumerate(jobs):
            self._reap(job.start_s)
            self._launch(index, job, 0, 0.0)
        self._reap(math.inf)

    def _reap(self, now_s: float) -> None:
        """End what has ended by now, in order of time, and of launch where that is equal."""
        while self._flying and self._flying[0][0] <= now_s:
            _, _, flight = heappop(self._flying)
            self._end(flight)

    def _end(self, flight: _Flight) -> None:
        tuning, run = self.tuning, flight.run
        tuning.batch_sizes.observe(tuning.job, run.batch_size, run.cost_j, run.reached)
        tuning.ended(run)
        spent = flight.spent_j + (run.cost_j if run.started else 0.0)
        if not run.reached:
            end = flight.job.end_s
            again = GroupJob(end, end + (end - flight.job.start_s), flight.job.runtime_ratio)
            self._launch(run.recurrence, again, run.attempt + 1, spent)
            return
        cost = spent if self.corrections.group_min_cost_accumulates else run.cost_j
        if cost < tuning.min_cost:
            tuning.min_cost, self.best_batch_size = cost, run.batch_size

    def _launch(self, index: int, job: GroupJob, attempt: int, spent_j: float) -> None:
        tuning = self.tuning
        if attempt > self.max_retries:
            raise NotConvergedError(
                f"{tuning.job}: Job {index} of the group did not reach the target metric in {attempt} tries."
            )
        batch_size = self.best_batch_size if self._flying else tuning.batch_sizes.predict(tuning.job)
        run = tuning.run(batch_size, index, attempt, job.runtime_ratio)
        if not run.started and self.corrections.group_never_ran_cost:
            run = run._replace(cost_j=NEVER_RAN_FACTOR * tuning.cost_bound)
        heappush(self._flying, (job.end_s, self._launched, _Flight(run, job, spent_j)))
        self._launched += 1
