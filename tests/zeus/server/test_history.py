"""A job is what its history makes of it: trials that are voided have never been, and the order of arrival is none."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import NothingConvergedError
from bftrainer.zeus.server.books.voided_trials import void_trial
from bftrainer.zeus.server.database import open_database
from bftrainer.zeus.server.job_tables import make_ready
from bftrainer.zeus.server.messages import JobSpec, TrainingResult, TrialVoid
from bftrainer.zeus.server.optimizer import ZeusBatchSizeOptimizer
from bftrainer.zeus.server.store import JobStore
from bftrainer.zeus.server.tuned_job import EndedTrial, TrialType, TunedJob
from tests.examples import examples
from tests.zeus.server.support import SPEC, used

SIZES = [8, 16, 32, 64]
# Of each step: whether a run starts beside those that run, or which of them ends: how (None: no result), at which cost.
ends = st.tuples(st.integers(0, 3), st.sampled_from([True, True, True, False, None]), st.integers(1, 100))
steps = st.lists(st.one_of(st.just("start"), ends), min_size=10, max_size=60)
options = st.fixed_dictionaries({"num_pruning_rounds": st.integers(0, 3), "window_size": st.integers(0, 4)})


def facts(job):
    """All that is known of a job, to the bit."""
    rewards = {size: log.tolist() for size, log in job.pruned.rewards.items() if len(log)}
    return json.dumps([job.to_dict(), job.min_cost, job.min_cost_batch_size, sorted(rewards.items())])


class Life:
    """A job in memory, and what has happened to it."""

    def __init__(self, spec, *, parallel=False):
        self.job = TunedJob.new(spec, 5)
        self.parallel = parallel
        self.rows, self.log, self.results = [], [], 0

    @property
    def running(self):
        """Trials without an end."""
        return [row for row in self.rows if row.status == "Dispatched"]

    def start(self):
        """Hand out a trial; None if no batch size converges."""
        number, running = len(self.rows) + 1, {row.trial_number for row in self.running}
        try:
            size, kind = self.job.choose(number, running.__contains__, parallel=self.parallel)
        except NothingConvergedError:
            return None
        row = SimpleNamespace(trial_number=number, type=kind.value, batch_size=size, results_before=self.results)
        row.observation = row.cost = row.converged = None
        row.status, row.inherited = "Dispatched", False
        self.rows.append(row)
        self.log.append((row, None))
        return row

    def end(self, row, converged, cost):
        """End a trial, without a result if `converged` is None."""
        row.status = "Failed"
        if converged is None:
            return
        self.results += 1
        row.status, row.cost, row.converged, row.observation = "Succeeded", cost, converged, self.results
        ended = EndedTrial(row.trial_number, TrialType(row.type), row.batch_size, cost, converged)
        self.job.learn(ended, published=False)
        self.log.append((row, ended))

    def live(self, steps):
        """Take steps."""
        for step in steps:
            if step == "start":
                self.start()
            elif self.running:
                which, converged, cost = step
                self.end(self.running[which % len(self.running)], converged, float(cost))


def without(life, spec, gone):
    """A job to which all that is logged has happened, one after the other, but for some trials."""
    job = TunedJob.new(spec, 5)
    for row, ended in life.log:
        if row.trial_number in gone:
            continue
        if ended is None:
            job.hand_out(TrialType(row.type), row.batch_size, row.trial_number)
        else:
            job.learn(ended, published=False)
    return job


def spec_of(options):
    """The job's settings."""
    return JobSpec(**SPEC | {"batch_sizes": SIZES, "default_batch_size": 32} | options)


results = st.lists(st.tuples(st.sampled_from([True, True, True, False]), st.integers(1, 100)), min_size=3, max_size=3)


def by_round(life, told):
    """Hand out an exploration; gives it with its result, which depends on its batch size and the round alone."""
    row = life.start() if life.job.pruned.manager.ahead else None
    if row is None or row.type != "Exploration":
        return None
    before = sum(other.batch_size == row.batch_size and other.type == row.type for other in life.rows)
    return row, told[row.batch_size][before - 1]


@given(told=st.fixed_dictionaries(dict.fromkeys(SIZES, results)), options=options, data=st.data())
def test_explorations_in_parallel_decide_as_one_after_the_other(told, options, data):
    """Whenever the same results come, and in which order, the same batch sizes are left, and the same arms begin."""
    spec = spec_of(options | {"num_pruning_rounds": data.draw(st.integers(1, 3))})
    one, many = Life(spec), Life(spec, parallel=True)
    while found := by_round(one, told):
        one.end(found[0], *found[1])
    running = []
    while True:
        if running and data.draw(st.booleans()):
            row, result = running.pop(data.draw(st.integers(0, len(running) - 1)))
            many.end(row, *result)
        elif found := by_round(many, told):
            running.append(found)
        elif running:
            row, result = running.pop()
            many.end(row, *result)
        else:
            break
    for life in (one, many):
        life.start()
    (first, second) = (life.job for life in (one, many))
    assert first.pruned.manager.to_dict() == second.pruned.manager.to_dict()
    assert (first.min_cost, first.min_cost_batch_size) == (second.min_cost, second.min_cost_batch_size)
    assert first.arms() == second.arms()
    sizes = [[row and row.batch_size for row in (life.start() for _ in range(10))] for life in (one, many)]
    assert sizes[0] == sizes[1]


@given(steps=steps, options=options, parallel=st.booleans())
def test_a_history_makes_the_job(steps, options, parallel):
    """Made anew from its trials, in any order, a job is to the bit what it has become step by step."""
    life = Life(spec_of(options), parallel=parallel)
    life.live(steps)
    again = TunedJob.replayed(life.job.spec, 5, life.rows[::-1], published=False)
    assert facts(again) == facts(life.job)


@given(steps=steps, options=options, converged=st.sampled_from([True, False, None]))
def test_without_its_last_trial_a_job_is_what_it_was(steps, options, converged):
    """A trial that is voided before anything follows it has never been, generator included."""
    life = Life(spec_of(options))
    life.live(steps)
    before = facts(life.job)
    row = life.start()
    if row is not None:
        life.end(row, converged, 1.0)
        again = TunedJob.replayed(life.job.spec, 5, life.rows[:-1], published=False)
        assert facts(again) == before


@given(steps=steps, options=options, data=st.data())
def test_without_some_trials_a_job_is_what_the_others_make_it(steps, options, data):
    """What remains is replayed in its order, whichever trials are gone, and goes on."""
    life = Life(spec_of(options))
    life.live(steps)
    gone = data.draw(st.sets(st.sampled_from([0, *(row.trial_number for row in life.rows)])))
    remaining = [row for row in life.rows if row.trial_number not in gone]
    again = TunedJob.replayed(life.job.spec, 5, remaining, published=False)
    assert facts(again) == facts(without(life, life.job.spec, gone))
    wanted = min((row.cost for row in remaining if row.converged and row.type != "Exploration"), default=None)
    assert wanted is None or again.min_cost <= wanted


@examples(20)
@given(steps=steps, options=options, data=st.data())
def test_voiding_on_the_server(steps, options, data):
    """After voids at random moments the stored job is to the bit what the trials that are left have made of it."""
    spec = spec_of(options | {"beta_knob": None, "mab_seed": 5})

    async def live():
        database = open_database("sqlite+aiosqlite://")
        await make_ready(database, migrate=True)
        optimizer = ZeusBatchSizeOptimizer(JobStore(database))
        await optimizer.register_job(spec)
        life, gone = Life(spec), set()

        async def void(number):
            await void_trial(optimizer.service, TrialVoid(job_id="t-1", trial_number=number, reason="why not"))
            gone.add(number)
            life.rows[number - 1].status = "Failed"
            life.job = without(life, spec, gone)

        try:
            for step in steps:
                if step == "start":
                    row = life.start()
                    if row is not None:
                        trial = await optimizer.predict("t-1")
                        assert (trial.trial_number, trial.batch_size) == (row.trial_number, row.batch_size)
                elif life.running:
                    which, converged, cost = step
                    row = life.running[which % len(life.running)]
                    names = {"job_id": "t-1", "batch_size": row.batch_size, "trial_number": row.trial_number}
                    metric = {"metric": 0.6 if converged else 0.1, "current_epoch": 100}
                    if converged is None and cost % 2:
                        await void(row.trial_number)
                    elif converged is None:
                        await optimizer.end_trial(TrainingResult(**names, **used(cost), **metric).trial)
                        life.end(row, None, 0.0)
                    else:
                        life.end(row, converged, float(cost))
                        await optimizer.report(TrainingResult(**names, **used(cost), **metric))
                elif life.rows:
                    await void(data.draw(st.integers(1, len(life.rows))))
                kept = await optimizer.service.look(lambda transaction: transaction.tuned("t-1"))
                kept.pruned.rewards = life.job.pruned.rewards
                assert facts(kept) == facts(life.job)
        finally:
            await database.close()

    asyncio.run(live())


def test_what_is_looked_at_is_what_comes():
    """A job whose bandit begins again, after a trial was voided, shows the beliefs and the choice that it will have."""
    spec = JobSpec(**SPEC | {"beta_knob": None, "num_pruning_rounds": 1, "mab_seed": 5})

    async def live():
        database = open_database("sqlite+aiosqlite://")
        await make_ready(database, migrate=True)
        optimizer = ZeusBatchSizeOptimizer(JobStore(database))
        await optimizer.register_job(spec)

        async def run(number):
            trial = await optimizer.predict("t-1")
            reached = {"metric": 0.6, "current_epoch": 1}
            await optimizer.report(TrainingResult(**trial.model_dump(), **used(50.0 + 7 * number % 40), **reached))

        async def looked():
            return await optimizer.service.look(lambda transaction: transaction.tuned("t-1"))

        try:
            for number in range(12):
                await run(number)
            await void_trial(optimizer.service, TrialVoid(job_id="t-1", trial_number=1, reason="why not"))
            await run(12)
            job = await looked()
            assert (job.stage, job.pruned.manager.done) == ("Pruning", True)
            size, _ = job.choose(14, lambda _: False)
            assert size == (await optimizer.predict("t-1")).batch_size
            assert job.arms() == (await looked()).arms()
        finally:
            await database.close()

    asyncio.run(live())
