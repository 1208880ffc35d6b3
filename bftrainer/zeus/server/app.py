"""The server as an ASGI application: its settings, its routes, what requests are read as, and answers to errors."""

# FastAPI evaluates annotations to read requests: they cannot be strings.

import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, TypeAdapter

from bftrainer.plugins import requiring

with requiring("The server needs", "server", "fastapi"):
    from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse
    from starlette.exceptions import HTTPException

from bftrainer._version import __version__
from bftrainer.errors import (
    BadOperationError,
    BftrainerError,
    ForbiddenError,
    JobMismatchError,
    NotFoundError,
    NothingConvergedError,
    SettingsError,
    StoreUnavailableError,
    UnusableValueError,
    suggestion,
)
from bftrainer.zeus.server.access import AccessFile, Role, User
from bftrainer.zeus.server.guard import CONTENT_TYPE, Guard, GuardedRoute, Metrics, Require
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
from bftrainer.zeus.server.pages import pages
from bftrainer.zeus.server.service import BatchSizeService, ZeusBatchSizeOptimizer
from bftrainer.zeus.server.store import DEFAULT_URL, open_store

__all__ = ["ServerSettings", "create_app"]

logger = logging.getLogger(__name__)
T = TypeVar("T")

COMPATIBILITY = ("none", "zeus")

_STATUS: Mapping[type[BftrainerError], int] = {
    NotFoundError: 404,
    BadOperationError: 400,
    ForbiddenError: 403,
    JobMismatchError: 409,
    NothingConvergedError: 409,
    UnusableValueError: 422,
    StoreUnavailableError: 503,
}
# Registrations, predictions and reports answer 400 where something is unknown.
_PASSING = frozenset({("POST", "/jobs"), ("GET", "/jobs/batch_size"), ("POST", "/report")})
_TRIED_EVERY_S = 1.0
_JOBS_A_PAGE, _TRIALS_A_PAGE = 100, 1_000
_SUMMARIES, _ROWS = TypeAdapter(list[JobSummary]), TypeAdapter(list[TrialRow])
# Errors that a route may answer, for its documentation.
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Message} for status in (400, 401, 403, 404, 409, 413, 500, 503)
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


async def _ask(request: Request, method: Callable[..., T], *words: Any, **about: object) -> T:
    """Have the service do something in its thread; the log says what the request is about."""
    request.state.about = about
    optimizer: ZeusBatchSizeOptimizer = request.app.state.optimizer
    return await optimizer.call(partial(method, optimizer.service), *words)


def _json(model: BaseModel, status: int = 200) -> Response:
    return Response(model.model_dump_json(), status, media_type="application/json")


tuning = APIRouter(tags=["tuning"], responses=_ERRORS, route_class=GuardedRoute)


@tuning.post("/jobs", status_code=201, response_model=JobSpec, responses={200: {"model": JobSpec}})
async def register_job(request: Request, user: Trainer, job: JobSpec) -> Response:
    """Register a job (201), or make sure that it is registered with the same settings (200)."""
    registered = await _ask(request, BatchSizeService.register_job, job, user, job_id=job.job_id)
    return _json(registered.spec, 201 if registered else 200)


@tuning.delete("/jobs", response_model=None)
async def delete_job(request: Request, user: Owner, job_id: JobId) -> None:
    """Forget a job with all its trials."""
    await _ask(request, BatchSizeService.delete_job, job_id, user, job_id=job_id)


@tuning.get("/jobs/batch_size", response_model=TrialId)
async def batch_size(
    request: Request, user: Trainer, job_id: JobId, request_id: RequestId = None, lease_s: LeaseTime = None
) -> Response:
    """Start a trial: the batch size to run with, and the number to report under."""
    trial = await _ask(request, BatchSizeService.predict, job_id, request_id, lease_s, user, job_id=job_id)
    request.state.about["trial"] = trial.trial_number
    return _json(trial)


@tuning.post("/report", response_model=ReportResponse)
async def report(request: Request, _: Trainer, result: TrainingResult) -> Response:
    """Say what a trial has used and reached by the end of an epoch, and hear whether it goes on."""
    about = {"job_id": result.job_id, "trial": result.trial_number}
    return _json(await _ask(request, BatchSizeService.report, result, **about))


@tuning.patch("/trials", response_model=None)
async def end_trial(request: Request, _: Trainer, trial: TrialId) -> None:
    """End a trial that has no result; one that has stays as it is."""
    await _ask(request, BatchSizeService.end_trial, trial, job_id=trial.job_id, trial=trial.trial_number)


@tuning.post("/trials/heartbeat", response_model=None)
async def heartbeat(request: Request, _: Trainer, trial: TrialId) -> None:
    """Say that a trial is running, which renews its lease; of one that has a result nothing changes."""
    await _ask(request, BatchSizeService.hear, trial, job_id=trial.job_id, trial=trial.trial_number)


@tuning.post("/trials/void", response_model=JobSummary)
async def void_trial(request: Request, user: Owner, void: TrialVoid) -> Response:
    """Have a trial count for nothing: what is known is learned again from the others."""
    about = {"job_id": void.job_id, "trial": void.trial_number, "reason": void.reason}
    return _json(await _ask(request, BatchSizeService.void_trial, void.job_id, void.trial_number, user, **about))


state = APIRouter(tags=["state"], responses=_ERRORS, route_class=GuardedRoute)


@state.get("/state/jobs", response_model=list[JobSummary])
async def jobs(
    request: Request,
    _: Reader,
    after: Annotated[str | None, Query(description="Jobs beyond this name.", pattern=r"^[^\x00]*$")] = None,
    limit: Annotated[int, Query(ge=1, le=_JOBS_A_PAGE)] = _JOBS_A_PAGE,
) -> Response:
    """Jobs by name, and how far their tuning is."""
    summaries = await _ask(request, BatchSizeService.jobs, after, limit)
    return Response(_SUMMARIES.dump_json(summaries), media_type="application/json")


@state.get("/state/job", response_model=JobSummary)
async def job(request: Request, _: Reader, job_id: JobId) -> Response:
    """One job, and how far its tuning is."""
    return _json(await _ask(request, BatchSizeService.job, job_id))


@state.get("/state/trials", response_model=list[TrialRow])
async def trials(
    request: Request,
    _: Reader,
    job_id: JobId,
    after: Annotated[int, Query(description="Trials beyond this number.", ge=0, le=LARGEST)] = 0,
    limit: Annotated[int, Query(ge=1, le=_TRIALS_A_PAGE)] = _TRIALS_A_PAGE,
) -> Response:
    """Trials of a job by number."""
    rows = await _ask(request, BatchSizeService.trials, job_id, after, limit)
    return Response(_ROWS.dump_json(rows, exclude={"__all__": set(PRIVATE_FIELDS)}), media_type="application/json")


operations = APIRouter(tags=["health"], responses=_ERRORS)


@operations.get("/healthz", response_model=Message)
async def healthz() -> Response:
    """Whether the server runs."""
    return _json(Message(message="ok"))


@operations.get("/readyz", response_model=Message)
async def readyz(request: Request) -> Response:
    """Whether the server can work: its database takes what is written, tried once a second at most."""
    app = request.app.state
    if time.monotonic() - app.tried_s > _TRIED_EVERY_S:
        app.tried_s = time.monotonic()
        try:
            app.fault = await _ask(request, lambda service: service.store.probe())
        except StoreUnavailableError as error:
            app.fault = error
    if app.fault is not None:
        raise app.fault
    return _json(Message(message="ready"))


@operations.get("/metrics", response_class=Response)
async def metrics(request: Request, _: Reader) -> Response:
    """Figures for Prometheus."""
    try:
        stages = await _ask(request, lambda service: service.store.count_by_stage())
    except StoreUnavailableError:
        stages = {}
    return Response(request.app.state.metrics.page(stages), media_type=CONTENT_TYPE)


@operations.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request, _: Reader) -> Any:
    """All this for machines."""
    return request.app.openapi()


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of a server: `SettingsError` if one is out of range."""

    database_url: str = DEFAULT_URL
    compat: str = "none"  # zeus: answer exactly like the published server, defects included; none: with corrections
    trial_timeout_s: float = 86_400.0  # without a report, after which a trial counts as failed; 0: never
    token_file: str | None = None  # of tokens and users (`access`); without it, whoever reaches the server may use it
    hosts: tuple[str, ...] = ()  # names of the server that requests may use; empty: any

    def __post_init__(self) -> None:
        if self.compat not in COMPATIBILITY:
            raise SettingsError(
                f"Expected a known compatibility, got {self.compat!r}.{suggestion(self.compat, COMPATIBILITY)}"
            )
        if not (self.trial_timeout_s >= 0 and math.isfinite(self.trial_timeout_s)):
            raise SettingsError(f"Expected a trial timeout of 0 (never) or more seconds, got {self.trial_timeout_s}.")


def create_app(settings: ServerSettings | None = None) -> FastAPI:
    """Make the server's application: `SettingsError` if the tokens cannot be read or, at the start, the database."""
    settings = settings or ServerSettings()
    published = settings.compat == "zeus"
    app = FastAPI(
        title="bftrainer batch-size server",
        version=__version__,
        # Pages of documentation would load scripts from another site.
        docs_url=None,
        redoc_url=None,
        # The document takes a token, too: it has a route of its own.
        openapi_url=None,
        # The published client sends no content type; browsers are kept out by other means.
        strict_content_type=False,
        lifespan=partial(_run, settings=settings),
        exception_handlers={
            BftrainerError: partial(_answer_error, published=published),
            RequestValidationError: _answer_invalid,
            HTTPException: _answer_refused,
            Exception: _answer_failure,
        },
    )
    app.state.access = None if settings.token_file is None else AccessFile(settings.token_file)
    app.state.metrics = Metrics()
    app.state.tried_s, app.state.fault = -math.inf, None
    for router in (tuning, state, operations, pages(front=not published)):
        app.include_router(router)
    app.add_middleware(Guard, hosts=settings.hosts, metrics=app.state.metrics)
    return app


@contextlib.asynccontextmanager
async def _run(app: FastAPI, settings: ServerSettings) -> AsyncIterator[None]:
    """Keep the store open while the application runs."""
    with open_store(settings.database_url) as store:
        timeout_s = settings.trial_timeout_s or None
        service = BatchSizeService(store, published=settings.compat == "zeus", trial_timeout_s=timeout_s)
        app.state.optimizer = optimizer = ZeusBatchSizeOptimizer(service)
        try:
            yield
        finally:
            optimizer.close()


async def _answer_error(request: Request, error: BftrainerError, *, published: bool) -> JSONResponse:
    """Answer an error of ours."""
    status = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)
    if status == 404 and (request.method, request.url.path) in _PASSING:
        status = 400
    if published and isinstance(error, UnusableValueError):  # on which the published server fails
        status = 500
    if status == 503:  # clients must not see the database's message
        logger.error("database: %s", error)
        message = "The database cannot be used at the moment; try again."
        return JSONResponse({"message": message}, status, headers={"Retry-After": "1"})
    if status == 422:
        field = getattr(error, "field", None)
        fault = {"loc": ["body"] if field is None else ["body", field], "msg": str(error), "type": "value_error"}
        return JSONResponse({"detail": [fault]}, status)
    return JSONResponse({"message": str(error)}, status)


async def _answer_invalid(_: Request, error: RequestValidationError) -> JSONResponse:
    """Answer a request that is not valid, without the input, which may not even be text."""
    detail = [{name: fault[name] for name in ("loc", "msg", "type")} for fault in error.errors()]
    return JSONResponse({"detail": detail}, 422)


async def _answer_refused(request: Request, error: HTTPException) -> JSONResponse:
    """Answer a request for which there is no route, or that is not allowed."""
    headers = error.headers
    if error.status_code == 405:
        # The framework only names the methods of the first route.
        methods = request.app.openapi()["paths"].get(request.url.path, {})
        headers = {"Allow": ", ".join(sorted(map(str.upper, methods)))} if methods else headers
    return JSONResponse({"message": str(error.detail)}, error.status_code, headers=headers)


async def _answer_failure(_: Request, error: Exception) -> JSONResponse:
    """Answer a request on which the server fails."""
    logger.error("unexpected failure", exc_info=error)
    return JSONResponse({"message": "Internal server error."}, 500)
