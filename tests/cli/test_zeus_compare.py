"""`bftrainer zeus compare` and `groups` on a world that can be checked by hand."""

from __future__ import annotations

import json
import math
from dataclasses import fields

import pytest

from bftrainer.zeus import Corrections
from tests.recurring import JOB, JOBS, cells


def test_compare_is_relative_to_not_tuning(zeus):
    """By hand: 10 epochs of 1,750 J against 4 of 1,440 J; without chance in the job, no seed differs."""
    done = zeus("compare", *JOB, "--policy", "oracle", "--seeds", "3", "--recurrences", "20")
    assert (done.status, done.err) == (0, "")
    lines = {line[0]: " ".join(line[1:]) for line in cells(done.out)[2:] if line}
    assert lines["default+max-power"].startswith("17,500 ± 0 15,000 ± 0 100 ± 0 234,800 ± 0 100.00 % ± 0.00 %")
    assert f"5,760 ± 0 5,120 ± 0 32 ± 0 0 ± 0 {100 * 5760 / 17500:.2f} % ± 0.00 %" in lines["oracle+oracle"]


def test_compare_counts_failures(zeus):
    """A policy that fails on some seed is shown with the number, its means rest on the others, and the status is 1."""
    done = zeus("compare", *JOB, "--policy", "gts", "--seeds", "8", "--recurrences", "10", "--json")
    row = done.json["comparisons"][1]
    assert done.status == 1
    assert "simulations failed" in done.err
    assert 0 < row["failed"] < 8
    assert row["cost_j"]["number"] == row["relative"]["cost"]["number"] == 8 - row["failed"]


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
