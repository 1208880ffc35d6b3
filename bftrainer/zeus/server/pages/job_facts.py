"""A job in words: its settings and its state."""

from __future__ import annotations

from datetime import UTC, datetime

from bftrainer.report.intervals import Estimate
from bftrainer.zeus.server.messages import few
from bftrainer.zeus.server.pages.page_queries import TrialTally
from bftrainer.zeus.server.pages.savings import FEWEST, Saved, Savings
from bftrainer.zeus.server.pages.trial_charts import si
from bftrainer.zeus.server.state_messages import JobSummary


def moment(seconds: float | None) -> str:
    """A time as UTC."""
    if seconds is None:
        return "–"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def interval_text(mean: Estimate, unit: str) -> str:
    """A mean, and how far its interval reaches to both sides."""
    return f"{si(mean.mean, mean.half_width)}{unit}".rstrip()


def saved_texts(saved: Savings) -> dict[str, str]:
    """Energy and time that were saved, with their intervals, by what they are called."""

    def text(saved: Saved, amount: str) -> str:
        """An amount with its interval, its share of what it would have been, and what is to be said against it."""
        return f"{amount} ({saved.amount / saved.instead if saved.instead else 0.0:.1%}{saved.doubt})"

    if saved.energy is None or saved.time is None:
        few_runs = f"not known: {saved.with_default} of the {FEWEST} runs with the default that this takes"
        return {"energy saved": few_runs, "time saved": few_runs}
    energy, time = saved.energy, saved.time.times(1 / 3600)
    return {
        "energy saved": text(energy, f"{si(energy.amount, energy.half_width)}J"),
        "time saved": text(time, f"{si(time.amount, time.half_width)}h"),
    }


def facts(job: JobSummary, tally: TrialTally) -> dict[str, str]:
    """Settings and state of a job, by what they are called."""
    spec = job.spec
    side = "at least" if spec.higher_is_better_metric else "at most"
    cheapest = f"{si(job.min_cost)}J with batch size {job.min_cost_batch_size}"
    if job.min_cost is None:
        cheapest = "none of its own yet" if tally.inherited else "none yet"
    trials = [f"{job.trials:,}", f"{job.observations:,} with a result"]
    trials += [f"{tally.inherited:,} taken over from another job"] * (tally.inherited > 0)
    trials += [f"{tally.excluded:,} voided or archived, which count for nothing"] * (tally.excluded > 0)
    return {
        "Stage": job.stage + ("" if job.exploring is None else f", exploring batch size {job.exploring}"),
        "Owner": job.owner or "nobody",
        "Batch sizes": f"{few(spec.batch_sizes)}; default {spec.default_batch_size}",
        "Left": few(job.remaining) or "none",
        "Target": f"{side} {spec.target_metric} within {spec.max_epochs} epochs",
        "Weight of energy": f"{spec.eta_knob}",
        "Stops at": "never" if spec.beta_knob is None else f"{spec.beta_knob} times the cheapest run",
        "Explores": "a round at once" if spec.parallel_explorations else "one batch size at a time",
        "Cheapest run": cheapest,
        "Trials": ", ".join(trials),
        "Runs on": f"{spec.number_of_gpus} × {spec.gpu_model}, {si(spec.max_power)}W in all",
        "Registered": f"{moment(job.registered)} UTC",
    }
