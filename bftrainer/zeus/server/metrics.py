"""What a server counts, for Prometheus."""

from __future__ import annotations

import os
from collections.abc import Iterator

from bftrainer.extras import requiring

with requiring("The server needs", "server", "prometheus_client"):
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, multiprocess
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class _Jobs(Collector):
    """Jobs by stage: of the database, not of a worker, so that nothing of them is kept beside what workers count."""

    def __init__(self, jobs: dict[str, int]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauge."""
        gauge = GaugeMetricFamily("bftrainer_bso_jobs", "Jobs registered.", labels=("stage",))
        for stage, number in self._jobs.items():
            gauge.add_metric((stage,), number)
        yield gauge


class Metrics:
    """Requests by route and status, how long they took, and how many jobs there are.

    With the environment variable ``PROMETHEUS_MULTIPROC_DIR`` workers count into files there, and each answers for all.
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
        """All figures in Prometheus's text format.

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
