"""`bftrainer bso quickstart`: a real job whose batch size changes from run to run, until one is chosen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.zeus.integrations.sample_digits import JOB, chosen, digits
from bftrainer.zeus.server.app import create_app
from bftrainer.zeus.server.pages.savings import figures_by_size
from bftrainer.zeus.server.state_messages import JobSummary, TrialRow
from tests.cli.conftest import assert_matches, check_refusal
from tests.zeus.server.support import in_folder, listening

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
def test_another_server_may_decide(call, tmp_path):
    """With --server the job is on that server then, and what its runs took is printed as a table."""
    with listening(create_app(in_folder(tmp_path))) as url:
        done = call("bso", "quickstart", "--runs", 1, "--server", url)
        assert done.status == 0, done.err
        assert_matches(
            r"Cheapest so far: batch size 16, .* J and .* s a run .*; the default, 16, takes .* s\.$", done.out
        )
        assert JOB.job_id in call("bso", "jobs", "--server", url).out


@pytest.mark.parametrize("words", [("--max-power", 0), ("--max-power", "nan"), ("--measure", "ralp"), ("--seed", -1)])
def test_what_cannot_be(call, words):
    """Each is refused in a line before anything is trained."""
    check_refusal(call("bso", "quickstart", *words))


def test_the_data_are_always_in_one_order():
    """1,797 images of 64 pixels from 0 to 1, the same ones each time."""
    images, labels = digits()
    again, _ = digits()
    assert images.shape == (1797, 64)
    assert (images.min(), images.max()) == (0.0, 1.0)
    assert (images == again).all()
    assert set(labels.tolist()) == set(range(10))


def row(number, batch_size, cost, *, converged=True):
    """A trial of a batch size."""
    ended = {"type": "MAB", "status": "Succeeded" if cost else "Failed", "started": 0.0, "ended": 1.0}
    result = {"time": cost, "energy": cost, "cost": cost, "converged": converged, "observation": number}
    return TrialRow(job_id="d", batch_size=batch_size, trial_number=number, **ended, **result)


def test_what_was_used():
    """Means over the trials that reached the target; trials without a result, or that are void, do not count."""
    rows = [row(1, 64, 2.0), row(2, 8, 8.0, converged=False), row(3, 64, 4.0), row(4, 64, None), row(5, 64, 9.0)]
    found = figures_by_size([*rows[:4], replace(rows[4], excluded="Voided")])
    assert list(found) == [8, 64]
    assert (found[64].results, found[64].converged, found[8].converged, found[8].means) == (2, 2, 0, {})
    assert found[64].means["energy"].mean == 3.0
    assert found[64].means["energy"].half_width == pytest.approx(12.706, abs=1e-3)


def test_what_is_chosen():
    """The arm of the highest mean, the negative cost; while there are no arms, the cheapest run's."""
    spec = JOB.model_dump() | {"max_power": 45.0, "number_of_gpus": 1, "gpu_model": "cpu"}
    state = {"registered": 0.0, "trials": 3, "observations": 3, "min_cost": 2.0, "min_cost_batch_size": 8}
    pruning = JobSummary(spec=spec, stage="Pruning", exploring=None, remaining=[8, 64], arms=[], **state)
    assert chosen(pruning) == 8
    means = {8: -9.0, 64: -3.0, 512: None}
    arms = [
        {"batch_size": size, "mean": mean, "precision": 1.0, "reward_precision": 1.0, "observations": 2}
        for size, mean in means.items()
    ]
    assert chosen(JobSummary.model_validate(pruning.model_dump() | {"arms": arms})) == 64
