"""Which traces, jobs and groups a user means, from Python; jobs from TOML; the embedded traces."""

from __future__ import annotations

import hashlib
import re

import pytest

from bftrainer.errors import TuningInputError
from bftrainer.zeus import Job, TrainingTrace, read_groups
from bftrainer.zeus.simulation.inputs import (
    SAMPLE_JOBS,
    JobChoice,
    choose_jobs,
    load_traces,
    read_jobs,
    zeus_sample,
)
from bftrainer.zeus.simulation.optimum import describe_job, describe_target
from tests.recurring import JOBS, PAGES, WORDS, write_world

NAMES = ("pages,net,sgd",)


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


def test_the_embedded_jobs():
    """One job a dataset, all of the traces'; without files all are meant, or the first; names pick others."""
    files = zeus_sample()
    trace = TrainingTrace(files.train, files.power)
    assert sorted((job.dataset, job.network, job.optimizer) for job in SAMPLE_JOBS) == trace.jobs
    assert len({job.dataset for job in SAMPLE_JOBS}) == len(SAMPLE_JOBS)
    assert all(job.default_bs in trace.of(job).batch_sizes for job in SAMPLE_JOBS)
    assert {group.dataset for group in read_groups(files.groups).values()} == {job.dataset for job in SAMPLE_JOBS}
    sample = load_traces()
    assert choose_jobs(sample, JobChoice()) == list(SAMPLE_JOBS)
    assert choose_jobs(sample, JobChoice(), one=True) == [SAMPLE_JOBS[0]]
    third = SAMPLE_JOBS[2]
    name = f"{third.dataset},{third.network},{third.optimizer}"
    assert choose_jobs(sample, JobChoice(names=(name,)), one=True) == [third]
    changed = choose_jobs(sample, JobChoice(changes={"target_metric": 0.5}), one=True)
    assert changed == [Job(**SAMPLE_JOBS[0].to_dict() | {"target_metric": 0.5})]


def test_jobs_of_files_and_names(inputs, tmp_path):
    """All of a file's jobs are meant; options go before its values; named jobs take them, and 100 epochs."""
    file = tmp_path / "jobs.toml"
    assert read_jobs(file) == choose_jobs(inputs, JobChoice(file), one=True) == [PAGES, WORDS]
    found = choose_jobs(inputs, JobChoice(file, changes={"max_epochs": 7, "default_bs": 16}))
    assert [(job.max_epochs, job.default_bs) for job in found] == [(7, 16), (7, 16)]
    choice = JobChoice(names=NAMES, changes={"target_metric": 0.6, "default_bs": 16})
    assert choose_jobs(inputs, choice) == [Job("pages", "net", "sgd", 0.6, 100, 16)]
    # Where a file has a job for two targets, its name alone does not say which.
    table = file.read_text().split("[[job]]")[1]
    file.write_text(f"schema = 1\n[[job]]{table}[[job]]{table.replace('0.5', '0.6')}")
    with pytest.raises(TuningInputError, match=r"--target of --job pages,net,sgd\. Known: 0\.5, 0"):
        choose_jobs(inputs, JobChoice(file, names=NAMES))


def test_optimum_and_front(inputs):
    """By hand: words reach their target in 4 epochs of 16, or in (2 + 10) / 2 of 64, half of whose runs fail: 12."""
    target = describe_target(inputs.trace, WORDS, 0.5)
    best = target["optimum"]
    assert (best["batch_size"], best["power_limit_w"], best["time_s"], best["energy_j"]) == (16, 200, 64.0, 7680.0)
    assert target["reaching"] == [16, 64]
    assert [(each["batch_size"], each["power_limit_w"]) for each in target["front"]] == [(16, 200), (16, 100)]
    job = describe_job(inputs.trace, ("words", "net", "adam"))
    assert (job["batch_sizes"], job["power_limits_w"], job["target_metrics"]) == ([16, 64], [100, 200], [0.9])


TABLES = JOBS[JOBS.index("[[job]]") :]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("schema = 1", "schema = = 1"), "Expected TOML, got something else"),
        (("schema = 1", "schema = 7"), "Expected schema = 1, got 7"),
        (("default_bs", "default_batch"), "Unknown key 'default_batch'. Did you mean 'default_bs'?"),
        (("max_epochs = 20\n", ""), "job 1: Missing key 'max_epochs'."),
        (("0.5", '"half"'), "Expected target_metric to be a number, got 'half'."),
        (("= 20", "= 20.5"), "Expected max_epochs to be a whole number, got 20.5."),
        (('"pages"', '""'), "job 1: Expected dataset to be text that is not empty, got ''."),
        (("default_bs = 8", "default_bs = -8"), "Expected default_bs above 0, got -8."),
        ((TABLES, ""), "Expected at least one [[job]], found none."),
        (("schema = 1", "schema = 1\n" + TABLES), "job 3: Expected each job once, found"),
    ],
)
def test_jobs_that_are_refused(tmp_path, change, said):
    """A fault is told in one line with file, job and key, and the closest key that there is."""
    (tmp_path / "bad.toml").write_text(JOBS.replace(*change, 1))
    with pytest.raises(TuningInputError, match=re.escape(said)) as caught:
        read_jobs(tmp_path / "bad.toml")
    assert str(caught.value).startswith(f"{tmp_path / 'bad.toml'}")
    assert "\n" not in str(caught.value)
    for name, said in (("absent.toml", "No such file"), ("", "a directory")):
        with pytest.raises(TuningInputError, match=said):
            read_jobs(tmp_path / name)
