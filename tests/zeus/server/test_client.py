"""The client: what it sends, what it repeats, and how it says what went wrong."""

from __future__ import annotations

import math
from contextlib import contextmanager

import httpx
import pytest

from bftrainer.errors import BftrainerError, ServerRequestError, SettingsError, TrainingStoppedError, TuningInputError
from bftrainer.zeus.server import BatchSizeClient, JobSpec, TrainingResult, TrialId, TuningParams
from bftrainer.zeus.server.app import create_app
from tests.zeus.server.support import SPEC, Within, in_folder


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
def client_of(folder, losses=0, **settings):
    """A client of a server of its own, that loses so many answers to each request."""
    folder.mkdir(exist_ok=True)
    with Within(create_app(in_folder(folder, **settings))) as within:
        yield BatchSizeClient("http://server", transport=Losing(within, losses), sleep=lambda _: None)


def test_a_run_from_registration_to_result(tmp_path):
    """A trial goes on below its target, and ends when it is reached; the server then knows its cost."""
    with client_of(tmp_path) as client:
        assert client.register_job(JobSpec(**SPEC)).job_id == "t-1"
        with client.trial("t-1") as trial:
            assert trial.batch_size == 16
            assert not trial.report(1.0, 100.0, 0.2, 1).stop_train
            assert trial.check(2.0, 200.0, 0.7, 2)
        (job,) = client.jobs()
        assert (job.trials, job.observations, job.min_cost) == (1, 1, 0.5 * 200 + 0.5 * 100 * 2)
        (row,) = client.trials("t-1")
        assert (row.status, row.converged, row.time, row.energy) == ("Succeeded", True, 2.0, 200.0)
        client.delete_job("t-1")
        assert client.jobs() == []


@pytest.mark.long
@pytest.mark.parametrize("losses", [1, 3])
def test_lost_answers_count_once(tmp_path, losses):
    """Each request is repeated until it is answered, and nothing happens twice."""
    with client_of(tmp_path, losses) as client:
        client.register_job(JobSpec(**SPEC))
        for number in (1, 2, 3):
            with client.trial("t-1") as trial:
                assert trial.id.trial_number == number
                assert trial.check(1.0, 100.0, 0.7, 1)
        client.end_trial(client.predict("t-1"))
        job = client.job("t-1")
        assert (job.trials, job.observations) == (4, 3)
        client.delete_job("t-1")
        assert client.jobs() == []
        named = client.register_job(JobSpec(**SPEC | {"job_id": None})).job_id
        assert named.startswith("t-")
        assert [job.spec.job_id for job in client.jobs()] == [named]


def test_a_block_that_fails_ends_its_trial(tmp_path):
    """A trial that is left without a result is ended, and its exploration handed out again."""
    with client_of(tmp_path) as client:
        client.register_job(JobSpec(**SPEC))
        with pytest.raises(ZeroDivisionError), client.trial("t-1"):
            raise ZeroDivisionError
        with client.trial("t-1") as trial:
            assert (trial.id.trial_number, trial.batch_size) == (2, 16)
        statuses = [row.status for row in client.trials("t-1")]
        assert statuses == ["Failed", "Failed"]


def test_a_run_that_diverged_can_say_so(tmp_path):
    """A metric of NaN never converges: the run goes on to its last epoch, and has failed."""
    with client_of(tmp_path) as client:
        client.register_job(JobSpec(**SPEC))
        trial = client.trial("t-1")
        assert not trial.check(1.0, 1.0, math.nan, 1)
        with pytest.raises(TrainingStoppedError, match=r"t-1, trial 1: Train failed to converge within max_"):
            trial.check(2.0, 2.0, math.nan, 100)


def test_what_the_server_refuses_is_told(tmp_path):
    """An error names request, status and reason; only passing failures are repeated."""
    with client_of(tmp_path) as client:
        with pytest.raises(
            ServerRequestError, match=r"/jobs/batch_size: GET was answered 400: Unknown job\(x\)"
        ) as got:
            client.predict("x")
        assert got.value.status == 400
        client.register_job(JobSpec(**SPEC))
        with pytest.raises(
            ServerRequestError, match=r"answered 409: JobSpec doesn't match .*; these differ: max_epochs$"
        ):
            client.register_job(JobSpec(**SPEC | {"max_epochs": 7}))
        with pytest.raises(ServerRequestError, match="answered 404: Could not find the trial: job_id='t-1'"):
            client.end_trial(TrialId(job_id="t-1", batch_size=8, trial_number=7))
        with pytest.raises(ServerRequestError, match="answered 404: No job was deleted"):
            client.delete_job("x")


@pytest.mark.parametrize("body", ["<html>", "", '{"a": 1}', "[5]", "7"])
def test_other_servers(body):
    """What another server answers is no answer: it is told in one line, and nothing is asked again."""
    asked = []

    def answer(request):
        asked.append(request.url.path)
        return httpx.Response(200, text=body)

    trial = TrialId(job_id="t", batch_size=8, trial_number=1)
    result = TrainingResult(**trial.model_dump(), time=1, energy=1, metric=1, current_epoch=1)
    client = BatchSizeClient("http://other", transport=httpx.MockTransport(answer))
    asking = [
        client.jobs,
        lambda: client.job("t"),
        lambda: list(client.trials("t")),
        lambda: client.predict("t"),
        lambda: client.report(result),
        lambda: client.register_job(JobSpec(**SPEC)),
    ]
    for ask in asking:
        with pytest.raises(ServerRequestError, match=r"http://other: .* not a batch-size server"):
            ask()
    assert len(asked) == len(asking)


def test_nobody_there():
    """Without a server the error names its address, after as many tries as there should be."""
    waits = []
    client = BatchSizeClient("http://127.0.0.1:9", retries=3, backoff_s=0.5, sleep=waits.append)
    with pytest.raises(ServerRequestError, match=r"http://127.0.0.1:9: No answer") as got:
        client.jobs()
    assert got.value.status is None
    assert waits == [0.5, 1.0, 2.0]
    client.close()


@pytest.mark.parametrize("address", ["127.0.0.1:8000", "", "ftp://host", "http://", "http://[::1", "http://h:port"])
def test_addresses_that_are_none(address):
    """An address without http is refused before anything is sent."""
    with pytest.raises(SettingsError, match=r"Expected an address such as http://127\.0\.0\.1:8000, got"):
        BatchSizeClient(address)


@pytest.mark.parametrize("token", ["wr\xf6ng-token-of-16", "0123456789abcdef\n", "two words", ""])
def test_tokens_that_are_none(token):
    """A token that no header can carry is refused before anything is sent, and not told to a log."""
    with pytest.raises(SettingsError, match=r"^Expected a token of ASCII characters without spaces\.$"):
        BatchSizeClient("http://127.0.0.1:9", token=token)


def test_a_job_needs_its_gpus(tmp_path):
    """Parameters without GPUs are no job to register; the error names what is, and who adds them."""
    with client_of(tmp_path) as client:
        sizes = {"job_id_prefix": "t", "batch_sizes": [8], "default_batch_size": 8}
        with pytest.raises(SettingsError, match="Expected a JobSpec, got TuningParams, to which only server_run adds"):
            client.register_job(TuningParams(**sizes))
        assert client.jobs() == []


def test_a_block_whose_job_is_deleted(tmp_path):
    """Nothing is left to end: the block is left without an error."""
    with client_of(tmp_path) as client:
        client.register_job(JobSpec(**SPEC))
        with client.trial("t-1"):
            client.delete_job("t-1")
        assert client.jobs() == []


def test_busy_servers_are_asked_again():
    """503 and 429 are repeated, after as long as the server says or more, 500 is not."""
    waits, later = [], {"Retry-After": "7"}
    answers = [httpx.Response(503), httpx.Response(429, headers=later), httpx.Response(200, json=[])]
    transport = httpx.MockTransport(lambda _: answers.pop(0))
    client = BatchSizeClient("http://s", transport=transport, backoff_s=1.0, sleep=waits.append)
    assert client.jobs() == []
    assert waits == [1.0, 7.0]
    answers[:] = [httpx.Response(500, text="what"), httpx.Response(200, json=[])]
    with pytest.raises(ServerRequestError, match="answered 500: Internal Server Error"):
        client.jobs()
    assert len(answers) == 1
    client.close()


def test_mistakes_are_errors_of_one_kind(tmp_path):
    """Wrong settings, a server that is down, a wrong token, a refused report: a line each, and one class to catch."""
    sizes = {"job_id_prefix": "t", "batch_sizes": [8], "default_batch_size": 8}
    trial = TrialId(job_id="t-1", batch_size=16, trial_number=1).model_dump()
    tokens = tmp_path / "tokens"
    tokens.write_text("t" * 16)
    with client_of(tmp_path) as client, client_of(tmp_path / "closed", token_file=str(tokens)) as closed:
        client.register_job(JobSpec(**SPEC))
        client.predict("t-1")
        reported = {"time": 1.0, "metric": 0.1, "current_epoch": 1}
        mistakes = {
            "JobSpec: Unknown field 'max_epoch'. Did you mean 'max_epochs'?": lambda: JobSpec(**SPEC, max_epoch=3),
            "TuningParams: max_epochs: Input should be greater than 0, got 0.": lambda: TuningParams(
                **sizes, max_epochs=0
            ),
            "TuningParams: Expected default_batch_size among batch_sizes [8], got 9.": lambda: TuningParams(
                **sizes | {"default_batch_size": 9}
            ),
            "TrainingResult: time: Input should be greater than or equal to 0, got -1.0.": lambda: TrainingResult(
                **trial | reported | {"time": -1, "energy": 1.0}
            ),
            "http://127.0.0.1:9: No answer from a batch-size server: [Errno 111] Connection refused.": BatchSizeClient(
                "http://127.0.0.1:9", retries=0
            ).jobs,
            "http://server/state/jobs: GET was answered 401: Expected a bearer token.": closed.jobs,
            "http://server/report: POST was answered 422: energy: Expected at most 110 J in 1 s at 100 W, got 1e+09.": (
                lambda: client.report(TrainingResult(**trial | reported | {"energy": 1e9}))
            ),
        }
        for message, mistake in mistakes.items():
            with pytest.raises(BftrainerError) as caught:
                mistake()
            assert str(caught.value) == message
            assert isinstance(caught.value, ServerRequestError if "http:" in message else TuningInputError)
            assert caught.value.__suppress_context__ or caught.value.__context__ is None  # no second traceback
