"""Middleware for every request: finds out who sends it, checks role and size, then logs and counts it."""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from bftrainer.errors import ForbiddenError, SettingsError
from bftrainer.extras import requiring
from bftrainer.zeus.server.access import ANYBODY, AccessFile, Actor, Role, token_key
from bftrainer.zeus.server.settings import ServerSettings

with requiring("The server needs", "server", "fastapi"):
    from starlette.datastructures import Headers
    from starlette.exceptions import HTTPException
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

with requiring("The server needs", "server", "prometheus_client"):
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_GAUGES = {"jobs": "Jobs", "trials": "Trials of jobs", "results": "Results of trials of jobs"}
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
logger = logging.getLogger(__name__)
# Who changed what: logged whatever the level.
audit_logger = logging.getLogger(f"{__name__}.audit")

# Longest body of a request in bytes.
BODY_BYTES = 1 << 20
_TOO_LONG = f"Expected at most {BODY_BYTES} bytes."
# Routes for monitoring, which ask nobody who they are, and tell nothing about jobs.
OPEN = frozenset({"/healthz", "/readyz"})
# Pages that other sites may link to, because they change nothing.
_PAGES = frozenset({"/", "/status"})
# The least role that a route takes. Browsers ask for an icon, of which there is none; trainers make sure that a job is
# registered, and to register one takes an owner; void and delete are of own jobs.
_NEEDED: Mapping[tuple[str, str], Role] = {
    **{("GET", path): Role.READER for path in ("/", "/status", "/metrics", "/openapi.json", "/favicon.ico")},
    **{("GET", f"/state/{what}"): Role.READER for what in ("jobs", "job", "trials")},
    ("GET", "/jobs/batch_size"): Role.TRAINER,
    **{("POST", path): Role.TRAINER for path in ("/jobs", "/report", "/trials/heartbeat")},
    ("PATCH", "/trials"): Role.TRAINER,
    ("POST", "/trials/void"): Role.OWNER,
    ("DELETE", "/jobs"): Role.OWNER,
}


def needed(method: str, path: str) -> Role:
    """The least role that a request takes: an administrator's of a route that the table has not."""
    return _NEEDED.get(("GET" if method == "HEAD" else method, path), Role.ADMIN)


class Metrics:
    """Counts requests by route and status, their durations, and the jobs."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        labels = ("method", "route", "status")
        self._requests = Counter("bftrainer_bso_requests", "Requests answered.", labels, registry=self._registry)
        self._seconds = Histogram(
            "bftrainer_bso_request_seconds",
            "Time that answers took.",
            ("route",),
            registry=self._registry,
            buckets=_BUCKETS,
        )
        self._gauges = {
            name: Gauge(f"bftrainer_bso_{name}", f"{what} registered.", ("stage",), registry=self._registry)
            for name, what in _GAUGES.items()
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
    """Refuses requests that are not allowed, and logs and counts the answers to the others.

    The actor is put into the state of a request; what a route puts there as `about` is logged.

    Parameters
    ----------
    app : ASGIApp
        Application to protect.
    settings : ServerSettings
        Settings of the server.
    metrics : Metrics
        Counts requests.

    Raises
    ------
    SettingsError
        If the file of tokens cannot be read.
    """

    def __init__(self, app: ASGIApp, *, settings: ServerSettings, metrics: Metrics) -> None:
        self.app, self.metrics, self._hosts = app, metrics, frozenset(settings.hosts)
        self._access = None if settings.token_file is None else AccessFile(settings.token_file)

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
            refusal = self._refuse_elsewhere(scope) or self._refuse_stranger(scope) or _refuse_long(scope)
            if refusal is None:
                await self.app(scope, receive_limited, send_and_note)
                return
            with suppress(HTTPException):  # one that is short is read, as who still sends may miss an answer
                while refusal.status_code != 413 and (await receive_limited()).get("more_body"):
                    pass
            await refusal(scope, receive, send_and_note)
        finally:
            self._note(scope, status, time.perf_counter() - began)

    def _refuse_elsewhere(self, scope: Scope) -> Response | None:
        """Refuse what pages of other sites have a browser ask."""
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        # Names of this machine alone: another one's may resolve to it, so that its pages could ask the server.
        if self._hosts and name not in self._hosts:
            return _refusal(400, "Expected a request to this machine by its own name.")
        # Another site's page could make a browser send requests, which would hand out trials. A "site" includes all
        # ports, and all names in its domain.
        is_link = headers.get("sec-fetch-mode") == "navigate" and scope["path"] in _PAGES
        is_elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site") and not is_link
        # Browsers leave those marks out of what they send to other machines without TLS, but not this one.
        origin = headers.get("origin")
        if is_elsewhere or (origin is not None and origin.partition("://")[2].lower() != host):
            return _refusal(403, "Expected a request that no other site makes.")
        return None

    def _refuse_stranger(self, scope: Scope) -> Response | None:
        """Find out who sends a request; refuse it if they are not let in, or not to this route."""
        if scope["path"] in OPEN:
            return None
        scheme, _, value = Headers(scope=scope).get("authorization", "").partition(" ")
        scheme, token = scheme.lower(), value.strip().encode("latin-1")
        if scheme == "basic":  # a browser's password
            try:
                token = base64.b64decode(token, validate=True).partition(b":")[2]
            except ValueError:
                token = b""
        elif scheme != "bearer":
            token = b""
        try:
            actor = ANYBODY if self._access is None else self._access.find(token_key(token))
        except SettingsError as error:
            logger.error("nobody is let in: %s", error)
            return _refusal(503, "Tokens cannot be read at the moment; try again.", ("retry-after", "1"))
        if actor is None:
            challenges = ("www-authenticate", "Bearer"), ("www-authenticate", 'Basic realm="bftrainer"')
            return _refusal(401, "Expected a bearer token.", *challenges)
        scope.setdefault("state", {})["actor"] = actor
        least = needed(scope["method"], scope["path"])
        if least > Role.READER and scheme == "basic":
            return _refusal(403, "Expected a bearer token: with a browser's password one may only look.")
        try:
            actor.check_role(least)
        except ForbiddenError as error:
            return _refusal(403, str(error))
        return None

    def _note(self, scope: Scope, status: int, duration_s: float) -> None:
        """Count and log an answer; one to a request that changes something, whatever the level."""
        route = getattr(scope.get("route"), "path", "unmatched")
        self.metrics.count(scope["method"], route, status, duration_s)
        is_nowhere = route == "unmatched" and status == 404
        state = scope.get("state", {})
        actor: Actor | None = state.get("actor")
        changes = actor is not None and not is_nowhere and needed(scope["method"], scope["path"]) > Role.READER
        log = audit_logger if changes else logger
        if log.isEnabledFor(logging.INFO):
            fields: dict[str, Any] = {
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "duration_ms": round(duration_s * 1e3, 3),
                "client": client[0] if (client := scope.get("client")) else None,
            }
            if actor is not None:
                fields |= {"actor": actor.name, "role": actor.role.name.lower(), **state.get("about", {})}
            log.info("answered", extra={"fields": fields})


def _refuse_long(scope: Scope) -> Response | None:
    """Refuse a request that says that it is too long; the rest of it is not read."""
    length = Headers(scope=scope).get("content-length", "0")
    is_long = length.isascii() and length.isdigit() and int(length[:20]) > BODY_BYTES
    return _refusal(413, _TOO_LONG, ("connection", "close")) if is_long else None


def _refusal(status: int, message: str, *headers: tuple[str, str]) -> Response:
    """Make an answer to a request that is not passed on."""
    answer = Response(json.dumps({"message": message}), status, media_type="application/json")
    for name, value in headers:
        answer.headers.append(name, value)
    return answer
