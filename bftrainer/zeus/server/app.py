"""The server as an ASGI application: routes, wiring of its parts, and answers to errors."""

# FastAPI evaluates annotations to read requests, and some depend on local variables: they cannot be strings.

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, TypeAdapter

from bftrainer.extras import requiring

with requiring("The server needs", "server", "fastapi"):
    from fastapi import APIRouter, FastAPI, Query, Request, Response
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse
    from starlette.exceptions import HTTPException

from bftrainer._version import __version__
from bftrainer.errors import (
    BftrainerError,
    JobMismatchError,
    LateTrialError,
    NothingConvergedError,
    StoreUnavailableError,
    TrialEndedError,
    UnknownJobError,
    UnknownTrialError,
    UnusableRequestError,
    UnusableValueError,
)
from bftrainer.parallel import end_with_parent
from bftrainer.zeus.server.guard import CONTENT_TYPE, OPEN, Guard, Metrics
from bftrainer.zeus.server.messages import (
    LARGEST,
    NAME_LENGTH,
    Invalid,
    JobSpec,
    JobSummary,
    LenientJobSpec,
    LenientTrainingResult,
    LenientTrialId,
    Message,
    ReportResponse,
    TrainingResult,
    TrialId,
    TrialRow,
)
from bftrainer.zeus.server.optimizer import ZeusBatchSizeOptimizer
from bftrainer.zeus.server.pages import pages
from bftrainer.zeus.server.settings import ServerSettings, read_tokens
from bftrainer.zeus.server.store import open_store

__all__ = ["ENVIRONMENT", "api", "create_app", "from_environment", "operations"]

logger = logging.getLogger(__name__)

# Environment variable that holds the workers' settings.
ENVIRONMENT = "BFTRAINER_BSO_SETTINGS"

# Two HTTP statuses for each error: the usual one, and that of requests to end, delete or show the object itself.
_STATUS: Mapping[type[BftrainerError], tuple[int, int]] = {
    UnknownJobError: (400, 404),
    UnknownTrialError: (400, 404),
    TrialEndedError: (400, 400),
    LateTrialError: (400, 400),
    JobMismatchError: (409, 409),
    NothingConvergedError: (409, 409),
    UnusableRequestError: (422, 422),
    StoreUnavailableError: (503, 503),
}
# Error for requests on which the published server fails.
_BREAKS = UnusableValueError
# How often to look for abandoned trials: number of times per time-out, and limits of the interval between two times.
_SWEEPS, _SHORTEST_SWEEP_S, _LONGEST_SWEEP_S = 10, 1.0, 300.0


def create_app(settings: ServerSettings | None = None, *, migrate: bool = True) -> FastAPI:
    """Make the server's application.

    Parameters
    ----------
    settings : ServerSettings, optional
        Settings of the server.
    migrate : bool
        Whether tables are created or updated at the start.

    Raises
    ------
    SettingsError
        If the tokens cannot be read; at the start, if the database cannot be used.
    """
    settings = settings or ServerSettings()
    metrics = Metrics()
    app = FastAPI(
        title="bftrainer batch-size server",
        version=__version__,
        # Pages of documentation would load scripts from another site.
        docs_url=None,
        redoc_url=None,
        # The published client sends no content type; browsers are kept out by other means.
        strict_content_type=False,
        lifespan=partial(_running, settings=settings, migrate=migrate),
    )
    app.state.metrics = metrics
    app.include_router(api(published=settings.published))
    app.include_router(operations())
    app.include_router(pages(front=not settings.published))
    for kind, handler in _handlers(published=settings.published).items():
        app.add_exception_handler(kind, handler)
    tokens = read_tokens(settings.token_file)
    if tokens:  # the OpenAPI document, which is cached, says that a token is required
        document = app.openapi()
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
        for path in OPEN:
            document["paths"][path]["get"]["security"] = []
    app.add_middleware(
        Guard,
        tokens=tokens,
        max_body_bytes=settings.max_body_bytes,
        hosts=settings.hosts,
        metrics=metrics,
    )
    return app


def from_environment() -> FastAPI:
    """Make the application of a worker from settings in the environment; its database is ready."""
    from bftrainer.zeus.server.serve import configure

    settings = TypeAdapter(ServerSettings).validate_json(os.environ[ENVIRONMENT])
    configure(settings.log_level)
    # End like after a signal: the port stays in use as long as a worker is left.
    end_with_parent(signal.SIGTERM)
    return create_app(settings, migrate=False)


@contextlib.asynccontextmanager
async def _running(app: FastAPI, settings: ServerSettings, *, migrate: bool) -> AsyncIterator[None]:
    """Keep the store open, and look for abandoned trials, while the application runs."""
    async with open_store(settings.database_url, migrate=migrate) as store:
        timeout_s = settings.trial_timeout_s or None
        optimizer = ZeusBatchSizeOptimizer(store, published=settings.published, trial_timeout_s=timeout_s)
        app.state.optimizer = optimizer
        sweeping = asyncio.create_task(_sweep(optimizer))
        try:
            yield
        finally:
            sweeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sweeping


async def _sweep(optimizer: ZeusBatchSizeOptimizer) -> None:
    """End abandoned trials at regular intervals."""
    if optimizer.trial_timeout_s is None:
        return
    pause_s = min(max(optimizer.trial_timeout_s / _SWEEPS, _SHORTEST_SWEEP_S), _LONGEST_SWEEP_S)
    while True:
        try:
            ended = await optimizer.end_abandoned()
        except StoreUnavailableError as error:
            logger.warning("abandoned trials stay for now: %s", error)
        else:
            if ended:
                logger.info("ended %d abandoned trials", ended)
        await asyncio.sleep(pause_s)


Handler = Callable[[Request, Any], Awaitable[JSONResponse]]


def _handlers(*, published: bool) -> dict[type[Exception], Handler]:
    async def _failed(request: Request, error: BftrainerError) -> JSONResponse:
        statuses = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), (500, 500))
        direct = request.method in ("DELETE", "PATCH") or request.url.path.startswith("/state")
        status = 500 if published and isinstance(error, _BREAKS) else statuses[direct]
        if isinstance(error, StoreUnavailableError):
            # Clients must not see the database's message.
            logger.error("database: %s", error)
            message = "The database cannot be used at the moment; try again."
            return JSONResponse({"message": message}, status, headers={"Retry-After": "1"})
        return JSONResponse({"message": str(error)}, status)

    async def _invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        # Leaves out the input, which may not even be text.
        detail = [{"loc": list(each["loc"]), "msg": each["msg"], "type": each["type"]} for each in error.errors()]
        return JSONResponse({"detail": detail}, 422)

    async def _refused(request: Request, error: HTTPException) -> JSONResponse:
        headers = error.headers
        if error.status_code == 405:
            # The framework only names the methods of the first route.
            known = request.app.openapi()["paths"].get(request.url.path, {})
            headers = {"Allow": ", ".join(sorted(map(str.upper, known)))} if known else headers
        return JSONResponse({"message": str(error.detail)}, error.status_code, headers=headers)

    async def _broken(_: Request, error: Exception) -> JSONResponse:
        logger.error("unexpected failure", exc_info=error)
        return JSONResponse({"message": "Internal server error."}, 500)

    handlers: dict[type[Exception], Handler] = {
        BftrainerError: _failed,
        RequestValidationError: _invalid,
        HTTPException: _refused,
        Exception: _broken,
    }
    return handlers


_JOBS_A_PAGE, _TRIALS_A_PAGE = 100, 1_000
_SUMMARIES, _ROWS = TypeAdapter(list[JobSummary]), TypeAdapter(list[TrialRow])
_WHAT = {
    400: "Unknown job or trial, or a trial that is over; or no such body",
    401: "No token, or a wrong one",
    403: "Asked for by another site",
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


def _responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the errors that a route may return, for its documentation."""
    every = (400, 401, 403, 413, 503)
    listed: dict[int | str, dict[str, Any]] = {
        status: {"model": Message, "description": _WHAT[status]} for status in sorted({*every, *statuses})
    }
    return listed | {422: {"model": Invalid, "description": "A request that means nothing"}}


def _optimizer(request: Request) -> ZeusBatchSizeOptimizer:
    found: ZeusBatchSizeOptimizer = request.app.state.optimizer
    return found


def _json(model: BaseModel, status: int = 200) -> Response:
    return Response(model.model_dump_json(), status, media_type="application/json")


_NULL: Mapping[str, Any] = {"content": b"null", "media_type": "application/json"}


def api(*, published: bool) -> APIRouter:
    """Make the published routes.

    Parameters
    ----------
    published : bool
        Read requests as leniently as the published server.
    """
    router = APIRouter(tags=["tuning"])
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
        registered = await _optimizer(request).register_job(job)
        return _json(registered.spec, 201 if registered.created else 200)

    @router.delete("/jobs", response_model=None, responses={200: {"model": None}, **_responses(404, *breaks)})
    async def delete_job(request: Request, job_id: Name) -> Response:  # type: ignore[valid-type]
        """Forget a job with all its trials."""
        await _optimizer(request).delete_job(job_id)
        return Response(**_NULL)

    @router.get("/jobs/batch_size", response_model=TrialId, responses=_responses(409, *breaks))
    async def predict(request: Request, job_id: Name, request_id: RequestId = None) -> Response:  # type: ignore[valid-type]
        """Start a trial: the batch size to run with, and the number to report under."""
        return _json(await _optimizer(request).predict(job_id, request_id))

    @router.post("/report", response_model=ReportResponse, responses=_responses(*breaks))
    async def report(request: Request, result: Result) -> Response:  # type: ignore[valid-type]
        """Say what a trial has used and reached by the end of an epoch, and hear whether it goes on."""
        return _json(await _optimizer(request).report(result))

    @router.patch("/trials", response_model=None, responses={200: {"model": None}, **_responses(404, *breaks)})
    async def end_trial(request: Request, trial: Trial) -> Response:  # type: ignore[valid-type]
        """End a trial that has no result; one that has stays as it is."""
        await _optimizer(request).end_trial(trial)
        return Response(**_NULL)

    return router


def operations() -> APIRouter:
    """Make the routes for operators of the server: its contents and its health."""
    router = APIRouter()

    @router.get("/state/jobs", response_model=list[JobSummary], responses=_responses(), tags=["state"])
    async def jobs(
        request: Request,
        after: Annotated[str | None, Query(description="Jobs beyond this name.", max_length=NAME_LENGTH)] = None,
        limit: Annotated[int, Query(ge=1, le=_JOBS_A_PAGE)] = _JOBS_A_PAGE,
    ) -> Response:
        """Jobs by name, and how far their tuning is."""
        found = await _optimizer(request).service.look(lambda transaction: transaction.jobs(after, limit))
        return Response(_SUMMARIES.dump_json(found), media_type="application/json")

    @router.get("/state/job", response_model=JobSummary, responses=_responses(404), tags=["state"])
    async def job(request: Request, job_id: JobId) -> Response:
        """One job, and how far its tuning is."""
        return _json(await _optimizer(request).service.look(lambda transaction: transaction.job(job_id)))

    @router.get("/state/trials", response_model=list[TrialRow], responses=_responses(404), tags=["state"])
    async def trials(
        request: Request,
        job_id: JobId,
        after: Annotated[int, Query(description="Trials beyond this number.", ge=0, le=LARGEST)] = 0,
        limit: Annotated[int, Query(ge=1, le=_TRIALS_A_PAGE)] = _TRIALS_A_PAGE,
    ) -> Response:
        """Trials of a job by number."""
        found = await _optimizer(request).service.look(lambda transaction: transaction.trials(job_id, after, limit))
        return Response(_ROWS.dump_json(found), media_type="application/json")

    @router.get("/healthz", response_model=Message, tags=["health"])
    async def healthz() -> Response:
        """Whether the server runs."""
        return _json(Message(message="ok"))

    @router.get("/readyz", response_model=Message, responses=_responses(), tags=["health"])
    async def readyz(request: Request) -> Response:
        """Whether the server can work: its database answers."""
        await _optimizer(request).service.look(lambda transaction: transaction.jobs(None, 1))
        return _json(Message(message="ready"))

    @router.get("/metrics", response_class=Response, responses=_responses(), tags=["health"])
    async def metrics(request: Request) -> Response:
        """Figures for Prometheus."""
        try:
            counted = await _optimizer(request).service.look(lambda transaction: transaction.stages())
        except StoreUnavailableError:
            counted = {}
        return Response(request.app.state.metrics.page(counted), media_type=CONTENT_TYPE)

    return router
