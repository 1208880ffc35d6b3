"""The server as an ASGI application: wiring of its parts, and answers to errors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Mapping
from functools import partial

from bftrainer.extras import requiring

with requiring("The server needs", "server", "fastapi"):
    from fastapi import FastAPI, Request
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
    StoreUnavailableError,
    UnusableValueError,
)
from bftrainer.zeus.server.access import AccessFile
from bftrainer.zeus.server.guard import Guard, Metrics
from bftrainer.zeus.server.pages import pages
from bftrainer.zeus.server.routes import ROUTERS
from bftrainer.zeus.server.service import BatchSizeService, ZeusBatchSizeOptimizer
from bftrainer.zeus.server.settings import ServerSettings
from bftrainer.zeus.server.store import open_store

__all__ = ["create_app"]

logger = logging.getLogger(__name__)

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


def create_app(settings: ServerSettings | None = None) -> FastAPI:
    """Make the server's application.

    Raises
    ------
    SettingsError
        If the tokens cannot be read; at the start, if the database cannot be used.
    """
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
    for router in (*ROUTERS, pages(front=not published)):
        app.include_router(router)
    app.add_middleware(Guard, hosts=settings.hosts, metrics=app.state.metrics)
    return app


@contextlib.asynccontextmanager
async def _run(app: FastAPI, settings: ServerSettings) -> AsyncIterator[None]:
    """Keep the store open, and look for abandoned trials, while the application runs."""
    with open_store(settings.database_url) as store:
        timeout_s = settings.trial_timeout_s or None
        service = BatchSizeService(store, published=settings.compat == "zeus", trial_timeout_s=timeout_s)
        app.state.optimizer = optimizer = ZeusBatchSizeOptimizer(service)
        sweeping = asyncio.create_task(_sweep(optimizer))
        try:
            yield
        finally:
            sweeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sweeping
            optimizer.close()


async def _sweep(optimizer: ZeusBatchSizeOptimizer) -> None:
    """End abandoned trials, ten times per time-out, at least every five minutes and at most every second."""
    timeout_s = optimizer.service.trial_timeout_s
    while timeout_s is not None:
        try:
            if ended := await optimizer.call(optimizer.service.end_abandoned):
                logger.info("ended %d abandoned trials", ended)
        except StoreUnavailableError as error:
            logger.warning("abandoned trials stay for now: %s", error)
        await asyncio.sleep(min(max(timeout_s / 10, 1.0), 300.0))


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
        known = request.app.openapi()["paths"].get(request.url.path, {})
        headers = {"Allow": ", ".join(sorted(map(str.upper, known)))} if known else headers
    return JSONResponse({"message": str(error.detail)}, error.status_code, headers=headers)


async def _answer_failure(_: Request, error: Exception) -> JSONResponse:
    """Answer a request on which the server fails."""
    logger.error("unexpected failure", exc_info=error)
    return JSONResponse({"message": "Internal server error."}, 500)
