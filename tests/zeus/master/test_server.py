"""Masters that take their decisions from a batch-size server."""

from __future__ import annotations

import functools
import json
import math
import sqlite3
from contextlib import closing

import pytest

from bftrainer.errors import (
    OutputError,
    RunDirectoryError,
    ServerRequestError,
    TuningError,
    TuningInputError,
)
from bftrainer.zeus import PruningGTSBatchSizeOptimizer
from bftrainer.zeus.master import Driver, MasterObserver
from bftrainer.zeus.master.journal import JOURNAL, JobJournal
from tests.zeus.master.driven import BATCH_SIZES, fake_job, master, script_job
from tests.zeus.master.test_master import WELL, shell

pytest.importorskip("fastapi", reason="the extra `server` is not installed")
pytest.importorskip("httpx", reason="the extra `client` is not installed")

from bftrainer.zeus.server import client as client_module
from bftrainer.zeus.server.app import create_app
from bftrainer.zeus.server.client import BatchSizeClient
from bftrainer.zeus.server.messages import TrialId
from tests.zeus.server.support import Within, in_folder


@pytest.fixture
def client(tmp_path, monkeypatch):
    """A client of a server in this process, which all clients are then led to."""
    (tmp_path / "server").mkdir()
    within = Within(create_app(in_folder(tmp_path / "server")))
    made = functools.partial(BatchSizeClient, transport=within, sleep=lambda time_s: None)  # noqa: ARG005
    with within, made("http://server") as found:
        monkeypatch.setattr(client_module, "BatchSizeClient", made)
        yield found


def start(folder, client, job=None, recurrences=8, beta=math.inf, **options):
    """A driver of a job on a server."""
    batch_sizes = options.pop("batch_sizes", BATCH_SIZES)
    return master(folder / "logs", **options).start(
        job or fake_job(folder), recurrences, batch_sizes, beta, 0.5, client
    )


@pytest.mark.long
def test_the_server_decides_as_the_policy_would(tmp_path, client):
    """With one seed, no bound and no failed tries, a server's batch sizes are those of the policy in this process."""
    history = start(tmp_path, client, recurrences=12).drive()
    assert history == master(tmp_path / "alone").run(fake_job(tmp_path), 12, BATCH_SIZES, math.inf, 0.5)
    (summary,) = client.jobs()
    assert (summary.observations, summary.stage) == (12, "MAB")
    assert [trial.energy for trial in client.trials(summary.spec.job_id)] == [entry.energy for entry in history]


def test_two_masters_share_a_job(tmp_path, client):
    """What one master finds out, the other one need not; each of the runs counts once."""
    first, second = (start(tmp_path, client, recurrences=3) for _ in range(2))
    sizes = [entry.bs for driver in (first, second) for entry in driver.drive()]
    assert sizes == [32, 16, 8, 64, 128, 32]
    assert client.jobs()[0].observations == 6


def test_the_bound_is_that_of_all_masters(tmp_path, client):
    """A master's first run must stay below what another master's runs have cost, times beta."""
    start(tmp_path, client, recurrences=1, beta=2.0).drive()
    seen = []

    class Watching(MasterObserver):
        def launching(self, launch, progress):  # noqa: ARG002
            seen.append(launch.cost_bound_j)

    start(tmp_path, client, recurrences=1, beta=2.0, observers=[Watching()]).drive()
    assert seen == [2.0 * client.jobs()[0].min_cost]


@pytest.mark.parametrize(("said", "told"), [(', "num_epochs": 3', 3), (', "num_epochs": 99', 7), ("", 7)])
def test_the_epochs_that_were_done_are_told(tmp_path, client, said, told):
    """As the script reports them; the job's most where it does not, and never more."""
    start(tmp_path, client, shell(tmp_path, f"n='10{said}'; {WELL}"), recurrences=1).drive()
    with closing(sqlite3.connect(tmp_path / "server" / "bso.db")) as database:
        assert database.execute("SELECT epoch FROM bso_trial").fetchall() == [(told,)]


def test_what_cannot_be_kept_is_not_registered(tmp_path, client):
    """A job whose logs have no place is refused before the server hears of it."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be made"):
        start(tmp_path / "logs" / "file", client, fake_job(tmp_path))
    with pytest.raises(OutputError, match="cannot be made"):
        start(tmp_path / "new", client, fake_job(tmp_path), beta=int("9" * 250))
    assert not (tmp_path / "new").exists()
    assert client.jobs() == []


def test_a_failed_run_is_handed_out_again(tmp_path, client):
    """A crash is no result: the server hears that the trial has ended, and the next try has the same batch size."""
    job = shell(tmp_path, f"{WELL}; test $ZEUS_JOB_ID != rec02+try01")
    history = start(tmp_path, client, job, recurrences=2).drive()
    assert [(entry.bs, entry.reached) for entry in history] == [(32, True), (16, False), (16, True)]
    name = client.jobs()[0].spec.job_id
    assert [trial.status for trial in client.trials(name)] == ["Succeeded", "Failed", "Succeeded"]


def test_the_first_run_may_fail(tmp_path, client, monkeypatch):
    """Where others have found out already, a first run that misses its target is no reason to end; all tries are."""
    monkeypatch.setattr("bftrainer.zeus.master.recurrences.MAX_TRIES", 3)
    driver = start(tmp_path, client, script_job(tmp_path, ["false"]), recurrences=1)
    with pytest.raises(TuningError, match="in 3 tries"):
        driver.drive()


def test_an_interrupted_run_keeps_its_trial(tmp_path, client):
    """A run that is made again reports as the trial that it was."""
    flag = tmp_path / "mended"
    job = shell(tmp_path, f"n=NaN; test -e {flag} && n=10; {WELL}")
    driver = start(tmp_path, client, job, recurrences=2)
    with pytest.raises(TuningError):
        driver.drive()
    flag.touch()
    history = Driver.resume(driver.logdir).drive()
    assert [entry.bs for entry in history] == [32, 16]
    trials = list(client.trials(client.jobs()[0].spec.job_id))
    assert [(trial.trial_number, trial.status) for trial in trials] == [(1, "Succeeded"), (2, "Succeeded")]


def test_a_run_that_the_server_could_not_be_told_of(tmp_path, client, monkeypatch):
    """If the server goes away while a run is made, its result is told when the job resumes; it is not made again."""
    driver = start(tmp_path, client, recurrences=1)

    def away(*_):
        raise ServerRequestError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(BatchSizeClient, "report", away)
        with pytest.raises(ServerRequestError, match="gone"):
            driver.drive()
    log = driver.logdir / "rec01+try01.train.log"
    log.unlink()
    assert [entry.reached for entry in Driver.resume(driver.logdir).drive()] == [True]
    assert not log.exists()
    assert client.jobs()[0].observations == 1


def test_a_run_shows_that_it_lives(tmp_path, client, monkeypatch):
    """While its script runs a master renews the trial's lease: should it die, the batch size is free in minutes."""
    monkeypatch.setattr("bftrainer.zeus.master.server_decisions.LEASE_S", 1.0)
    heard, go = [], tmp_path / "go"
    heartbeat = BatchSizeClient.heartbeat

    def hear(self, trial):
        heartbeat(self, trial)
        heard.append(trial.trial_number)
        go.touch()

    monkeypatch.setattr(BatchSizeClient, "heartbeat", hear)
    start(tmp_path, client, shell(tmp_path, f"until test -e {go}; do :; done; {WELL}"), recurrences=1).drive()
    assert set(heard) == {1}
    (trial,) = client.trials(client.jobs()[0].spec.job_id)
    assert (trial.lease_s, trial.heard > trial.started) == (1.0, True)


def test_a_trial_that_the_server_has_ended_does_not_count(tmp_path, client):
    """A run that took too long for the server is booked as a try that missed, and another one is made."""
    driver = start(tmp_path, client, recurrences=1)
    driver.progress.choose()
    name = client.jobs()[0].spec.job_id
    client.end_trial(TrialId(job_id=name, batch_size=32, trial_number=1))
    history = driver.drive()
    assert [(entry.bs, entry.reached) for entry in history] == [(32, False), (32, True)]


def test_a_job_that_was_registered_otherwise(tmp_path, client):
    """Two masters whose jobs differ under one name are told so, and nothing is made."""
    start(tmp_path, client)
    with pytest.raises(ServerRequestError) as caught:
        start(tmp_path, client, max_power_w=300)
    assert caught.value.status == 409
    assert len(list((tmp_path / "logs").iterdir())) == 1


def test_other_policies_are_the_masters_own(tmp_path, client):
    """A server plays its own policy; to ask for another one is refused."""
    from bftrainer.zeus import DefaultBatchSize

    with pytest.raises(TuningInputError, match="Expected the policy zeus, which is the server's, got"):
        start(tmp_path, client, policy=DefaultBatchSize())


def test_what_servers_do_not_take(tmp_path, client):
    """A value that a master could work with and a server can't is one line, and nothing is made."""
    with pytest.raises(TuningInputError, match=r"mab_seed: .* less than or equal to 9223372036854775807, got"):
        start(tmp_path, client, policy=PruningGTSBatchSizeOptimizer(seed=10**20, verbose=False))
    with pytest.raises(TuningInputError, match=r"batch_sizes.*: .* less than or equal to 2147483647, got"):
        start(tmp_path, client, batch_sizes=[32, 2**40])
    assert not (tmp_path / "logs").exists()
    assert client.jobs() == []


def test_no_server(tmp_path):
    """A server that is not there is one line, and nothing is made."""
    with (
        BatchSizeClient("http://127.0.0.1:9", retries=0) as nobody,
        pytest.raises(ServerRequestError, match=r"http://127\.0\.0\.1:9: No answer"),
    ):
        start(tmp_path, nobody)
    assert not (tmp_path / "logs").exists()


def test_journals_keep_no_token(tmp_path, client, monkeypatch):
    """The token stays out of the journal, which status reads without asking the server; resuming takes it again."""
    driver = start(tmp_path, client, recurrences=1)
    tokens = []
    monkeypatch.setattr(client_module, "BatchSizeClient", lambda url, token: tokens.append((url, token)))
    assert JobJournal(driver.logdir).replay(only_look=True).booked == []
    Driver.resume(driver.logdir, token="a secret of sixteen")
    assert tokens == [("http://server", "a secret of sixteen")]
    assert "secret" not in (driver.logdir / JOURNAL).read_text()


@pytest.mark.parametrize("server", [{}, {"url": "http://server", "spec": {}}, {"url": 1, "spec": None}])
def test_a_damaged_server(tmp_path, client, server):
    """A journal whose server makes no sense says so."""
    driver = start(tmp_path, client)
    path = driver.logdir / JOURNAL
    path.write_text(f"{json.dumps(json.loads(path.read_text()) | {'server': server})}\n")
    with pytest.raises(RunDirectoryError, match=r"journal.jsonl:1: Expected a job on a server, got something else"):
        JobJournal(driver.logdir).replay()
