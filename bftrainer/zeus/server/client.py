"""Client of the batch-size server, for training scripts and `bftrainer bso`."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

from pydantic import TypeAdapter, ValidationError

from bftrainer.errors import BatchSizeServerError, SettingsError, TrainingStoppedError
from bftrainer.plugins import require_extra
from bftrainer.zeus.server.access import first_token, is_loopback, own_path
from bftrainer.zeus.server.messages import (
    LEASE_S,
    JobSpec,
    JobSummary,
    ReportResponse,
    TrainingResult,
    TrialId,
    TrialRow,
)

if TYPE_CHECKING:
    import httpx

    from bftrainer.zeus.server.service import BatchSizeService

logger = logging.getLogger(__name__)

_LONGEST_WAIT_S = 60.0  # that a server may have its clients wait
# Variables that say which server, and which token.
ADDRESS, TOKEN_FILE = "BFTRAINER_BSO_SERVER", "BFTRAINER_BSO_TOKEN_FILE"
USUAL_ADDRESS = "http://127.0.0.1:8000"
_PORTS = {"http": 80, "https": 443}
_LISTENING = "0A"  # of include/net/tcp_states.h in Linux
T = TypeVar("T")

# Statuses after which a repeated request may succeed: the server or proxy is busy, restarting or out of disk.
_PASSING = frozenset({429, 502, 503, 504})
# Statuses that say that a trial was ended, or is unknown: there is nothing to renew.
_GONE = (400, 404)
# Renewals in the time of a lease.
_RENEWALS = 3


class BatchSizeClient(AbstractContextManager["BatchSizeClient"]):
    """Client of a batch-size server; requests without an answer are repeated, and still count once.

    Parameters
    ----------
    server_url : str, optional
        Address of the server, such as ``http://127.0.0.1:8000``; by default that of the variable
        ``BFTRAINER_BSO_SERVER``, else this user's own server on this machine.
    token : str, optional
        Bearer token; by default the first one in the file that ``BFTRAINER_BSO_TOKEN_FILE`` names, else, for a server
        that this user runs on this machine, the one that it has made.
    timeout_s, retries, backoff_s : float, int and float
        Seconds to wait for an answer, most repetitions of a request that got none, or status 502, 503 or 504, and
        seconds before the first one; doubled before each later one.
    transport : httpx.BaseTransport, optional
        Sends requests instead of the network.

    Raises
    ------
    SettingsError
        If httpx is not installed, or address, token or certificates are not valid; or if what is named is no job.
    BatchSizeServerError
        By all methods, if the server is not reached, or refuses the request; `status` tells why. 404, or 400 for a
        report or a new trial: the job or trial is unknown, or was ended. 409: the job is registered with other
        settings, or none of its batch sizes converges. 422: it is no job that can be registered.

    Examples
    --------
    ::

        with BatchSizeClient() as client:
            client.register_job(spec)
            with client.trial("bert-finetuning") as trial:
                for epoch in range(1, 101):
                    ...  # train with trial.batch_size
                    if trial.report(time_s, energy_j, metric, epoch).stop_train:
                        break
    """

    def __init__(
        self,
        server_url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        retries: int = 5,
        backoff_s: float = 0.2,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        require_extra("The client needs", "client")
        import httpx

        if server_url is None:
            server_url = os.environ.get(ADDRESS) or USUAL_ADDRESS
        self.server_url = server_url.rstrip("/")
        try:
            address = httpx.URL(self.server_url)
        except (httpx.InvalidURL, UnicodeEncodeError):
            address = httpx.URL("")
        reachable = address.scheme in ("http", "https") and address.host and (address.port or 0) < 1 << 16
        if not reachable:
            raise SettingsError(f"Expected an address such as http://127.0.0.1:8000, got {server_url!r}.")
        if token is not None and not (token.isascii() and token.isprintable() and token.split() == [token]):
            raise SettingsError("Expected a token of ASCII characters without spaces.")
        self._anonymous = token is None
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.retries, self.backoff_s, self._sleep = retries, backoff_s, sleep
        try:
            self._http = httpx.Client(base_url=self.server_url, headers=headers, timeout=timeout_s, transport=transport)
        except OSError as error:  # SSLError is one
            file = f"SSL_CERT_FILE {os.environ.get('SSL_CERT_FILE')}"
            raise SettingsError(f"{file}: cannot be read as certificates ({error.strerror}).") from None
        self._find_token()

    def register_job(self, spec: JobSpec) -> JobSpec:
        """Register a job, or check that it is registered with the same settings; return it with its name."""
        if not isinstance(spec, JobSpec):
            raise SettingsError(f"Expected a JobSpec, got {type(spec).__name__}, to which only server_run adds GPUs.")
        spec.check()
        if spec.job_id is None:
            # If the server chose the name, a repeated request would make two jobs.
            spec = spec.model_copy(update={"job_id": f"{spec.job_id_prefix}-{uuid4().hex[:8]}"})
        return self._send(JobSpec, "POST", "/jobs", body=spec.model_dump())

    def predict(self, job_id: str, lease_s: float | None = None) -> TrialId:
        """Start a trial: the batch size to run with, and the number to report under.

        An exploration is handed out again after `lease_s` seconds without a report or `heartbeat`; by default a day.
        """
        params = {"job_id": job_id, "request_id": uuid4().hex} | ({} if lease_s is None else {"lease_s": lease_s})
        return self._send(TrialId, "GET", "/jobs/batch_size", params)

    def report(self, result: TrainingResult) -> ReportResponse:
        """Report what a trial used and reached by the end of an epoch; the answer's `stop_train` tells it to stop."""
        result.check()
        return self._send(ReportResponse, "POST", "/report", body=result.model_dump())

    def heartbeat(self, trial: TrialId) -> None:
        """Say that a trial is running, which renews its lease; status 400 if it was ended without a result."""
        self._send(object, "POST", "/trials/heartbeat", body=trial.model_dump())

    def end_trial(self, trial: TrialId | TrialRow) -> None:
        """End a trial that has no result: its batch size is handed out again. A trial with a result stays as it is."""
        self._send(object, "PATCH", "/trials", body={name: getattr(trial, name) for name in TrialId.model_fields})

    def void_trial(self, job_id: str, number: int, reason: str) -> JobSummary:
        """Have a trial count for nothing; return the job as it is without it."""
        void = {"job_id": job_id, "trial_number": number, "reason": reason}
        return self._send(JobSummary, "POST", "/trials/void", body=void)

    def delete_job(self, job_id: str) -> None:
        """Delete a job with all its trials."""
        self._send(object, "DELETE", "/jobs", {"job_id": job_id})

    def jobs(self) -> list[JobSummary]:
        """List all jobs by name, with the progress of their tuning."""
        jobs: list[JobSummary] = []
        after = ""
        while page := self._send(list[JobSummary], "GET", "/state/jobs", {"after": after}):
            after = page[-1].spec.job_id or ""
            jobs += page
        return jobs

    def job(self, job_id: str) -> JobSummary:
        """Return a job, with the progress of its tuning."""
        return self._send(JobSummary, "GET", "/state/job", {"job_id": job_id})

    def trials(self, job_id: str) -> Iterator[TrialRow]:
        """Yield all trials of a job by number."""
        after = 0
        while page := self._send(list[TrialRow], "GET", "/state/trials", {"job_id": job_id, "after": after}):
            yield from page
            after = page[-1].trial_number

    def trial(self, job_id: str, lease_s: float | None = LEASE_S) -> Trial:
        """Start a trial that is ended at the end of the `with` block; a thread renews the lease, if any."""
        return Trial(self, self.predict(job_id, lease_s), lease_s)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(
        self, kind: type[T], method: str, path: str, params: Mapping[str, Any] | None = None, body: object = None
    ) -> T:
        """Send a request, repeat it while there is no answer, and return the answer."""
        import httpx

        # With NaN, which JSON lacks and httpx refuses, for the metric of a run that diverged.
        content, headers = (None, None) if body is None else (json.dumps(body), {"Content-Type": "application/json"})
        for attempt in range(self.retries + 1):
            later_s = 0.0
            try:
                self._find_token()
                answer = self._http.request(method, path, params=params, content=content, headers=headers)
            except httpx.HTTPError as error:
                if attempt == self.retries:
                    why = str(error).rstrip(".") or type(error).__name__
                    raise BatchSizeServerError(
                        f"{self.server_url}: No answer from a batch-size server: {why}."
                    ) from None
            else:
                self._anonymous = False  # whoever this is, a token is not looked for again
                is_deleted = method == "DELETE" and attempt and answer.status_code == 404
                if answer.is_success or is_deleted:
                    try:
                        return TypeAdapter(kind).validate_json(answer.content)
                    except ValidationError:
                        raise BatchSizeServerError(f"{self.server_url}: This is not a batch-size server.") from None
                if answer.status_code not in _PASSING or attempt == self.retries:
                    raise self._refusal(method, path, answer)
                if (later := answer.headers.get("Retry-After", "")).isdigit():
                    later_s = min(float(later), _LONGEST_WAIT_S)
            self._sleep(max(self.backoff_s * 2**attempt, later_s))
        raise AssertionError("unreachable")

    def _find_token(self) -> None:
        """Take the token of this user's own server, which may have begun to listen only now."""
        if self._anonymous and (token := find_token(self.server_url)) is not None:
            self._http.headers["Authorization"] = f"Bearer {token}"

    def _refusal(self, method: str, path: str, answer: httpx.Response) -> BatchSizeServerError:
        """Say what the server has refused, and why, as far as its answer can be read."""
        try:
            body = answer.json()
            detail = body.get("detail")
            reason = "; ".join(map(_describe_fault, detail)) if isinstance(detail, list) else str(body["message"])
        except (ValueError, RecursionError, AttributeError, LookupError, TypeError):
            reason = ""
        why = reason or answer.reason_phrase
        if answer.status_code == 401 and "Authorization" in self._http.headers:  # the server tells strangers no more
            why += " The one that was given is unknown, revoked or over."
        where = f"{self.server_url}{path}: {method} was answered {answer.status_code}"
        return BatchSizeServerError(f"{where}: {why}", answer.status_code, reason)


class Trial:
    """A trial of a job, whose lease a thread renews; the end of its `with` block ends it, unless it has a result.

    It is `finished` when the server has its result, `converged` if the target was reached, and `lost` if the server has
    ended it meanwhile, so that its result will not count.
    """

    def __init__(
        self, client: BatchSizeClient | BatchSizeService, trial: TrialId, lease_s: float | None = None
    ) -> None:
        self.client, self.id = client, trial
        self.finished = self.converged = self.lost = False
        self._pause_s = None if lease_s is None else lease_s / _RENEWALS
        self._over = threading.Event()
        # A process that ends does not wait for it.
        self._renewing = threading.Thread(target=self._renew, name="bso-lease", daemon=True)

    def _renew(self) -> None:
        while not (self.lost or self._over.wait(self._pause_s)):
            try:
                self.client.heartbeat(self.id)
            except BatchSizeServerError as error:
                self.lost = error.status in _GONE
                logger.warning("The trial's lease was not renewed: %s", error)

    @property
    def batch_size(self) -> int:
        """Batch size to run with."""
        return self.id.batch_size

    def report(self, time_s: float, energy_j: float, metric: float, epoch: int) -> ReportResponse:
        """Report what the run has used and reached by the end of an epoch; epochs count from 1."""
        result = TrainingResult(
            **self.id.model_dump(), time=time_s, energy=energy_j, metric=metric, current_epoch=epoch
        )
        verdict = self.client.report(result)
        self.finished, self.converged = verdict.stop_train, verdict.converged
        return verdict

    def check(self, time_s: float, energy_j: float, metric: float, epoch: int) -> bool:
        """Report like `report`; return whether the run has converged, raise `TrainingStoppedError` if it has failed."""
        verdict = self.report(time_s, energy_j, metric, epoch)
        if verdict.stop_train and not verdict.converged:
            raise TrainingStoppedError(f"{self.id.job_id}, trial {self.id.trial_number}: {verdict.message}")
        return verdict.converged

    def __enter__(self) -> Trial:
        if self._pause_s is not None:
            self._renewing.start()
        return self

    def __exit__(self, kind: object, error: object, where: object) -> None:
        self._over.set()
        if self._renewing.is_alive():
            self._renewing.join()
        try:
            if not self.finished:
                self.client.end_trial(self.id)
        except BatchSizeServerError as refused:
            # An error in the block matters more, and of a deleted job nothing is left to end.
            if error is None and refused.status != 404:
                raise


def _describe_fault(fault: Mapping[str, Any]) -> str:
    """Describe one fault from FastAPI's list."""
    place = ".".join(str(key) for key in fault["loc"] if key not in ("body", "query"))
    why = fault["msg"].removeprefix("Value error, ")
    return f"{place}: {why}" if place else why


def find_token(address: str) -> str | None:
    """Token for a server: that of the environment's file, else, for a server of this user's own, that of its file."""
    if path := os.environ.get(TOKEN_FILE):
        return first_token(path)
    url, own = urlsplit(address), own_path()
    port = url.port or _PORTS.get(url.scheme, 0)
    return first_token(own) if is_loopback(url.hostname or "") and own.exists() and _is_own(port) else None


def _is_own(port: int) -> bool:
    """Whether nobody but this user listens at a port of this machine: others would be given the token."""
    users = set()
    for table in ("tcp", "tcp6"):
        try:
            rows = Path("/proc/net", table).read_text().splitlines()[1:]
        except OSError:
            continue
        for _, local, _, state, _, _, _, user, *_ in map(str.split, rows):
            if state == _LISTENING and int(local.rpartition(":")[2], 16) == port:
                users.add(int(user))
    return users == {os.geteuid()}
