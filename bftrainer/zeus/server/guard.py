"""Who may send which request, as a dependency of its route; and what is refused, logged and counted of all requests."""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from bftrainer.errors import SettingsError
from bftrainer.plugins import requiring
from bftrainer.zeus.server.access import ANYBODY, AccessFile, Role, User, token_key

with requiring("The server needs", "server", "fastapi"):
    from fastapi import Request, Response
    from fastapi.routing import APIRoute
    from fastapi.security import HTTPBearer
    from starlette.datastructures import Headers
    from starlette.exceptions import HTTPException
    from starlette.responses import JSONResponse
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

with requiring("The server needs", "server", "prometheus_client"):
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Longest body of a request in bytes.
BODY_BYTES = 1 << 20
_TOO_LONG = f"Expected at most {BODY_BYTES} bytes."
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
# Pages that other sites may link to, because they change nothing.
_PAGES = frozenset({"/", "/status"})
logger = logging.getLogger(__name__)
# Who changed what: logged whatever the level.
audit_logger = logging.getLogger(f"{__name__}.audit")


class Require(HTTPBearer):
    """Dependency of a route: who sends a request, if they have a role; a browser's password does for readers."""

    def __init__(self, role: Role) -> None:
        super().__init__(scheme_name="token", auto_error=False)
        self.role = role

    async def __call__(self, request: Request) -> User:  # type: ignore[override]
        """Find out who it is, or refuse the request."""
        access: AccessFile | None = request.app.state.access
        request.state.least = self.role
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        scheme, token = scheme.lower(), value.strip().encode("latin-1")
        if scheme == "basic":
            try:
                token = base64.b64decode(token, validate=True).partition(b":")[2]
            except ValueError:
                token = b""
        elif scheme != "bearer":
            token = b""
        try:
            actor = ANYBODY if access is None else access.find(token_key(token))
        except SettingsError as error:
            logger.error("nobody is let in: %s", error)
            raise HTTPException(503, "Tokens cannot be read at the moment; try again.", {"Retry-After": "1"}) from None
        if actor is None:
            challenge = 'Bearer, Basic realm="bftrainer"'
            raise HTTPException(401, "Expected a bearer token.", {"WWW-Authenticate": challenge})
        request.state.actor = actor
        if self.role > Role.READER and scheme == "basic":  # also sent with what other sites have a browser ask
            raise HTTPException(403, "Expected a bearer token: with a browser's password one may only look.")
        actor.check_role(self.role)
        return actor


class GuardedRoute(APIRoute):
    """A route that asks who sends a request before it reads what was sent: FastAPI reads bodies first."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Make what answers a request."""
        handle = super().get_route_handler()
        guards = [each.call for each in self.dependant.dependencies if isinstance(each.call, Require)]

        async def answer(request: Request) -> Response:
            for guard in guards:
                await guard(request)
            return await handle(request)

        return answer


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
        self._requests.labels(method if method in _METHODS else "other", route, str(status)).inc()
        self._seconds.labels(route).observe(duration_s)

    def page(self, stages: Mapping[str, Mapping[str, int]]) -> bytes:
        """Render all figures in Prometheus's text format; `stages` has jobs, trials and results by stage."""
        for name, gauge in self._gauges.items():
            gauge.clear()
            for stage, counts in stages.items():
                gauge.labels(stage).set(counts[name])
        return generate_latest(self._registry)


class Guard:
    """Middleware: refuses long requests and those that other sites cause; logs and counts the answers to all."""

    def __init__(self, app: ASGIApp, *, hosts: tuple[str, ...], metrics: Metrics) -> None:
        self.app, self.hosts, self.metrics = app, hosts, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, received = time.perf_counter(), 500, 0

        async def receive_limited() -> Message:
            """Receive the next part of a request, whose length is limited even if it does not state it."""
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > BODY_BYTES:
                raise HTTPException(413, _TOO_LONG)
            return message

        async def send_and_note(message: Message) -> None:
            """Send an answer, and remember its status."""
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            answer = _refuse(scope, self.hosts) or self.app
            await answer(scope, receive_limited, send_and_note)
        finally:
            self._note(scope, status, time.perf_counter() - began)

    def _note(self, scope: Scope, status: int, duration_s: float) -> None:
        """Count and log an answer; one to a request that changes something, whatever the level."""
        method, state = scope["method"], scope.get("state", {})
        self.metrics.count(method, getattr(scope.get("route"), "path", "unmatched"), status, duration_s)
        actor: User | None = state.get("actor")
        log = audit_logger if actor is not None and state["least"] > Role.READER else logger
        if log.isEnabledFor(logging.INFO):
            fields: dict[str, Any] = {"method": method, "path": scope["path"], "status": status}
            fields["duration_ms"] = round(duration_s * 1e3, 3)
            fields["client"] = client[0] if (client := scope.get("client")) else None
            if actor is not None:
                fields |= {"actor": actor.name, "role": actor.role.name.lower(), **state.get("about", {})}
            log.info("answered", extra={"fields": fields})


def _refuse(scope: Scope, hosts: tuple[str, ...]) -> JSONResponse | None:
    """Refuse what pages of other sites have a browser ask, and what says that it is too long."""
    headers = Headers(scope=scope)
    host = headers.get("host", "").lower()
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    # Names of this machine alone: another one's may resolve to it, so that its pages could ask the server.
    if hosts and name not in hosts:
        return _answer(400, "Expected a request to this machine by its own name.")
    # A "site" includes all ports, and all names in its domain.
    is_link = headers.get("sec-fetch-mode") == "navigate" and scope["path"] in _PAGES
    is_elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site") and not is_link
    # Browsers leave those marks out of what they send to other machines without TLS, but not this one.
    origin = headers.get("origin")
    if is_elsewhere or (origin is not None and origin.partition("://")[2].lower() != host):
        return _answer(403, "Expected a request that no other site makes.")
    length = headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length[:20]) > BODY_BYTES:  # the rest of it is not read
        return _answer(413, _TOO_LONG, {"Connection": "close"})
    return None


def _answer(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"message": message}, status, headers)
