"""What the page of a job shows, computed from its trials."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from bftrainer.report.intervals import Estimate
from bftrainer.zeus.server.messages import few
from bftrainer.zeus.server.pages.next_choice import next_choice
from bftrainer.zeus.server.pages.savings import estimate_mean, figures_by_size, saved_texts, savings, si
from bftrainer.zeus.server.service import BatchSizeService
from bftrainer.zeus.server.state_messages import JobSummary, StoredTrial
from bftrainer.zeus.server.tuned_job import TrialStatus

TRIALS, RESULTS, RUNNING = 100, 300, 20


def view_job(service: BatchSizeService, job_id: str, before: int) -> dict[str, Any]:
    """Read a job and compute what its page shows, by the names in its template.

    Of trials below the number `before` the latest are listed, and of those that run, one more than are shown if there
    are others.

    Raises
    ------
    NotFoundError
        If there is no such job.
    """
    job, trials = service.job(job_id), service.trials(job_id)
    by_number = {trial.trial_number: trial for trial in trials}
    tuned, figures = service.copy_tuning(job_id), figures_by_size(trials)
    results = [row for row in trials if row.cost is not None and row.excluded is None and not row.inherited]
    latest = sorted(results, key=lambda row: row.observation or 0)[-RESULTS:]
    saved = savings(figures, job.spec.default_batch_size)
    return {
        "facts": _describe(job, trials),
        "choice": next_choice(tuned, job.trials + 1, lambda number: service.is_alive(by_number.get(number))),
        "figures": figures,
        "metrics": _estimate_metrics(latest),
        "saved": saved,
        "saved_texts": saved_texts(saved),
        "trials": [row for row in reversed(trials) if row.trial_number < before][: TRIALS + 1],
        "running": [row for row in reversed(trials) if row.status == TrialStatus.DISPATCHED][: RUNNING + 1],
        "job": job,
    }


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
