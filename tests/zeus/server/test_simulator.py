"""The server chooses as the simulator does."""

import math

import pytest

from benchmarks.published import published_traces
from bftrainer import zeus
from bftrainer.errors import TuningError
from bftrainer.zeus.server.messages import JobSpec, TrainingResult
from bftrainer.zeus.simulation.campaign import SAMPLE_JOBS, zeus_sample
from tests.zeus.server.support import open_service

SEED, ETA = 31, 0.5


class Served(zeus.BatchSizeOptimizer):
    """Asks a server for each batch size, and reports to it what runs cost; its results cost what it is told."""

    name = "served"

    def __init__(self, service, beta):
        self.service, self.beta, self.choices = service, beta, []

    def __deepcopy__(self, _):
        return self

    def register_job(self, job, batch_sizes):
        spec = JobSpec(
            job_id="job",
            job_id_prefix="job",
            batch_sizes=list(batch_sizes),
            default_batch_size=job.default_bs,
            # Energy alone, so that a cost is reported to the last bit.
            eta_knob=1.0,
            beta_knob=None if math.isinf(self.beta) else self.beta,
            mab_seed=SEED,
            max_power=1.0,
            number_of_gpus=1,
            gpu_model="V100",
        )
        self.service.register_job(spec)

    def predict(self, _):
        self.trial = self.service.predict("job")
        self.choices.append(self.trial.batch_size)
        return self.trial.batch_size

    def observe(self, _, __, cost, converged=None):
        metric = 1.0 if converged else 0.0
        result = TrainingResult(**self.trial.model_dump(), time=cost, energy=cost, metric=metric, current_epoch=100)
        verdict = self.service.report(result)
        assert (verdict.stop_train, verdict.converged) == (True, converged)


def choose(trace, job, recurrences, beta, corrections):
    """Batch sizes that the simulator's policy chooses, and the server's."""
    found = []
    with open_service() as service:
        for policy in (zeus.PruningGTSBatchSizeOptimizer(seed=SEED, verbose=False), Served(service, beta)):
            limits = zeus.JITPowerLimitOptimizer(False)
            simulator = zeus.Simulator(trace, None, policy, limits, seed=7, verbose=False, corrections=corrections)
            try:
                found.append([run.batch_size for run in simulator.job_runs(job, recurrences, beta, ETA)])
            except TuningError as error:
                found.append([entry.bs for entry in error.history])
    return found


def jobs_of(trace):
    """Each job and target of a trace that some batch size always reaches; the smallest such is the default."""
    for names in trace.jobs:
        for target in trace.targets(*names):
            traced = trace.of(zeus.Job(*names, target, 100))
            sizes = [size for size in traced.batch_sizes if max(traced.at(size).target_epochs, default=math.inf) <= 100]
            if sizes:
                yield zeus.Job(*names, target, 100, sizes[0])


@pytest.mark.parametrize(
    ("published", "beta"),
    [(False, math.inf), (False, 2.0), *(pytest.param(True, beta, marks=pytest.mark.slow) for beta in (math.inf, 2.0))],
)
def test_jobs_get_the_simulators_batch_sizes(published, beta):
    """100 recurrences of sample and published jobs: without early stopping as published, else as the server counts."""
    paths = published_traces() if published else zeus_sample()[:2]
    if paths is None:
        pytest.skip("no published traces (set BFTRAINER_SHARED_DATA)")
    trace = zeus.TrainingTrace(*paths)
    jobs = list(jobs_of(trace)) if published else SAMPLE_JOBS
    assert len(jobs) >= 3
    for job in jobs:
        simulated, served = choose(trace, job, 100, beta, zeus.Corrections(server_costs=not math.isinf(beta)))
        assert served == simulated
