"""`bftrainer bso quickstart`: a real job whose batch size changes from run to run, until one is chosen."""

from __future__ import annotations

import pytest

from bftrainer.cli.zeus.bso import find_chosen
from bftrainer.zeus.server.messages import JobSummary
from tests.cli.conftest import assert_matches
from tests.tiny import spawn

pytest.importorskip("sklearn")


@pytest.mark.long
def test_batch_sizes_are_tried_and_one_is_chosen(call, here):
    """Each run has its line; the second one tries another batch size; nothing is left behind."""
    before = sorted(here.iterdir())
    done = call("bso", "quickstart", "--runs", 2, "--json")
    assert done.status == 0, done.err
    assert_matches(r"run +1: batch size +16, +\d+ epochs, .* J: reached the target", done.err)
    assert_matches(r"run +2: batch size +8, ", done.err)
    assert [each["batch_size"] for each in done.json["batch_sizes"]] == [8, 16]
    assert done.json["default"] == 16
    assert done.json["chosen"] in (8, 16)
    assert sorted(here.iterdir()) == before


@pytest.mark.long
def test_what_runs_took_is_a_table(here):
    """A line says which batch size was the cheapest so far, and what energy is."""
    done = spawn("bftrainer", "bso", "quickstart", "--runs", 1, cwd=here)
    assert done.status == 0, done.err
    assert_matches(r"Cheapest so far: batch size 16; the default is 16\.\nTime is .* modelled", done.out)


SPEC = {
    "job_id": "d",
    "job_id_prefix": "d",
    "batch_sizes": [8, 16, 32, 64],
    "default_batch_size": 16,
    "max_power": 45.0,
    "number_of_gpus": 1,
    "gpu_model": "cpu",
}


def job(stage="MAB", **means):
    """A job whose arms have these means."""
    state = {"registered": 0.0, "trials": 3, "observations": 3, "min_cost": 2.0, "min_cost_batch_size": 8}
    arms = [
        {"batch_size": int(size[1:]), "mean": mean, "precision": 1.0, "reward_precision": 1.0, "observations": 2}
        for size, mean in means.items()
    ]
    return JobSummary(spec=SPEC, stage=stage, exploring=None, remaining=[8, 64], arms=arms, **state)


def test_what_is_chosen():
    """The arm of the highest mean, the negative cost; while there are no arms, the cheapest run's."""
    assert find_chosen(job("Pruning")) == 8
    assert find_chosen(job(b8=-9.0, b64=-3.0, b32=None)) == 64
