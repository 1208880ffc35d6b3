"""The embedded training traces are what datasets/README.md says, and worth tuning."""

import csv
import re

import pytest

from bftrainer.zeus import JITPowerLimitOptimizer, PruningGTSBatchSizeOptimizer, Simulator, TrainingTrace
from bftrainer.zeus.policies.trace import configurations, optimum, pareto_front
from bftrainer.zeus.simulation.campaign import SAMPLE_JOBS, zeus_sample

SAMPLE = zeus_sample()
README = SAMPLE.train.parent / "README.md"
TRACE = TrainingTrace(SAMPLE.train, SAMPLE.power)
JOBS = pytest.mark.parametrize("job", SAMPLE_JOBS, ids=lambda job: job.dataset)


def rows(path):
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


@JOBS
def test_tuning_has_something_to_find(job):
    """The default always reaches the target, others never do, and the optimum is a fifth cheaper or more."""
    traced = TRACE.of(job)
    found = configurations(traced, job, 0.5)
    assert set(traced.batch_sizes) > {each.batch_size for each in found}
    default = [each for each in found if each.batch_size == job.default_bs]
    assert {each.success_share for each in default} == {1.0}
    assert optimum(found).cost_j < 0.81 * default[0].cost_j
    assert len(pareto_front(found)) >= 4


@JOBS
def test_the_table_of_jobs_is_right(job):
    """datasets/README.md says of each job what the traces hold."""
    sizes, found = list(TRACE.of(job).batch_sizes), configurations(TRACE.of(job), job, 0.5)
    best, reaching = optimum(found), [each.batch_size for each in found]
    untuned = next(each for each in found if each.batch_size == job.default_bs)  # highest limits come first
    cells = [
        *(job.dataset, job.network, job.optimizer, job.target_metric, job.max_epochs),
        *(f"{min(sizes)} to {max(sizes)}", f"{min(reaching)} to {max(reaching)}", job.default_bs),
        *(f"{best.batch_size} at {best.power_limit_w} W", f"{untuned.cost_j / best.cost_j:.2f}"),
    ]
    assert f"| {' | '.join(map(str, cells))} |\n" in README.read_text()


def test_the_sizes_of_the_tables_are_right():
    """datasets/README.md says how many rows each table has."""
    for path in SAMPLE:
        assert re.search(rf"^\| `{path.name}` \| {len(rows(path)):,} ", README.read_text(), re.MULTILINE)


@JOBS
def test_tuning_gets_there(job):
    """Published tuning ends within a tenth of the optimum, and needs no retry of the first run."""
    sizes, limits = PruningGTSBatchSizeOptimizer(seed=1, verbose=False), JITPowerLimitOptimizer(verbose=False)
    runs = Simulator(TRACE, None, sizes, limits, 1, verbose=False).job_runs(job, 100, 2.0, 0.5)
    late = [run.cost_j for run in runs if run.recurrence >= 90]
    assert sum(late) / 10 < 1.1 * optimum(configurations(TRACE.of(job), job, 0.5)).cost_j
