"""The client: what it sends, what it repeats, how it says what went wrong; and the leases of its trials."""

import math
import threading
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import httpx
import pytest

from bftrainer.errors import BatchSizeServerError, BftrainerError, SettingsError, TrainingStoppedError
from bftrainer.zeus.server import BatchSizeClient, JobSpec, TrainingResult, Trial, TrialId, TuningParams
from tests.waiting import until
from tests.zeus.server.support import SPEC, carrying


class Losing(httpx.BaseTransport):
    """Carries each request, and loses the first answers to it."""

    def __init__(self, inner, losses):
        self.inner, self.losses, self.lost = inner, losses, 0

    def handle_request(self, request):
        answer = self.inner.handle_request(request)
        if self.lost < self.losses:
            self.lost += 1
            raise httpx.ReadError("the answer was lost")
        self.lost = 0
        return answer


@contextmanager
def open_client(folder, losses=0, **settings):
    """A client of a server of its own, that loses so many answers to each request."""
    with carrying(folder, **settings) as within:
        yield BatchSizeClient("http://server", transport=Losing(within, losses), sleep=lambda _: None)


@pytest.fixture
def client(tmp_path):
    """A client of a server that has the job t-1."""
    with open_client(tmp_path) as client:
        assert client.register_job(JobSpec(**SPEC)).job_id == "t-1"
        yield client


@pytest.mark.long
@pytest.mark.parametrize("losses", [1, 3])
def test_lost_answers_count_once(tmp_path, losses):
    """Each request is repeated until it is answered, and nothing happens twice."""
    with open_client(tmp_path, losses) as client:
        client.register_job(JobSpec(**SPEC))
        for number in (1, 2, 3):
            with client.trial("t-1") as trial:
                assert trial.id.trial_number == number
                assert not trial.report(0.5, 50.0, 0.2, 1).stop_train
                assert trial.check(1.0, 100.0, 0.7, 2)
        client.end_trial(client.predict("t-1"))
        job = client.job("t-1")
        assert (job.trials, job.observations, job.min_cost) == (4, 3, 0.5 * 100 + 0.5 * 100 * 1)
        with client.trial("t-1"):  # of a deleted job nothing is left to end
            client.delete_job("t-1")
        named = client.register_job(JobSpec(**SPEC | {"job_id": None})).job_id
        assert named.startswith("t-")
        assert [job.spec.job_id for job in client.jobs()] == [named]


def test_runs_that_fail(client):
    """A block left without a result ends its trial; a metric of NaN never converges, and fails at its last epoch."""
    with pytest.raises(ZeroDivisionError), client.trial("t-1"):
        raise ZeroDivisionError
    with client.trial("t-1") as trial:
        assert (trial.id.trial_number, trial.batch_size) == (2, 16)
        assert not trial.check(1.0, 1.0, math.nan, 1)
        with pytest.raises(TrainingStoppedError, match=r"t-1, trial 2: Train failed to converge within max_"):
            trial.check(2.0, 2.0, math.nan, 100)
    assert [row.status for row in client.trials("t-1")] == ["Failed", "Succeeded"]


def test_what_is_refused_is_told(client):
    """A line each, and one class to catch: request, status and reason, or why nothing was asked or answered."""
    other, params = (
        JobSpec(**SPEC | {"max_epochs": 7}),
        TuningParams(job_id_prefix="t", batch_sizes=[8], default_batch_size=8),
    )
    down = BatchSizeClient("http://127.0.0.1:9", retries=0)
    unknown = TrialId(job_id="t-1", batch_size=8, trial_number=7)
    result = TrainingResult(**client.predict("t-1").model_dump(), time=1.0, energy=1e9, metric=0.1, current_epoch=1)
    for status, said, ask in (
        (400, r"http://server/jobs/batch_size: GET was answered 400: Unknown job\(x\)", lambda: client.predict("x")),
        (409, r"JobSpec doesn't match .*; these differ: max_epochs$", lambda: client.register_job(other)),
        (404, "Unknown trial job_id='t-1'", lambda: client.end_trial(unknown)),
        (404, "No job was deleted", lambda: client.delete_job("x")),
        (422, "422: energy: Expected at most 110 J in 1 s at 100 W, got 1e[+]09.$", lambda: client.report(result)),
        (None, r"^http://127.0.0.1:9: No answer from .* server: \[Errno 111\] Connection refused\.$", down.jobs),
        (None, "Expected a JobSpec, got TuningParams", lambda: client.register_job(params)),
    ):
        with pytest.raises(BftrainerError, match=said) as caught:
            ask()
        assert getattr(caught.value, "status", None) == status
        assert isinstance(caught.value, BatchSizeServerError | SettingsError)
        assert "\n" not in str(caught.value)
        assert caught.value.__suppress_context__ or caught.value.__context__ is None  # no second traceback


def test_other_servers():
    """What another server answers is no answer: it is told in one line, and nothing is asked again."""
    bodies = []
    client = BatchSizeClient(
        "http://other", transport=httpx.MockTransport(lambda _: httpx.Response(200, text=bodies.pop()))
    )
    for body in ("<html>", "", '{"a": 1}', "[5]"):
        for ask in (client.jobs, partial(client.predict, "t"), partial(client.register_job, JobSpec(**SPEC))):
            bodies.append(body)
            with pytest.raises(BatchSizeServerError, match=r"http://other: .* not a batch-size server"):
                ask()
            assert bodies == []


def test_requests_are_repeated_while_that_may_help():
    """Without an answer, and after 503 and 429, as long as the server says or more; 500 is final."""
    waits, later = [], {"Retry-After": "7"}
    client = BatchSizeClient("http://127.0.0.1:9", retries=3, backoff_s=0.5, sleep=waits.append)
    with pytest.raises(BatchSizeServerError, match=r"http://127.0.0.1:9: No answer") as caught:
        client.jobs()
    assert (caught.value.status, waits) == (None, [0.5, 1.0, 2.0])
    client.close()
    waits.clear()
    answers = [httpx.Response(503), httpx.Response(429, headers=later), httpx.Response(200, json=[])]
    transport = httpx.MockTransport(lambda _: answers.pop(0))
    with BatchSizeClient("http://s", transport=transport, backoff_s=1.0, sleep=waits.append) as client:
        assert (client.jobs(), waits) == ([], [1.0, 7.0])
        answers[:] = [httpx.Response(500, text="what"), httpx.Response(200, json=[])]
        with pytest.raises(BatchSizeServerError, match="answered 500: Internal Server Error"):
            client.jobs()
    assert len(answers) == 1


def test_addresses_and_tokens_that_are_none():
    """They are refused before anything is sent, and tokens not told to a log."""
    for address in ("127.0.0.1:8000", "", "ftp://host", "http://[::1", "http://h:port", "http://127.0.0.1:99999"):
        with pytest.raises(SettingsError, match=r"Expected an address such as http://127\.0\.0\.1:8000, got"):
            BatchSizeClient(address)
    for token in ("wr\xf6ng-token-of-16", "0123456789abcdef\n", "two words", ""):
        with pytest.raises(SettingsError, match=r"^Expected a token of ASCII characters without spaces\.$"):
            BatchSizeClient("http://127.0.0.1:9", token=token)


# --- leases ------------------------------------------------------------------------------------------------------


def test_trials_of_the_client_are_leased(client):
    """`client.trial` asks for five minutes, and renews them; without a lease none is asked for."""
    with client.trial("t-1") as trial:
        assert not trial.lost
        client.heartbeat(trial.id)
    with client.trial("t-1", lease_s=None):
        pass
    rows = list(client.trials("t-1"))
    assert [row.lease_s for row in rows] == [300.0, None]
    assert rows[0].heard > rows[0].started
    with pytest.raises(BatchSizeServerError) as refused:
        client.heartbeat(trial.id)
    assert refused.value.status == 400


def lease(renew):
    """A trial that is renewed every millisecond."""
    client = SimpleNamespace(heartbeat=lambda _: renew(), end_trial=lambda _: None)
    return Trial(client, TrialId(job_id="t-1", batch_size=8, trial_number=1), 0.003)


def test_a_lease_is_renewed_until_it_is_lost():
    """A renewal without an answer is tried again; one that is answered that the trial is over is the last."""
    answers = [None, BatchSizeServerError("no answer"), None, BatchSizeServerError("ended", 400)]

    def renew():
        if (error := answers.pop(0)) is not None:
            raise error

    with lease(renew) as trial:
        until(lambda: trial.lost)
    assert answers == []


def test_a_lease_ends_with_its_block():
    """No renewal is sent afterwards, and one that is being sent is waited for."""
    begun, done = threading.Event(), threading.Event()

    def renew():
        begun.set()
        done.wait(0.01)
        done.set()

    with lease(renew):
        begun.wait(60)
    assert done.is_set()
    assert "bso-lease" not in {thread.name for thread in threading.enumerate()}
