"""Which traces, jobs and groups a user means, from Python."""

from __future__ import annotations

import hashlib

import pytest

from bftrainer.errors import TuningInputError
from bftrainer.zeus import Job
from bftrainer.zeus.simulation.inputs import (
    SAMPLE_JOBS,
    JobChoice,
    choose_groups,
    choose_jobs,
    described_jobs,
    load_groups,
    load_traces,
)
from bftrainer.zeus.simulation.optimum import describe_job, describe_target
from tests.recurring import PAGES, WORDS, write_world


@pytest.fixture
def inputs(tmp_path):
    """The small world's traces."""
    write_world(tmp_path)
    return load_traces(tmp_path / "train.csv", tmp_path / "power.csv")


def test_inputs_say_where_they_came_from(inputs, tmp_path):
    """Results can be traced to the bytes that they were made from, and to the versions that made them."""
    about = inputs.about(groups=None)
    digest = hashlib.sha256((tmp_path / "power.csv").read_bytes()).hexdigest()
    assert about["inputs"]["power"] == {"path": str(tmp_path / "power.csv"), "sha256": digest}
    assert list(about["inputs"]) == ["train", "power", "groups"]
    assert {"python", "numpy", "bftrainer"} <= set(about["versions"])


def test_the_embedded_jobs_are_known():
    """Without files, all embedded jobs are meant, or the first where one is asked for; names pick others."""
    sample = load_traces()
    assert choose_jobs(sample, JobChoice()) == list(SAMPLE_JOBS)
    assert choose_jobs(sample, JobChoice(), one=True) == [SAMPLE_JOBS[0]]
    third = SAMPLE_JOBS[2]
    name = f"{third.dataset},{third.network},{third.optimizer}"
    assert choose_jobs(sample, JobChoice(names=(name,)), one=True) == [third]
    changed = choose_jobs(sample, JobChoice(changes={"target_metric": 0.5}), one=True)
    assert changed == [Job(**SAMPLE_JOBS[0].to_dict() | {"target_metric": 0.5})]


def test_a_file_of_jobs(inputs, tmp_path):
    """All of a file's jobs are meant, also where one would do; other values go before its own."""
    file = tmp_path / "jobs.toml"
    assert choose_jobs(inputs, JobChoice(file), one=True) == [PAGES, WORDS]
    found = choose_jobs(inputs, JobChoice(file, changes={"max_epochs": 7, "default_bs": 16}))
    assert [(job.max_epochs, job.default_bs) for job in found] == [(7, 16), (7, 16)]


def test_names_without_a_file(inputs):
    """Named jobs take the options, and 100 epochs unless told."""
    choice = JobChoice(names=("pages,net,sgd",), changes={"target_metric": 0.6, "default_bs": 16})
    assert choose_jobs(inputs, choice) == [Job("pages", "net", "sgd", 0.6, 100, 16)]


def test_a_name_that_means_several_jobs(inputs, tmp_path):
    """Where a file has a job for two targets, its name alone does not say which."""
    file = tmp_path / "two.toml"
    table = (tmp_path / "jobs.toml").read_text().split("[[job]]")[1]
    file.write_text(f"schema = 1\n[[job]]{table}[[job]]{table.replace('0.5', '0.6')}")
    with pytest.raises(TuningInputError, match=r"--target of --job pages,net,sgd\. Known: 0\.5, 0"):
        choose_jobs(inputs, JobChoice(file, names=("pages,net,sgd",)))


def test_groups_and_their_jobs(tmp_path):
    """Each group is simulated by the job of its dataset, in the order of the file."""
    write_world(tmp_path)
    groups, source = load_groups(tmp_path / "groups.csv")
    assert source["path"] == str(tmp_path / "groups.csv")
    chosen = choose_groups(groups, [WORDS, PAGES])
    assert [(group.name, job) for group, job in chosen] == [("a", PAGES), ("b", PAGES), ("c", WORDS)]
    assert [group.name for group, _ in choose_groups(groups, [PAGES], names=("b",))] == ["b"]
    assert [group.name for group, _ in choose_groups(groups, [WORDS], datasets=("words",))] == ["c"]


def test_what_is_described(inputs):
    """Jobs without a target are described for every target that there is; with one, for that alone."""
    jobs, with_front = described_jobs(inputs, JobChoice(changes={"max_epochs": 9}))
    assert [(job.dataset, job.target_metric, job.max_epochs) for job in jobs] == [
        ("pages", 0.5, 9),
        ("pages", 0.6, 9),
        ("words", 0.9, 9),
    ]
    assert not with_front
    assert described_jobs(inputs, JobChoice(names=("pages,net,sgd",), changes={"target_metric": 0.6})) == (
        [Job("pages", "net", "sgd", 0.6, 100)],
        True,
    )
    assert described_jobs(load_traces(), JobChoice()) == (list(SAMPLE_JOBS), True)


def test_optimum_and_front(inputs):
    """By hand: words reach their target in 4 epochs of 16, or in (2 + 10) / 2 of 64, half of whose runs fail: 12."""
    target = describe_target(inputs.trace, WORDS, 0.5)
    best = target["optimum"]
    assert (best["batch_size"], best["power_limit_w"], best["time_s"], best["energy_j"]) == (16, 200, 64.0, 7680.0)
    assert target["reaching"] == [16, 64]
    assert [(each["batch_size"], each["power_limit_w"]) for each in target["front"]] == [(16, 200), (16, 100)]
    job = describe_job(inputs.trace, ("words", "net", "adam"))
    assert (job["batch_sizes"], job["power_limits_w"], job["target_metrics"]) == ([16, 64], [100, 200], [0.9])
