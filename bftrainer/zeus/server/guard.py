"""Middleware for every request: finds out who sends it, checks role and size, then logs and counts it."""

from __future__ import annotations

import base64
import json
import logging
import math
import os
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bftrainer.errors import ForbiddenError, SettingsError
from bftrainer.extras import requiring
from bftrainer.files.permissions import login_name
from bftrainer.zeus.server.access import ANYBODY, AccessFile, Actor, Role, token_key
from bftrainer.zeus.server.settings import PEER_UID, ServerSettings, network_of

with requiring("The server needs", "server", "fastapi"):
    from starlette.exceptions import HTTPException
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

with requiring("The server needs", "server", "prometheus_client"):
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, multiprocess
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class _Jobs(Collector):
    """Counts jobs by stage from the database, separately from the counters of workers."""

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
    """Counts requests by route and status, their durations, and the jobs.

    With the environment variable ``PROMETHEUS_MULTIPROC_DIR``, workers share counters there, and report their sums.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._together = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        self._requests = Counter(
            "bftrainer_bso_requests",
            "Requests answered.",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "bftrainer_bso_request_seconds",
            "Time that answers took.",
            ("route",),
            registry=self._registry,
            buckets=_BUCKETS,
        )

    def answered(self, method: str, route: str, status: int, duration_s: float) -> None:
        """Count a request."""
        self._requests.labels(method if method in _METHODS else "other", route, str(status)).inc()
        self._seconds.labels(route).observe(duration_s)

    def page(self, stages: Mapping[str, Mapping[str, int]]) -> bytes:
        """Render all figures in Prometheus's text format.

        Parameters
        ----------
        stages : mapping of str to mapping of str to int
            Number of jobs, trials and results by stage.
        """
        now = CollectorRegistry()
        now.register(_Jobs(stages))
        counted = self._registry
        if self._together:
            counted = CollectorRegistry()
            multiprocess.MultiProcessCollector(counted)  # type: ignore[no-untyped-call]
        return generate_latest(counted) + generate_latest(now)


logger = logging.getLogger(__name__)
# Who changed what: logged whatever the level.
audit_logger = logging.getLogger(f"{__name__}.audit")

# Routes for monitoring, which ask nobody who they are, and tell nothing about jobs.
OPEN = frozenset({"/healthz", "/readyz"})

# Pages that other sites may link to, because they change nothing.
_PAGES = frozenset({"/", "/status"})

# What proxies put into requests.
_FORWARDED = frozenset({b"x-forwarded-for", b"forwarded", b"via", b"x-real-ip"})

# A content length with more digits is too long in any case.
_DIGITS = 18

# Requests without a valid token that an address may send at once, and each second from then on; addresses remembered.
_FAILURES, _FAILURES_PER_S, _ADDRESSES = 50, 1.0, 10_000


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


class _Failures:
    """Counts failed attempts to get in by address, and says when there were too many; the latest addresses are kept.

    Whoever has a valid token is not kept out: that nobody guesses one is a matter of its length.
    """

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def add(self, peer: str) -> int:
        """Count a failure; return the seconds to wait before the next one, 0 for none."""
        now = time.monotonic()
        left, since = self._left.pop(peer, (float(_FAILURES), now))
        left = min(left + (now - since) * _FAILURES_PER_S, _FAILURES)
        refused = left < 1
        self._left[peer] = (left if refused else left - 1, now)
        if len(self._left) > _ADDRESSES:
            self._left.popitem(last=False)
        if not refused and left < 2:
            logger.warning("too many requests without a valid token", extra={"fields": {"client": peer}})
        return math.ceil((1 - left) / _FAILURES_PER_S) if refused else 0


class _Refusal(NamedTuple):
    status: int
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


_ELSEWHERE = _Refusal(403, "Expected a request that no other site makes.")
_ASKED_FOR = ((b"www-authenticate", b"Bearer"), (b"www-authenticate", b'Basic realm="bftrainer"'))


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
        self.app, self.max_body_bytes, self.metrics = app, settings.max_body_bytes, metrics
        self.hosts = frozenset(settings.hosts)
        self._access = None if settings.token_file is None else AccessFile(settings.token_file)
        self._open = settings.token_file is None and settings.socket is None
        self._failures = _Failures()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 500

        async def noted(message: Message) -> None:
            """Send an answer, and remember its status."""
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                await self._refuse(scope, receive, noted, refusal)
            else:
                await self.app(scope, self._limited(receive), noted)
        finally:
            self._note(scope, status, time.perf_counter() - began)

    def _refusal(self, scope: Scope) -> _Refusal | None:
        """Return status and reason if a request is refused before it is read."""
        headers = dict(scope["headers"])
        if self.hosts and _host(headers.get(b"host", b"")) not in self.hosts:
            return _Refusal(400, "Expected a request to this machine by its own name.")
        # Another site's page could make a browser send requests, which would hand out trials. A "site" includes all
        # ports, and all names in its domain.
        followed = headers.get(b"sec-fetch-mode") == b"navigate" and scope["path"] in _PAGES
        if headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site") and not followed:
            return _ELSEWHERE
        # Browsers leave those marks out of what they send to other machines without TLS, but not this one.
        origin = headers.get(b"origin")
        if origin is not None and origin.partition(b"://")[2].lower() != headers.get(b"host", b"").lower():
            return _ELSEWHERE
        if scope["path"] not in OPEN and (refusal := self._stranger(scope, headers)) is not None:
            return refusal
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and (len(length) > _DIGITS or int(length) > self.max_body_bytes):
            return _Refusal(413, self._too_long)
        return None

    def _stranger(self, scope: Scope, headers: Mapping[bytes, bytes]) -> _Refusal | None:
        """Find out who sends a request, or return why they are not let in, or not to this route."""
        state, least = scope.setdefault("state", {}), needed(scope["method"], scope["path"])
        try:
            actor = ANYBODY if self._open else self._identify(state.get(PEER_UID), headers)
        except SettingsError as error:
            logger.error("nobody is let in: %s", error)
            return _Refusal(503, "Tokens cannot be read at the moment; try again.", ((b"retry-after", b"1"),))
        if actor is None:
            wait_s = self._failures.add(_peer(scope))
            if wait_s:
                later = ((b"retry-after", b"%d" % wait_s),)
                return _Refusal(429, f"Too many requests without a valid token; try again in {wait_s} s.", later)
            return _Refusal(401, "Expected a bearer token.", _ASKED_FOR)
        state["actor"] = actor
        if least > Role.READER and headers.get(b"authorization", b"").lower().startswith(b"basic"):
            return _Refusal(403, "Expected a bearer token: with a browser's password one may only look.")
        try:
            actor.check_role(least)
        except ForbiddenError as error:
            return _Refusal(403, str(error))
        return None

    def _identify(self, uid: int | None, headers: Mapping[bytes, bytes]) -> Actor | None:
        """Find who sends a request, by the user at the other end of a socket, or by a token; None: nobody is known."""
        if not _FORWARDED.isdisjoint(headers):
            uid = None  # it is a proxy's, whoever asks it
        if uid is not None and uid == os.geteuid():
            return Actor(login_name(uid), Role.ADMIN)
        if self._access is None:
            return None
        known = self._access.find(f"uid:{uid}") if uid is not None else None
        return known or self._access.find(token_key(_token(headers.get(b"authorization", b""))))

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, refusal: _Refusal) -> None:
        """Answer a request that is refused; one that is short enough is read, as who still sends may miss an answer."""
        short = refusal.status != 413 and not any(name == b"expect" for name, _ in scope["headers"])
        part: Message = {"more_body": short}
        limited = self._limited(receive)
        try:
            while part.get("more_body"):
                part = await limited()
        except HTTPException:
            short = False
        await _answer(send, refusal, close=not short)

    @property
    def _too_long(self) -> str:
        return f"Expected at most {self.max_body_bytes} bytes."

    def _limited(self, receive: Receive) -> Receive:
        """Limit the length of a request, even if it does not state its length."""
        received = 0

        async def limited() -> Message:
            """Receive the next part."""
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.max_body_bytes:
                raise HTTPException(413, self._too_long)
            return message

        return limited

    def _note(self, scope: Scope, status: int, duration_s: float) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        self.metrics.answered(scope["method"], route, status, duration_s)
        nowhere = route == "unmatched" and status == 404
        actor: Actor | None = scope.get("state", {}).get("actor")
        changes = actor is not None and not nowhere and needed(scope["method"], scope["path"]) > Role.READER
        log = audit_logger if changes else logger
        if log.isEnabledFor(logging.INFO):
            client = scope.get("client")
            fields: dict[str, Any] = {
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "duration_ms": round(duration_s * 1e3, 3),
                "client": client[0] if client else None,
            }
            if actor is not None:
                fields |= {"actor": actor.name, "role": actor.role.name.lower(), **scope["state"].get("about", {})}
            log.info("answered", extra={"fields": fields})


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


def _peer(scope: Scope) -> str:
    """Where a request comes from: a user's number, or an address, of IPv6 that of the network."""
    uid, client = scope["state"].get(PEER_UID), scope.get("client")
    if uid is not None or client is None:
        return f"uid:{uid}"
    return network_of(client[0])


def _host(header: bytes) -> str:
    """Return the name in a Host header, without the port."""
    text = header.decode("latin-1").lower()
    return text.partition("]")[0].lstrip("[") if text.startswith("[") else text.partition(":")[0]


async def _answer(send: Send, refusal: _Refusal, *, close: bool) -> None:
    body = json.dumps({"message": refusal.message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *refusal.headers]
    if close:  # the rest of the request is not read
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
