"""Middleware for every request: checks access and size, then logs and counts the request."""

from __future__ import annotations

import base64
import hmac
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any

from bftrainer.extras import requiring

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

    def __init__(self, jobs: dict[str, int]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauge."""
        gauge = GaugeMetricFamily("bftrainer_bso_jobs", "Jobs registered.", labels=("stage",))
        for stage, number in self._jobs.items():
            gauge.add_metric((stage,), number)
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

    def page(self, jobs: dict[str, int]) -> bytes:
        """Render all figures in Prometheus's text format.

        Parameters
        ----------
        jobs : dict of str to int
            Number of jobs by stage.
        """
        now = CollectorRegistry()
        now.register(_Jobs(jobs))
        counted = self._registry
        if self._together:
            counted = CollectorRegistry()
            multiprocess.MultiProcessCollector(counted)  # type: ignore[no-untyped-call]
        return generate_latest(counted) + generate_latest(now)


logger = logging.getLogger(__name__)

# Routes for monitoring, which need no token and tell nothing about jobs.
OPEN = frozenset({"/healthz", "/readyz"})

# Pages that other sites may link to, because they change nothing.
_PAGES = frozenset({"/", "/status"})

# A content length with more digits is too long in any case.
_DIGITS = 18


class Guard:
    """Refuses requests that are not allowed, and logs and counts the answers to the others.

    Parameters
    ----------
    app : ASGIApp
        Application to protect.
    tokens : iterable of str
        Bearer tokens, one of which is required; empty: none. Browsers may send one as a password, with any user name.
    max_body_bytes : int
        Longest body of a request.
    hosts : iterable of str
        Names of the server that requests may use; empty: any.
    metrics : Metrics
        Counts requests.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: Iterable[str],
        max_body_bytes: int,
        hosts: Iterable[str],
        metrics: Metrics,
    ) -> None:
        self.app, self.max_body_bytes, self.metrics = app, max_body_bytes, metrics
        self.hosts = frozenset(hosts)
        # All digests have the same length, so that comparing them always takes the same time.
        self._digests = [sha256(token.encode()).digest() for token in tokens]

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
                await _answer(noted, *refusal)
            else:
                await self.app(scope, self._limited(receive), noted)
        finally:
            self._note(scope, status, time.perf_counter() - began)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return status and reason if a request is refused before it is read."""
        headers = dict(scope["headers"])
        if self.hosts and _host(headers.get(b"host", b"")) not in self.hosts:
            return 400, "Expected a request to this machine by its own name."
        # Another site's page could make a browser send requests, which would hand out trials. A "site" includes all
        # ports, and all names in its domain.
        followed = headers.get(b"sec-fetch-mode") == b"navigate" and scope["path"] in _PAGES
        if headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site") and not followed:
            return 403, "Expected a request that no other site makes."
        if self._digests and scope["path"] not in OPEN and not self._known(headers.get(b"authorization", b"")):
            return 401, "Expected a bearer token."
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and (len(length) > _DIGITS or int(length) > self.max_body_bytes):
            return 413, self._too_long
        return None

    @property
    def _too_long(self) -> str:
        return f"Expected at most {self.max_body_bytes} bytes."

    def _known(self, authorization: bytes) -> bool:
        """Whether a valid token is given; all tokens are compared, so that the time taken reveals nothing."""
        scheme, _, value = authorization.partition(b" ")
        token = value.strip()
        if scheme.lower() == b"basic":
            try:
                token = base64.b64decode(token, validate=True).partition(b":")[2]
            except ValueError:
                return False
        elif scheme.lower() != b"bearer":
            return False
        digest = sha256(token).digest()
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0

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
        if logger.isEnabledFor(logging.INFO):
            client = scope.get("client")
            fields: dict[str, Any] = {
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "duration_ms": round(duration_s * 1e3, 3),
                "client": client[0] if client else None,
            }
            logger.info("answered", extra={"fields": fields})


def _host(header: bytes) -> str:
    """Return the name in a Host header, without the port."""
    text = header.decode("latin-1").lower()
    return text.partition("]")[0].lstrip("[") if text.startswith("[") else text.partition(":")[0]


async def _answer(send: Send, status: int, message: str) -> None:
    body = json.dumps({"message": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers += [(b"www-authenticate", b"Bearer"), (b"www-authenticate", b'Basic realm="bftrainer"')]
    # Closes the connection, because the rest of the request is not read.
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
