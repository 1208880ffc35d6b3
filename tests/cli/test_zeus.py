"""`bftrainer zeus`: simulate, compare, groups and traces, on embedded traces and a world checked by hand."""

from __future__ import annotations

import json
import math
from dataclasses import fields

import pytest

from bftrainer.zeus import Corrections, Job
from tests.recurring import JOB, JOBS, cells


def test_simulate_run_by_run(zeus):
    """By hand: 8 profiles both limits in its first epoch and takes 10, 16 takes 4, 32 runs out of epochs, all twice."""
    done = zeus("simulate", *JOB, "--recurrences", "7", "--seed", "1", "--beta", "inf")
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[0] == "Job(pages,net,sgd,0.5,bs8~20), zeus+jit, seed 1, eta 0.5, beta inf"
    rows = cells(done.out.partition("\n\n")[0])[2:-1]
    # recurrence, try, batch size, limit, epochs, energy, time, reached
    assert rows[0] == ["0", "0", "8", "100*", "10", f"{1290 + 9 * 1080:,}", "119", "yes"]
    assert rows[1] == ["1", "0", "16", "200*", "4", f"{(950 + 1280) / 2 + 3 * 1280:,.0f}", "33", "yes"]
    assert rows[2][:5] == ["2", "0", "32", "200*", "20"]
    assert rows[2][-1] == "no"
    # The second round starts from the cheapest, 16, and goes down first.
    assert [row[2:4] for row in rows[3:5]] == [["16", "200"], ["8", "100"]]
    assert {row[3] for row in rows[3:]} <= {"100", "200"}


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


def test_traces_lists_jobs_and_optima(zeus):
    """By hand: for 0.5, 16 at 200 W is cheapest; 32 reaches nothing; a recurrence takes 4 epochs of 8 s at 160 W."""
    done = zeus("traces")
    lines = cells(done.out)
    assert lines[1] == [*["pages", "net", "sgd"], *["8", "16", "32"], "100", "200", "0.5", "0.6"]
    assert lines[2] == [*["words", "net", "adam"], "16", "64", "100", "200", "0.9"]
    optima = {line[0]: line[1:] for line in lines[5:]}
    assert optima["Job(pages,net,sgd,0.5~100)"][:7] == ["8", "16", "16", "200", "5,120", "32", "5,760"]
    assert set(optima) == {"Job(pages,net,sgd,0.5~100)", "Job(pages,net,sgd,0.6~100)", "Job(words,net,adam,0.9~100)"}


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
