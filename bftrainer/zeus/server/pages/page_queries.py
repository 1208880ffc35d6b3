"""What the status pages ask of the database: results and trials; each answer is of bounded length."""

from __future__ import annotations

from typing import Any, NamedTuple

from bftrainer.extras import requiring
from bftrainer.zeus.server.books.transaction import Transaction
from bftrainer.zeus.server.job_tables import REPORT, TRIAL
from bftrainer.zeus.server.tuned_job import TrialStatus

with requiring("The server needs", "server", "sqlalchemy"):
    import sqlalchemy as sa

_THE_JOB = TRIAL.c.job_id == sa.bindparam("job")
_LIMIT: sa.BindParameter[int] = sa.bindparam("limit")
# Results of the job's own runs that count.
_COUNTS = (_THE_JOB, TRIAL.c.observation.is_not(None), TRIAL.c.excluded.is_(None), TRIAL.c.inherited.is_(sa.false()))


def _at_the_end(column: sa.Column[Any]) -> sa.ScalarSelect[Any]:
    """What a trial said in its latest report."""
    reports = sa.select(column).where(REPORT.c.job_id == TRIAL.c.job_id, REPORT.c.trial_number == TRIAL.c.trial_number)
    return reports.order_by(REPORT.c.epoch.desc()).limit(1).scalar_subquery()


_TRIALS = sa.select(TRIAL, _at_the_end(REPORT.c.metric).label("metric"), _at_the_end(REPORT.c.epoch).label("epochs"))
_RESULTS = _TRIALS.where(*_COUNTS).order_by(TRIAL.c.observation.desc()).limit(_LIMIT)
_LATEST = (
    _TRIALS.where(_THE_JOB, TRIAL.c.trial_number < sa.bindparam("before"))
    .order_by(TRIAL.c.trial_number.desc())
    .limit(_LIMIT)
)
_RUNNING = (
    _TRIALS.where(_THE_JOB, TRIAL.c.status == TrialStatus.DISPATCHED.value)
    .order_by(TRIAL.c.trial_number.desc())
    .limit(_LIMIT)
)
_COUNTS_OF = {"excluded": TRIAL.c.excluded, "inherited": sa.case((TRIAL.c.inherited, 1))}
_TALLY = sa.select(*[sa.func.count(each).label(name) for name, each in _COUNTS_OF.items()]).where(_THE_JOB)

_QUANTITIES = (TRIAL.c.cost, TRIAL.c.energy, TRIAL.c.time)
_MEANS = (
    sa.select(
        TRIAL.c.batch_size,
        TRIAL.c.converged,
        sa.func.count().label("number"),
        *(sa.func.avg(each).label(f"mean_{each.name}") for each in _QUANTITIES),
    )
    .where(*_COUNTS)
    .group_by(TRIAL.c.batch_size, TRIAL.c.converged)
    .cte()
)
# Second moments about these means: sums of squares would lose the digits that spreads are made of.
_MOMENTS = (
    sa.select(
        *_MEANS.c,
        *(
            sa.func.sum((each - _MEANS.c[f"mean_{each.name}"]) * (each - _MEANS.c[f"mean_{each.name}"])).label(
                f"squares_{each.name}"
            )
            for each in _QUANTITIES
        ),
    )
    .join_from(
        TRIAL, _MEANS, sa.and_(TRIAL.c.batch_size == _MEANS.c.batch_size, TRIAL.c.converged == _MEANS.c.converged)
    )
    .where(*_COUNTS)
    .group_by(*_MEANS.c)
    .order_by(_MEANS.c.batch_size)
)


class TrialTally(NamedTuple):
    """How many trials of a job count for nothing, and how many were taken over from another job."""

    excluded: int
    inherited: int


def results(transaction: Transaction, job_id: str, limit: int) -> list[sa.Row[Any]]:
    """List results of a job that count, latest first, with metric and epochs of the last report."""
    return transaction.select(_RESULTS, job=job_id, limit=limit)


def trials(transaction: Transaction, job_id: str, before: int, limit: int) -> list[sa.Row[Any]]:
    """List trials of a job, latest first, starting before the number `before`."""
    return transaction.select(_LATEST, job=job_id, before=before, limit=limit)


def running(transaction: Transaction, job_id: str, limit: int) -> list[sa.Row[Any]]:
    """List trials of a job that run, latest first."""
    return transaction.select(_RUNNING, job=job_id, limit=limit)


def tally(transaction: Transaction, job_id: str) -> TrialTally:
    """Count what else there is of a job's trials."""
    (row,) = transaction.select(_TALLY, job=job_id)
    return TrialTally(row.excluded, row.inherited)


def moments(transaction: Transaction, job_id: str) -> list[sa.Row[Any]]:
    """Number, means and squared deviations of results that count, by batch size and whether they converged."""
    return transaction.select(_MOMENTS, job=job_id)
