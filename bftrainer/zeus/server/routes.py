"""The server's routes: what requests are read as, what is done with them, and what their documentation promises."""

# FastAPI evaluates annotations to read requests, and some depend on local variables: they cannot be strings.

import time
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, TypeAdapter

from bftrainer.extras import requiring

with requiring("The server needs", "server", "fastapi"):
    from fastapi import APIRouter, Depends, Query, Request, Response
    from fastapi.exceptions import RequestValidationError

from bftrainer.errors import StoreUnavailableError, legible, suggestion
from bftrainer.zeus.server.access import ANYBODY, Actor
from bftrainer.zeus.server.guard import CONTENT_TYPE
from bftrainer.zeus.server.messages import (
    LARGEST,
    LONGEST_LEASE_S,
    NAME_LENGTH,
    Invalid,
    JobSpec,
    JobSummary,
    JobVoided,
    LenientJobSpec,
    LenientTrainingResult,
    LenientTrialId,
    Message,
    ReportResponse,
    TrainingResult,
    TrialId,
    TrialRow,
    TrialVoid,
)
from bftrainer.zeus.server.service import ZeusBatchSizeOptimizer

__all__ = ["actor_of", "api", "edits", "operations", "state"]

_TRIED_EVERY_S = 1.0
_JOBS_A_PAGE, _TRIALS_A_PAGE = 100, 1_000
_SUMMARIES, _ROWS = TypeAdapter(list[JobSummary]), TypeAdapter(Sequence[TrialRow])
_WHAT = {
    400: "Unknown job or trial, or a trial that is over; or no such body",
    401: "No token, or a wrong one",
    403: "Not with this role, of others' jobs, or asked for by another site",
    404: "Unknown job or trial",
    409: "Not with these settings",
    413: "Too long",
    500: "Failed",
    503: "The database cannot be used at the moment",
}

JobId = Annotated[str, Query(description="Name of the job.", max_length=NAME_LENGTH, examples=["bert-finetuning"])]
AnyJobId = Annotated[str, Query(description="Name of the job.")]
RequestId = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=64,
        pattern="^[!-~]+$",
        description="The same trial is handed out again on the same request.",
    ),
]
LeaseTime = Annotated[
    float | None,
    Query(
        ge=1,
        le=LONGEST_LEASE_S,
        allow_inf_nan=False,
        description="Seconds without a report or a heartbeat after which an exploration is handed out again.",
    ),
]


def _responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the errors that a route may return, for its documentation."""
    every = (400, 401, 403, 413, 503)
    listed: dict[int | str, dict[str, Any]] = {
        status: {"model": Message, "description": _WHAT[status]} for status in sorted({*every, *statuses})
    }
    return listed | {422: {"model": Invalid, "description": "A request that means nothing"}}


def _optimizer(request: Request) -> ZeusBatchSizeOptimizer:
    optimizer: ZeusBatchSizeOptimizer = request.app.state.optimizer
    return optimizer


def actor_of(request: Request, about: Any) -> Actor:
    """Who sends a request, as the guard has put into its state; which job, or job and trial, it is about is logged."""
    job_id, number = getattr(about, "job_id", about), getattr(about, "trial_number", None)
    request.state.about = {"job_id": job_id} if number is None else {"job_id": job_id, "trial": number}
    actor: Actor = getattr(request.state, "actor", ANYBODY)
    return actor


async def _refuse_unknown(request: Request) -> None:
    """Refuse parameters that a route does not know, and say which is meant."""
    known = [parameter.alias for parameter in request.scope["route"].dependant.query_params]
    for name in request.query_params:
        if name not in known:
            message = legible(f"Unknown parameter {name!r}.{suggestion(name, known)}")
            raise RequestValidationError([{"loc": ("query", name), "msg": message, "type": "extra_forbidden"}])


def _json(model: BaseModel, status: int = 200) -> Response:
    return Response(model.model_dump_json(), status, media_type="application/json")


def api(*, published: bool) -> APIRouter:
    """Make the published routes; `published`: read requests as leniently as the published server."""
    router = APIRouter(tags=["tuning"], dependencies=[] if published else [Depends(_refuse_unknown)])
    Spec = LenientJobSpec if published else JobSpec  # noqa: N806
    Result = LenientTrainingResult if published else TrainingResult  # noqa: N806
    Trial = LenientTrialId if published else TrialId  # noqa: N806
    Name = AnyJobId if published else JobId  # noqa: N806
    breaks = (500,) if published else ()

    @router.post(
        "/jobs", status_code=201, response_model=Spec, responses={200: {"model": Spec}, **_responses(409, *breaks)}
    )
    async def register_job(request: Request, job: Spec) -> Response:  # type: ignore[valid-type]
        """Register a job (201), or make sure that it is registered with the same settings (200)."""
        registered = await _optimizer(request).register_job(job, actor_of(request, job))
        return _json(registered.spec, 201 if registered.created else 200)

    @router.delete("/jobs", response_model=None, responses={200: {"model": None}, **_responses(404, *breaks)})
    async def delete_job(request: Request, job_id: Name) -> None:  # type: ignore[valid-type]
        """Forget a job with all its trials."""
        await _optimizer(request).delete_job(job_id, actor_of(request, job_id))

    @router.get("/jobs/batch_size", response_model=TrialId, responses=_responses(409, *breaks))
    async def predict(
        request: Request,
        job_id: Name,  # type: ignore[valid-type]
        request_id: RequestId = None,
        lease_s: LeaseTime = None,
    ) -> Response:
        """Start a trial: the batch size to run with, and the number to report under."""
        actor = actor_of(request, job_id)
        trial = await _optimizer(request).predict(job_id, request_id, lease_s, actor)
        actor_of(request, trial)
        return _json(trial)

    @router.post("/report", response_model=ReportResponse, responses=_responses(*breaks))
    async def report(request: Request, result: Result) -> Response:  # type: ignore[valid-type]
        """Say what a trial has used and reached by the end of an epoch, and hear whether it goes on."""
        actor_of(request, result)
        return _json(await _optimizer(request).report(result))

    @router.patch("/trials", response_model=None, responses={200: {"model": None}, **_responses(404, *breaks)})
    async def end_trial(request: Request, trial: Trial) -> None:  # type: ignore[valid-type]
        """End a trial that has no result; one that has stays as it is."""
        actor_of(request, trial)
        await _optimizer(request).end_trial(trial)

    return router


edits = APIRouter(tags=["editing"], dependencies=[Depends(_refuse_unknown)])


@edits.post("/trials/heartbeat", response_model=None, responses={200: {"model": None}, **_responses(404)})
async def heartbeat(request: Request, trial: TrialId) -> None:
    """Say that a trial is running, which renews its lease; of one that has a result nothing changes."""
    actor_of(request, trial)
    optimizer = _optimizer(request)
    await optimizer.call(optimizer.service.hear, trial)


@edits.post("/trials/void", response_model=JobVoided, responses=_responses(404))
async def void(request: Request, void: TrialVoid) -> Response:
    """Have a trial count for nothing: what is known is learned anew from the others."""
    optimizer, actor = _optimizer(request), actor_of(request, void)
    request.state.about["reason"] = void.reason
    return _json(await optimizer.call(optimizer.service.void_trial, void, actor))


state = APIRouter(tags=["state"], dependencies=[Depends(_refuse_unknown)])


@state.get("/state/jobs", response_model=list[JobSummary], responses=_responses())
async def jobs(
    request: Request,
    after: Annotated[str | None, Query(description="Jobs beyond this name.", max_length=NAME_LENGTH)] = None,
    limit: Annotated[int, Query(ge=1, le=_JOBS_A_PAGE)] = _JOBS_A_PAGE,
) -> Response:
    """Jobs by name, and how far their tuning is."""
    optimizer = _optimizer(request)
    summaries = await optimizer.call(optimizer.service.jobs, after, limit)
    return Response(_SUMMARIES.dump_json(summaries), media_type="application/json")


@state.get("/state/job", response_model=JobSummary, responses=_responses(404))
async def job(request: Request, job_id: JobId) -> Response:
    """One job, and how far its tuning is."""
    optimizer = _optimizer(request)
    return _json(await optimizer.call(optimizer.service.job, job_id))


@state.get("/state/trials", response_model=list[TrialRow], responses=_responses(404))
async def trials(
    request: Request,
    job_id: JobId,
    after: Annotated[int, Query(description="Trials beyond this number.", ge=0, le=LARGEST)] = 0,
    limit: Annotated[int, Query(ge=1, le=_TRIALS_A_PAGE)] = _TRIALS_A_PAGE,
) -> Response:
    """Trials of a job by number."""
    optimizer = _optimizer(request)
    rows = await optimizer.call(optimizer.service.trials, job_id, after, limit)
    return Response(_ROWS.dump_json(rows), media_type="application/json")


operations = APIRouter(tags=["health"])


@operations.get("/healthz", response_model=Message)
async def healthz() -> Response:
    """Whether the server runs."""
    return _json(Message(message="ok"))


@operations.get("/readyz", response_model=Message, responses=_responses())
async def readyz(request: Request) -> Response:
    """Whether the server can work: its database takes what is written, tried once a second at most."""
    app, optimizer = request.app.state, _optimizer(request)
    if time.monotonic() - app.tried_s > _TRIED_EVERY_S:
        app.tried_s = time.monotonic()
        try:
            app.fault = await optimizer.call(optimizer.service.store.probe)
        except StoreUnavailableError as error:
            app.fault = error
    if app.fault is not None:
        raise app.fault
    return _json(Message(message="ready"))


@operations.get("/metrics", response_class=Response, responses=_responses())
async def metrics(request: Request) -> Response:
    """Figures for Prometheus."""
    optimizer = _optimizer(request)
    try:
        stages = await optimizer.call(optimizer.service.store.count_by_stage)
    except StoreUnavailableError:
        stages = {}
    return Response(request.app.state.metrics.page(stages), media_type=CONTENT_TYPE)
