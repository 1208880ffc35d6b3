"""`bftrainer zeus compare` and `groups` on a world that can be checked by hand."""

from __future__ import annotations

import json
import lzma
import math
from dataclasses import fields

import pytest

from bftrainer.zeus import Corrections
from bftrainer.zeus.simulation.campaign import Simulation, simulate_all
from bftrainer.zeus.simulation.optimum import summarise
from tests.recurring import JOB, JOBS, WORDS, cells


def test_compare_is_relative_to_not_tuning(zeus):
    """By hand: 10 epochs of 1,750 J against 4 of 1,440 J; without chance in the job, no seed differs."""
    done = zeus("compare", *JOB, "--policy", "oracle", "--seeds", "3", "--recurrences", "20")
    assert (done.status, done.err) == (0, "")
    lines = {line[0]: " ".join(line[1:]) for line in cells(done.out)[2:] if line}
    assert lines["default+max-power"].startswith("17,500 ± 0 15,000 ± 0 100 ± 0 234,800 ± 0 100.00 % ± 0.00 %")
    assert f"5,760 ± 0 5,120 ± 0 32 ± 0 0 ± 0 {100 * 5760 / 17500:.2f} % ± 0.00 %" in lines["oracle+oracle"]


def test_compare_as_json(zeus, trace):
    """Each figure is the mean over the seeds."""
    words = ("--jobs", "jobs.toml", "--policy", "grid+max-power", "--policy", "oracle", "--seeds", "4", "--beta", "inf")
    rows = zeus("compare", *words, "--recurrences", "15", "--json").json["comparisons"]
    keys = [(row["job"]["dataset"], row["policies"]) for row in rows]
    pairs = ("default+max-power", "grid+max-power", "oracle+oracle")
    assert keys == [(dataset, pair) for dataset in ("pages", "words") for pair in pairs]
    simulations = [
        Simulation(WORDS, 15, policy="grid", power_policy="max-power", seed=123456 + each, beta_knob=math.inf)
        for each in range(4)
    ]
    costs = [summarise(trace, result).used.cost_j / 15 for result in simulate_all(trace, simulations)]
    by_key = dict(zip(keys, rows, strict=True))
    assert by_key["words", "grid+max-power"]["cost_j"]["mean"] == pytest.approx(sum(costs) / 4)
    assert by_key["words", "grid+max-power"]["cost_j"]["number"] == 4
    assert by_key["pages", "oracle+oracle"]["relative"]["cost"]["mean"] == pytest.approx(5760 / 17500)
    baseline = by_key["words", "default+max-power"]["relative"]["energy"]
    assert (baseline["mean"], baseline["half_width"]) == (1.0, 0.0)


def test_compare_counts_failures(zeus):
    """A policy that fails on some seed is shown with the number, its means rest on the others, and the status is 1."""
    done = zeus("compare", *JOB, "--policy", "gts", "--seeds", "8", "--recurrences", "10", "--json")
    row = done.json["comparisons"][1]
    assert done.status == 1
    assert "simulations failed" in done.err
    assert 0 < row["failed"] < 8
    assert row["cost_j"]["number"] == row["relative"]["cost"]["number"] == 8 - row["failed"]


def test_compare_where_nothing_converges(zeus):
    """If all fails, there is no figure, and the table says so."""
    done = zeus("compare", *JOB[:-1], "32", "--policy", "default+jit", "--seeds", "2", "--recurrences", "3")
    assert done.status == 1
    assert done.err.startswith("Error: 4 of 4 simulations failed; the first: ")
    assert cells(done.out)[2] == ["default+max-power", *"-------", "2"]


def read_json(path):
    """What a JSON file holds."""
    return json.loads(path.read_text())


def test_groups_add_up(zeus, here):
    """Totals are sums over what the file holds; three jobs of group a take 3.5 times what one does."""
    words = ("--groups", "groups.csv", "--jobs", "jobs.toml", "--policy", "default", "--power-policy", "max-power")
    done = zeus("groups", *words, "--output", "out.json", "--json")
    pages, words_, total = done.json["totals"]
    assert (pages["dataset"], pages["groups"], pages["jobs"], pages["retries"]["mean"]) == ("pages", 2, 4, 0)
    # 10 epochs of 10 s at 150 W, three jobs of group a and the one of group b.
    assert pages["time_s"]["mean"] == 100.0 * (1.0 + 2.0 + 0.5 + 1.0)
    assert pages["energy_j"]["mean"] == 15_000.0 * 4.5
    assert total["energy_j"]["mean"] == pages["energy_j"]["mean"] + words_["energy_j"]["mean"]
    assert (total["groups"], total["jobs"]) == (3, 6)
    energies = [run["energy_j"] for each in read_json(here / "out.json")["simulations"] for run in each["runs"]]
    assert math.fsum(energies) == pytest.approx(total["energy_j"]["mean"])
    assert len(done.json["inputs"]["groups"]["sha256"]) == 64


def test_groups_can_be_chosen(zeus):
    """By name and by dataset; others need no job then, and what is simulated does not depend on the rest."""
    words = ("--groups", "groups.csv", "--jobs", "jobs.toml")
    every = zeus("groups", *words, "--seeds", "2", "--json").json["totals"]
    some = zeus("groups", "--groups", "groups.csv", *JOB, "--dataset", "pages", "--seeds", "2", "--json").json["totals"]
    assert some[0] == every[0]
    (one, total) = zeus("groups", *words, "--group", "b", "--json").json["totals"]
    assert (one["groups"], one["jobs"], total["jobs"]) == (1, 1, 1)


def test_packed_groups(zeus, here):
    """A packed trace of groups is read as the plain one."""
    (here / "groups.csv.xz").write_bytes(lzma.compress((here / "groups.csv").read_bytes()))
    words = ("--jobs", "jobs.toml", "--seeds", "2")
    one, other = (zeus("groups", "--groups", name, *words).out for name in ("groups.csv.xz", "groups.csv"))
    assert one == other


def test_groups_that_fail_are_counted(zeus, here):
    """A group whose retries run out is counted, what it used counts too, and the others go on."""
    (here / "hard.toml").write_text(JOBS.replace("default_bs = 8", "default_bs = 32"))
    words = ("--groups", "groups.csv", "--jobs", "hard.toml")
    done = zeus("groups", *words, "--max-retries", "2", "--output", "out.json", "--policy", "default")
    assert done.status == 1
    assert done.err.startswith("Error: 2 of 3 simulations failed; the first: ")
    assert cells(done.out)[0][-1] == "failed"
    assert [line[-1] for line in cells(done.out)[1:]] == ["2", "0", "2"]
    failures = [each["failure"] for each in read_json(here / "out.json")["simulations"]]
    assert "did not reach the target metric in 3 tries" in failures[0]
    assert failures[2] is None


def test_every_correction_is_a_switch(zeus, here):
    """Each correction of the published behaviour has a switch of its name, which turns it on."""
    words = ("--groups", "groups.csv", "--jobs", "jobs.toml", "--force", "--output", "out.json")
    for field in fields(Corrections):
        name = field.name.removeprefix("group_").replace("_", "-")
        assert zeus("groups", *words, "--correct", name).status == 0
        (corrections,) = {json.dumps(each["corrections"]) for each in read_json(here / "out.json")["simulations"]}
        assert json.loads(corrections) == {other.name: other is field for other in fields(Corrections)}
