"""Simulations by the dozen, files of them, and which traces, jobs and groups a user means."""

import hashlib
import json
import math
import re
import textwrap
from dataclasses import asdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bftrainer import zeus
from bftrainer.errors import BftrainerError, OutputError, SettingsError, TuningInputError
from bftrainer.zeus.simulation import campaign
from tests.recurring import JOBS, PAGES, WORDS, write_world


@pytest.fixture
def trace(tmp_path, monkeypatch):
    """The trace of the small world, in whose folder the test runs."""
    monkeypatch.chdir(tmp_path)
    return write_world(tmp_path)


def test_one_simulation_is_what_the_simulator_does(trace):
    """The published policies with one seed for all give what the simulator gives when they are passed to it."""
    for group in (None, zeus.read_groups("groups.csv")["c"]):
        policies = zeus.PruningGTSBatchSizeOptimizer(seed=9), zeus.JITPowerLimitOptimizer()
        simulator = zeus.Simulator(trace, None, *policies, seed=9, verbose=False)
        given_count = 40 if group is None else None
        result = campaign.simulate(
            trace, campaign.Simulation(WORDS, given_count, group, eta_knob=0.3, beta_knob=2.5, seed=9)
        )
        if group is None:
            assert result.history == simulator.simulate_one_job(WORDS, 40, 2.5, 0.3)
        else:
            assert result.history == simulator.simulate_one_alibaba_group(WORDS, group, 2.5, 0.3)
        assert (result.failure, result.is_partial) == (None, False)


@pytest.mark.long
def test_workers_change_nothing(trace):
    """One process or three: the same results in the same order, all of them counted."""
    singles = [campaign.Simulation(WORDS, 30, policy=policy) for policy in ("zeus", "grid")]
    groups = [campaign.Simulation(PAGES, None, group, seed=3) for group in zeus.read_groups("groups.csv").values()][:2]
    simulations = [each for simulation in (*singles, *groups) for each in campaign.with_seeds(simulation, 3)]
    counted = []
    alone = campaign.simulate_all(trace, simulations, workers=1)
    shared = campaign.simulate_all(trace, simulations, workers=3, progress=counted.append)
    facts = [(result.simulation, result.runs, result.failure) for result in alone]
    for results in (shared, counted):
        assert [(result.simulation, result.runs, result.failure) for result in results] == facts
    assert [(simulation, failure) for simulation, _, failure in facts] == [(each, None) for each in simulations]


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_the_first_bad_input_is_raised(trace, workers):
    """A job that cannot start ends the campaign with its own error, in this process and in others."""
    good = campaign.Simulation(PAGES, 5)
    bad = [campaign.Simulation(zeus.Job("pages", "net", "sgd", target, 20, 8), 5) for target in (0.51, 0.52)]
    with pytest.raises(TuningInputError, match=r"target metric 0\.51\. Closest: 0\.5, 0\.6\."):
        campaign.simulate_all(trace, [good, *bad, good], workers=workers)


@pytest.mark.long
def test_policies_that_break_are_told(trace, tmp_path, monkeypatch):
    """What a user's policy raises ends its simulation in a line, with its runs; a process that dies is our error."""
    broken = "self.count += 1\n    return 8 // (self.count < 2)"
    for body, said in ((broken, None), ("import os\n    os._exit(3)", "worker process")):
        method = textwrap.indent(f"count = 0\ndef predict(self, job):\n    {body}\n", "    ")
        (tmp_path / "mine.py").write_text(
            "from bftrainer.zeus.policies.policy_registry import DefaultBatchSize\n"
            f"class Mine(DefaultBatchSize):\n{method}\ndef make(context):\n    return Mine()\n"
        )
        monkeypatch.delitem(__import__("sys").modules, "mine", raising=False)
        # The other process finds the policy too, and so shows that it is looked up by name there.
        simulations = campaign.with_seeds(campaign.Simulation(PAGES, 5, policy="mine:make"), 2)
        if said:
            with pytest.raises(BftrainerError, match=said):
                campaign.simulate_all(trace, simulations, workers=2)
        else:
            one, other = campaign.simulate_all(trace, simulations, workers=2)
            assert "ZeroDivisionError" in one.failure
            assert "mine:make" in one.failure
            assert len(one.runs) == len(other.runs) == 1


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"recurrences": None}, "either recurrences or a group"),
        ({"recurrences": -1}, "recurrences >= 0, got -1"),
        ({"seed": -1}, "seed >= 0, got -1"),
        ({"eta_knob": math.nan}, "eta from 0"),
        ({"beta_knob": 0.0}, "beta above 0"),
    ],
)
def test_simulations_are_checked_when_made(values, said):
    """What makes no sense is refused before anything is simulated."""
    with pytest.raises((SettingsError, TuningInputError), match=said):
        campaign.Simulation(PAGES, **values)
    with pytest.raises(SettingsError, match="at least one worker"):
        campaign.simulate_all(None, [], workers=0)


def test_seeds_of_groups_are_their_own():
    """A group's seed depends on its name and the campaign's seed alone; no two of a hundred are equal."""
    seeds = {campaign.group_seed(seed, f"g{number}") for seed in (1, 2) for number in range(50)}
    assert len(seeds) == 100
    assert campaign.group_seed(1, "g7") in seeds


# --- files -------------------------------------------------------------------------------------------------------


def test_histories_are_data(tmp_path):
    """A history is JSON to the last bit, with or without power limits."""
    history = [zeus.HistoryEntry(8, None, 0.1 + 0.2, True, 1e300), zeus.HistoryEntry(2**40, 250, 0.0, False, 1e-9)]
    for entries in (history, []):
        campaign.write_history(tmp_path / "history.json", entries)
        document = json.loads((tmp_path / "history.json").read_text())
        assert document == {"schema": 1, "history": [asdict(entry) for entry in entries]}


def test_what_stands_in_a_file(trace, tmp_path):
    """The JSON file has a line for each run, to the last bit; the table has the same columns; equal bytes again."""
    corrected = campaign.Simulation(
        PAGES, None, zeus.read_groups("groups.csv")["a"], corrections=zeus.Corrections(True)
    )
    failing = campaign.Simulation(
        zeus.Job("pages", "net", "sgd", 0.5, 20, 32), 5, policy="default", power_policy="max-power"
    )
    results = campaign.simulate_all(
        trace, [campaign.Simulation(WORDS, 12, beta_knob=math.inf, seed=1), corrected, failing]
    )
    for name in ("out.json", "out.parquet"):
        contents = []
        for _ in range(2):
            campaign.write_results(tmp_path / name, results, {"inputs": {"train": None}})
            contents.append((tmp_path / name).read_bytes())
        assert contents[0] == contents[1]
    document = json.loads((tmp_path / "out.json").read_text())
    assert (document["schema"], document["partial"], document["inputs"]) == (1, True, {"train": None})
    single, group, failed = document["simulations"]
    assert (single["beta_knob"], group["beta_knob"], failed["seed"]) == (None, 2.0, 123456)
    assert "did not converge" in failed["failure"]
    used = [(entry.energy, entry.time) for entry in results[1].history]
    assert [(row["energy_j"], row["time_s"]) for row in group["runs"]] == used
    table = pq.read_table(tmp_path / "out.parquet")
    rows = [{"simulation": n, **row} for n, each in enumerate(document["simulations"]) for row in each["runs"]]
    assert table.to_pylist() == rows
    assert (table.schema.field("power_limit_w").type, table.schema.field("reached").type) == (pa.int64(), pa.bool_())
    with pytest.raises(OutputError, match=r"a name that ends in \.json or \.parquet"):
        campaign.write_results(tmp_path / "runs.csv", [])
    assert not (tmp_path / "runs.csv").exists()


# --- which traces and jobs a user means -------------------------------------------------------------------------------

NAMES = ("pages,net,sgd",)


@pytest.fixture
def inputs(tmp_path):
    """The small world's traces."""
    write_world(tmp_path)
    return campaign.load_traces(tmp_path / "train.csv", tmp_path / "power.csv")


def test_inputs_say_where_they_came_from(inputs, tmp_path):
    """Results can be traced to the bytes that they were made from, and to the versions that made them."""
    about = inputs.about(groups=None)
    digest = hashlib.sha256((tmp_path / "power.csv").read_bytes()).hexdigest()
    assert about["inputs"]["power"] == {"path": str(tmp_path / "power.csv"), "sha256": digest}
    assert list(about["inputs"]) == ["train", "power", "groups"]
    assert {"python", "numpy", "bftrainer"} <= set(about["versions"])


def test_the_embedded_jobs():
    """One job a dataset, all of the traces'; without files all are meant, or the first; names pick others."""
    files = campaign.zeus_sample()
    trace = zeus.TrainingTrace(files.train, files.power)
    assert sorted((job.dataset, job.network, job.optimizer) for job in campaign.SAMPLE_JOBS) == trace.jobs
    assert len({job.dataset for job in campaign.SAMPLE_JOBS}) == len(campaign.SAMPLE_JOBS)
    assert all(job.default_bs in trace.of(job).batch_sizes for job in campaign.SAMPLE_JOBS)
    assert {group.dataset for group in zeus.read_groups(files.groups).values()} == {
        job.dataset for job in campaign.SAMPLE_JOBS
    }
    sample = campaign.load_traces()
    assert campaign.choose_jobs(sample, campaign.JobChoice()) == list(campaign.SAMPLE_JOBS)
    assert campaign.choose_jobs(sample, campaign.JobChoice(), one=True) == [campaign.SAMPLE_JOBS[0]]
    third = campaign.SAMPLE_JOBS[2]
    name = f"{third.dataset},{third.network},{third.optimizer}"
    assert campaign.choose_jobs(sample, campaign.JobChoice(names=(name,)), one=True) == [third]
    changed = campaign.choose_jobs(sample, campaign.JobChoice(changes={"target_metric": 0.5}), one=True)
    assert changed == [zeus.Job(**campaign.SAMPLE_JOBS[0].to_dict() | {"target_metric": 0.5})]


def test_jobs_of_files_and_names(inputs, tmp_path):
    """All of a file's jobs are meant; options go before its values; named jobs take them, and 100 epochs."""
    file = tmp_path / "jobs.toml"
    assert (
        campaign.read_jobs(file) == campaign.choose_jobs(inputs, campaign.JobChoice(file), one=True) == [PAGES, WORDS]
    )
    found = campaign.choose_jobs(inputs, campaign.JobChoice(file, changes={"max_epochs": 7, "default_bs": 16}))
    assert [(job.max_epochs, job.default_bs) for job in found] == [(7, 16), (7, 16)]
    choice = campaign.JobChoice(names=NAMES, changes={"target_metric": 0.6, "default_bs": 16})
    assert campaign.choose_jobs(inputs, choice) == [zeus.Job("pages", "net", "sgd", 0.6, 100, 16)]
    # Where a file has a job for two targets, its name alone does not say which.
    table = file.read_text().split("[[job]]")[1]
    file.write_text(f"schema = 1\n[[job]]{table}[[job]]{table.replace('0.5', '0.6')}")
    with pytest.raises(TuningInputError, match=r"--target of --job pages,net,sgd\. Known: 0\.5, 0"):
        campaign.choose_jobs(inputs, campaign.JobChoice(file, names=NAMES))


TABLES = JOBS[JOBS.index("[[job]]") :]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("schema = 1", "schema = = 1"), "Expected TOML, got something else"),
        (("schema = 1", "schema = 7"), "Expected schema = 1, got 7"),
        (("default_bs", "default_batch"), "Unknown key 'default_batch'. Did you mean 'default_bs'?"),
        (("max_epochs = 20\n", ""), "job 1: Missing key 'max_epochs'."),
        (("= 20", "= 20.5"), "max_epochs: Input should be a valid integer, got 20.5."),
        (("default_bs = 8", "default_bs = -8"), "Expected default_bs above 0, got -8."),
        ((TABLES, ""), "Expected at least one [[job]], found none."),
        (("schema = 1", "schema = 1\n" + TABLES), "job 3: Expected each job once, found"),
    ],
)
def test_jobs_that_are_refused(tmp_path, change, said):
    """A fault is told in one line with file, job and key, and the closest key that there is."""
    (tmp_path / "bad.toml").write_text(JOBS.replace(*change, 1))
    with pytest.raises(TuningInputError, match=re.escape(said)) as caught:
        campaign.read_jobs(tmp_path / "bad.toml")
    assert str(caught.value).startswith(f"{tmp_path / 'bad.toml'}")
    assert "\n" not in str(caught.value)
    for name, said in (("absent.toml", "No such file"), ("", "a directory")):
        with pytest.raises(TuningInputError, match=said):
            campaign.read_jobs(tmp_path / name)
