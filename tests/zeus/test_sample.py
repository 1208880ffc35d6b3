"""The embedded traces are found, and hold the jobs that are named beside them."""

from __future__ import annotations

from bftrainer.zeus import TrainingTrace, read_groups
from bftrainer.zeus.simulation.inputs import SAMPLE_JOBS, zeus_sample


def test_the_sample_is_there():
    """Three files: runs, power, groups."""
    assert [path.name for path in zeus_sample()] == ["zeus-train.csv", "zeus-power.csv", "zeus-groups.csv"]
    assert all(path.is_file() for path in zeus_sample())


def test_the_sample_holds_its_jobs():
    """One job a dataset, all of the traces' jobs, and groups of these datasets alone."""
    sample = zeus_sample()
    trace = TrainingTrace(sample.train, sample.power)
    assert sorted((job.dataset, job.network, job.optimizer) for job in SAMPLE_JOBS) == trace.jobs
    assert len({job.dataset for job in SAMPLE_JOBS}) == len(SAMPLE_JOBS)
    for job in SAMPLE_JOBS:
        assert job.default_bs in trace.of(job).batch_sizes
    assert {group.dataset for group in read_groups(sample.groups).values()} == {job.dataset for job in SAMPLE_JOBS}
