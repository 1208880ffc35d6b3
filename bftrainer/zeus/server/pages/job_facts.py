"""Jobs in words: settings and state of one, and of several beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from bftrainer.report.intervals import Estimate
from bftrainer.zeus.server.messages import few
from bftrainer.zeus.server.pages.page_queries import TrialTally
from bftrainer.zeus.server.pages.savings import FEWEST, J_PER_KWH, Saved, Savings
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


def saved_texts(saved: Savings, price_kwh: float | None) -> dict[str, str]:
    """Energy, time and, where energy has a price, money that was saved, with their intervals.

    Parameters
    ----------
    saved : Savings
        What was saved.
    price_kwh : float or None
        Price of energy; None: unknown.
    """

    def text(saved: Saved, amount: str) -> str:
        """An amount with its interval, its share of what it would have been, and what is to be said against it."""
        return f"{amount} ({saved.amount / saved.instead if saved.instead else 0.0:.1%}{saved.doubt})"

    if saved.energy is None or saved.time is None:
        few_runs = f"not known: {saved.with_default} of the {FEWEST} runs with the default that this takes"
        return {"energy saved": few_runs, "time saved": few_runs}
    energy, time = saved.energy, saved.time.times(1 / 3600)
    texts = {
        "energy saved": text(energy, f"{si(energy.amount, energy.half_width)}J"),
        "time saved": text(time, f"{si(time.amount, time.half_width)}h"),
    }
    if price_kwh is None:
        return texts
    money = energy.times(price_kwh / J_PER_KWH)
    return texts | {"money saved": text(money, si(money.amount, money.half_width).rstrip())}


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


class ComparedFact(NamedTuple):
    """A row of a comparison: what is compared, and its value of each job."""

    name: str
    values: list[str]


# Facts that say how a job came to be what it is; the others say how far it came.
_SETTINGS = ("Owner", "Batch sizes", "Target", "Weight of energy", "Stops at", "Explores", "Runs on")


def sorted_facts(known: Sequence[dict[str, str]]) -> dict[str, list[ComparedFact]]:
    """Sort facts about several jobs: those that say how far they came, settings that differ, and settings alike."""
    names = dict.fromkeys(name for each in known for name in each)
    rows = [ComparedFact(name, [each.get(name, "–") for each in known]) for name in names]
    settings = [row for row in rows if row.name in _SETTINGS]
    return {
        "How far they came": [row for row in rows if row.name not in _SETTINGS],
        "Settings that differ": [row for row in settings if len(set(row.values)) > 1],
        "Settings alike": [row for row in settings if len(set(row.values)) == 1],
    }
