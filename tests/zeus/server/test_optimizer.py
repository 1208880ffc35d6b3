"""The optimizer over each kind of database: what is handed out, what is learned, and what happens at once."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain
from uuid import uuid4

import pytest

from bftrainer.errors import (
    BadOperationError,
    JobMismatchError,
    NotFoundError,
    NothingConvergedError,
    SettingsError,
    StoreUnavailableError,
    UnusableValueError,
)
from bftrainer.zeus.server.access import Role, User
from bftrainer.zeus.server.messages import (
    JobSpec,
    TrainingResult,
    TrialId,
)
from bftrainer.zeus.server.service import BatchSizeService, ZeusBatchSizeOptimizer
from bftrainer.zeus.server.store import open_store
from tests.zeus.server.support import SPEC, used

# No run uses so much in a second at 100 W.
IMPOSSIBLE = {"time": 1.0, "energy": 1e6, "metric": 0.1, "current_epoch": 1}


@asynccontextmanager
async def optimizing(url, **options):
    """An optimizer over a database."""
    with open_store(url) as store:
        optimizer = ZeusBatchSizeOptimizer(BatchSizeService(store, **options))
        try:
            yield optimizer
        finally:
            optimizer.close()


async def register(optimizer, **changes):
    """A new job; gives its name."""
    name = f"t-{uuid4().hex}"
    assert await optimizer.register_job(JobSpec(**SPEC | {"job_id": name} | changes))
    return name


async def report(optimizer, trial, cost=100.0, *, converged=True, epoch=100):
    """Report that a trial has cost so much."""
    metric = 0.6 if converged else 0.1
    reached = {"metric": metric, "current_epoch": epoch}
    return await optimizer.report(TrainingResult(**trial.model_dump(), **used(cost), **reached))


def test_pruning_by_hand(database_url):
    """Downwards from the default, upwards, then again from the cheapest; runs in between get the cheapest so far."""

    async def story():
        async with optimizing(database_url) as optimizer:
            name = await register(optimizer, beta_knob=None)
            first = await optimizer.predict(name)
            beside = await optimizer.predict(name)
            assert [(each.batch_size, each.trial_number) for each in (first, beside)] == [(16, 1), (16, 2)]
            await report(optimizer, first, 100.0)
            await report(optimizer, beside, 90.0, converged=False)
            order = []
            for cost in (50.0, 120.0, 40.0, 45.0):
                trial = await optimizer.predict(name)
                order.append(trial.batch_size)
                await report(optimizer, trial, cost, converged=trial.batch_size != 32)
            # 8 is cheapest of the first round; 32 never converges, and is not tried again.
            assert order == [8, 32, 8, 16]
            assert (await optimizer.predict(name)).batch_size in (8, 16)
            job = optimizer.service.job(name)
            assert (job.stage, job.remaining, job.min_cost, job.min_cost_batch_size) == ("MAB", [8, 16], 40.0, 8)

    asyncio.run(story())


def test_an_exploration_that_was_ended_is_handed_out_again(database_url):
    """A trial that ends without a result leaves its place to the next one; ending it twice changes nothing."""

    async def story():
        async with optimizing(database_url) as optimizer:
            name = await register(optimizer)
            first = await optimizer.predict(name)
            await optimizer.end_trial(first)
            await optimizer.end_trial(first)
            with pytest.raises(BadOperationError, match=r"Trial\(1\) is already reported"):
                await report(optimizer, first)
            second = await optimizer.predict(name)
            assert (second.batch_size, second.trial_number) == (16, 2)
            assert (await report(optimizer, second)).converged
            await optimizer.end_trial(second)
            again = await report(optimizer, second, 1e9, converged=False)
            assert (again.stop_train, again.converged) == (True, True)
            job = optimizer.service.job(name)
            assert (job.trials, job.observations, job.min_cost) == (2, 1, 100.0)

    asyncio.run(story())


def test_trials_that_fall_silent_fail_by_themselves(database_url):
    """After the time-out the exploration is handed out again; reports are signs of life."""
    now = [1000.0]

    async def story():
        async with optimizing(database_url, trial_timeout_s=100.0, clock=lambda: now[0]) as optimizer:
            name = await register(optimizer)
            first = await optimizer.predict(name)
            now[0] += 90
            assert not (await report(optimizer, first, converged=False, epoch=1)).stop_train
            now[0] += 90
            beside = await optimizer.predict(name)
            now[0] += 20
            instead = await optimizer.predict(name)
            kinds = {row.trial_number: (row.type, row.status) for row in optimizer.service.trials(name, 0, 10)}
            assert kinds == {
                1: ("Exploration", "Failed"),
                2: ("Concurrent", "Dispatched"),
                3: ("Exploration", "Dispatched"),
            }
            with pytest.raises(BadOperationError):
                await report(optimizer, first)
            now[0] += 101
            for trial in (beside, instead):
                with pytest.raises(BadOperationError):
                    await report(optimizer, trial)

    asyncio.run(story())


def test_what_is_unknown(database_url):
    """Jobs and trials that nobody registered or handed out are named."""

    async def story():
        async with optimizing(database_url) as optimizer:
            name = await register(optimizer)
            trial = await optimizer.predict(name)
            for job_id in ("nobody", "", name.upper(), f"{name}\0"):
                with pytest.raises(NotFoundError):
                    await optimizer.predict(job_id)
                with pytest.raises(NotFoundError):
                    await optimizer.delete_job(job_id)
            for changes in ({"trial_number": 2}, {"batch_size": 8}):
                with pytest.raises(NotFoundError):
                    await report(optimizer, TrialId(**trial.model_dump() | changes))
                with pytest.raises(NotFoundError):
                    await optimizer.end_trial(TrialId(**trial.model_dump() | changes))

    asyncio.run(story())


def test_what_no_database_holds(database_url):
    """Numbers beyond a database's are refused for good, where they were read as leniently as they were published."""

    async def story():
        async with optimizing(database_url, published=True) as optimizer:
            name = await register(optimizer)
            trial = TrialId.model_validate({"job_id": name, "batch_size": 8, "trial_number": 10**30})
            reported = {"time": 1.0, "energy": 1.0, "metric": 1.0, "current_epoch": 1}
            with pytest.raises((UnusableValueError, NotFoundError)):
                await optimizer.end_trial(trial)
            with pytest.raises((UnusableValueError, NotFoundError)):
                await optimizer.report(TrainingResult.model_validate(trial.model_dump() | reported))

    asyncio.run(story())


def test_a_job_can_be_replaced(database_url):
    """Other settings under a name are refused until the job is deleted; then nothing of it is left."""

    async def story():
        async with optimizing(database_url) as optimizer:
            name = await register(optimizer, num_pruning_rounds=0)
            for _ in range(5):
                await report(optimizer, await optimizer.predict(name), 7.0)
            assert not await optimizer.register_job(JobSpec(**SPEC | {"job_id": name, "num_pruning_rounds": 0}))
            with pytest.raises(JobMismatchError):
                await optimizer.register_job(JobSpec(**SPEC | {"job_id": name}))
            await optimizer.delete_job(name)
            assert await optimizer.register_job(JobSpec(**SPEC | {"job_id": name, "num_pruning_rounds": 0}))
            job = optimizer.service.job(name)
            assert (job.trials, job.observations, job.min_cost) == (0, 0, None)
            trial = await optimizer.predict(name)
            assert trial.trial_number == 1
            await report(optimizer, trial, 9.0)
            job = optimizer.service.job(name)
            (played,) = [arm for arm in job.arms if arm.observations]
            assert (played.batch_size, played.mean) == (trial.batch_size, -9.0)

    asyncio.run(story())


def test_nothing_converges(database_url):
    """A job none of whose batch sizes converges says so each time, and stays as it is."""

    async def story():
        async with optimizing(database_url) as optimizer:
            name = await register(optimizer)
            for _ in range(2):
                await report(optimizer, await optimizer.predict(name), converged=False)
            for _ in range(2):
                with pytest.raises(NothingConvergedError, match="No converged batch sizes has observed"):
                    await optimizer.predict(name)

    asyncio.run(story())


def test_without_a_seed_jobs_differ(database_url):
    """`mab_seed` null takes a seed once, and keeps it; two jobs draw different streams."""

    async def story():
        async with optimizing(database_url) as optimizer:
            streams = []
            for _ in range(2):
                name = await register(optimizer, mab_seed=None, num_pruning_rounds=0, batch_sizes=list(range(1, 41)))
                # Explorations are permutations of forty arms.
                streams.append([(await optimizer.predict(name)).batch_size for _ in range(20)])
            assert streams[0] != streams[1]
            assert min(len(set(stream)) for stream in streams) > 1

    asyncio.run(story())


def test_many_at_once(database_url):
    """Trials that are handed out and reported at once have numbers of their own, and each counts once."""
    tasks, cycles = 6, 8

    async def story():
        async with optimizing(database_url) as optimizer:
            name = await register(optimizer, beta_knob=None)

            async def run(number):
                numbers = []
                for _ in range(cycles):
                    trial = await optimizer.predict(name)
                    numbers.append(trial.trial_number)
                    verdicts = await asyncio.gather(*(report(optimizer, trial, 100.0 + number) for _ in range(2)))
                    assert all(verdict.stop_train and verdict.converged for verdict in verdicts)
                return numbers

            numbers = [*chain.from_iterable(await asyncio.gather(*map(run, range(tasks))))]
            assert sorted(numbers) == list(range(1, tasks * cycles + 1))
            job = optimizer.service.job(name)
            rows = optimizer.service.trials(name, 0, 1000)
            assert (job.trials, job.observations) == (tasks * cycles,) * 2
            assert sorted(row.observation for row in rows) == list(range(1, tasks * cycles + 1))
            played = {arm.batch_size: arm for arm in job.arms}
            # Each arm's belief is made of all results of its batch size, however it was told.
            last = max(rows, key=lambda row: row.observation)
            if last.type == "MAB":
                own = [row.cost for row in rows if row.batch_size == last.batch_size]
                assert played[last.batch_size].observations == len(own)
                assert played[last.batch_size].mean == pytest.approx(-sum(own) / len(own))

    asyncio.run(story())


def test_a_job_is_what_it_was_after_a_restart(database_url):
    """Rebuilt from its trials, a job hands out what it would have, answers what it has answered, and knows requests."""
    if database_url == "sqlite://":
        pytest.skip("a database in memory has no second life")

    async def story():
        sizes = []
        for restarts in (False, True):
            async with AsyncExitStack() as stack:
                optimizer = await stack.enter_async_context(optimizing(database_url))
                name = await register(optimizer, beta_knob=None)
                for number in range(12):
                    trial = await optimizer.predict(name, f"r{number}")
                    if restarts:
                        await stack.aclose()
                        optimizer = await stack.enter_async_context(optimizing(database_url))
                    assert await optimizer.predict(name, f"r{number}") == trial
                    verdict = await report(optimizer, trial, 100.0 + 7 * number % 40)
                    assert verdict.converged
                    sizes.append(trial.batch_size)
        assert sizes[:12] == sizes[12:]

    asyncio.run(story())


def test_a_second_server_is_refused(database_url):
    """One server uses a database at a time: two would each have jobs of their own in memory."""
    if database_url == "sqlite://":
        pytest.skip("a database in memory has one server")
    refused = pytest.raises(SettingsError, match="Another server uses this database")
    with open_store(database_url), refused, open_store(database_url):
        pass
    with open_store(database_url):
        pass


@pytest.mark.parametrize(
    ("kind", "said"), [("symlink_to", "Another server uses"), ("hardlink_to", "another hard link")]
)
def test_a_second_server_is_refused_through_a_link(tmp_path, kind, said):
    """A database has one server whatever name it goes by."""
    with open_store(f"sqlite:///{tmp_path / 'a.db'}"):
        getattr(tmp_path / "b.db", kind)(tmp_path / "a.db")
        with pytest.raises(SettingsError, match=said), open_store(f"sqlite:///{tmp_path / 'b.db'}"):
            pass


def test_a_database_that_was_removed_takes_nothing(tmp_path):
    """What is written would be lost with the file; that a request and `/readyz` hear."""
    with open_store(f"sqlite:///{tmp_path / 'a.db'}") as store:
        store.probe()
        (tmp_path / "a.db").unlink()
        with pytest.raises(StoreUnavailableError, match=r"a\.db was removed or replaced"):
            store.probe()


def test_a_refused_report_frees_its_exploration(database_url):
    """It is handed out again at once when its user asks, and after a lease when others do."""
    now, users = [1000.0], [User(name, Role.ADMIN) for name in ("me", "you")]

    async def story():
        async with optimizing(database_url, trial_timeout_s=86_400.0, clock=lambda: now[0]) as optimizer:
            for patience_s, asking, again in ((0, users[0], True), (299, users[1], False), (301, users[1], True)):
                name = await register(optimizer)
                first = await optimizer.predict(name, user=users[0])
                with pytest.raises(UnusableValueError):
                    await optimizer.report(TrainingResult(**first.model_dump(), **IMPOSSIBLE))
                now[0] += patience_s
                await optimizer.predict(name, user=asking)
                kinds = [(row.type, row.status) for row in optimizer.service.trials(name)]
                assert kinds[0] == ("Exploration", "Failed" if again else "Dispatched")
                assert kinds[1][0] == ("Exploration" if again else "Concurrent")
            # A report that is right is taken, and the trial goes on as others do.
            assert not (await report(optimizer, await optimizer.predict(name), converged=False, epoch=1)).stop_train

    asyncio.run(story())


def test_what_was_not_stored_has_not_happened(tmp_path, monkeypatch):
    """A write that fails leaves job, trials and generator as they were, and the next one finds them so."""

    async def story():
        async with optimizing(f"sqlite:///{tmp_path / 'bso.db'}") as optimizer:
            name = await register(optimizer, num_pruning_rounds=0, beta_knob=None)
            trial = await optimizer.predict(name)

            def fail(*_, **__):
                raise StoreUnavailableError("no room")

            for method, act in (
                ("add_trial", lambda: optimizer.predict(name)),
                ("update_trial", lambda: report(optimizer, trial)),
            ):
                before = optimizer.service.job(name).model_dump_json()
                with monkeypatch.context() as patch:
                    patch.setattr(optimizer.service.store, method, fail)
                    with pytest.raises(StoreUnavailableError):
                        await act()
                assert optimizer.service.job(name).model_dump_json() == before
            assert (await optimizer.predict(name)).trial_number == 2

    asyncio.run(story())
