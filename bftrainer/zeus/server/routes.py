"""The server's routes: who may ask, what requests are read as, what is done, and what their documentation promises."""

# FastAPI evaluates annotations to read requests: they cannot be strings.

import time
from typing import Annotated, Any

from pydantic import BaseModel, TypeAdapter

from bftrainer.extras import requiring

with requiring("The server needs", "server", "fastapi"):
    from fastapi import APIRouter, Depends, Query, Request, Response

from bftrainer.errors import StoreUnavailableError
from bftrainer.zeus.server.access import Role, User
from bftrainer.zeus.server.guard import CONTENT_TYPE, GuardedRoute, Require
from bftrainer.zeus.server.messages import (
    LARGEST,
    LONGEST_LEASE_S,
    PRIVATE_FIELDS,
    JobSpec,
    JobSummary,
    Message,
    ReportResponse,
    TrainingResult,
    TrialId,
    TrialRow,
    TrialVoid,
)
from bftrainer.zeus.server.service import ZeusBatchSizeOptimizer

__all__ = ["ROUTERS"]

_TRIED_EVERY_S = 1.0
_JOBS_A_PAGE, _TRIALS_A_PAGE = 100, 1_000
_SUMMARIES, _ROWS = TypeAdapter(list[JobSummary]), TypeAdapter(list[TrialRow])
# Errors that a route may answer, for its documentation.
_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": Message, "description": "Unknown job or trial, or a trial that is over; or no such body"},
    401: {"model": Message, "description": "No token, or a wrong one"},
    403: {"model": Message, "description": "Not with this role, of others' jobs, or asked for by another site"},
    404: {"model": Message, "description": "Unknown job or trial"},
    409: {"model": Message, "description": "Not with these settings"},
    413: {"model": Message, "description": "Too long"},
    500: {"model": Message, "description": "Failed, with --compat zeus"},
    503: {"model": Message, "description": "The database cannot be used at the moment"},
}
# Trainers make sure that a job is registered; to register one takes an owner. Void and delete are of own jobs.
Reader = Annotated[User, Depends(Require(Role.READER))]
Trainer = Annotated[User, Depends(Require(Role.TRAINER))]
Owner = Annotated[User, Depends(Require(Role.OWNER))]
JobId = Annotated[str, Query(description="Name of the job.")]
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


def _optimizer(request: Request) -> ZeusBatchSizeOptimizer:
    optimizer: ZeusBatchSizeOptimizer = request.app.state.optimizer
    return optimizer


def _note(request: Request, job_id: str | None, **more: object) -> None:
    """Have the log say which job, and what of it, a request is about."""
    request.state.about = {"job_id": job_id, **more}


def _json(model: BaseModel, status: int = 200) -> Response:
    return Response(model.model_dump_json(), status, media_type="application/json")


tuning = APIRouter(tags=["tuning"], responses=_ERRORS, route_class=GuardedRoute)


@tuning.post("/jobs", status_code=201, response_model=JobSpec, responses={200: {"model": JobSpec}})
async def register_job(request: Request, user: Trainer, job: JobSpec) -> Response:
    """Register a job (201), or make sure that it is registered with the same settings (200)."""
    _note(request, job.job_id)
    registered = await _optimizer(request).register_job(job, user)
    return _json(registered.spec, 201 if registered else 200)


@tuning.delete("/jobs", response_model=None)
async def delete_job(request: Request, user: Owner, job_id: JobId) -> None:
    """Forget a job with all its trials."""
    _note(request, job_id)
    await _optimizer(request).delete_job(job_id, user)


@tuning.get("/jobs/batch_size", response_model=TrialId)
async def batch_size(
    request: Request, user: Trainer, job_id: JobId, request_id: RequestId = None, lease_s: LeaseTime = None
) -> Response:
    """Start a trial: the batch size to run with, and the number to report under."""
    _note(request, job_id)
    trial = await _optimizer(request).predict(job_id, request_id, lease_s=lease_s, user=user)
    _note(request, job_id, trial=trial.trial_number)
    return _json(trial)


@tuning.post("/report", response_model=ReportResponse)
async def report(request: Request, _: Trainer, result: TrainingResult) -> Response:
    """Say what a trial has used and reached by the end of an epoch, and hear whether it goes on."""
    _note(request, result.job_id, trial=result.trial_number)
    return _json(await _optimizer(request).report(result))


@tuning.patch("/trials", response_model=None)
async def end_trial(request: Request, _: Trainer, trial: TrialId) -> None:
    """End a trial that has no result; one that has stays as it is."""
    _note(request, trial.job_id, trial=trial.trial_number)
    await _optimizer(request).end_trial(trial)


@tuning.post("/trials/heartbeat", response_model=None)
async def heartbeat(request: Request, _: Trainer, trial: TrialId) -> None:
    """Say that a trial is running, which renews its lease; of one that has a result nothing changes."""
    _note(request, trial.job_id, trial=trial.trial_number)
    optimizer = _optimizer(request)
    await optimizer.call(optimizer.service.hear, trial)


@tuning.post("/trials/void", response_model=JobSummary)
async def void_trial(request: Request, user: Owner, void: TrialVoid) -> Response:
    """Have a trial count for nothing: what is known is learned again from the others."""
    _note(request, void.job_id, trial=void.trial_number, reason=void.reason)
    optimizer = _optimizer(request)
    return _json(await optimizer.call(optimizer.service.void_trial, void.job_id, void.trial_number, user))


state = APIRouter(tags=["state"], responses=_ERRORS, route_class=GuardedRoute)


@state.get("/state/jobs", response_model=list[JobSummary])
async def jobs(
    request: Request,
    _: Reader,
    after: Annotated[str | None, Query(description="Jobs beyond this name.", pattern=r"^[^\x00]*$")] = None,
    limit: Annotated[int, Query(ge=1, le=_JOBS_A_PAGE)] = _JOBS_A_PAGE,
) -> Response:
    """Jobs by name, and how far their tuning is."""
    optimizer = _optimizer(request)
    summaries = await optimizer.call(optimizer.service.jobs, after, limit)
    return Response(_SUMMARIES.dump_json(summaries), media_type="application/json")


@state.get("/state/job", response_model=JobSummary)
async def job(request: Request, _: Reader, job_id: JobId) -> Response:
    """One job, and how far its tuning is."""
    optimizer = _optimizer(request)
    return _json(await optimizer.call(optimizer.service.job, job_id))


@state.get("/state/trials", response_model=list[TrialRow])
async def trials(
    request: Request,
    _: Reader,
    job_id: JobId,
    after: Annotated[int, Query(description="Trials beyond this number.", ge=0, le=LARGEST)] = 0,
    limit: Annotated[int, Query(ge=1, le=_TRIALS_A_PAGE)] = _TRIALS_A_PAGE,
) -> Response:
    """Trials of a job by number."""
    optimizer = _optimizer(request)
    rows = await optimizer.call(optimizer.service.trials, job_id, after, limit)
    return Response(_ROWS.dump_json(rows, exclude={"__all__": set(PRIVATE_FIELDS)}), media_type="application/json")


operations = APIRouter(tags=["health"], responses=_ERRORS)


@operations.get("/healthz", response_model=Message)
async def healthz() -> Response:
    """Whether the server runs."""
    return _json(Message(message="ok"))


@operations.get("/readyz", response_model=Message)
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


@operations.get("/metrics", response_class=Response)
async def metrics(request: Request, _: Reader) -> Response:
    """Figures for Prometheus."""
    optimizer = _optimizer(request)
    try:
        stages = await optimizer.call(optimizer.service.store.count_by_stage)
    except StoreUnavailableError:
        stages = {}
    return Response(request.app.state.metrics.page(stages), media_type=CONTENT_TYPE)


@operations.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request, _: Reader) -> Any:
    """All this for machines."""
    return request.app.openapi()


ROUTERS = (tuning, state, operations)
