"""Sizes that no ordinary work has are refused, unless the environment allows them."""

from __future__ import annotations

import click
import pytest

from bftrainer.cli._shared.group import cli
from bftrainer.cli._shared.usage import LARGE_DAYS, LARGE_PROCESSES, LARGE_RUNS, LARGE_SIZE, LARGE_TOTAL
from tests.cli.conftest import check_refusal
from tests.tiny import contents

MANY = 10**9
TRACES = "--train train.csv --power power.csv --jobs jobs.toml"
SIZES = {
    f"zeus simulate {TRACES} --recurrences": LARGE_SIZE,
    f"zeus simulate {TRACES} --seeds": LARGE_SIZE,
    f"zeus simulate {TRACES} --workers": LARGE_PROCESSES,
    f"zeus simulate {TRACES} --max-epochs": LARGE_SIZE,
    f"zeus compare {TRACES} --recurrences": LARGE_SIZE,
    f"zeus compare {TRACES} --seeds": LARGE_SIZE,
    f"zeus groups {TRACES} --groups groups.csv --seeds": LARGE_SIZE,
    f"zeus groups {TRACES} --groups groups.csv --max-retries": LARGE_SIZE,
    "tasks generate --scenario hpo -o t.toml --count": LARGE_SIZE,
    "tasks generate --scenario hpo --count 2 -o t.toml --max-nodes": LARGE_SIZE,
    "advise --trials": LARGE_SIZE,
    "forecast --deadline 5d --workers": LARGE_PROCESSES,
    "sweep s.toml --workers": LARGE_PROCESSES,
    "spot sweep --repeats": LARGE_SIZE,
    "spot sweep --jobs": LARGE_PROCESSES,
    "spot sweep --max-nodes": LARGE_SIZE,
    "spot sweep --days": LARGE_DAYS,
    "spot simulate --trace s.csv --additions s.csv --initial-nodes": LARGE_SIZE,
    "trace generate -o t.parquet --nodes": LARGE_SIZE,
    "trace generate -o t.parquet --model minutes --max-nodes": LARGE_SIZE,
    "trace generate -o t.parquet --days": LARGE_DAYS,
    "replay --threads": LARGE_PROCESSES,
    "replay --max-tasks": LARGE_SIZE,
    "forecast --deadline 5d --max-tasks": LARGE_SIZE,
    "advise --max-tasks": LARGE_SIZE,
    "master run job.toml --recurrences": LARGE_RUNS,
    "master run job.toml --gpus": LARGE_PROCESSES,
    "bso quickstart --runs": LARGE_RUNS,
}


@pytest.mark.parametrize(("words", "usual"), SIZES.items(), ids=SIZES.keys())
def test_large_sizes_are_refused(call, here, trace, words, usual):
    """A billion is refused in one line that names option, bound and variable, at once, and nothing is written."""
    del trace
    before = contents(here)
    done = call(*words.split(), MANY)
    check_refusal(done)
    option = words.split()[-1]
    assert f"Expected {option} <= {usual:,}, got 1,000,000,000" in done.err
    assert "BFTRAINER_LARGE=1" in done.err
    assert contents(here) == before


def test_an_allowed_size_is_taken(call, monkeypatch):
    """With the variable what is asked for is done; the bound itself is a usual size."""
    words = ("tasks", "generate", "--scenario", "hpo", "--interval", 0, "--max-nodes", 0, "-o", "t.toml", "--count")
    assert "min_nodes" in call(*words, LARGE_SIZE).err
    monkeypatch.setenv("BFTRAINER_LARGE", "1")
    assert "min_nodes" in call(*words, LARGE_SIZE + 1).err


@pytest.mark.parametrize("option", ["--large", "--limits"])
def test_former_options_say_what_replaces_them(call, option):
    """They were options of most commands."""
    done = call("replay", option)
    check_refusal(done)
    assert f"{option} was removed: set BFTRAINER_" in done.err


def test_what_sizes_amount_to(call, here, trace):
    """Sizes that are usual each are refused where together they are not."""
    del trace, here
    done = call(*f"zeus simulate {TRACES} --recurrences 200000 --seeds 1000".split())
    check_refusal(done)
    assert f"recurrences of all jobs and seeds <= {LARGE_TOTAL:,}, got " in done.err
    done = call("spot", "sweep", "--repeats", 150_000, "--preemption-scale", "0.5,1")
    assert f"Expected traces <= {LARGE_SIZE:,}, got 300,000" in done.err


@pytest.mark.parametrize("given", ["[base]\nmaxJ = {}", "[grid]\nmax_tasks = [1, {}]", "[[point]]\nthreads = {}"])
def test_sizes_in_a_sweep(call, here, given):
    """The file of a sweep has the same bounds as what is typed."""
    (here / "s.toml").write_text(f"schema = 1\n{given.format(MANY)}\n")
    before = contents(here)
    done = call("sweep", "s.toml")
    check_refusal(done)
    assert "of s.toml <= " in done.err
    assert "got 1,000,000,000" in done.err
    assert contents(here) == before


def commands(group, path=()):
    """All commands below a group, by what is typed."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def test_no_size_has_slipped_through():
    """Whatever counts things to make has a bound, in every command."""
    counted = ("count", "recurrences", "seeds", "trials", "repeats", "nodes", "workers", "jobs", "days")
    open_ended = [
        (name, option.name)
        for name, command in commands(cli)
        for option in command.params
        if isinstance(option, click.Option)
        and option.type.name in ("integer", "integer range", "float")
        and option.name in counted
        and type(option.type).__name__ != "_Size"
    ]
    assert open_ended == []


def test_numbers_that_nothing_foresaw(monkeypatch, call):
    """What follows from numbers may be too large although each of them is fine: that is bad input, in one line."""

    def grows(*_, **__):
        return float(10**400)

    monkeypatch.setattr(cli.get_command(click.Context(cli), "convert"), "callback", grows)
    check_refusal(call("convert", "evt.pkl", "out.csv"))
