"""Whatever is reported, no job is lost, and none is in a state that a correct history could not have reached."""

from __future__ import annotations

import asyncio
import random

import pytest

from bftrainer.errors import TuningInputError
from bftrainer.zeus.server.app import create_app
from bftrainer.zeus.server.messages import GpuConfig, JobSpec, TuningParams
from tests.zeus.server.books import check_books
from tests.zeus.server.support import SPEC, called, in_folder

JOBS = {
    "t-1": {},
    "t-2": {"beta_knob": None, "num_pruning_rounds": 1},
    "t-3": {"eta_knob": 1.0, "window_size": 3, "higher_is_better_metric": False},
    "t-4": {"eta_knob": 0.0, "num_pruning_rounds": 0},
}
NONSENSE = (
    *(0, -1, 1, 1e-300, 1e308, 2**31, 10**40, -0.0, 0.5, 3.7),
    *(float("nan"), float("inf"), float("-inf"), None, True, "", "7", "nan", "x" * 500, [], {}, [1], "\0"),
)
REPORT = ("job_id", "batch_size", "trial_number", "time", "energy", "metric", "current_epoch")


class Mob:
    """Clients of all kinds: honest ones, ones that are wrong in some field, and ones that make it all up."""

    def __init__(self, app, seed):
        self.app, self.rng, self.trials, self.statuses = app, random.Random(seed), [], set()

    async def ask(self, method, path, **sent):
        """Send a request; gives the body of the answer if it is a good one."""
        status, body = await called(self.app, {"method": method, "path": path, **sent})
        assert status < 500, (method, path, sent, body)
        self.statuses.add(status)
        return body if status == 200 else None

    async def start(self):
        """Ask for a batch size."""
        job_id = self.rng.choice([*JOBS])
        lease = {"lease_s": 1.0} if self.rng.random() < 0.3 else {}
        trial = await self.ask("GET", "/jobs/batch_size", params={"job_id": job_id} | lease)
        if trial is not None:
            self.trials.append(trial | {"time": 0.0, "energy": 0.0, "current_epoch": 0})

    async def report(self):
        """Report an epoch of some trial, or something else; the trial goes on from what was taken."""
        rng = self.rng
        known = rng.choice(self.trials)
        time_s = known["time"] + rng.uniform(0.0, 20.0)
        energy_j = known["energy"] + rng.uniform(0.0, 110.0) * (time_s - known["time"])
        used = {"time": time_s, "energy": energy_j, "current_epoch": known["current_epoch"] + rng.randint(1, 30)}
        sent = known | used | {"metric": rng.uniform(0.0, 1.0)}
        for name in REPORT:
            if rng.random() < 0.08:
                sent[name] = rng.choice(NONSENSE)
            elif rng.random() < 0.02:
                del sent[name]
        answer = await self.ask("POST", "/report", json=sent)
        if answer is not None and all(sent[name] == known[name] for name in REPORT[:3]):
            known |= {name: float(sent[name]) for name in ("time", "energy")}
            known["current_epoch"] = int(sent["current_epoch"])
        if answer is not None and answer["stop_train"] and rng.random() < 0.9:
            self.trials.remove(known)

    async def end(self):
        """Void a trial, or end it."""
        known = self.rng.choice(self.trials)
        names = {name: known[name] for name in REPORT[:3]}
        if self.rng.random() < 0.5:
            await self.ask("PATCH", "/trials", json=names)
        else:
            void = {"job_id": names["job_id"], "trial_number": names["trial_number"], "reason": "nonsense"}
            await self.ask("POST", "/trials/void", json=void)


async def mobbed(folder, reports, seed):
    """Send so many reports to a server; gives the statuses of its answers."""
    app = create_app(in_folder(folder))
    async with app.router.lifespan_context(app):
        mob = Mob(app, seed)
        for job_id, changes in JOBS.items():
            assert (await called(app, registering(job_id, changes)))[0] == 201
        done = 0
        while done < reports:
            step = mob.rng.random()
            if step < 0.25 or not mob.trials:
                await mob.start()
            elif step < 0.97:
                await mob.report()
                done += 1
            else:
                await mob.end()
        for job_id in JOBS:
            status, job = await called(app, {"method": "GET", "path": "/state/job", "params": {"job_id": job_id}})
            assert (status, job["spec"]["job_id"]) == (200, job_id)
    return mob.statuses


def registering(job_id, changes):
    """A request that registers a job."""
    return {"method": "POST", "path": "/jobs", "json": SPEC | {"job_id": job_id} | changes}


@pytest.mark.parametrize(
    ("senseless", "told"),
    [
        ({"max_epochs": 1.5}, "Expected max_epochs to be a whole number, got 1.5."),
        ({"max_epochs": True}, "Expected max_epochs to be a whole number, got True."),
        ({"batch_sizes": [16, 8.5]}, "Expected batch_sizes (value 2) to be a whole number, got 8.5."),
        ({"batch_sizes": [16, 16]}, "batch_sizes: Expected each batch size once, got 16, 16."),
        ({"target_metric": float("nan")}, "target_metric: Input should be a finite number, got nan."),
        ({"mab_prior_precision": -1}, "mab_prior_precision: Input should be greater than or equal to 0, got -1.0."),
        ({"window_size": -1}, "window_size: Input should be greater than or equal to 0, got -1."),
    ],
)
def test_settings_that_are_senseless(senseless, told):
    """A script is told before it asks a server, whether it names its GPUs or not; 12.0 epochs are 12."""
    tuning = {name: value for name, value in SPEC.items() if name not in GpuConfig.model_fields}
    for model, settings in ((TuningParams, tuning), (JobSpec, SPEC)):
        with pytest.raises(TuningInputError) as caught:
            model(**settings | senseless)
        assert str(caught.value) == f"{model.__name__}: {told}"
        assert model(**settings | {"max_epochs": 12.0}).max_epochs == 12


@pytest.mark.parametrize("reports", [300, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
def test_nonsense_among_reports(tmp_path, reports):
    """No answer is a failure; afterwards each job is to the bit what the trials that count, all possible, make it."""
    statuses = asyncio.run(mobbed(tmp_path, reports, seed=reports))
    assert statuses <= {200, 400, 404, 409, 422}
    assert {200, 400, 422} <= statuses
    trials = check_books(f"sqlite:///{tmp_path / 'bso.db'}")
    assert len(trials) > reports // 20
