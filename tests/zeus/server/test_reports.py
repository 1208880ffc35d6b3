"""Reports that cannot be true are refused; trials that are voided have never been, in whichever order they are read."""

import logging
import math
import sqlite3
from contextlib import ExitStack, closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import NothingConvergedError
from bftrainer.zeus.server.messages import JobSpec, TrialId, TrialRow
from bftrainer.zeus.server.tuned_job import TunedJob
from tests.examples import examples
from tests.zeus.server.support import SPEC, open_service, register, report, run, serving

TRIAL = {"job_id": "t-1", "batch_size": 16, "trial_number": 1}
FIRST = {"time": 10.0, "energy": 500.0, "metric": 0.1, "current_epoch": 2}


@pytest.fixture
def serve(tmp_path):
    """Serves a job with a trial that has reported two epochs; gives a client, and what reads the latest report kept."""

    def start(**settings):
        client = stack.enter_context(serving(tmp_path, **settings))
        client.post("/jobs", json=SPEC)
        assert client.get("/jobs/batch_size", params={"job_id": "t-1"}).json() == TRIAL
        assert client.post("/report", json=TRIAL | FIRST).status_code == 200
        return client, read

    def read():
        with closing(sqlite3.connect(tmp_path / "bso.db")) as database:
            return database.execute("SELECT epoch, time, energy, metric FROM bso_trial").fetchone()

    with ExitStack() as stack:
        yield start


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"time": 9.9, "current_epoch": 3}, "time"),
        ({"energy": 499.0, "current_epoch": 3}, "energy"),
        ({"metric": 0.2}, "current_epoch"),
        ({"current_epoch": 1}, "current_epoch"),
        ({"energy": 1100.5, "current_epoch": 3}, "energy"),
        # A run that cost nothing would prune every batch size.
        ({"time": 0.0, "energy": 0.0, "metric": 0.9, "current_epoch": 3}, "time"),
        ({"current_epoch": 2**31}, "current_epoch"),
    ],
)
def test_what_cannot_be_true_is_refused(serve, changes, field):
    """422 names the field, nothing changes, and a report that is right is taken afterwards."""
    client, read = serve()
    answer = client.post("/report", json=TRIAL | FIRST | changes)
    assert answer.status_code == 422
    (fault,) = answer.json()["detail"]
    assert fault["loc"] == ["body", field]
    assert read() == (2, 10.0, 500.0, 0.1)
    job = client.get("/state/job", params={"job_id": "t-1"}).json()
    assert (job["observations"], job["min_cost"], job["remaining"]) == (0, None, [8, 16, 32])
    good = TRIAL | {"time": 11.0, "energy": 600.0, "metric": 0.9, "current_epoch": 3}
    assert client.post("/report", json=good).json()["converged"]
    (trial,) = client.get("/state/trials", params={"job_id": "t-1"}).json()
    assert trial["heard"] == trial["ended"] > trial["started"]


def test_the_same_report_again_is_answered_again(serve):
    """Clients repeat what got no answer, also where the metric was none; it is kept once."""
    client, read = serve()
    assert client.post("/report", json=TRIAL | FIRST).status_code == 200
    for changes, verdict in (
        ({"metric": "nan", "current_epoch": 3}, (False, False)),
        ({"metric": 0.7, "current_epoch": 4}, (True, True)),
    ):
        for _ in range(2):
            answer = client.post("/report", json=TRIAL | FIRST | changes).json()
            assert (answer["stop_train"], answer["converged"]) == verdict
        assert read()[0] == changes["current_epoch"]


def test_the_published_server_believes_everything(serve, caplog):
    """With `compat` zeus what cannot be true is answered as published; a warning says what is wrong."""
    client, read = serve(compat="zeus")
    for changes in ({"time": math.inf}, {"metric": -math.inf}, {"current_epoch": -(10**30)}):  # no database holds them
        sent = {name: str(value) for name, value in (TRIAL | FIRST | changes).items()}
        assert client.post("/report", json=sent).status_code == 200
    assert read() == (2, 10.0, 500.0, 0.1)
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        again = client.post("/report", json=TRIAL | FIRST | {"metric": 0.2})
        nothing = client.post("/report", json=TRIAL | {"time": 0, "energy": 0, "metric": 0.9, "current_epoch": 3})
    assert (again.json()["stop_train"], nothing.json()["converged"]) == (False, True)
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said == [
        "job 't-1', trial 1, current_epoch: Expected an epoch after 2, got 2.",
        "job 't-1', trial 1, time: Expected at least 10, as reported by epoch 2, got 0.",
    ]
    assert read() == (3, 0.0, 0.0, 0.9)


# --- voided trials ----------------------------------------------------------------------------------------------------


@pytest.fixture
def client(tmp_path):
    """A client of a server with the job t-1, which has no bound on costs."""
    with serving(tmp_path) as client:
        assert client.post("/jobs", json=SPEC | {"beta_knob": None}).status_code == 201
        yield client


def job(client):
    """What is known of the job."""
    return client.get("/state/job", params={"job_id": "t-1"}).json()


def void(client, number, reason="a broken meter", job_id="t-1"):
    """Void a trial."""
    return client.post("/trials/void", json={"job_id": job_id, "trial_number": number, "reason": reason})


@pytest.mark.long
def test_voids_are_answered_by_the_job_without_the_trial(client):
    """Voided again nothing changes; one that runs is ended, its reports are refused, and another one explores."""
    order = [run(client, "t-1", cost)[0]["batch_size"] for cost in (100.0, 5.0, 120.0, 110.0, 7.0)]
    assert order == [16, 8, 32, 8, 16]
    for _ in range(2):
        answer = void(client, 2)
        assert (answer.status_code, answer.json()["min_cost"], answer.json()["remaining"]) == (200, 7.0, [8, 16, 32])
    trial = client.get("/jobs/batch_size", params={"job_id": "t-1"}).json()
    assert (trial["batch_size"], void(client, 6).status_code) == (32, 200)
    answer = client.post("/report", json=trial | {"time": 1.0, "energy": 1.0, "metric": 0.9, "current_epoch": 1})
    assert (answer.status_code, answer.json()["message"]) == (400, "Trial(6) was voided, and counts for nothing.")
    assert client.get("/jobs/batch_size", params={"job_id": "t-1"}).json() == trial | {"trial_number": 7}
    rows = client.get("/state/trials", params={"job_id": "t-1"}).json()
    assert [row["excluded"] for row in rows] == [None, "Voided", None, None, None, "Voided", None]


def test_a_run_that_was_too_cheap_has_stopped_others(tmp_path):
    """Voided with them, their batch sizes are explored again, also where the published server has failed on it."""
    for compat, costs in (("none", (1.0, 100.0, 300.0)), ("zeus", (0.0, 1.0))):
        with serving(tmp_path / compat, compat=compat) as client:
            client.post("/jobs", json=SPEC)
            assert [run(client, "t-1", cost)[1]["converged"] for cost in costs][1:] == [False] * (len(costs) - 1)
            for number in range(1, len(costs) + 1):
                assert void(client, number).status_code == 200
            assert (job(client)["min_cost"], job(client)["remaining"]) == (None, [8, 16, 32])
            again = [run(client, "t-1", 100.0) for _ in range(3)]
            assert [(trial["batch_size"], verdict["converged"]) for trial, verdict in again] == [
                (16, True),
                (8, True),
                (32, True),
            ]


def test_what_cannot_be_voided(client):
    """Unknown jobs and trials, and voiding without a reason, or with one that is too long."""
    assert (void(client, 1).status_code, void(client, 1, job_id="x").status_code) == (404, 404)
    client.get("/jobs/batch_size", params={"job_id": "t-1"})
    reasons = ("", "y" * 1_001, "y" * 1_000)
    assert [void(client, 1, reason).status_code for reason in reasons] == [422, 422, 200]


# --- a job is what its history makes of it ----------------------------------------------------------------------------

FIELDS = {"batch_sizes": [8, 16, 32, 64], "default_batch_size": 32}
# Of each step: whether a run starts beside those that run, or which of them ends: how (None: no result), at which cost.
ends = st.tuples(st.integers(0, 3), st.sampled_from([True, True, True, False, None]), st.integers(1, 100))
steps = st.lists(st.one_of(st.just("start"), ends), min_size=10, max_size=60)
options = st.fixed_dictionaries({"num_pruning_rounds": st.integers(0, 3), "window_size": st.integers(0, 4)})


def facts(job):
    """All that is known of a job, to the bit."""
    job.arms()
    pruned, manager, bandit = job.pruned, job.pruned.manager, job.pruned.bandit
    rewards = {size: log.tolist() for size, log in pruned.rewards.items()}
    learned = sorted(rewards.items()), sorted(pruned.explored.items()), sorted(vars(manager).items())
    played = bandit and (sorted(bandit.beliefs.items()), bandit.rng.bit_generator.state)
    tuning = learned, played, manager.expecting and job.exploring
    return repr((tuning, job.min_cost, job.min_cost_batch_size))


class Life:
    """A job in memory, and what has happened to it."""

    def __init__(self, options):
        self.spec = JobSpec(**SPEC | FIELDS | options)
        self.job, self.rows, self.log, self.results = TunedJob(self.spec, 5), [], [], 0

    @property
    def running(self):
        """Trials without an end."""
        return [row for row in self.rows if row.status == "Dispatched"]

    def start(self):
        """Hand out a trial; None if no batch size converges."""
        number, running = len(self.rows) + 1, {row.trial_number for row in self.running}
        try:
            size, kind = self.job.choose(number, running.__contains__)
        except NothingConvergedError:
            return None
        row = TrialRow("t-1", size, number, kind.value, "Dispatched", 0.0, results_before=self.results)
        self.rows.append(row)
        self.log.append((row, False))
        return row

    def end(self, row, converged, cost):
        """End a trial, without a result if `converged` is None."""
        row.status = "Failed"
        if converged is not None:
            self.results += 1
            row.status, row.cost, row.converged, row.observation = "Succeeded", cost, converged, self.results
            self.job.learn(row)
            self.log.append((row, True))

    def live(self, steps):
        """Take steps."""
        for step in steps:
            if step == "start":
                self.start()
            elif self.running:
                which, converged, cost = step
                self.end(self.running[which % len(self.running)], converged, float(cost))
        return self

    def repeat_without(self, gone):
        """A job to which all that is logged has happened, one after the other, but for some trials."""
        job = TunedJob(self.spec, 5)
        for row, ended in self.log:
            if row.trial_number not in gone and ended:
                job.learn(row)
            elif row.trial_number not in gone:
                job.hand_out(row.type, row.batch_size, row.trial_number)
        return job


@given(steps=steps, options=options, data=st.data())
def test_a_history_makes_the_job(steps, options, data):
    """Made anew from its trials, in any order, all or some, a job is to the bit what these have made of it."""
    life = Life(options).live(steps)
    again = TunedJob.replay(life.spec, 5, life.rows[::-1], published=False)
    assert facts(again) == facts(life.job)
    gone = data.draw(st.sets(st.sampled_from([0, *(row.trial_number for row in life.rows)])))
    remaining = [row for row in life.rows if row.trial_number not in gone]
    again = TunedJob.replay(life.spec, 5, remaining, published=False)
    assert facts(again) == facts(life.repeat_without(gone))
    assert again.min_cost == min((row.cost for row in remaining if row.converged), default=None)


@examples(20)
@given(steps=steps, options=options, data=st.data())
def test_voiding_on_the_server(steps, options, data):
    """After voids at random moments the stored job is to the bit what the trials that are left have made of it."""
    options |= {"beta_knob": None, "mab_seed": 5}
    with open_service() as service:
        register(service, **FIELDS | options)
        life, gone = Life(options), set()

        def void(number):
            service.void_trial("t-1", number)
            gone.add(number)
            life.rows[number - 1].status = "Failed"
            life.job = life.repeat_without(gone)

        for step in steps:
            if step == "start":
                row = life.start()
                if row is not None:
                    trial = service.predict("t-1")
                    assert (trial.trial_number, trial.batch_size) == (row.trial_number, row.batch_size)
            elif life.running:
                which, converged, cost = step
                row = life.running[which % len(life.running)]
                trial = TrialId(job_id="t-1", batch_size=row.batch_size, trial_number=row.trial_number)
                if converged is None and cost % 2:
                    void(row.trial_number)
                elif converged is None:
                    service.end_trial(trial)
                    life.end(row, None, 0.0)
                else:
                    life.end(row, converged, float(cost))
                    report(service, trial, float(cost), converged=converged)
            elif life.rows:
                void(data.draw(st.integers(1, len(life.rows))))
            assert facts(service._jobs["t-1"].tuned) == facts(life.job)
