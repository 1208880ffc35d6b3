"""The master drives jobs as the published one did, save for the rows of one table."""

import os
import re
import subprocess

import pytest

from bftrainer.errors import BftrainerError, TuningError, TuningInputError
from bftrainer.zeus import PruningGTSBatchSizeOptimizer
from bftrainer.zeus.master import ZeusMaster
from tests.zeus.golden import load
from tests.zeus.master.driven import DATA, fake_job, master, only, read_history, told

CASES = {case["name"]: case for case in load(DATA / "master.json.xz")["cases"]}
# Those that launch the script more often are slow, but for the plainest.
MOST = 8
EXCEPTIONS = {kind.__name__: kind for kind in (RuntimeError, ValueError, NotImplementedError, AssertionError, KeyError)}
OURS = {"history.json", "journal.jsonl", "lock"}
# What ours raises otherwise.
DEVIATIONS = {
    "exit3": TuningError,  # a script that exits non-zero has failed, whatever it reported before
    "nogpu": None,  # without a GPU there is one device, so that time has its price
    "nokey": TuningError,  # a report without a key is named with file and key; it was a KeyError
    # What cannot work is refused before a directory is made; the first was an AssertionError.
    **dict.fromkeys(("nolr", "badopt", "missingdefault"), TuningInputError),
}


def drive(case, folder):
    """Drive the job of a case; give its history or exception."""
    inputs = case["inputs"]
    names = ("observer_mode", "profile_warmup_iters", "profile_measure_iters")
    options = {name: inputs[name] for name in names if name in inputs}
    # 0 GPUs is what made the case a defect.
    driver = master(folder / "logs", seed=inputs["seed"], gpus=inputs["num_gpus"] or 1, **options)
    (folder / "work").mkdir()
    changes = {name: inputs[name] for name in ("default_bs", "default_lr", "optimizer")}
    job = fake_job(folder / "work", inputs["mode"], **changes)
    if case["name"] == "nocmd":
        job = type(job)(**job.to_dict() | {"command": None})
    try:
        knobs = float(inputs["beta_knob"]), inputs["eta_knob"]
        return driver.run(job, inputs["num_recurrence"], inputs["batch_sizes"], *knobs), None
    except BftrainerError as error:
        return None, error


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[pytest.mark.slow] if len(case["runs"]) > MOST and name != "plain" else [])
        for name, case in CASES.items()
        if "inputs" in case and name not in DEVIATIONS
    ],
)
def test_driven_as_published(case, tmp_path):
    """Histories, exceptions, thresholds, arguments, environment, names of directory and files: all as published."""
    history, error = drive(case, tmp_path)
    if "error" in case:
        assert isinstance(error, EXCEPTIONS[case["error"]["type"]])
    else:
        assert [[each.bs, each.pl, each.energy, each.reached, each.time] for each in history] == case["history"]
    made = list((tmp_path / "logs").glob("*"))
    assert [re.fullmatch(r"(.*)\+\d{14}", path.name)[1] for path in made] == case["directory"]
    if made:
        logdir = made[0]
        assert {path.name for path in logdir.iterdir()} - OURS == set(case["log_files"]) - {"history.py"}
        assert (logdir / "history.json").exists() == ("history.py" in case["log_files"])
        runs = {name: told(logdir / f"{name}.train.log") for name, _ in case["runs"]}
        assert [[name, environment["ZEUS_COST_THRESH"]] for name, (environment, _, _) in runs.items()] == case["runs"]
        assert all(workdir == str(tmp_path / "work") for _, _, workdir in runs.values())
        if runs:
            first, last = next(iter(runs.values())), list(runs.values())[-1]
            assert first[0] == case["first_environment"] | {"ZEUS_LOG_DIR": str(logdir)}
            assert (first[1], last[1]) == (case["first_arguments"], case["last_arguments"])


@pytest.mark.parametrize("name", sorted(set(DEVIATIONS) - {"nogpu"}))
def test_driven_otherwise(name, tmp_path):
    """What the table says, and the directory is made only if something was launched."""
    history, error = drive(CASES[name], tmp_path)
    assert history is None
    assert isinstance(error, DEVIATIONS[name])
    assert (tmp_path / "logs").exists() == (name in ("exit3", "nokey"))


@pytest.mark.slow
def test_time_has_its_price_without_a_gpu(tmp_path):
    """Where the published master found no GPU, ours counts one device: the runs are those of one GPU."""
    history, error = drive(CASES["nogpu"], tmp_path)
    rows = [[each.bs, each.pl, each.energy, each.reached, each.time] for each in history]
    assert error is None
    assert rows == CASES["plain"]["history"][: len(rows)]
    assert sum(each.reached for each in history) == CASES["nogpu"]["inputs"]["num_recurrence"]


@pytest.mark.parametrize(("name", "place"), [("rel monitor", "monitor_path"), ("rel log", "log_base")])
def test_relative_paths_are_refused(name, place, tmp_path, monkeypatch):
    """Both paths have to be absolute, as published; nothing is made."""
    monkeypatch.chdir(tmp_path)
    paths = {"log_base": str(tmp_path / "logs"), "monitor_path": "/opt/zeus_monitor"} | {place: "relative"}
    with pytest.raises(EXCEPTIONS[CASES[name]["error"]["type"]], match=f"Expected {place} as an absolute path"):
        ZeusMaster(PruningGTSBatchSizeOptimizer(verbose=False), **paths, max_power_w=250)
    assert list(tmp_path.iterdir()) == []


def test_the_environment_is_told_to_the_child_alone(tmp_path):
    """Variables reach the script, and neither this process nor its later children; the history is read back."""
    before = dict(os.environ)
    history, _ = drive(CASES["strnum"], tmp_path)
    assert read_history(only(tmp_path / "logs") / "history.json") == history
    environment, _, _ = told(only(tmp_path / "logs") / "rec02+try01.train.log")
    assert environment["ZEUS_JOB_ID"] == "rec02+try01"
    assert dict(os.environ) == before
    assert "ZEUS_" not in subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
