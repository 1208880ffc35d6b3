"""The server's parts under their published names: models, errors, what the optimizer shows of pruning and bandit."""

from __future__ import annotations

import asyncio
import json
import math
from datetime import UTC, datetime

import pytest
from numpy.random import default_rng
from pydantic import ValidationError

from bftrainer.errors import TrialEndedError, TuningInputError, UnknownJobError, UnknownTrialError, UnusableRequestError
from bftrainer.zeus import server as bso
from bftrainer.zeus.server import (
    BatchSizeClient,
    CreateConcurrentTrial,
    CreatedJob,
    CreateExplorationTrial,
    CreateJob,
    CreateMabTrial,
    ExplorationsPerJob,
    JobSpec,
    JobSpecFromClient,
    JobState,
    ReadTrial,
    Stage,
    TrialStatus,
    TrialType,
    TuningParams,
    UpdateGeneratorState,
    UpdateTrial,
)
from tests.zeus.server.support import SPEC
from tests.zeus.server.test_optimizer import optimizing, register, report

MEMORY = "sqlite+aiosqlite://"
AT = datetime(2026, 9, 1, tzinfo=UTC)

# What pydantic says of models that servers read, and what our own strict ones say.
REFUSED = (ValidationError, TuningInputError)


async def tuned(optimizer):
    """A job whose pruning is over, each batch size but 32 seen twice; gives its name."""
    name = await register(optimizer, beta_knob=None, mab_prior_mean=-100.0, mab_prior_precision=0.5)
    for cost in (100.0, 50.0, 120.0, 40.0, 45.0):
        trial = await optimizer.predict(name)
        await report(optimizer, trial, cost, converged=trial.batch_size != 32)
    return name


def test_registering_answers_what_a_bool_would():
    """True for a new job, False for a known one: as a condition, and compared; the job comes along."""

    async def story():
        async with optimizing(MEMORY) as optimizer:
            spec = JobSpecFromClient(**SPEC)
            first, again = [await optimizer.register_job(spec) for _ in range(2)]
            assert first
            assert not again
            assert first == True  # noqa: E712
            assert again == False  # noqa: E712
            assert first != again
            assert len({first, again, True, False}) == 2
            assert first.spec.model_dump() == again.spec.model_dump() == spec.model_dump()

    asyncio.run(story())


def test_the_optimizer_shows_what_is_pruned():
    """`pruning_manager` gives a job's manager, to be played with, and the results of its explorations."""

    async def story():
        async with optimizing(MEMORY) as optimizer:
            name = await register(optimizer, beta_knob=None)
            assert optimizer.pruning_manager.service is optimizer.service
            trial = await optimizer.predict(name)
            manager = await optimizer.pruning_manager.of(name)
            assert (manager.expecting, manager.num_pruning_rounds) == (16, 2)
            manager.report_batch_size_result(16, 1.0, True)
            assert (await optimizer.pruning_manager.of(name)).expecting == 16
            assert (await optimizer.pruning_manager.explorations(name)).explorations_per_bs == {}
            await report(optimizer, trial)
            explored = await optimizer.pruning_manager.explorations(name)
            assert [(each.trial_number, each.cost) for each in explored.explorations_per_bs[16]] == [(1, 100.0)]
            assert await optimizer.mab.of(name) is None
            assert await optimizer.mab.arms(name) == []
            for part in (optimizer.pruning_manager.of, optimizer.pruning_manager.explorations, optimizer.mab.arms):
                with pytest.raises(UnknownJobError, match="nobody's"):
                    await part("nobody's")

    asyncio.run(story())


def test_the_optimizer_shows_what_the_bandit_believes():
    """`mab` gives a copy of a job's bandit, and its arms with the published fields; playing with it changes nothing."""

    async def story():
        async with optimizing(MEMORY) as optimizer:
            name = await tuned(optimizer)
            played = await optimizer.predict(name)
            bandit = await optimizer.mab.of(name)
            chosen = bandit.predict()
            assert bandit.seed == 1
            assert optimizer.mab.name == bandit.name
            arms = await optimizer.mab.arms(name)
            assert [(arm.job_id, arm.batch_size, arm.num_observations) for arm in arms] == [(name, 8, 2), (name, 16, 2)]
            # Costs 50 and 40, so rewards of variance 25 with mean -45, after a prior of precision 1/2 at -100.
            assert arms[0].reward_precision == pytest.approx(1 / 25)
            assert arms[0].param_precision == pytest.approx(0.5 + 2 / 25)
            assert arms[0].param_mean == pytest.approx((0.5 * -100 - 2 / 25 * 45) / (0.5 + 2 / 25))
            assert played.batch_size in bandit.arms
            # What the copy was asked is what the server chooses next: both draw from the same state.
            assert (await optimizer.predict(name)).batch_size == chosen

    asyncio.run(story())


def test_errors_are_caught_by_their_published_names():
    """`except` with a published name catches what stands for it here, as its base, and nothing else."""
    under = {
        "ZeusBSOServerNotFoundError": (UnknownJobError, UnknownTrialError),
        "ZeusBSOServiceBadOperationError": (UnknownJobError, UnknownTrialError, TrialEndedError),
        "ZeusBSOValueError": (UnusableRequestError,),
    }
    for name, kinds in under.items():
        assert all(issubclass(kind, getattr(bso, name)) for kind in kinds)
    assert not issubclass(TrialEndedError, bso.ZeusBSOServerNotFoundError)
    server = [name for name in bso.__all__ if name.startswith("ZeusBSO") and "Serv" in name]
    assert all(issubclass(getattr(bso, name), bso.ZeusBSOServerBaseError) for name in server)

    async def story():
        async with optimizing(MEMORY) as optimizer:
            with pytest.raises(bso.ZeusBSOServiceBadOperationError):
                await optimizer.predict("nobody's")
            with pytest.raises(bso.ZeusBSOServerNotFoundError):
                await optimizer.end_trial(ReadTrial(job_id="nobody's", batch_size=8, trial_number=1))
            name = await register(optimizer)
            with pytest.raises(bso.ZeusBSOJobConfigMismatchError):
                await optimizer.register_job(JobSpec(**SPEC | {"job_id": name, "eta_knob": 0.25}))

    asyncio.run(story())


def test_urls_are_the_clients():
    """The published constants are the paths that our client and server use."""
    import inspect

    source = inspect.getsource(BatchSizeClient)
    for name in [name for name in bso.__all__ if name.endswith("_URL")]:
        assert f'"{getattr(bso, name)}"' in source


def test_a_new_job_in_published_form():
    """`CreateJob.from_job_config` starts at the default batch size, in the pruning; other states are refused."""
    job = CreateJob.from_job_config(JobSpec(**SPEC))
    assert (job.exp_default_batch_size, job.min_cost_batch_size) == (16, 16)
    assert (job.stage, job.min_cost) == (Stage.PRUNING, None)
    assert JobState(**job.model_dump() | {"stage": "MAB", "min_cost": 3.0}).stage is Stage.MAB
    for wrong in ({"stage": "MAB"}, {"min_cost": 3.0}, {"exp_default_batch_size": 0}):
        with pytest.raises(REFUSED):
            CreateJob(**job.model_dump() | wrong)
    with pytest.raises(REFUSED):
        CreateJob.from_job_config(JobSpec(**SPEC | {"job_id": None}))


def test_registered_jobs_have_names():
    """Without a name a job can be asked for, not be there; without GPUs it is only how it is tuned."""
    unnamed = {key: value for key, value in SPEC.items() if key != "job_id"}
    assert JobSpec(**unnamed).job_id is None
    tuning = {key: SPEC[key] for key in SPEC if key in TuningParams.model_fields}
    assert not hasattr(TuningParams(**tuning), "max_power")
    with pytest.raises(TuningInputError, match="Unknown field 'max_power'"):
        TuningParams(**SPEC)
    for model in (CreatedJob, bso.JobParams):
        assert model(**SPEC).job_id == SPEC["job_id"]
        with pytest.raises(REFUSED, match="job_id"):
            model(**unnamed)


def test_members_have_their_published_names():
    """`TrialStatus.Dispatched` and the others are the members here, with the texts that are kept."""
    assert Stage.Pruning is Stage.PRUNING
    assert [str(each) for each in TrialStatus] == ["Dispatched", "Succeeded", "Failed"]
    assert TrialType.Exploration is TrialType("Exploration")
    assert len(TrialType) == 3


def test_trials_know_why_they_were_handed_out():
    """Each kind of trial is of its type alone, and runs at first."""
    kinds = {CreateExplorationTrial: "Exploration", CreateConcurrentTrial: "Concurrent", CreateMabTrial: "MAB"}
    for kind, text in kinds.items():
        trial = kind(job_id="t", batch_size=8, start_timestamp=AT)
        assert (trial.type, trial.status) == (text, "Dispatched")
        with pytest.raises(REFUSED):
            kind(job_id="t", batch_size=8, type="MAB" if text != "MAB" else "Concurrent")
        with pytest.raises(REFUSED):
            kind(job_id="t", batch_size=8, status="Failed")


def test_the_end_of_a_trial():
    """One that has succeeded has a result, one that has failed needs none, and one that runs has not ended."""
    which = {"job_id": "t", "batch_size": 8, "trial_number": 1, "end_timestamp": AT}
    assert UpdateTrial(**which, status="Failed").time is None
    assert UpdateTrial(**which, status="Succeeded", time=1.0, energy=2.0, converged=False).energy == 2.0
    with pytest.raises(REFUSED, match="energy, converged"):
        UpdateTrial(**which, status="Succeeded", time=1.0)
    with pytest.raises(REFUSED):
        UpdateTrial(**which, status="Dispatched")


def test_explorations_are_of_one_job_and_done():
    """Results of another job or batch size, and trials that have none, are refused."""
    row = {"job_id": "t", "batch_size": 8, "trial_number": 1, "type": "Exploration", "status": "Succeeded"}
    row |= dict.fromkeys(("started", "ended", "time", "energy", "cost"), 1.0) | {"converged": True, "observation": 1}
    assert ExplorationsPerJob(job_id="t", explorations_per_bs={8: [row]}).explorations_per_bs[8][0].cost == 1.0
    for wrong in ({"job_id": "u"}, {"batch_size": 16}, {"status": "Failed"}):
        with pytest.raises(REFUSED, match="Expected"):
            ExplorationsPerJob(job_id="t", explorations_per_bs={8: [row | wrong]})


def test_states_of_generators():
    """Only what NumPy's generator can be restored from is one."""
    rng = default_rng(3)
    rng.normal()
    kept = UpdateGeneratorState(job_id="t", state=json.dumps(rng.bit_generator.state)).state
    other = default_rng(0)
    other.bit_generator.state = json.loads(kept)
    assert other.normal() == rng.normal()
    for wrong in ("", "{}", "[1, 2]", '{"bit_generator": "MT19937"}', json.dumps(math.pi)):
        with pytest.raises(REFUSED, match="state of a generator"):
            UpdateGeneratorState(job_id="t", state=wrong)
