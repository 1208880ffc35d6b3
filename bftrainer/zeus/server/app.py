"""The server as an ASGI application: what it is made of, and how errors are answered."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from bftrainer.extras import requiring

with requiring("The server needs", "server", "fastapi"):
    from fastapi import FastAPI, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse
    from starlette.exceptions import HTTPException

from bftrainer._version import __version__
from bftrainer.errors import (
    BatchSizeServerError,
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
from bftrainer.zeus.server.guard import OPEN, Guard, Metrics
from bftrainer.zeus.server.optimizer import ZeusBatchSizeOptimizer
from bftrainer.zeus.server.pages import pages
from bftrainer.zeus.server.routes import api, operations
from bftrainer.zeus.server.settings import ServerSettings, read_tokens
from bftrainer.zeus.server.store import open_store

__all__ = ["ENVIRONMENT", "create_app", "from_environment"]

logger = logging.getLogger(__name__)

# Where workers find their settings.
ENVIRONMENT = "BFTRAINER_BSO_SETTINGS"

# Each error's status: asked for in passing, and asked for as such (to end, delete or show it).
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
# What the published server breaks on, and answers as such.
_BREAKS = UnusableValueError
# How often trials are looked through for abandoned ones: so many times within the time-out, and at most this often.
_SWEEPS, _SHORTEST_SWEEP_S, _LONGEST_SWEEP_S = 10, 1.0, 300.0


def create_app(settings: ServerSettings | None = None, *, migrate: bool = True) -> FastAPI:
    """The application.

    Parameters
    ----------
    settings : ServerSettings, optional
        How it runs.
    migrate : bool
        Whether tables are created or brought up to date as it starts.

    Raises
    ------
    SettingsError
        If the tokens cannot be read; as it starts, if the database cannot be used.
    """
    settings = settings or ServerSettings()
    metrics = Metrics()
    app = FastAPI(
        title="bftrainer batch-size server",
        version=__version__,
        # Their scripts come from elsewhere.
        docs_url=None,
        redoc_url=None,
        # The published client says nothing of what it sends; browsers are kept out by other means.
        strict_content_type=False,
        lifespan=_lifespan(settings, migrate=migrate),
    )
    app.state.metrics = metrics
    app.include_router(api(published=settings.published))
    app.include_router(operations())
    app.include_router(pages(front=not settings.published))
    for kind, handler in _handlers(published=settings.published).items():
        app.add_exception_handler(kind, handler)
    tokens = read_tokens(settings.token_file)
    if tokens:
        _document_tokens(app)
    app.add_middleware(
        Guard,
        tokens=tokens,
        max_body_bytes=settings.max_body_bytes,
        hosts=settings.hosts,
        metrics=metrics,
    )
    return app


def _document_tokens(app: FastAPI) -> None:
    """Say in the OpenAPI document that a token is asked for."""
    document = app.openapi()  # made once, and kept
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    for path in OPEN:
        document["paths"][path]["get"]["security"] = []


def from_environment() -> FastAPI:
    """The application of a worker, whose settings are in the environment and whose database is ready."""
    from bftrainer.zeus.server.serve import configure

    configure()
    # As after a signal: while a worker is left, the port stays taken.
    end_with_parent(signal.SIGTERM)
    return create_app(ServerSettings.from_json(os.environ[ENVIRONMENT]), migrate=False)


def _lifespan(
    settings: ServerSettings, *, migrate: bool
) -> Callable[[FastAPI], contextlib.AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def _run(app: FastAPI) -> AsyncIterator[None]:
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

    return _run


async def _sweep(optimizer: ZeusBatchSizeOptimizer) -> None:
    """End abandoned trials, now and then."""
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
            # What the database says stays on this side.
            logger.error("database: %s", error)
            message = "The database cannot be used at the moment; try again."
            return JSONResponse({"message": message}, status, headers={"Retry-After": "1"})
        return JSONResponse({"message": str(error)}, status)

    async def _invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        # Without what was sent: it may not even be text.
        detail = [{"loc": list(each["loc"]), "msg": each["msg"], "type": each["type"]} for each in error.errors()]
        return JSONResponse({"detail": detail}, 422)

    async def _refused(request: Request, error: HTTPException) -> JSONResponse:
        headers = error.headers
        if error.status_code == 405:
            # The framework names the methods of the first route alone.
            known = request.app.openapi()["paths"].get(request.url.path, {})
            headers = {"Allow": ", ".join(sorted(map(str.upper, known)))} if known else headers
        return JSONResponse({"message": str(error.detail)}, error.status_code, headers=headers)

    async def _broken(_: Request, error: Exception) -> JSONResponse:
        logger.error("unexpected failure", exc_info=error)
        return JSONResponse({"message": "Internal server error."}, 500)

    handlers: dict[type[Exception], Handler] = {
        BatchSizeServerError: _failed,
        BftrainerError: _failed,
        RequestValidationError: _invalid,
        HTTPException: _refused,
        Exception: _broken,
    }
    return handlers
