"""Status pages of the server: jobs in a browser, without scripts and without other sites."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from bftrainer.extras import requiring

with requiring("The server needs", "server", "fastapi", "jinja2"):
    from fastapi import APIRouter, Query, Request
    from fastapi.responses import HTMLResponse
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

from bftrainer.errors import NotFoundError, NothingConvergedError
from bftrainer.report.intervals import Estimate
from bftrainer.zeus.server.messages import LARGEST, NAME_LENGTH, Arm, JobSummary, StoredTrial, few
from bftrainer.zeus.server.savings import estimate_mean, figures_by_size, saved_texts, savings, si
from bftrainer.zeus.server.service import BatchSizeService, ZeusBatchSizeOptimizer
from bftrainer.zeus.server.tuned_job import Stage, TrialStatus, TrialType, TunedJob

# Most jobs of a page of all, and most trials of one job's.
JOBS, TRIALS, RUNNING = 100, 100, 20
Name = Annotated[str, Query(max_length=NAME_LENGTH, pattern=r"^[^\x00]*$")]


def pages(*, front: bool) -> APIRouter:
    """Make the routes of the status pages.

    Parameters
    ----------
    front : bool
        Whether the status page is also the front page, which the published server lacks.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"few": few, "si": si, "moment": _moment, "interval": _interval}
    style = resources.files("bftrainer.report").joinpath("style.css").read_text(encoding="utf-8")
    environment.globals |= {"style": Markup(style), "most_trials": TRIALS, "most_running": RUNNING}
    # A browser may load nothing but the page's own style.
    own = re.search(r"<style>(.*?)</style>", environment.get_template("base.html").render(), re.DOTALL)
    assert own is not None
    digest = base64.b64encode(sha256(own[1].encode()).digest()).decode()
    headers = {
        "Content-Security-Policy": (
            f"default-src 'none'; style-src 'sha256-{digest}'; "
            "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
        ),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }
    router = APIRouter()

    async def status(
        request: Request,
        job_id: Name | None = None,
        before: Annotated[int, Query(ge=1, le=LARGEST)] = LARGEST,
        after: Name | None = None,
    ) -> HTMLResponse:
        """Jobs, or one of them."""
        optimizer: ZeusBatchSizeOptimizer = request.app.state.optimizer
        template, code = "jobs.html" if job_id is None else "job.html", 200
        try:
            view = await optimizer.call(_view, optimizer.service, job_id, before, after)
        except NotFoundError as error:
            template, code, view = "missing.html", 404, {"missing": str(error).removeprefix("Unknown ")}
        return HTMLResponse(environment.get_template(template).render(path=request.url.path, **view), code, headers)

    for path in ("/", "/status") if front else ("/status",):
        router.add_api_route(path, status, response_class=HTMLResponse, include_in_schema=False)
    return router


def _view(service: BatchSizeService, job_id: str | None, before: int, after: str | None) -> dict[str, Any]:
    """What the page of all jobs, or of one, shows, by the names in its template.

    Of trials below the number `before` the latest are listed, and of those that run, one more than are shown if there
    are others.
    """
    if job_id is None:
        jobs = service.jobs(after, JOBS + 1)
        return {"jobs": jobs[:JOBS], "more": len(jobs) > JOBS}
    job, trials = service.job(job_id), service.trials(job_id)
    by_number, figures = {trial.trial_number: trial for trial in trials}, figures_by_size(trials)
    choice = next_choice(
        service.copy_tuning(job_id), job.trials + 1, lambda number: service.is_alive(by_number.get(number))
    )
    metrics: dict[int, list[float]] = {}
    for trial in trials:
        if trial.counts and trial.converged and trial.metric is not None:
            metrics.setdefault(trial.batch_size, []).append(trial.metric)
    saved = savings(figures, job.spec.default_batch_size)
    return {
        "job": job,
        "facts": _describe(job, trials),
        "choice": choice,
        "figures": figures,
        "metrics": {size: estimate_mean(sample) for size, sample in metrics.items()},
        "saved": saved,
        "saved_texts": saved_texts(saved),
        "trials": [row for row in reversed(trials) if row.trial_number < before][: TRIALS + 1],
        "running": [row for row in reversed(trials) if row.status == TrialStatus.DISPATCHED][: RUNNING + 1],
    }


def _moment(seconds: float | None) -> str:
    """A time as UTC."""
    return "–" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _interval(mean: Estimate, unit: str) -> str:
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
        "Registered": f"{_moment(job.registered)} UTC",
    }


@dataclass(frozen=True, slots=True)
class NextChoice:
    """The batch size that a trial would get now, and why.

    Parameters
    ----------
    batch_size : int or None
        None if there is none left.
    reasons : tuple of str
        Sentences.
    arms : list of Arm
        The bandit's; empty while batch sizes are pruned.
    drawn_j : dict of int to float
        Mean cost of each that the choice draws, in joules.
    """

    batch_size: int | None
    reasons: tuple[str, ...]
    arms: list[Arm] = field(default_factory=list)
    drawn_j: dict[int, float] = field(default_factory=dict)


def next_choice(tuned: TunedJob, number: int, runs: Callable[[int], bool]) -> NextChoice:
    """Say which batch size a trial would get now, and why.

    Parameters
    ----------
    tuned : TunedJob
        A copy of the job's state, which is used up.
    number : int
        Number of the trial.
    runs : callable
        Whether a trial of some number is running.
    """
    manager = tuned.pruned.manager
    pruning, rounds, left = tuned.stage is Stage.PRUNING, manager.num_pruning_rounds, list(manager.batch_sizes)
    exploring = {size: trial for size, trial in tuned.exploring.items() if runs(trial)} if pruning else {}
    try:
        size, kind = tuned.choose(number, runs)
    except NothingConvergedError:
        return NextChoice(None, ("No batch size reached the target in a round of the pruning, so none is left.",))
    if kind is TrialType.MAB:
        return _explain_play(tuned, size, f"The pruning is over: {few(left)} are left. " if pruning and rounds else "")
    if kind is TrialType.CONCURRENT:
        what = " and ".join(f"trial {trial} explores {each}" for each, trial in exploring.items())
        cheapest = "the default, as no run has converged yet" if tuned.min_cost is None else "the cheapest so far"
        now = f"{what[:1].upper()}{what[1:]} now; what starts beside that gets {size}, {cheapest}."
    else:
        now = f"{size} is the next to try."
    which = rounds - manager.rounds_left + 1
    what = "the default" if which == 1 else "the cheapest of the round before"
    rule = (
        f"Round {which} of {rounds} of the pruning: from {manager.default}, {what}, it tries smaller batch sizes until "
        f"one misses the target, then larger ones. Beyond one that missed, none is tried again."
    )
    reached = ", ".join(f"{each} at {si(cost)}J" for each, cost in manager.reached.items())
    ahead = [each for each in manager.ahead if each not in (exploring or (size,))]
    later = (
        f"Reached the target in this round: {reached or 'none yet'}. Still to try in it: {few(ahead) or 'no other'}."
    )
    return NextChoice(size, (now, rule, later))


def _explain_play(tuned: TunedJob, size: int, begins: str) -> NextChoice:
    """Explain a choice of the bandit."""
    bandit = tuned.pruned.bandit
    assert bandit is not None
    if not bandit.drawn:
        why = (
            f"{begins}Each batch size has to have {bandit.num_exploration} results before draws decide; {size} has "
            f"{bandit.beliefs[size].observations}. Of those that lack results, the order is random."
        )
        return NextChoice(size, (why,), tuned.arms())
    why = (
        f"{begins}Of what is believed about the mean cost of each batch size, one value is drawn, and the lowest "
        f"wins: that of {size}. A batch size is so played as often as it is likely to be the cheapest."
    )
    until = "The draws are those of the next trial, unless a result comes before it."
    return NextChoice(size, (why, until), tuned.arms(), {arm: -drawn for arm, drawn in bandit.drawn.items()})
