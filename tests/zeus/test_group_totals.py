"""Totals of groups, on results that are made up."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from bftrainer.zeus import Group, GroupJob
from bftrainer.zeus.simulation.campaign import Simulation, SimulationResult
from bftrainer.zeus.simulation.optimum import group_totals
from bftrainer.zeus.simulation.simulator import Run
from tests.recurring import PAGES, WORDS


def result(job, seed, tries, failure=None):
    """A group of two jobs, the first of which was tried so often; a try takes 2 J and 1 s, and twice that."""
    group = Group("g", job.dataset, (GroupJob(0.0, 1.0, 2.0), GroupJob(0.0, 1.0, 2.0)))
    numbers = [(0, attempt) for attempt in range(tries)] + [(1, 0)]
    runs = tuple(Run(*number, 8, 100, False, True, 1.0, 3.0, 2.0, 2.0, 1.0) for number in numbers)
    return SimulationResult(Simulation(job, None, group, seed=seed), runs, failure)


def test_totals_by_dataset_and_seed():
    """By hand: with seed 1 five runs in all, with seed 2 seven; rows are means over both, and add up."""
    results = [
        [result(PAGES, 1, 1), result(WORDS, 1, 2)],
        [result(PAGES, 2, 2), result(WORDS, 2, 3, "stuck")],
    ]
    pages, words, total = group_totals(results)
    assert [(row.dataset, row.groups, row.jobs, row.failed) for row in (pages, words, total)] == [
        ("pages", 1, 2, 0),
        ("words", 1, 2, 1),
        (None, 2, 4, 1),
    ]
    assert [row.retries.mean for row in (pages, words, total)] == [0.5, 1.5, 2.0]
    assert [row.energy_j.mean for row in (pages, words, total)] == [2.5 * 4, 3.5 * 4, 6.0 * 4]
    assert (total.time_s.mean, total.cost_j.mean) == (12.0, 36.0)
    assert total.energy_j.half_width == pytest.approx(12.7062 * 4, rel=1e-5)


def test_one_seed_has_no_interval():
    """What was simulated once has no spread that is known."""
    *_, total = group_totals([[result(PAGES, 1, 1)]])
    assert asdict(total)["energy_j"] == {"mean": 8.0, "half_width": None, "number": 1}
