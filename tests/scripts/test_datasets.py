"""The embedded sample is what its script makes; training traces are as datasets/README.md says, and worth tuning."""

import csv
import hashlib
import re
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from benchmarks.published import ROOT
from bftrainer.zeus import JITPowerLimitOptimizer, PruningGTSBatchSizeOptimizer, Simulator, TrainingTrace
from bftrainer.zeus.policies.trace import configurations, optimum, pareto_front
from bftrainer.zeus.simulation.campaign import SAMPLE_JOBS, zeus_sample

DATASETS = ROOT / "datasets"
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


def test_checksums_hold():
    """SHA256SUMS tells the bytes of all data files."""
    told = {}
    for line in (DATASETS / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        told[name] = digest
        assert hashlib.sha256((DATASETS / name).read_bytes()).hexdigest() == digest
    assert set(told) == {path.name for path in DATASETS.iterdir()} - {"README.md", "SHA256SUMS"}


def test_same_seed_makes_the_same_sample(tmp_path):
    """The script makes what is embedded: the same bytes, or with another pyarrow the same content."""
    subprocess.run([sys.executable, ROOT / "scripts" / "make_sample", tmp_path], check=True)
    assert (tmp_path / "sample-tasks.toml").read_bytes() == (DATASETS / "sample-tasks.toml").read_bytes()
    made, kept = tmp_path / "sample-idle.parquet", DATASETS / "sample-idle.parquet"
    assert pq.read_table(made).equals(pq.read_table(kept), check_metadata=True)
    if pq.read_metadata(made).created_by == pq.read_metadata(kept).created_by:
        assert made.read_bytes() == kept.read_bytes()
