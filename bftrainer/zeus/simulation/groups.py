"""Groups of recurring jobs that overlap, as cluster traces record them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from bftrainer.errors import TrainingTraceError
from bftrainer.zeus.simulation.tables import Table, read_table

__all__ = ["Group", "GroupJob", "group_jobs", "read_groups"]

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
