"""The server's parts under their published names: models and errors."""

from __future__ import annotations

import asyncio

import pytest

from bftrainer.errors import BadOperationError, NotFoundError, TuningInputError, UnusableValueError
from bftrainer.zeus import server as bso
from bftrainer.zeus.server import JobSpec, JobSpecFromClient, Stage, TrialId, TrialStatus, TrialType, TuningParams
from bftrainer.zeus.server.messages import GpuConfig
from bftrainer.zeus.server.service import ZeusBatchSizeOptimizer
from tests.zeus.server.support import SPEC, open_service


def test_the_published_methods():
    """Registering answers what a bool would, and the job comes along; errors are caught by their published names."""

    async def act(optimizer):
        spec = JobSpecFromClient(**SPEC)
        first, again = [await optimizer.register_job(spec) for _ in range(2)]
        assert (bool(first), bool(again)) == (True, False)
        assert len({first, again, True, False}) == 2
        assert first.spec.model_dump() == again.spec.model_dump() == spec.model_dump()
        trial = await optimizer.predict("t-1")
        await optimizer.end_trial(trial)
        with pytest.raises(bso.ZeusBSOServiceBadOperationError):
            await optimizer.predict("nobody's")
        with pytest.raises(bso.ZeusBSOServerNotFoundError):
            await optimizer.end_trial(TrialId(job_id="nobody's", batch_size=8, trial_number=1))
        with pytest.raises(bso.ZeusBSOJobConfigMismatchError):
            await optimizer.register_job(JobSpec(**SPEC | {"eta_knob": 0.25}))
        await optimizer.delete_job("t-1")

    with open_service() as service:
        optimizer = ZeusBatchSizeOptimizer(service)
        try:
            asyncio.run(act(optimizer))
        finally:
            optimizer.close()


def test_published_names():
    """An error's published name is a base of what stands for it here; members and fields are the published ones."""
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
    assert Stage.Pruning is Stage.PRUNING
    assert [str(each) for each in TrialStatus] == ["Dispatched", "Succeeded", "Failed"]
    assert TrialType.Exploration is TrialType("Exploration")
    assert len(TrialType) == 3


@pytest.mark.parametrize(
    ("senseless", "said"),
    [
        ({"max_epochs": 1.5}, "Expected max_epochs to be a whole number, got 1.5."),
        ({"max_epochs": True}, "Expected max_epochs to be a whole number, got True."),
        ({"batch_sizes": [16, 8.5]}, "Expected batch_sizes (value 2) to be a whole number, got 8.5."),
        ({"batch_sizes": [16, 16]}, "batch_sizes: Expected each batch size once, got 16, 16."),
        ({"target_metric": float("nan")}, "target_metric: Input should be a finite number, got nan."),
        ({"window_size": -1}, "window_size: Input should be greater than or equal to 0, got -1."),
    ],
)
def test_settings_that_are_senseless(senseless, said):
    """A script is told before it asks a server, whether it names its GPUs or not; 12.0 epochs are 12."""
    tuning = {name: value for name, value in SPEC.items() if name not in GpuConfig.model_fields}
    with pytest.raises(TuningInputError, match="Unknown field 'max_power'"):
        TuningParams(**SPEC)
    for model, settings in ((TuningParams, tuning), (JobSpec, SPEC)):
        with pytest.raises(TuningInputError) as caught:
            model(**settings | senseless)
        assert str(caught.value) == f"{model.__name__}: {said}"
        assert model(**settings | {"max_epochs": 12.0}).max_epochs == 12
