"""The server as an ASGI application: its settings, who may use which route, its pages, and answers to errors."""

# FastAPI evaluates annotations to read requests: they cannot be strings.

import contextlib
import logging
import math
import re
import time
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from http import HTTPMethod
from typing import Annotated, Any, TypeVar

from bftrainer.plugins import requiring

with requiring("The server needs", "server", "fastapi", "jinja2", "prometheus_client"):
    from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import HTMLResponse, JSONResponse
    from fastapi.routing import APIRoute
    from fastapi.security import HTTPBearer
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
    from starlette import types as asgi
    from starlette.datastructures import Headers
    from starlette.exceptions import HTTPException
    from starlette.middleware.body_limit import RequestBodyLimitMiddleware
    from starlette.requests import HTTPConnection

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
)
from bftrainer.report.page import Page
from bftrainer.zeus.server.access import ANYBODY, AccessFile, Role, User, token_key
from bftrainer.zeus.server.job_figures import JOBS_A_PAGE, job_page, jobs_page, missing_page
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
from bftrainer.zeus.server.service import BatchSizeService, ZeusBatchSizeOptimizer
from bftrainer.zeus.server.store import DEFAULT_URL, open_store

__all__ = ["ServerSettings", "create_app"]

logger = logging.getLogger(__name__)
# Who changed what: logged whatever the level.
audit_logger = logging.getLogger(f"{__name__}.audit")
T = TypeVar("T")

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
_PROBE_EVERY_S = 1.0
_TRIALS_A_PAGE = 1_000
# Longest body of a request.
_BODY_BYTES = 1 << 20
# What a stranger may ask, and pages that other sites may link to, because they change nothing.
_OPEN, _PAGES = frozenset({"/healthz", "/readyz"}), frozenset({"/", "/status"})
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
# Errors that a route may answer, for its documentation.
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Message} for status in (400, 401, 403, 404, 409, 413, 500, 503)
}


def make_router(role: Role, tag: str) -> APIRouter:
    """Make a router whose routes take a user of a role, and ask for one first: FastAPI would read bodies before."""

    class GuardedRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def answer(request: Request) -> Response:
                request.state.changes = role > Role.READER
                request.state.user.check_role(role)
                return await handle(request)

            return answer

    class DocumentedToken(HTTPBearer):
        async def __call__(self, _: HTTPConnection) -> None:
            """Do nothing: the guard has read the token, and this is for the document only."""

    token = Depends(DocumentedToken(scheme_name="token", auto_error=False))
    # The published client sends no content type; browsers are kept out by other means.
    return APIRouter(
        tags=[tag], responses=_ERRORS, route_class=GuardedRoute, dependencies=[token], strict_content_type=False
    )


JobId = Annotated[str, Query(description="Name of the job.")]
After = Annotated[str | None, Query(description="Jobs beyond this name.", pattern=r"^[^\x00]*$")]
RequestId = Annotated[str | None, Query(pattern="^[!-~]{1,64}$", description="The same request gets the same trial.")]
LeaseTime = Annotated[
    float | None,
    Query(ge=1, le=LONGEST_LEASE_S, allow_inf_nan=False, description="Seconds of silence that end an exploration."),
]


async def _ask(request: Request, method: Callable[..., T], *words: Any, **about: object) -> T:
    """Have the service do something in its thread; the log says what the request is about."""
    request.state.about = about
    optimizer: ZeusBatchSizeOptimizer = request.app.state.optimizer
    return await optimizer.call(partial(method, optimizer.service), *words)


# Trainers make sure that a job is registered; to register one takes an owner. Void and delete are of own jobs.
tuning, owning = make_router(Role.TRAINER, "tuning"), make_router(Role.OWNER, "tuning")


@tuning.post("/jobs", status_code=201, responses={200: {"model": JobSpec}})
async def register_job(request: Request, response: Response, job: JobSpec) -> JobSpec:
    """Register a job (201), or make sure that it is registered with the same settings (200)."""
    spec, is_new = await _ask(request, BatchSizeService.register_job, job, request.state.user, job_id=job.job_id)
    response.status_code = 201 if is_new else 200
    return spec


@owning.delete("/jobs", response_model=None)
async def delete_job(request: Request, job_id: JobId) -> None:
    """Forget a job with all its trials."""
    await _ask(request, BatchSizeService.delete_job, job_id, request.state.user, job_id=job_id)


@tuning.get("/jobs/batch_size")
async def batch_size(
    request: Request, job_id: JobId, request_id: RequestId = None, lease_s: LeaseTime = None
) -> TrialId:
    """Start a trial: the batch size to run with, and the number to report under."""
    words = (job_id, request_id, lease_s, request.state.user)
    trial = await _ask(request, BatchSizeService.predict, *words, job_id=job_id)
    request.state.about["trial"] = trial.trial_number
    return trial


@tuning.post("/report")
async def report(request: Request, result: TrainingResult) -> ReportResponse:
    """Say what a trial has used and reached by the end of an epoch, and hear whether it goes on."""
    about = {"job_id": result.job_id, "trial": result.trial_number}
    return await _ask(request, BatchSizeService.report, result, **about)


@tuning.patch("/trials", response_model=None)
async def end_trial(request: Request, trial: TrialId) -> None:
    """End a trial that has no result; one that has stays as it is."""
    await _ask(request, BatchSizeService.end_trial, trial, job_id=trial.job_id, trial=trial.trial_number)


@tuning.post("/trials/heartbeat", response_model=None)
async def heartbeat(request: Request, trial: TrialId) -> None:
    """Say that a trial is running, which renews its lease; of one that has a result nothing changes."""
    await _ask(request, BatchSizeService.heartbeat, trial, job_id=trial.job_id, trial=trial.trial_number)


@owning.post("/trials/void")
async def void_trial(request: Request, void: TrialVoid) -> JobSummary:
    """Have a trial count for nothing: what is known is learned again from the others."""
    about = {"job_id": void.job_id, "trial": void.trial_number, "reason": void.reason}
    words = (void.job_id, void.trial_number, request.state.user)
    return await _ask(request, BatchSizeService.void_trial, *words, **about)


state, front = make_router(Role.READER, "state"), make_router(Role.READER, "state")


@state.get("/state/jobs")
async def jobs(
    request: Request, after: After = None, limit: Annotated[int, Query(ge=1, le=JOBS_A_PAGE)] = JOBS_A_PAGE
) -> list[JobSummary]:
    """Jobs by name, and how far their tuning is."""
    return await _ask(request, BatchSizeService.jobs, after, limit)


@state.get("/state/job")
async def job(request: Request, job_id: JobId) -> JobSummary:
    """One job, and how far its tuning is."""
    return await _ask(request, BatchSizeService.job, job_id)


@state.get("/state/trials", response_model_exclude={"__all__": set(PRIVATE_FIELDS)})
async def trials(
    request: Request,
    job_id: JobId,
    after: Annotated[int, Query(description="Trials beyond this number.", ge=0, le=LARGEST)] = 0,
    limit: Annotated[int, Query(ge=1, le=_TRIALS_A_PAGE)] = _TRIALS_A_PAGE,
) -> list[TrialRow]:
    """Trials of a job by number."""
    return await _ask(request, BatchSizeService.trials, job_id, after, limit)


@front.get("/", include_in_schema=False)
@state.get("/status", include_in_schema=False)
async def status(request: Request, job_id: JobId | None = None, after: After = None) -> HTMLResponse:
    """Page of jobs, or of one of them and its latest trials."""
    code = 200
    try:
        page = await _ask(request, _make_page, job_id, after)
    except NotFoundError as error:
        code, page = 404, missing_page(str(error))
    html = page.html()
    # A browser may load nothing but the page's own style.
    style = html.partition("<style>")[2].partition("</style>")[0]
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}
    return HTMLResponse(html, code, headers | {"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"})


def _make_page(service: BatchSizeService, job_id: str | None, after: str | None) -> Page:
    if job_id is not None:
        return job_page(service.job(job_id), service.trials(job_id))
    return jobs_page(service.jobs(after, JOBS_A_PAGE + 1))


@state.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Figures for Prometheus."""
    try:
        stages = await _ask(request, lambda service: service.store.count_by_stage())
    except StoreUnavailableError:
        stages = {}
    return Response(request.app.state.metrics.page(stages), media_type="text/plain; version=0.0.4; charset=utf-8")


health = APIRouter(tags=["health"], responses=_ERRORS)


@health.get("/healthz")
async def healthz() -> Message:
    """Whether the server runs."""
    return Message(message="ok")


@health.get("/readyz")
async def readyz(request: Request) -> Message:
    """Whether the server can work: its database takes what is written, tried once a second at most."""
    app = request.app.state
    if time.monotonic() - app.probed_s > _PROBE_EVERY_S:
        app.probed_s = time.monotonic()
        try:
            app.fault = await _ask(request, lambda service: service.store.probe())
        except StoreUnavailableError as error:
            app.fault = error
    if app.fault is not None:
        raise app.fault
    return Message(message="ready")


class Metrics:
    """Counts requests by route and status, their durations, and the jobs."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        labels = ("method", "route", "status")
        self._requests = Counter("bftrainer_bso_requests", "Requests answered.", labels, registry=registry)
        self._seconds = Histogram(
            "bftrainer_bso_request_seconds", "Time that answers took.", ("route",), registry=registry, buckets=_BUCKETS
        )
        self._gauges = {
            name: Gauge(f"bftrainer_bso_{name}", f"{name.capitalize()} registered.", ("stage",), registry=registry)
            for name in ("jobs", "trials", "results")
        }

    def count(self, method: str, route: str, status: int, duration_s: float) -> None:
        """Count a request."""
        # A stranger may send any word for a method.
        self._requests.labels(method if method in HTTPMethod.__members__ else "other", route, str(status)).inc()
        self._seconds.labels(route).observe(duration_s)

    def page(self, stages: Mapping[str, Mapping[str, int]]) -> bytes:
        """Render all figures in Prometheus's text format; `stages` has jobs, trials and results by stage."""
        for name, gauge in self._gauges.items():
            gauge.clear()
            for stage, counts in stages.items():
                gauge.labels(stage).set(counts[name])
        return generate_latest(self._registry)


class Guard:
    """Middleware: finds out who sends a request, refuses strangers and other sites, logs and counts all answers."""

    def __init__(
        self, app: asgi.ASGIApp, *, hosts: tuple[str, ...], access: AccessFile | None, metrics: Metrics
    ) -> None:
        self.app, self.hosts, self.access, self.metrics = app, hosts, access, metrics

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Pass a request on to the application, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def send_and_note(message: asgi.Message) -> None:
            """Send an answer, and remember its status."""
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            answer = self._refuse(scope) or self.app
            await answer(scope, receive, send_and_note)
        finally:
            self._note(scope, status, time.perf_counter() - began)

    def _refuse(self, scope: asgi.Scope) -> JSONResponse | None:
        """Refuse strangers, what is too long, and what pages of other sites have a browser ask; else note the user."""
        headers = dict(reversed(Headers(scope=scope).items()))  # of several of one name, the first
        origin, host, length = headers.get("origin"), headers.get("host", "").lower(), headers.get("content-length", "")
        # Another name may resolve to this machine, so that the pages of its site could ask the server.
        if self.hosts and re.sub(":[0-9]*$", "", host) not in self.hosts:
            return JSONResponse({"message": "Expected a request to this machine by its own name."}, 400)
        if re.fullmatch("[0-9]+", length) and int(length[:20]) > _BODY_BYTES:
            return JSONResponse({"message": "Content Too Large"}, 413)
        # A "site" includes all ports, and all names in its domain.
        is_link = headers.get("sec-fetch-mode") == "navigate" and scope["path"] in _PAGES
        is_elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site") and not is_link
        # Browsers leave those marks out of what they send to other machines without TLS, but not this one.
        if is_elsewhere or (origin is not None and origin.partition("://")[2].lower() != host):
            return JSONResponse({"message": "Expected a request that no other site makes."}, 403)
        if scope["path"] in _OPEN:
            return None
        try:
            user = self._find_user(headers.get("authorization", ""))
        except SettingsError as error:
            logger.error("nobody is let in: %s", error)
            return _answer_busy("Tokens cannot be read at the moment; try again.")
        if user is None:
            challenge = {"WWW-Authenticate": 'Bearer, Basic realm="bftrainer"'}
            return JSONResponse({"message": "Expected a bearer token."}, 401, challenge)
        scope.setdefault("state", {})["user"] = user
        return None

    def _find_user(self, authorization: str) -> User | None:
        """Find out whose token it is; one may only look by a browser's password, which other sites have it send too."""
        scheme, _, value = authorization.partition(" ")
        if self.access is None:
            return ANYBODY
        if scheme.lower() == "bearer":
            return self.access.find(token_key(value.strip().encode("latin-1")))
        if scheme.lower() != "basic":
            return None
        try:
            password = b64decode(value, validate=True).partition(b":")[2]
        except ValueError:
            return None
        user = self.access.find(token_key(password))
        return user and replace(user, name=f"{user.name} by a browser's password", role=Role.READER)

    def _note(self, scope: asgi.Scope, status: int, duration_s: float) -> None:
        """Count and log an answer; one to a request that changes something, whatever the level."""
        method, state = scope["method"], scope.get("state", {})
        self.metrics.count(method, getattr(scope.get("route"), "path", "unmatched"), status, duration_s)
        log = audit_logger if state.get("changes") else logger
        if log.isEnabledFor(logging.INFO):
            fields: dict[str, Any] = {"method": method, "path": scope["path"], "status": status}
            fields["duration_ms"] = round(duration_s * 1e3, 3)
            fields["client"] = client[0] if (client := scope.get("client")) else None
            if user := state.get("user"):
                fields |= {"actor": user.name, "role": user.role.name.lower(), **state.get("about", {})}
            log.info("answered", extra={"fields": fields})


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of a server: `SettingsError` if one is out of range."""

    database_url: str = DEFAULT_URL
    compat: str = "none"  # zeus: answer exactly like the published server, defects included; none: with corrections
    trial_timeout_s: float = 86_400.0  # without a report, after which a trial counts as failed; 0: never
    token_file: str | None = None  # of tokens and users (`access`); without it, whoever reaches the server may use it
    hosts: tuple[str, ...] = ()  # names of the server that requests may use; empty: any

    def __post_init__(self) -> None:
        if self.compat not in ("none", "zeus"):
            raise SettingsError(f"Expected a compatibility of none or zeus, got {self.compat!r}.")
        if not 0.0 <= self.trial_timeout_s < math.inf:
            raise SettingsError(f"Expected a trial timeout of 0 (never) or more seconds, got {self.trial_timeout_s}.")


def create_app(settings: ServerSettings | None = None, announce: Callable[[], None] = lambda: None) -> FastAPI:
    """Make the server's application; `announce` is called once it has started.

    `SettingsError` if the tokens cannot be read or, at the start, the database.
    """
    settings = settings or ServerSettings()
    published = settings.compat == "zeus"
    app = FastAPI(
        title="bftrainer batch-size server",
        version=__version__,
        # Pages of documentation would load scripts from another site.
        docs_url=None,
        redoc_url=None,
        lifespan=partial(_run, settings=settings, announce=announce),
        exception_handlers={
            BftrainerError: partial(_answer_error, published=published),
            RequestValidationError: _answer_invalid,
            HTTPException: _answer_refused,
            Exception: _answer_failure,
        },
    )
    access = None if settings.token_file is None else AccessFile(settings.token_file)
    app.state.metrics = Metrics()
    app.state.probed_s, app.state.fault = -math.inf, None
    # The published server has no front page.
    for router in (tuning, owning, state, health, *([] if published else [front])):
        app.router.routes.extend(router.routes)  # `include_router` would match each request three times
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=_BODY_BYTES)  # of bodies that tell no length
    app.add_middleware(Guard, hosts=settings.hosts, access=access, metrics=app.state.metrics)
    return app


@contextlib.asynccontextmanager
async def _run(app: FastAPI, settings: ServerSettings, announce: Callable[[], None]) -> AsyncIterator[None]:
    """Keep the store open while the application runs."""
    with open_store(settings.database_url) as store:
        timeout_s = settings.trial_timeout_s or math.inf
        service = BatchSizeService(store, published=settings.compat == "zeus", trial_timeout_s=timeout_s)
        with contextlib.closing(ZeusBatchSizeOptimizer(service)) as app.state.optimizer:
            announce()
            yield


def _answer_busy(message: str) -> JSONResponse:
    return JSONResponse({"message": message}, 503, {"Retry-After": "1"})


async def _answer_error(request: Request, error: BftrainerError, *, published: bool) -> JSONResponse:
    """Answer an error of ours."""
    status = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)
    if status == 404 and (request.method, request.url.path) in _PASSING:
        status = 400
    if published and isinstance(error, UnusableValueError):  # on which the published server fails
        status = 500
    if status == 503:  # clients must not see the database's message
        logger.error("database: %s", error)
        return _answer_busy("The database cannot be used at the moment; try again.")
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
