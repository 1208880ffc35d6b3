"""The embedded training traces behave as measured ones do."""

from __future__ import annotations

import csv
import itertools
import re
from collections import defaultdict
from dataclasses import replace
from statistics import fmean

import pytest

from bftrainer.zeus import (
    JITPowerLimitOptimizer,
    PruningGTSBatchSizeOptimizer,
    Simulator,
    TrainingTrace,
    read_groups,
)
from bftrainer.zeus.policies.trace import configurations, optimum, pareto_front
from bftrainer.zeus.simulation.inputs import SAMPLE_JOBS, zeus_sample

SAMPLE = zeus_sample()
README = SAMPLE.train.parent / "README.md"
TRACE = TrainingTrace(SAMPLE.train, SAMPLE.power)
JOBS = pytest.mark.parametrize("job", SAMPLE_JOBS, ids=lambda job: job.dataset)


def rows(path):
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def simulator(seed, concurrency=False):
    sizes = PruningGTSBatchSizeOptimizer(seed=seed, concurrency=concurrency, verbose=False)
    return Simulator(TRACE, None, sizes, JITPowerLimitOptimizer(verbose=False), seed, verbose=False)


@JOBS
def test_a_higher_limit_takes_more_power_and_less_time(job):
    """Time falls and power rises with the limit, but for noise, and the second half of the range changes less."""
    noise = 0.02
    for sized in TRACE.of(job).batch_sizes.values():
        points = sorted(sized.points, key=lambda point: point.limit_w)
        for low, high in itertools.pairwise(points):
            assert high.time_per_epoch_s < low.time_per_epoch_s * (1 + noise)
            assert high.average_power_w > low.average_power_w * (1 - noise)
        assert all(point.average_power_w < point.limit_w * 1.02 for point in points)
        first, middle, last = points[0].time_per_epoch_s, points[3].time_per_epoch_s, points[-1].time_per_epoch_s
        assert first - middle > middle - last - noise * middle
    largest = list(TRACE.of(job).batch_sizes.values())[-1]
    assert largest.point(250).time_per_epoch_s < 0.75 * largest.point(100).time_per_epoch_s
    assert largest.point(250).average_power_w > 1.9 * largest.point(100).average_power_w


@JOBS
def test_epochs_are_u_shaped(job):
    """In between there is a batch size that learns in fewest epochs; on both sides it takes more, and ever more."""
    means = [
        fmean(sized.target_epochs)
        for sized in TRACE.of(replace(job, target_metric=min(targets(job)))).batch_sizes.values()
    ]
    best = means.index(min(means))
    assert 0 < best < len(means) - 1
    assert all(later <= 1.1 * earlier for earlier, later in itertools.pairwise(means[: best + 1]))
    assert all(later >= 0.9 * earlier for earlier, later in itertools.pairwise(means[best:]))
    assert means[-1] > 1.5 * means[best] < means[0]


def targets(job):
    return TRACE.targets(job.dataset, job.network, job.optimizer)


@JOBS
def test_a_higher_target_takes_more_epochs(job):
    """Within a run, epochs never fall as the target rises, and a run that missed a target misses all higher ones."""
    assert len(targets(job)) == 6
    runs = defaultdict(list)
    for row in rows(SAMPLE.train):
        if row["dataset"] == job.dataset:
            epochs = float(row["target_epoch"] or "inf")
            runs[row["batch_size"], row["run"]].append((float(row["target_metric"]), epochs))
    for run in runs.values():
        assert [target for target, _ in run] == targets(job)
        assert [epochs for _, epochs in run] == sorted(epochs for _, epochs in run)


@JOBS
def test_runs_differ(job):
    """Each batch size has four or five runs, and some of them differ in their epochs."""
    sizes = TRACE.of(job).batch_sizes.values()
    assert {len(sized.target_epochs) for sized in sizes} == {4, 5}
    assert sum(len(set(sized.target_epochs)) > 1 for sized in sizes) >= 3


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
    best = optimum(configurations(TRACE.of(job), job, 0.5))
    runs = simulator(seed=1).job_runs(job, 100, 2.0, 0.5)
    late = [run.cost_j for run in runs if run.recurrence >= 90]
    assert sum(late) / 10 < 1.1 * best.cost_j


def test_some_batch_sizes_were_not_measured():
    """The tables don't cover the same batch sizes, as measured ones do not: runs without power are left out."""
    (speech,) = (job for job in SAMPLE_JOBS if job.dataset == "synth-speech")
    assert {row["batch_size"] for row in rows(SAMPLE.train) if row["dataset"] == speech.dataset} >= {"192", "256"}
    assert max(TRACE.of(speech).batch_sizes) == 192


def test_groups_recur_and_overlap():
    """Dozens of groups, a dozen jobs or more each; some hardly overlap and some mostly do; ratios are about 1."""
    groups = read_groups(SAMPLE.groups)
    assert len(groups) == 36
    assert {group.dataset for group in groups.values()} == {job.dataset for job in SAMPLE_JOBS}
    overlaps = []
    for group in groups.values():
        assert 12 <= len(group.jobs) <= 40
        assert fmean(job.runtime_ratio for job in group.jobs) == pytest.approx(1.0, abs=1e-3)
        assert all(job.end_s > job.start_s for job in group.jobs)
        pairs = list(itertools.pairwise(group.jobs))
        overlaps.append(sum(later.start_s < earlier.end_s for earlier, later in pairs) / len(pairs))
    assert min(overlaps) < 0.25
    assert max(overlaps) > 0.75


def test_groups_simulate():
    """Each group is tuned to its end with the published policies."""
    jobs = {job.dataset: job for job in SAMPLE_JOBS}
    for group in read_groups(SAMPLE.groups).values():
        history = simulator(1, concurrency=True).simulate_one_alibaba_group(jobs[group.dataset], group, 2.0, 0.5)
        assert sum(entry.reached for entry in history) == len(group.jobs)
