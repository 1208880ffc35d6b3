"""Figures of the status pages: what was saved, and why a batch size is next, by hand."""

from __future__ import annotations

from copy import deepcopy
from itertools import chain

import numpy as np
import pytest

from bftrainer.zeus.server.messages import JobSpec, StoredTrial, TrialRow
from bftrainer.zeus.server.pages import next_choice
from bftrainer.zeus.server.savings import figures_by_size, saved_texts, savings, si
from bftrainer.zeus.server.tuned_job import TrialType, TunedJob
from tests.zeus.server.support import SPEC


def gathered(size, converged, *values):
    """Results that used so much energy, in twice the time."""
    return [
        TrialRow(
            "t-1", size, 1, "MAB", "Succeeded", 0.0, cost=3 * used, energy=used, time=2 * used, converged=converged
        )
        for used in values
    ]


def saved_by(*groups):
    """What was saved against a default of 32."""
    return savings(figures_by_size(chain(*groups)), 32)


def test_savings_by_hand():
    """Three runs with 16 used 10 less each than the default's mean, a failure 25: 5 J are saved, give or take."""
    figures = [gathered(32, True, 90.0, 100.0, 110.0), gathered(16, True, 90.0, 90.0, 90.0), gathered(8, False, 25.0)]
    found = saved_by(*figures)
    assert (found.recurrences, found.with_default, found.missed) == (6, 3, 1)
    assert found.energy.amount == pytest.approx(3 * 10 - 25)
    assert found.energy.instead == pytest.approx(600.0)
    # Student's t with two degrees of freedom, the spread of the three, and three runs that are replaced.
    assert found.energy.half_width == pytest.approx(4.30265 * 10 * (3 + 9 / 3) ** 0.5, rel=1e-5)
    assert found.time.amount == pytest.approx(2 * found.energy.amount)
    assert saved_texts(found)["energy saved"] == "5 ± 105 J (0.8%; it may be none)"


def test_two_runs_with_the_default_tell_no_spread():
    """Two that are equal by chance would have none, and so seem to be sure: there is a figure without an interval."""
    found = saved_by(gathered(32, True, 100.0, 100.0), gathered(16, True, 90.0))
    assert (found.energy.amount, found.energy.half_width) == (pytest.approx(10.0), None)
    text = "10 J (3.3%; too few runs with the default for an interval, which takes 3)"
    assert saved_texts(found)["energy saved"] == text


def test_the_interval_holds_what_it_promises():
    """Of 2,000 jobs whose runs vary alike, the interval holds the truth of 95 %: what the default would have used."""
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(2_000):
        seen, instead = rng.normal(100.0, 10.0, 4), rng.normal(100.0, 10.0, 6)
        tuned = rng.normal(80.0, 5.0, 6)
        found = saved_by(gathered(32, True, *seen), gathered(16, True, *tuned)).energy
        held += abs(found.amount - (instead.sum() - tuned.sum())) <= found.half_width
    assert 0.935 < held / 2_000 < 0.965


@pytest.mark.parametrize("rows", [[], [gathered(16, True, 1.0)], [gathered(32, True, 1.0), gathered(32, False, 9.0)]])
def test_too_few_runs_with_the_default_give_no_figure(rows):
    """One run tells no spread; the text says how many there are."""
    found = saved_by(*rows)
    assert (found.energy, found.time) == (None, None)
    assert saved_texts(found)["energy saved"].startswith(f"not known: {found.with_default} of the 2 runs")


def job(**fields):
    """A job's state."""
    return TunedJob(JobSpec(**SPEC | {"beta_knob": None} | fields), seed=1)


def yes(_):
    """Every trial is running."""
    return True


def no(_):
    """No trial is running."""
    return False


def ended(tuned, number, *, converged=True):
    """Type of a trial that is handed out, and ends with a cost that depends on its number too."""
    size, kind = tuned.choose(number, yes)
    cost = size / 2 + number / 4
    row = StoredTrial("t-1", size, number, kind.value, "Succeeded", 0.0, cost=cost, converged=converged)
    tuned.learn(row)
    return kind


def test_reasons_while_batch_sizes_are_pruned():
    """What is tried next, in which round, what it has found, and what is left to try; and what runs beside a trial."""
    tuned = job()
    first = next_choice(deepcopy(tuned), 1, yes)
    assert (first.batch_size, first.arms) == (16, [])
    assert first.reasons[0] == "16 is the next to try."
    assert first.reasons[1].startswith("Round 1 of 2 of the pruning: from 16, the default, it tries smaller")
    assert first.reasons[2] == "Reached the target in this round: none yet. Still to try in it: 8, 32."
    ended(tuned, 1)
    tuned.choose(2, yes)  # 8 is being explored
    beside = next_choice(deepcopy(tuned), 3, yes)
    assert beside.batch_size == 16
    assert beside.reasons[0] == "Trial 2 explores 8 now; what starts beside that gets 16, the cheapest so far."
    assert beside.reasons[2] == "Reached the target in this round: 16 at 8.25 J. Still to try in it: 32."
    again = next_choice(deepcopy(tuned), 3, no)
    assert again.reasons[0] == "8 is the next to try."


def test_reasons_of_the_bandit_are_the_draws_of_the_next_trial():
    """The draws that are shown are those that the job itself draws next, and its generator stays where it was."""
    tuned = job(num_pruning_rounds=1)
    assert [ended(tuned, number) for number in (1, 2, 3)] == [TrialType.EXPLORATION] * 3
    begins = next_choice(deepcopy(tuned), 4, yes)
    assert begins.reasons[0].startswith(
        "The pruning is over: 8, 16, 32 are left. Each batch size has to have 2 results"
    )
    for number in range(4, 12):
        ended(tuned, number)
    shown = next_choice(deepcopy(tuned), 99, yes)
    size, kind = tuned.choose(99, yes)
    assert (shown.batch_size, kind) == (size, TrialType.MAB)
    assert {arm: -drawn_j for arm, drawn_j in shown.drawn_j.items()} == tuned.pruned.bandit.drawn
    assert min(shown.drawn_j, key=shown.drawn_j.get) == size
    assert f"the lowest wins: that of {size}" in shown.reasons[0]
    for arm in shown.arms:
        belief = tuned.pruned.bandit.beliefs[arm.batch_size]
        assert arm.mean_j == -belief.mean
        assert arm.half_width_j == pytest.approx(1.959964 / belief.precision**0.5)


def test_reasons_when_nothing_is_left():
    """No batch size, and why."""
    tuned = job(num_pruning_rounds=1, batch_sizes=[16])
    ended(tuned, 1, converged=False)
    assert next_choice(tuned, 9, no).batch_size is None


@pytest.mark.parametrize(
    ("number", "half", "text"),
    [
        (None, None, "–"),
        (1234.5, None, "1.234 k"),
        (-2e7, 1.25e5, "-20 ± 0.12 M"),
        (0.5, None, "0.5 "),
        (5e3, 4.2e5, "5 ± 420 k"),
        (3, 0.0, "3 ± 0 "),
    ],
)
def test_numbers_are_short(number, half, text):
    """Four digits and a prefix, which an interval shares."""
    assert si(number, half) == text
