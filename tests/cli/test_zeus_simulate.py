"""`bftrainer zeus simulate` and `traces` on a world that can be checked by hand."""

from __future__ import annotations

import json
import re

import pyarrow.parquet as pq
import pytest

from bftrainer.zeus import Job
from bftrainer.zeus.simulation.campaign import Simulation, simulate_all
from bftrainer.zeus.simulation.files import write_results
from bftrainer.zeus.simulation.optimum import summarise
from tests.cli.conftest import assert_matches
from tests.recurring import JOB, PAGES, WORDS, cells


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


def test_simulate_says_how_far_it_is_from_the_optimum(zeus, trace):
    """Totals, converged choice, optimum and regret are those of the summary; the optimum is 4 epochs of 1,440 J."""
    done = zeus("simulate", *JOB, "--recurrences", "30", "--seed", "1")
    (result,) = simulate_all(trace, [Simulation(PAGES, 30, seed=1)])
    summary = summarise(trace, result)
    figures = dict(re.split(r"  +", line) for line in done.out.partition("\n\n")[2].splitlines())
    assert (figures["converged to"], figures["optimum"], figures["optimum (J)"]) == (
        "16 at 200 W",
        "16 at 200 W",
        "5,760",
    )
    assert float(figures["cumulative regret (J)"].replace(",", "")) == pytest.approx(
        summary.cumulative_regret_j, rel=1e-4
    )
    assert (figures["excess share"], figures["final regret (J)"]) == ("0.00 %", "0")
    assert figures["energy (J)"] == f"{sum(entry.energy for entry in result.history):,.0f}"


def read_runs(path):
    """All runs of a file."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    return [run for each in json.loads(path.read_text())["simulations"] for run in each["runs"]]


@pytest.mark.long
@pytest.mark.parametrize("name", ["out.json", "out.parquet"])
def test_output_holds_all_runs(zeus, trace, here, name):
    """The file has the runs of every job and seed; an existing one is replaced by force only."""
    words = ("--jobs", "jobs.toml", "--seeds", "2", "--seed", "3", "--recurrences", "9", "--output", name)
    assert zeus("simulate", *words, "--workers", "2").status == 0
    wanted = simulate_all(trace, [Simulation(job, 9, seed=seed) for job in (PAGES, WORDS) for seed in (3, 4)])
    write_results(here / f"wanted-{name}", wanted)
    rows, wanted_rows = (read_runs(here / each) for each in (name, f"wanted-{name}"))
    assert rows == wanted_rows
    assert len(rows) > 36
    before = (here / name).read_bytes()
    refused = zeus("simulate", *words)
    assert refused.status == 2
    assert_matches(f"{name}: .*--force", refused.err)
    assert zeus("simulate", *words, "--force").status == 0
    assert (here / name).read_bytes() == before


def test_options_go_before_the_file(zeus):
    """--job picks from a file, and what is said beside it counts more, for all jobs."""
    words = ("--jobs", "jobs.toml", "--recurrences", "5", "--json")
    picked = zeus("simulate", *words, "--job", "pages, net, sgd", "--target", "0.6", "--default-bs", "16").json
    assert [each["job"] for each in picked["simulations"]] == [
        Job("pages", "net", "sgd", 0.6, 20, 16).to_dict(),
    ]
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


def test_a_policy_of_your_own(zeus, here):
    """A policy is found by module and name, for batch sizes and power limits alike."""
    (here / "mine.py").write_text(
        "from bftrainer.zeus.policies.baselines import DefaultBatchSize\n"
        "from bftrainer.zeus import MaxPowerLimit\n"
        "def sizes(context):\n    return DefaultBatchSize()\n"
        "def limits(context):\n    return MaxPowerLimit.of(context.trace, [context.job])\n"
    )
    done = zeus("simulate", *JOB, "--policy", "mine:sizes", "--power-policy", "mine:limits", "--json")
    plain = zeus("simulate", *JOB, "--policy", "default", "--power-policy", "max-power", "--json")
    assert done.json["simulations"][0]["runs"] == plain.json["simulations"][0]["runs"]


def test_traces_lists_jobs_and_optima(zeus):
    """By hand: for 0.5, 16 at 200 W is cheapest; 32 reaches nothing; a recurrence takes 4 epochs of 8 s at 160 W."""
    done = zeus("traces")
    lines = cells(done.out)
    assert lines[1] == [*["pages", "net", "sgd"], *["8", "16", "32"], "100", "200", "0.5", "0.6"]
    assert lines[2] == [*["words", "net", "adam"], "16", "64", "100", "200", "0.9"]
    optima = {line[0]: line[1:] for line in lines[5:]}
    assert optima["Job(pages,net,sgd,0.5~100)"][:7] == ["8", "16", "16", "200", "5,120", "32", "5,760"]
    assert set(optima) == {"Job(pages,net,sgd,0.5~100)", "Job(pages,net,sgd,0.6~100)", "Job(words,net,adam,0.9~100)"}


def test_traces_shows_the_front_of_a_target(zeus):
    """Of 8 and 16 at 100 and 200 W, in 10 and 4 epochs, only 16 is worth it; both its limits are on the front."""
    done = zeus("traces", *JOB)
    front = cells(done.out.partition("Pareto front\n")[2])[1:]
    assert front == [
        ["16", "200", "5,120", "32", "5,760", "100.00", "%"],
        ["16", "100", "3,800", "40", "5,900", "100.00", "%"],
    ]
