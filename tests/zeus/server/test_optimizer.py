"""The service over each kind of database: what is handed out, what is learned, and what a restart or failure leaves."""

import asyncio
import time
from contextlib import ExitStack
from uuid import uuid4

import pytest

from bftrainer.errors import BadOperationError, NotFoundError, SettingsError, StoreUnavailableError, UnusableValueError
from bftrainer.zeus.server.access import Role, User
from bftrainer.zeus.server.messages import TrainingResult, TrialId
from bftrainer.zeus.server.service import ZeusBatchSizeOptimizer
from bftrainer.zeus.server.store import open_store
from tests.zeus.server.support import open_service, register, report, used

DAY_S = 86_400.0


@pytest.fixture
def name():
    """A job's name that no other test uses: PostgreSQL keeps their jobs."""
    return f"t-{uuid4().hex}"


def kinds(service, name):
    """Type and status of a job's trials."""
    return [(row.type, row.status) for row in service.trials(name)]


@pytest.mark.long
def test_a_dead_exploration_is_handed_out_after_its_lease(database_url, name):
    """Signs of life renew it, or the time-out; then its place is given away, and it is told so whenever it speaks."""
    now = [1000.0]
    with open_service(database_url, trial_timeout_s=DAY_S, clock=lambda: now[0]) as service:
        register(service, name)
        speaking = (service.heartbeat, lambda trial: report(service, trial, 10.0, converged=False, epoch=1))
        for lease_s, patience_s in ((300.0, 300.0), (None, DAY_S)):
            first = service.predict(name, lease_s=lease_s)
            for speak in speaking:
                now[0] += patience_s - 10.0
                speak(first)
            now[0] += patience_s - 10.0
            service.predict(name)
            now[0] += 11.0
            again = service.predict(name)
            dispatched = [("Concurrent", "Dispatched"), ("Exploration", "Dispatched")]
            assert kinds(service, name)[-3:] == [("Exploration", "Failed"), *dispatched]
            for speak in speaking:
                with pytest.raises(BadOperationError):
                    speak(first)
            service.end_trial(again)
        last = service.predict(name)
        report(service, last)
        # One that has its result is still answered: a thread may beat once more while the last report is under way.
        service.heartbeat(last)


def test_a_late_report_counts_if_nobody_has_its_place(name):
    """A lease that has run out ends nothing by itself; nor does the time-out end a trial whose lease is longer."""
    now = [1000.0]
    with open_service(trial_timeout_s=600.0, clock=lambda: now[0]) as service:
        register(service, name)
        first = service.predict(name, lease_s=300.0)
        now[0] += 599.0
        # A run that meets its target has converged, also beyond its last epoch.
        assert report(service, first, epoch=10**6).converged
        second = service.predict(name, lease_s=3600.0)
        now[0] += 3599.0
        service.heartbeat(second)
        now[0] += 3601.0
        with pytest.raises(BadOperationError):
            service.heartbeat(second)


def test_a_refused_report_frees_its_exploration(database_url):
    """It is handed out again at once when its user asks, and after a lease when others do."""
    now, users = [1000.0], [User(each, Role.ADMIN) for each in ("me", "you")]
    # No run uses so much in a second at 100 W.
    impossible = {"time": 1.0, "energy": 1e6, "metric": 0.1, "current_epoch": 1}
    with open_service(database_url, trial_timeout_s=DAY_S, clock=lambda: now[0]) as service:
        for patience_s, asking, again in ((0, users[0], True), (299, users[1], False), (301, users[1], True)):
            name = register(service, f"t-{uuid4().hex}")
            first = service.predict(name, user=users[0])
            with pytest.raises(UnusableValueError):
                service.report(TrainingResult(**first.model_dump(), **impossible))
            now[0] += patience_s
            service.predict(name, user=asking)
            former, latter = kinds(service, name)
            assert former == ("Exploration", "Failed" if again else "Dispatched")
            assert latter[0] == ("Exploration" if again else "Concurrent")


def test_what_is_unknown(database_url, name):
    """Jobs and trials that nobody registered or handed out, or are deleted; numbers that no database holds."""
    with open_service(database_url, published=True) as service:
        register(service, name)
        trial = service.predict(name)
        for job_id in ("nobody", "", name.upper(), f"{name}\0"):
            for ask in (service.predict, service.delete_job, service.job, service.trials):
                with pytest.raises(NotFoundError):
                    ask(job_id)
        for changes in ({"trial_number": 2}, {"batch_size": 8}, {"trial_number": 10**30}):
            other = TrialId.model_validate(trial.model_dump() | changes)
            result = other.model_dump() | used(1.0) | {"metric": 1.0, "current_epoch": 1}
            with pytest.raises((UnusableValueError, NotFoundError)):
                service.report(TrainingResult.model_validate(result))
            for tell in (service.end_trial, service.heartbeat):
                with pytest.raises((UnusableValueError, NotFoundError)):
                    tell(other)
        service.delete_job(name)
        assert (service.store.find_job(name), service.store.read_trials(name)) == (None, [])
        for ask in (service.predict, service.job, service.trials):
            with pytest.raises(NotFoundError):
                ask(name)
        register(service, name, default_batch_size=8)
        assert service.predict(name).trial_number == 1


def test_without_a_seed_jobs_differ():
    """`mab_seed` null takes a seed once, and keeps it; two jobs draw different streams."""
    streams = []
    with open_service() as service:
        for name in ("t-1", "t-2"):
            register(service, name, mab_seed=None, num_pruning_rounds=0, batch_sizes=list(range(1, 41)))
            # Explorations are permutations of forty arms.
            streams.append([service.predict(name).batch_size for _ in range(20)])
    assert streams[0] != streams[1]
    assert min(len(set(stream)) for stream in streams) > 1


def test_many_at_once(database_url, name):
    """Trials that are handed out and reported at once have numbers of their own, and each counts once."""
    tasks, cycles = 6, 8

    async def run(optimizer, number):
        for _ in range(cycles):
            trial = await optimizer.predict(name)
            result = TrainingResult(**trial.model_dump(), **used(100.0 + number), metric=0.6, current_epoch=100)
            verdicts = await asyncio.gather(*(optimizer.report(result) for _ in range(2)))
            assert all(verdict.stop_train and verdict.converged for verdict in verdicts)

    async def run_all(optimizer):
        await asyncio.gather(*(run(optimizer, number) for number in range(tasks)))

    with open_service(database_url) as service:
        register(service, name, beta_knob=None)
        asyncio.run(run_all(ZeusBatchSizeOptimizer(service)))
        rows, numbers = service.trials(name), list(range(1, tasks * cycles + 1))
        assert [row.trial_number for row in rows] == sorted(row.observation for row in rows) == numbers


def test_a_call_that_nobody_awaits_any_more_has_its_turn():
    """Its thread works on when its caller gives up: the next call waits for it, and so does the end."""
    done, optimizer = [], ZeusBatchSizeOptimizer(None)

    def work(number):
        time.sleep(0.2)
        done.append(number)

    async def give_up():
        for number in (1, 3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(optimizer.call(work, number), 0.05)
            if number == 1:
                await optimizer.call(done.append, 2)

    asyncio.run(give_up())
    assert done == [1, 2]
    optimizer.close()
    assert done == [1, 2, 3]


def test_a_job_is_what_it_was_after_a_restart(database_url):
    """Rebuilt from its trials, a job hands out what it would have, and knows requests; looking changes nothing."""
    if database_url == "sqlite://":
        pytest.skip("a database in memory has no second life")
    sizes = []
    for restarts in (False, True):
        with ExitStack() as stack:
            service = stack.enter_context(open_service(database_url))
            name = register(service, f"t-{uuid4().hex}", beta_knob=None)
            for number in range(12):
                trial = service.predict(name, f"r{number}")
                if restarts:
                    stack.close()
                    service = stack.enter_context(open_service(database_url))
                    assert (service.job(name).trials, len(service.trials(name))) == (number + 1, number + 1)
                assert service.predict(name, f"r{number}") == trial
                assert report(service, trial, 100.0 + 7 * number % 40).converged
                sizes.append(trial.batch_size)
    assert sizes[:12] == sizes[12:]


def test_a_second_server_is_refused(database_url, tmp_path):
    """One server uses a database at a time, by whatever name: two would each have jobs of their own in memory."""
    if database_url == "sqlite://":
        pytest.skip("a database in memory has one server")
    links = {"symlink_to": "Another server", "hardlink_to": "another hard link"} if "sqlite" in database_url else {}
    with open_store(database_url):
        for link, message in {"": "Another server uses this database", **links}.items():
            if link:
                getattr(tmp_path / link, link)(tmp_path / "bso.db")
            url = f"sqlite:///{tmp_path / link}" if link else database_url
            with pytest.raises(SettingsError, match=message), open_store(url):
                pass


def test_a_database_that_was_removed_takes_nothing(tmp_path):
    """What is written would be lost with the file; that a request and `/readyz` hear."""
    with open_store(f"sqlite:///{tmp_path / 'a.db'}") as store:
        store.probe()
        (tmp_path / "a.db").unlink()
        with pytest.raises(StoreUnavailableError, match=r"a\.db was removed or replaced"):
            store.probe()


def test_what_was_not_stored_has_not_happened(monkeypatch):
    """A write that fails leaves job, trials and generator as they were, and the next one finds them so."""

    def fail(*_, **__):
        raise StoreUnavailableError("no room")

    with open_service() as service:
        name = register(service, num_pruning_rounds=0, beta_knob=None)
        trial = service.predict(name)
        acts = {"add_trial": lambda: service.predict(name), "update_trial": lambda: report(service, trial)}
        for method, act in acts.items():
            before = service.job(name).model_dump_json()
            with monkeypatch.context() as patch:
                patch.setattr(service.store, method, fail)
                with pytest.raises(StoreUnavailableError):
                    act()
            assert service.job(name).model_dump_json() == before
        assert service.predict(name).trial_number == 2
