"""Bad input to `bftrainer zeus` ends in one line that names the closest valid values; status 2; nothing written."""

from __future__ import annotations

import os

import pytest

from tests.cli.conftest import check_refusal
from tests.recurring import GROUPS, JOB, POWER
from tests.tiny import contents


@pytest.fixture
def refused(zeus, here):
    """Run a command that must be refused; give what it said."""

    def run(*words, **options):
        before = contents(here)
        done = zeus(*words, **options)
        check_refusal(done)
        assert contents(here) == before, "something was written"
        return done.err.removeprefix("Error: ").strip()

    return run


# --- jobs --------------------------------------------------------------------------------------------------------

JOBS = {
    "unknown job": (
        ("--job", "page,net,sgd", "--target", 0.5),
        "Expected a job of the traces, got 'page,net,sgd'. Did you mean 'pages,net,sgd'?",
    ),
    "no job": (
        (),
        "Missing --job or --jobs. Known: pages,net,sgd; words,net,adam.",
    ),
    "no target": (
        ("--job", "pages,net,sgd"),
        "Missing --target of --job pages,net,sgd. Known: 0.5, 0.6.",
    ),
    "unknown target": (
        ("--job", "pages,net,sgd", "--target", 0.55, "--default-bs", 8),
        "Job(pages,net,sgd,0.55,bs8~100): No run of the trace aims at the target metric 0.55. Closest: 0.5, 0.6.",
    ),
    "no default": (
        JOB[:-2],
        "Job(pages,net,sgd,0.5~20): Expected a default batch size, got none. Closest: 8, 16, 32.",
    ),
}


@pytest.mark.parametrize(("words", "said"), JOBS.values(), ids=JOBS.keys())
def test_jobs(refused, words, said):
    """A job, target or batch size that is not in the traces is refused with those that are."""
    assert refused("simulate", *words) == said


KNOBS = {
    "eta above 1": (("--eta", 1.01), "Expected eta from 0 (time) to 1 (energy), got 1.01."),
    "beta 0": (("--beta", 0), "Expected beta above 0 (inf: never stop early), got 0.0."),
    "eta text": (("--eta", "half"), "Invalid value for '--eta': 'half' is not a valid float."),
}


@pytest.mark.parametrize(("words", "said"), KNOBS.values(), ids=KNOBS.keys())
@pytest.mark.parametrize("command", [("simulate", *JOB), ("compare", *JOB), ("groups", *JOB, "--dataset", "pages")])
def test_knobs(refused, command, words, said):
    """Knobs out of their range are refused with the range."""
    groups = ("--groups", "groups.csv") if command[0] == "groups" else ()
    assert refused(*command, *groups, *words) == said


def test_eta_of_traces(refused):
    """The optimum too has an eta that makes sense."""
    assert refused("traces", "--eta", "nan") == "Expected eta from 0 (time) to 1 (energy), got nan."


POLICIES = {
    "unknown": (
        ("simulate", "--policy", "zeuss"),
        "Expected a known batch-size policy or module:callable, got 'zeuss'. Did you mean 'zeus'?",
    ),
    "unknown power policy": (
        ("simulate", "--power-policy", "max"),
        "Expected a known power-limit policy or module:callable, got 'max'.",
    ),
    "no module": (("simulate", "--policy", "absent:make"), "No module named 'absent'"),
    "unknown pair": (("compare", "--policy", "zeus+jitt"), "got 'jitt'. Did you mean 'jit'?"),
    "half a pair": (("compare", "--policy", "zeus+"), "Expected policies as BATCH_SIZE or BATCH_SIZE+POWER_LIMIT"),
    "nothing": (("compare", "--policy", ""), "Expected policies as BATCH_SIZE or BATCH_SIZE+POWER_LIMIT"),
    "no recurrence": (
        ("simulate", "--recurrences", 0),
        "Invalid value for '--recurrences': 0 is not in the range 1<=x<=1000000.",
    ),
    "no worker": (("simulate", "--workers", 0), "Invalid value for '--workers': 0 is not in the range 1<=x<=1000."),
    "negative seed": (("simulate", "--seed", -1), "Invalid value for '--seed': -1 is not in the range x>=0."),
}


@pytest.mark.parametrize(("words", "said"), POLICIES.values(), ids=POLICIES.keys())
def test_policies_and_counts(refused, words, said):
    """An unknown policy is refused with the closest known one, a count out of range with the range."""
    assert said in refused(*words, *JOB)


# --- traces ------------------------------------------------------------------------------------------------------


# What else is refused in a table stands in tests/zeus/test_trace.py.
TABLES = {
    "no column": (
        ("power.csv", POWER.replace("average_power", "power")),
        "power.csv:1: Expected columns dataset, network, batch_size, optimizer, power_limit, time_per_epoch, "
        "average_power, each once, got dataset, network, batch_size, optimizer, power_limit, time_per_epoch, power.",
    ),
}


@pytest.mark.parametrize(("table", "said"), TABLES.values(), ids=TABLES.keys())
def test_tables(refused, here, table, said):
    """A fault in a table is told with file, line and column."""
    name, text = table

    def spoil(*words):
        (here / name).write_text(text)
        return words

    # The fixture has written the good tables by now.
    assert refused("simulate", *spoil(*JOB)) == said


def test_files_that_cannot_be_read(refused, here):
    """Absent files, directories and noise are refused by their names, whichever table they stand for."""
    (here / "noise.csv").write_bytes(b"\xff\xfe\x00\x01")
    (here / "folder").mkdir()
    for option in ("--train", "--power", "--groups"):
        command = ("groups", "--jobs", "jobs.toml", "--groups", "groups.csv")
        assert refused(*command, option, "absent.csv") == "absent.csv: No such file."
        assert refused(*command, option, "folder") == "folder: Expected a file, got a directory."
        said = refused(*command, option, "noise.csv")
        assert said.startswith("noise.csv:1: Expected text in UTF-8, got '")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_files_without_permission(refused, here):
    """So is a file that one may not read."""
    (here / "train.csv").chmod(0)
    assert refused("traces") == "train.csv: Permission denied."


def test_one_table_without_the_other(call):
    """Traces come in pairs."""
    done = call("zeus", "traces", "--train", "train.csv")
    assert (done.status, done.err) == (
        2,
        "Error: Expected --train and --power together, got --train without --power.\n",
    )


# --- groups ------------------------------------------------------------------------------------------------------


def test_group_tables(zeus, here):
    """A fault in a trace of groups is told with file, line and column; tests/zeus/test_trace.py has more of them."""
    (here / "bad.csv").write_text(GROUPS.replace("a,200", "a,late"))
    done = zeus("groups", "--jobs", "jobs.toml", "--groups", "bad.csv")
    check_refusal(done)
    assert done.err.startswith("Error: bad.csv:3, column start_time: Expected a finite number, got 'late'.")


GROUP_CHOICES = {
    "unknown group": (
        ("--jobs", "jobs.toml", "--group", "d"),
        "Expected a group of the trace, got 'd'. Known: a, b, c.",
    ),
    "unknown dataset": (
        ("--jobs", "jobs.toml", "--dataset", "page"),
        "Expected a dataset of the trace, got 'page'. Did you mean 'pages'?",
    ),
    "no job for a dataset": (
        JOB,
        "Group c: No job for the dataset 'words'. Known: pages.",
    ),
    "none is left": (
        ("--jobs", "jobs.toml", "--group", "a", "--dataset", "words"),
        "No group matches both the names and the datasets.",
    ),
}


@pytest.mark.parametrize(("words", "said"), GROUP_CHOICES.values(), ids=GROUP_CHOICES.keys())
def test_group_choices(refused, words, said):
    """Groups and datasets that are not there, and datasets that no job stands for, are refused with those that are."""
    assert refused("groups", "--groups", "groups.csv", *words) == said


# --- places ------------------------------------------------------------------------------------------------------


def test_places(refused, here):
    """A name that says no form, a place that is not there and an existing file are refused."""
    (here / "old.json").write_text("precious")
    for name, said in (
        ("out.py", "out.py: Expected a name that ends in .json or .parquet, got .py."),
        ("nowhere/out.json", "nowhere/out.json: No such directory: nowhere."),
        ("old.json", "old.json: File exists; choose another name or give --force."),
    ):
        for command in (
            ("simulate", *JOB),
            ("compare", *JOB),
            ("groups", "--groups", "groups.csv", "--jobs", "jobs.toml"),
        ):
            assert refused(*command, "--output", name) == said
    assert refused("simulate", "--jobs", "absent.toml", "--output", "old.json").startswith("old.json: ")
