"""What the page of a job shows, computed from its trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bftrainer.report.intervals import Estimate
from bftrainer.zeus.server.messages import LenientJobSpec, few
from bftrainer.zeus.server.pages.next_choice import NextChoice, next_choice
from bftrainer.zeus.server.pages.savings import (
    Savings,
    SizeFigures,
    estimate_mean,
    figures_by_size,
    saved_texts,
    savings,
    si,
)
from bftrainer.zeus.server.pages.trial_charts import Chart, Plotted, chart, series_of
from bftrainer.zeus.server.service import BatchSizeService
from bftrainer.zeus.server.state_messages import JobSummary, StoredTrial
from bftrainer.zeus.server.tuned_job import TrialStatus

TRIALS, RESULTS, RUNNING = 100, 300, 20
UNITS = {"cost": "J", "energy": "J", "time": "s", "metric": ""}


@dataclass(frozen=True, slots=True)
class JobView:
    """All that the page of a job shows.

    Parameters
    ----------
    job, facts : JobSummary and dict of str to str
        The job, and its settings and state in words.
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
    trials, running : list of StoredTrial
        The latest, one more than are shown if there are others.
    """

    job: JobSummary
    facts: dict[str, str]
    choice: NextChoice
    figures: dict[int, SizeFigures]
    metrics: dict[int, Estimate]
    saved: Savings
    saved_texts: dict[str, str]
    charts_by_size: list[Chart]
    charts_by_result: list[Chart]
    series: dict[int, int]
    trials: list[StoredTrial]
    running: list[StoredTrial]


def view_job(service: BatchSizeService, job_id: str, before: int) -> JobView:
    """Read a job and compute its figures; trials below the number `before` are listed.

    Raises
    ------
    UnknownJobError
        If there is no such job.
    """
    job, trials = service.job(job_id), service.trials(job_id)
    by_number = {trial.trial_number: trial for trial in trials}
    choice = next_choice(
        service.copy_tuning(job_id), job.trials + 1, lambda number: service.is_alive(by_number.get(number))
    )
    figures = figures_by_size(trials)
    results = [row for row in trials if row.cost is not None and row.excluded is None and not row.inherited]
    latest = sorted(results, key=lambda row: row.observation or 0)[-RESULTS:]
    series = series_of(sorted({*figures, *(row.batch_size for row in latest)}))
    metrics = _estimate_metrics(latest)
    saved = savings(figures, job.spec.default_batch_size)
    return JobView(
        job,
        _describe(job, trials),
        choice,
        figures,
        metrics,
        saved,
        saved_texts(saved),
        _charts_by_size(figures, metrics, series, job.spec),
        _charts_by_result(latest, series, job.spec),
        series,
        [row for row in reversed(trials) if row.trial_number < before][: TRIALS + 1],
        [row for row in reversed(trials) if row.status == TrialStatus.DISPATCHED][: RUNNING + 1],
    )


def moment(seconds: float | None) -> str:
    """A time as UTC."""
    if seconds is None:
        return "–"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def interval_text(mean: Estimate, unit: str) -> str:
    """A mean, and how far its interval reaches to both sides."""
    return f"{si(mean.mean, mean.half_width)}{unit}".rstrip()


def _describe(job: JobSummary, trials: Sequence[StoredTrial]) -> dict[str, str]:
    """Settings and state of a job, by what they are called."""
    spec = job.spec
    side = "at least" if spec.higher_is_better_metric else "at most"
    inherited = sum(trial.inherited for trial in trials)
    excluded = sum(trial.excluded is not None for trial in trials)
    cheapest = f"{si(job.min_cost)}J with batch size {job.min_cost_batch_size}"
    if job.min_cost is None:
        cheapest = "none of its own yet" if inherited else "none yet"
    counts = [f"{job.trials:,}", f"{job.observations:,} with a result"]
    counts += [f"{inherited:,} taken over from another job"] * (inherited > 0)
    counts += [f"{excluded:,} voided or archived, which count for nothing"] * (excluded > 0)
    return {
        "Stage": job.stage + ("" if job.exploring is None else f", exploring batch size {job.exploring}"),
        "Owner": job.owner or "nobody",
        "Batch sizes": f"{few(spec.batch_sizes)}; default {spec.default_batch_size}",
        "Left": few(job.remaining) or "none",
        "Target": f"{side} {spec.target_metric} within {spec.max_epochs} epochs",
        "Weight of energy": f"{spec.eta_knob}",
        "Stops at": "never" if spec.beta_knob is None else f"{spec.beta_knob} times the cheapest run",
        "Cheapest run": cheapest,
        "Trials": ", ".join(counts),
        "Runs on": f"{spec.number_of_gpus} × {spec.gpu_model}, {si(spec.max_power)}W in all",
        "Registered": f"{moment(job.registered)} UTC",
    }


def _estimate_metrics(latest: Sequence[StoredTrial]) -> dict[int, Estimate]:
    """Metric of the latest results that converged, by batch size."""
    values: dict[int, list[float]] = {}
    for row in latest:
        if row.converged and row.metric is not None:
            values.setdefault(row.batch_size, []).append(row.metric)
    return {size: estimate_mean(own) for size, own in values.items()}


def _charts_by_size(
    figures: Mapping[int, SizeFigures],
    metrics: Mapping[int, Estimate],
    series: Mapping[int, int],
    spec: LenientJobSpec,
) -> list[Chart]:
    sizes = sorted(size for size, own in figures.items() if own.converged)
    names = {float(index): str(size) for index, size in enumerate(sizes)}
    charts = []
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
            charts.append(chart(name, unit, "batch size", points, names=names, level=level))
    return charts


def _charts_by_result(latest: Sequence[StoredTrial], series: Mapping[int, int], spec: LenientJobSpec) -> list[Chart]:
    charts = []
    for name, unit in UNITS.items():
        points = [
            Plotted(
                row.observation or 0,
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
            charts.append(chart(name, unit, "result", points, level=level))
    return charts
