"""Comparisons of policies, on results that are made up."""

from __future__ import annotations

import pytest

from bftrainer.errors import SettingsError
from bftrainer.zeus.simulation.campaign import Simulation, SimulationResult
from bftrainer.zeus.simulation.optimum import BASELINE, PolicyPair, compare_policies, simulations_of
from bftrainer.zeus.simulation.simulator import Run
from tests.recurring import PAGES, WORDS, write_world

ZEUS = PolicyPair("zeus", "jit")


def result(job, pair, seed, cost, failure=None):
    """One recurrence that cost so much, a tenth of it energy, a hundredth time."""
    simulation = Simulation(job, 1, policy=pair.policy, power_policy=pair.power_policy, seed=seed)
    return SimulationResult(
        simulation, (Run(0, 0, 16, 200, False, True, 1.0, cost, 1.0, cost / 10, cost / 100),), failure
    )


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("zeus", ("zeus", "jit")),
        ("zeus+max-power", ("zeus", "max-power")),
        ("default", ("default", "max-power")),
        ("default+jit", ("default", "jit")),
        ("oracle", ("oracle", "oracle")),
        ("mine:policy", ("mine:policy", "jit")),
        ("mine:policy+mine:limits", ("mine:policy", "mine:limits")),
    ],
)
def test_pairs_as_they_are_written(text, pair):
    """A policy alone comes with the power policy that suits it."""
    assert PolicyPair.parse(text) == PolicyPair(*pair)
    assert PolicyPair.parse(str(PolicyPair(*pair))) == PolicyPair(*pair)


@pytest.mark.parametrize("text", ["", "+", "zeus+", "+jit"])
def test_half_pairs(text):
    """A missing half is refused."""
    with pytest.raises(SettingsError, match="Expected policies as BATCH_SIZE"):
        PolicyPair.parse(text)


def test_what_is_simulated():
    """Every job with every pair, once, and every seed; the baseline is always there and comes first."""
    made = simulations_of([PAGES, WORDS], [ZEUS, ZEUS, BASELINE], 2, recurrences=3, seed=5)
    assert [(each.job, each.policy, each.power_policy, each.seed, each.recurrences) for each in made] == [
        (job, pair.policy, pair.power_policy, seed, 3)
        for job in (PAGES, WORDS)
        for pair in (BASELINE, ZEUS)
        for seed in (5, 6)
    ]


def test_ratios_pair_seeds(tmp_path):
    """By hand: 50 of 100 and 300 of 200 are 1 on average, not 350 of 300; the spread is Student's for two."""
    results = [
        *(result(PAGES, BASELINE, seed, cost) for seed, cost in ((1, 100.0), (2, 200.0))),
        *(result(PAGES, ZEUS, seed, cost) for seed, cost in ((2, 300.0), (1, 50.0))),
    ]
    baseline, zeus = compare_policies(write_world(tmp_path), results)
    assert (zeus.cost_j.mean, zeus.energy_j.mean, zeus.time_s.mean) == (175.0, 17.5, 1.75)
    assert zeus.relative["cost"].mean == zeus.relative["energy"].mean == zeus.relative["time"].mean == 1.0
    assert zeus.relative["cost"].half_width == pytest.approx(12.7062 * 0.5, rel=1e-5)
    assert (baseline.relative["cost"].mean, baseline.relative["cost"].half_width) == (1.0, 0.0)
    # The optimum costs 5,760 J.
    assert zeus.regret_j.mean == 175.0 - 5760.0


def test_failures_count_in_no_mean(tmp_path):
    """A simulation that failed is counted; its seed has no ratio, nor has one that the baseline lacks."""
    results = [
        *(result(PAGES, BASELINE, seed, 100.0, "stuck" if seed == 3 else None) for seed in (1, 2, 3)),
        *(result(PAGES, ZEUS, seed, 50.0, "stuck" if seed == 1 else None) for seed in (1, 2, 3)),
    ]
    baseline, zeus = compare_policies(write_world(tmp_path), results)
    assert (baseline.failed, zeus.failed) == (1, 1)
    assert (zeus.cost_j.number, zeus.relative["cost"].number, zeus.relative["cost"].mean) == (2, 1, 0.5)


def test_nothing_but_failures(tmp_path):
    """Where all failed there is no mean, and that is no error; all is fit for JSON."""
    results = [result(PAGES, BASELINE, 1, 100.0, "stuck")]
    (found,) = compare_policies(write_world(tmp_path), results)
    assert (found.cost_j, found.regret_j, found.relative["cost"], found.failed) == (None, None, None, 1)
    assert found.to_dict()["job"]["dataset"] == "pages"
