"""`bftrainer zeus`: simulate, compare, groups and traces, on embedded traces and a world checked by hand."""

import json
import math
from dataclasses import fields

import pytest

from bftrainer.zeus import Corrections, Job
from tests.recurring import JOB, JOBS, cells


def test_options_go_before_the_file(zeus):
    """--job picks from a file, and what is said beside it counts more, for all jobs."""
    words = ("--jobs", "jobs.toml", "--recurrences", "5", "--json")
    picked = zeus("simulate", *words, "--job", "pages, net, sgd", "--target", "0.6", "--default-bs", "16").json
    assert [each["job"] for each in picked["simulations"]] == [Job("pages", "net", "sgd", 0.6, 20, 16).to_dict()]
    both = zeus("simulate", *words, "--max-epochs", "30").json
    assert [each["job"]["max_epochs"] for each in both["simulations"]] == [30, 30]


def test_a_failure_is_told_and_kept(zeus, here):
    """A default that does not converge exits 1 with one line; what ran until then is printed and written as partial."""
    words = (*JOB[:-1], "32", "--recurrences", "5")
    done = zeus("simulate", *words, "--output", "out.json")
    assert done.status == 1
    assert done.err == "Error: Job(pages,net,sgd,0.5,bs32~20): The default batch size 32 did not converge.\n"
    assert done.out.count(" no\n") == 1
    document = json.loads((here / "out.json").read_text())
    assert document["partial"] is True
    assert [run["batch_size"] for run in document["simulations"][0]["runs"]] == [32]
    assert document["simulations"][0]["failure"] == done.err.removeprefix("Error: ").strip()


def test_compare_counts_failures(zeus):
    """A policy that fails on some seed is shown with the number, its means rest on the others, and the status is 1."""
    done = zeus("compare", *JOB, "--policy", "gts", "--seeds", "8", "--recurrences", "10", "--json")
    row = done.json["comparisons"][1]
    assert done.status == 1
    assert "simulations failed" in done.err
    assert 0 < row["failed"] < 8
    assert row["cost_j"]["number"] == row["relative"]["cost"]["number"] == 8 - row["failed"]


def simulations_in(path):
    """Simulations of a file of runs."""
    return json.loads(path.read_text())["simulations"]


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
    energies = [run["energy_j"] for each in simulations_in(here / "out.json") for run in each["runs"]]
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
    failures = [each["failure"] for each in simulations_in(here / "out.json")]
    assert "did not reach the target metric in 3 tries" in failures[0]
    assert failures[2] is None


def test_every_correction_is_a_switch(zeus, here):
    """Each correction of the published behaviour has a switch of its name, which turns it on."""
    words = ("--groups", "groups.csv", "--jobs", "jobs.toml", "--force", "--output", "out.json")
    for field in fields(Corrections):
        name = field.name.removeprefix("group_").replace("_", "-")
        assert zeus("groups", *words, "--correct", name).status == 0
        (corrections,) = {json.dumps(each["corrections"]) for each in simulations_in(here / "out.json")}
        assert json.loads(corrections) == {other.name: other is field for other in fields(Corrections)}
