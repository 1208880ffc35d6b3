"""The server's parts under their published names: models and errors."""

from __future__ import annotations

import asyncio

import pytest

from bftrainer.errors import BadOperationError, NotFoundError, TuningInputError, UnusableValueError
from bftrainer.zeus import server as bso
from bftrainer.zeus.server import JobSpec, JobSpecFromClient, Stage, TrialId, TrialStatus, TrialType, TuningParams
from tests.zeus.server.support import SPEC
from tests.zeus.server.test_optimizer import optimizing, register

MEMORY = "sqlite://"


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


def test_errors_are_caught_by_their_published_names():
    """`except` with a published name catches what stands for it here, as its base, and nothing else."""
    under = {
        "ZeusBSOServerNotFoundError": (NotFoundError,),
        "ZeusBSOServiceBadOperationError": (NotFoundError, BadOperationError),
        "ZeusBSOValueError": (UnusableValueError,),
    }
    for name, kinds in under.items():
        assert all(issubclass(kind, getattr(bso, name)) for kind in kinds)
    assert not issubclass(BadOperationError, bso.ZeusBSOServerNotFoundError)
    server = [name for name in bso.__all__ if name.startswith("ZeusBSO") and "Serv" in name]
    assert all(issubclass(getattr(bso, name), bso.ZeusBSOServerBaseError) for name in server)

    async def story():
        async with optimizing(MEMORY) as optimizer:
            with pytest.raises(bso.ZeusBSOServiceBadOperationError):
                await optimizer.predict("nobody's")
            with pytest.raises(bso.ZeusBSOServerNotFoundError):
                await optimizer.end_trial(TrialId(job_id="nobody's", batch_size=8, trial_number=1))
            name = await register(optimizer)
            with pytest.raises(bso.ZeusBSOJobConfigMismatchError):
                await optimizer.register_job(JobSpec(**SPEC | {"job_id": name, "eta_knob": 0.25}))

    asyncio.run(story())


def test_registered_jobs_have_names():
    """Without a name a job can be asked for, not be there; without GPUs it is only how it is tuned."""
    unnamed = {key: value for key, value in SPEC.items() if key != "job_id"}
    assert JobSpec(**unnamed).job_id is None
    tuning = {key: SPEC[key] for key in SPEC if key in TuningParams.model_fields}
    assert not hasattr(TuningParams(**tuning), "max_power")
    with pytest.raises(TuningInputError, match="Unknown field 'max_power'"):
        TuningParams(**SPEC)


def test_members_have_their_published_names():
    """`TrialStatus.Dispatched` and the others are the members here, with the texts that are kept."""
    assert Stage.Pruning is Stage.PRUNING
    assert [str(each) for each in TrialStatus] == ["Dispatched", "Succeeded", "Failed"]
    assert TrialType.Exploration is TrialType("Exploration")
    assert len(TrialType) == 3
