"""What the page of a job shows: read in one transaction, and computed from that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bftrainer.report.intervals import Estimate, estimate
from bftrainer.zeus.server.books.transaction import Transaction
from bftrainer.zeus.server.messages import LenientJobSpec
from bftrainer.zeus.server.optimizer import ZeusBatchSizeOptimizer
from bftrainer.zeus.server.pages import page_queries as queries
from bftrainer.zeus.server.pages.job_facts import interval_text, saved_texts
from bftrainer.zeus.server.pages.next_choice import NextChoice, next_choice
from bftrainer.zeus.server.pages.savings import Savings, SizeFigures, by_batch_size, savings
from bftrainer.zeus.server.pages.trial_charts import Chart, Plotted, chart, series_of, si
from bftrainer.zeus.server.state_messages import JobSummary

TRIALS, RESULTS, RUNNING = 100, 300, 20
UNITS = {"cost": "J", "energy": "J", "time": "s", "metric": ""}


@dataclass(frozen=True, slots=True)
class JobView:
    """All that the page of a job shows.

    Parameters
    ----------
    job, tally : JobSummary and TrialTally
        The job, and what else there is of its trials.
    choice : NextChoice
        The next batch size, and why.
    figures, metrics : dict of int to SizeFigures and to Estimate
        Results by batch size; the metric of the latest of them.
    saved, saved_texts : Savings and dict of str to str
        What tuning has saved, and the same in words.
    charts_by_size, charts_by_result : list of Chart
        The same quantities twice; the latter of the latest `RESULTS` results.
    series : dict of int to int
        Colour and shape of each batch size.
    trials, running : list
        The latest, one more than are shown if there are others.
    """

    job: JobSummary
    tally: queries.TrialTally
    choice: NextChoice
    figures: dict[int, SizeFigures]
    metrics: dict[int, Estimate]
    saved: Savings
    saved_texts: dict[str, str]
    charts_by_size: list[Chart]
    charts_by_result: list[Chart]
    series: dict[int, int]
    trials: list[Any]
    running: list[Any]


def job_view(transaction: Transaction, optimizer: ZeusBatchSizeOptimizer, job_id: str, before: int) -> JobView:
    """Read a job and compute its figures.

    Parameters
    ----------
    transaction : Transaction
        Reads the job.
    optimizer : ZeusBatchSizeOptimizer
        Knows which trials are still waited for.
    job_id : str
        Name of the job.
    before : int
        Trials below this number are listed.

    Raises
    ------
    UnknownJobError
        If there is no such job.
    """
    job = transaction.job(job_id)
    figures = by_batch_size(queries.moments(transaction, job_id))
    latest = queries.results(transaction, job_id, RESULTS)[::-1]
    series = series_of(sorted({*figures, *(row.batch_size for row in latest)}))
    metrics = _metrics(latest)
    saved = savings(figures, job.spec.default_batch_size)
    return JobView(
        job,
        queries.tally(transaction, job_id),
        choice_of(transaction, optimizer, job),
        figures,
        metrics,
        saved,
        saved_texts(saved),
        _charts_by_size(figures, metrics, series, job.spec),
        _charts_by_result(latest, series, job.spec),
        series,
        queries.trials(transaction, job_id, before, TRIALS + 1),
        queries.running(transaction, job_id, RUNNING + 1),
    )


def choice_of(transaction: Transaction, optimizer: ZeusBatchSizeOptimizer, job: JobSummary) -> NextChoice:
    """Say which batch size the next trial of a job would get: of a copy of its state, which is not stored."""
    job_id = job.spec.job_id or ""

    now = optimizer.clock()

    def runs(number: int) -> bool:
        """Whether a trial is running."""
        return optimizer.is_alive(transaction.find_trial(job_id, number), now)

    parallel = optimizer.explores_at_once(job.spec)
    return next_choice(transaction.tuned(job_id), job.trials + 1, runs, parallel=parallel)


def _metrics(latest: Sequence[Any]) -> dict[int, Estimate]:
    """Metric of the latest results that converged, by batch size."""
    found: dict[int, list[float]] = {}
    for row in latest:
        if row.converged and row.metric is not None:
            found.setdefault(row.batch_size, []).append(row.metric)
    return {size: estimate(values) for size, values in found.items()}


def _charts_by_size(
    figures: Mapping[int, SizeFigures],
    metrics: Mapping[int, Estimate],
    series: Mapping[int, int],
    spec: LenientJobSpec,
) -> list[Chart]:
    sizes = sorted(size for size, each in figures.items() if each.converged)
    names = {float(index): str(size) for index, size in enumerate(sizes)}
    drawn = []
    for name, unit in UNITS.items():
        means = metrics if name == "metric" else {size: figures[size].means[name] for size in sizes}
        points = [
            Plotted(index, means[size].mean, series[size], True, f"{size}: {interval_text(means[size], unit)}", half)
            for index, size in enumerate(sizes)
            if size in means
            for half in (means[size].half_width,)
        ]
        if points:
            level = spec.target_metric if name == "metric" else None
            drawn.append(chart(name, unit, "batch size", points, names=names, level=level))
    return drawn


def _charts_by_result(latest: Sequence[Any], series: Mapping[int, int], spec: LenientJobSpec) -> list[Chart]:
    drawn = []
    for name, unit in UNITS.items():
        points = [
            Plotted(
                row.observation,
                value,
                series[row.batch_size],
                bool(row.converged),
                f"result {row.observation}: batch size {row.batch_size}, {si(value)}{unit}",
            )
            for row in latest
            if (value := getattr(row, name)) is not None
        ]
        if points:
            level = spec.target_metric if name == "metric" else None
            drawn.append(chart(name, unit, "result", points, level=level))
    return drawn
