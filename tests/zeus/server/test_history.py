"""A job is what its history makes of it: trials that are voided have never been, in whichever order they are read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import NothingConvergedError
from bftrainer.zeus.server.messages import JobSpec, TrialId, TrialRow
from bftrainer.zeus.server.tuned_job import TunedJob
from tests.examples import examples
from tests.zeus.server.support import SPEC, open_service, register, report

FIELDS = {"batch_sizes": [8, 16, 32, 64], "default_batch_size": 32}
# Of each step: whether a run starts beside those that run, or which of them ends: how (None: no result), at which cost.
ends = st.tuples(st.integers(0, 3), st.sampled_from([True, True, True, False, None]), st.integers(1, 100))
steps = st.lists(st.one_of(st.just("start"), ends), min_size=10, max_size=60)
options = st.fixed_dictionaries({"num_pruning_rounds": st.integers(0, 3), "window_size": st.integers(0, 4)})


def facts(job):
    """All that is known of a job, to the bit."""
    pruned, manager, bandit = job.pruned, job.pruned.manager, job.pruned.bandit
    rewards = {size: log.tolist() for size, log in pruned.rewards.items()}
    learned = sorted(rewards.items()), sorted(pruned.explored.items()), sorted(vars(manager).items())
    played = bandit and (sorted(bandit.beliefs.items()), bandit.drawn, bandit.rng.bit_generator.state)
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
