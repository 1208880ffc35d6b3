"""What a job's trials have used: by batch size, against its default, on the server's pages, and written to a file."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

from bftrainer.errors import OutputError, escape_text
from bftrainer.files.text_files import write_csv
from bftrainer.files.writing import replacing
from bftrainer.report.page import Page, PageTable
from bftrainer.zeus.server.messages import PRIVATE_FIELDS, JobSummary, TrialRow, abbreviate

# Most jobs of a page or an answer, and most trials of a job's page.
JOBS_A_PAGE = TRIALS_A_PAGE = 100
QUANTITIES = ("cost", "energy", "time")
_ANSWERS = {None: "–", True: "yes", False: "no"}
# Runs with the default that its mean takes.
FEWEST = 2
_FORMS = (".json", ".csv")


@dataclass(frozen=True, slots=True)
class SizeFigures:
    """Results with one batch size."""

    batch_size: int
    results: int
    converged: int
    used: dict[str, float]  # cost (J), energy (J) and time (s) of all results together
    means: dict[str, float]  # the same, and the metric, of a run that reached the target; empty if there is none


def figures_by_size(trials: Iterable[TrialRow]) -> dict[int, SizeFigures]:
    """Gather the results that count, by batch size in ascending order."""
    grouped: dict[int, list[TrialRow]] = {}
    for trial in trials:
        if trial.counts:
            grouped.setdefault(trial.batch_size, []).append(trial)
    figures = {}
    for size, own in sorted(grouped.items()):
        reached = [trial for trial in own if trial.converged]
        used = {name: math.fsum(getattr(trial, name) for trial in own) for name in QUANTITIES}
        means = {}
        for name in (*QUANTITIES, "metric"):
            values = [value for trial in reached if (value := getattr(trial, name)) is not None]
            if values:
                means[name] = math.fsum(values) / len(values)
        figures[size] = SizeFigures(size, len(own), len(reached), used, means)
    return figures


def describe_savings(figures: Mapping[int, SizeFigures], default: int) -> str:
    """Say what tuning has saved, had each run that reached the target used what runs with the default did on average.

    Runs that missed the target count as used in vain.
    """
    with_default = figures[default].converged if default in figures else 0
    if with_default < FEWEST:
        return f"not known: {with_default} of the {FEWEST} runs with the default that this takes"
    reached = sum(size.converged for size in figures.values())
    savings = []
    for name, unit, factor in (("energy", "J", 1.0), ("time", "h", 1.0 / 3600.0)):
        instead = reached * figures[default].means[name]
        amount = instead - math.fsum(size.used[name] for size in figures.values())
        share = amount / instead if instead else 0.0
        savings.append(f"{name} {format_si(amount * factor, unit)} ({share:.1%})")
    return ", ".join(savings)


def job_facts(job: JobSummary, trials: Sequence[TrialRow]) -> dict[str, str]:
    """Describe settings and state of a job, by what they are called, for the page and the command."""
    spec = job.spec
    side = "at least" if spec.higher_is_better_metric else "at most"
    voided = sum(trial.excluded is not None for trial in trials)
    cheapest = f"{format_si(job.min_cost, 'J')} with batch size {job.min_cost_batch_size}"
    return {
        "Stage": job.stage + ("" if job.exploring is None else f", exploring batch size {job.exploring}"),
        "Owner": job.owner or "nobody",
        "Batch sizes": f"{abbreviate(spec.batch_sizes)}; default {spec.default_batch_size}",
        "Left": abbreviate(job.remaining) or "none",
        "Target": f"{side} {spec.target_metric} within {spec.max_epochs} epochs",
        "Weight of energy": f"{spec.eta_knob}",
        "Stops at": "never" if spec.beta_knob is None else f"{spec.beta_knob} times the cheapest run",
        "Cheapest run": "none yet" if job.min_cost is None else cheapest,
        "Saved": describe_savings(figures_by_size(trials), spec.default_batch_size),
        "Trials": f"{job.trials:,}, {job.observations:,} with a result" + (f", {voided:,} voided" if voided else ""),
        "Runs on": f"{spec.number_of_gpus} × {spec.gpu_model}, {format_si(spec.max_power, 'W')} in all",
        "Registered": f"{format_time(job.registered)} UTC",
    }


def format_time(seconds: float | None) -> str:
    """Format a time as UTC."""
    return "–" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def format_si(number: float | None, unit: str = "") -> str:
    """Format a number with four digits, an SI prefix and a unit."""
    if number is None:
        return "–"
    factors = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
    factor, prefix = next((pair for pair in factors if abs(number) >= pair[0]), factors[-1])
    return f"{number / factor:.4g} {prefix}{unit}".rstrip()


def jobs_page(jobs: Sequence[JobSummary]) -> Page:
    """Make the page of the first jobs of these, each of which leads to its own, and to the others."""
    listed = jobs[:JOBS_A_PAGE]
    records = [
        {
            "Job": _link("job_id", job.spec.job_id or "", job.spec.job_id or "(no name)"),
            "Owner": job.owner or "–",
            "Stage": job.stage,
            "Runs on": f"{job.spec.number_of_gpus} × {job.spec.gpu_model}",
            "Trials": f"{job.trials:,}",
            "Results": f"{job.observations:,}",
            "Batch sizes left": abbreviate(job.remaining),
            "Cheapest": "–" if job.min_cost is None else str(job.min_cost_batch_size),
            "Cost": format_si(job.min_cost, "J"),
        }
        for job in listed
    ]
    more = [_link("after", listed[-1].spec.job_id or "", "More jobs")] if len(jobs) > len(listed) else []
    verdict = "Batch sizes of these jobs are tuned here." if listed else "No jobs here. A client registers them."
    return Page("Recurring jobs", verdict, tables=(_table("Jobs", records, more),), command="bftrainer bso jobs")


def job_page(job: JobSummary, trials: Sequence[TrialRow]) -> Page:
    """Make the page of a job: its settings and state, beliefs, means by batch size, and its latest trials."""
    name, facts, default = job.spec.job_id or "", job_facts(job, trials), job.spec.default_batch_size
    arms = [
        {
            "Batch size": str(arm.batch_size),
            "Mean cost": format_si(arm.mean_j, "J"),
            "Give or take": format_si(arm.deviation_j, "J"),
            "Results": f"{arm.observations:,}",
        }
        for arm in job.arms
    ]
    sizes = [
        {"Batch size": f"{size} (default)" if size == default else str(size)}
        | {"Results": f"{used.results:,}", "Converged": f"{used.converged:,}", **_measures(used.means.get)}
        for size, used in figures_by_size(trials).items()
    ]
    latest = [
        {
            "Trial": str(trial.trial_number),
            "Batch size": str(trial.batch_size),
            "Type": trial.type,
            "Status": trial.excluded or trial.status,
            "Converged": _ANSWERS[trial.converged],
            **_measures(partial(getattr, trial)),
            "Epochs": "–" if trial.epoch is None else str(trial.epoch),
            "Started (UTC)": format_time(trial.started),
            "Heard of (UTC)": format_time(trial.heard),
        }
        for trial in trials[: -TRIALS_A_PAGE - 1 : -1]
    ]
    return Page(
        name or "(no name)",
        f"Stage {facts['Stage']}. Saved against the default: {facts['Saved']}.",
        tables=(
            PageTable("Settings and state", ("what", "value"), list(facts.items())),
            _table("Beliefs of the bandit", arms),
            _table("By batch size", sizes, ["Means of the runs that converged."] * bool(sizes)),
            _table("Latest trials", latest),
        ),
        subtitle=_link("", "", "All jobs"),
        command=f"bftrainer bso jobs {shlex.quote(name)}",
    )


def missing_page(message: str) -> Page:
    """Make the page of a job that is not there."""
    return Page("Not here", message, subtitle=_link("", "", "All jobs"), command="bftrainer bso jobs")


def _table(title: str, records: Sequence[Mapping[str, str]], texts: Sequence[str] = ()) -> PageTable:
    """A table of records, with their names as headings."""
    return PageTable(title, tuple(records[0]) if records else (), [[*row.values()] for row in records], texts=texts)


def _measures(read: Callable[[str], float | None]) -> dict[str, str]:
    units = {"cost": "J", "energy": "J", "time": "s", "metric": ""}
    return {name.capitalize(): format_si(read(name), unit) for name, unit in units.items()}


def _link(parameter: str, value: str, text: str) -> str:
    """A link to this page with another parameter, or none."""
    from markupsafe import Markup

    return Markup('<a href="?{}">{}</a>').format(urlencode({parameter: value} if parameter else {}), escape_text(text))


def check_form(path: Path) -> None:
    """Raise `OutputError` if a file's name ends in neither .json nor .csv."""
    if path.suffix.lower() not in _FORMS:
        raise OutputError(f"{path}: Expected a name that ends in {' or '.join(_FORMS)}.")


def write_job(path: Path, job: JobSummary, trials: Iterable[TrialRow]) -> int:
    """Write a job's trials, in JSON with the job; return the number of trials. In CSV, no name is a formula.

    `OutputError` if the name's ending is unknown, or the file cannot be written.
    """
    check_form(path)
    names = [field.name for field in fields(TrialRow) if field.name not in PRIVATE_FIELDS]
    rows = [{name: getattr(trial, name) for name in names} for trial in trials]
    with replacing(path) as stream:
        if path.suffix.lower() == ".csv":
            write_csv(stream, names, ([_cell(value) for value in row.values()] for row in rows))
        else:
            document = {"job": job.model_dump(), "trials": rows}
            stream.write(json.dumps(document, indent=2, allow_nan=False).encode() + b"\n")
    return len(rows)


def _cell(value: object) -> object:
    """A cell of CSV: booleans as in JSON, no formulas, no bare end of line, which `csv` quotes from Python 3.13 on."""
    text = str(value).lower() if isinstance(value, bool) else value
    if isinstance(text, str) and text.startswith(("=", "+", "-", "@", "\t", "\r")):  # OWASP, "CSV Injection"
        text = f"'{text}"
    return repr(text) if "\r" in str(text) else text
