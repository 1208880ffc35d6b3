"""Middleware for every request: finds out who sends it, checks role and size, then logs and counts it."""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bftrainer.errors import ForbiddenError, SettingsError
from bftrainer.extras import requiring
from bftrainer.zeus.server.access import ANYBODY, AccessFile, Actor, Role, token_key
from bftrainer.zeus.server.settings import ServerSettings

with requiring("The server needs", "server", "fastapi"):
    from starlette.exceptions import HTTPException
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

with requiring("The server needs", "server", "prometheus_client"):
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
logger = logging.getLogger(__name__)
# Who changed what: logged whatever the level.
audit_logger = logging.getLogger(f"{__name__}.audit")

# Longest body of a request in bytes.
BODY_BYTES = 1 << 20
# Routes for monitoring, which ask nobody who they are, and tell nothing about jobs.
OPEN = frozenset({"/healthz", "/readyz"})
# Pages that other sites may link to, because they change nothing.
_PAGES = frozenset({"/", "/status"})

_LOOK, _TRAIN, _OWN = Role.READER, Role.TRAINER, Role.OWNER
_NEEDED: Mapping[tuple[str, str], Role] = {
    **{("GET", path): _LOOK for path in ("/", "/status", "/metrics", "/openapi.json")},
    ("GET", "/favicon.ico"): _LOOK,  # of which there is none, but browsers ask
    **{("GET", f"/state/{what}"): _LOOK for what in ("jobs", "job", "trials")},
    ("GET", "/jobs/batch_size"): _TRAIN,
    ("POST", "/report"): _TRAIN,
    ("POST", "/trials/heartbeat"): _TRAIN,
    ("PATCH", "/trials"): _TRAIN,
    # Trainers make sure that a job is registered; to register one takes an owner.
    ("POST", "/jobs"): _TRAIN,
    # Of own jobs.
    ("POST", "/trials/void"): _OWN,
    ("DELETE", "/jobs"): _OWN,
}


def needed(method: str, path: str) -> Role:
    """The least role that a request takes: an administrator's of a route that the table has not."""
    return _NEEDED.get(("GET" if method == "HEAD" else method, path), Role.ADMIN)


class _Jobs(Collector):
    """Jobs, trials and results by stage, from the database."""

    def __init__(self, stages: Mapping[str, Mapping[str, int]]) -> None:
        self._stages = stages

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauges."""
        for name, what in (("jobs", "Jobs"), ("trials", "Trials of jobs"), ("results", "Results of trials of jobs")):
            gauge = GaugeMetricFamily(f"bftrainer_bso_{name}", f"{what} registered.", labels=("stage",))
            for stage, counts in self._stages.items():
                gauge.add_metric((stage,), counts[name])
            yield gauge


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

    def count(self, method: str, route: str, status: int, duration_s: float) -> None:
        """Count a request."""
        self._requests.labels(method if method in _METHODS else "other", route, str(status)).inc()
        self._seconds.labels(route).observe(duration_s)

    def page(self, stages: Mapping[str, Mapping[str, int]]) -> bytes:
        """Render all figures in Prometheus's text format; `stages` has jobs, trials and results by stage."""
        now = CollectorRegistry()
        now.register(_Jobs(stages))
        return generate_latest(self._registry) + generate_latest(now)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """An answer to a request that is not passed on."""

    status: int
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


_ELSEWHERE = _Refusal(403, "Expected a request that no other site makes.")
_TOO_LONG = f"Expected at most {BODY_BYTES} bytes."
_STRANGER = _Refusal(
    401,
    "Expected a bearer token.",
    ((b"www-authenticate", b"Bearer"), (b"www-authenticate", b'Basic realm="bftrainer"')),
)


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
        began, status = time.perf_counter(), 500

        async def send_and_note(message: Message) -> None:
            """Send an answer, and remember its status."""
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            refusal = self._refusal(scope)
            if refusal is None:
                await self.app(scope, _limit(receive), send_and_note)
            else:
                await _refuse(_limit(receive), send_and_note, refusal)
        finally:
            self._note(scope, status, time.perf_counter() - began)

    def _refusal(self, scope: Scope) -> _Refusal | None:
        """Return status and reason if a request is refused before it is read."""
        headers = dict(scope["headers"])
        # Names of this machine alone: another one's may resolve to it, so that its pages could ask the server.
        if self._hosts and _host(headers.get(b"host", b"")) not in self._hosts:
            return _Refusal(400, "Expected a request to this machine by its own name.")
        # Another site's page could make a browser send requests, which would hand out trials. A "site" includes all
        # ports, and all names in its domain.
        is_link = headers.get(b"sec-fetch-mode") == b"navigate" and scope["path"] in _PAGES
        if headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site") and not is_link:
            return _ELSEWHERE
        # Browsers leave those marks out of what they send to other machines without TLS, but not this one.
        origin = headers.get(b"origin")
        if origin is not None and origin.partition(b"://")[2].lower() != headers.get(b"host", b"").lower():
            return _ELSEWHERE
        if scope["path"] not in OPEN and (refusal := self._identify(scope, headers)) is not None:
            return refusal
        length = headers.get(b"content-length", b"0")
        return _Refusal(413, _TOO_LONG) if length.isdigit() and int(length[:20]) > BODY_BYTES else None

    def _identify(self, scope: Scope, headers: Mapping[bytes, bytes]) -> _Refusal | None:
        """Find out who sends a request, or return why they are not let in, or not to this route."""
        authorization = headers.get(b"authorization", b"")
        try:
            actor = ANYBODY if self._access is None else self._access.find(token_key(_token(authorization)))
        except SettingsError as error:
            logger.error("nobody is let in: %s", error)
            return _Refusal(503, "Tokens cannot be read at the moment; try again.", ((b"retry-after", b"1"),))
        if actor is None:
            return _STRANGER
        scope.setdefault("state", {})["actor"] = actor
        least = needed(scope["method"], scope["path"])
        if least > Role.READER and authorization.lower().startswith(b"basic"):
            return _Refusal(403, "Expected a bearer token: with a browser's password one may only look.")
        try:
            actor.check_role(least)
        except ForbiddenError as error:
            return _Refusal(403, str(error))
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


def _limit(receive: Receive) -> Receive:
    """Limit the length of a request, even if it does not state its length."""
    received = 0

    async def receive_limited() -> Message:
        """Receive the next part."""
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > BODY_BYTES:
            raise HTTPException(413, _TOO_LONG)
        return message

    return receive_limited


async def _refuse(receive: Receive, send: Send, refusal: _Refusal) -> None:
    """Answer a request that is refused; one that is short enough is read, as who still sends may miss an answer."""
    part: Message = {"more_body": refusal.status != 413}
    try:
        while part.get("more_body"):
            part = await receive()
    except HTTPException:
        pass
    body = json.dumps({"message": refusal.message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *refusal.headers]
    if refusal.status == 413:  # the rest of the request is not read
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _token(authorization: bytes) -> bytes:
    """Token in a header: a bearer's, or a browser's password; empty if there is none."""
    scheme, _, value = authorization.partition(b" ")
    token = value.strip()
    if scheme.lower() == b"basic":
        try:
            return base64.b64decode(token, validate=True).partition(b":")[2]
        except ValueError:
            return b""
    return token if scheme.lower() == b"bearer" else b""


def _host(header: bytes) -> str:
    """Return the name in a Host header, without the port."""
    text = header.decode("latin-1").lower()
    return text.partition("]")[0].lstrip("[") if text.startswith("[") else text.partition(":")[0]
