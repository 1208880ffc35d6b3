"""What simulations say in numbers, how policies compare, totals of groups, and the optimum of a trace."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import SettingsError
from bftrainer.zeus import Group, GroupJob, Oracle, Simulator
from bftrainer.zeus.policies.trace import Configuration, configurations, optimum, pareto_front
from bftrainer.zeus.simulation.campaign import Simulation, SimulationResult
from bftrainer.zeus.simulation.optimum import (
    BASELINE,
    PolicyPair,
    compare_policies,
    find_converged,
    group_totals,
    latest_recurrences,
    regrets,
    simulations_of,
    summarise,
)
from bftrainer.zeus.simulation.simulator import Run, usage
from tests.recurring import PAGES, WORDS, write_world
from tests.zeus.worlds import JOB, NEVER, Measured, measurements, training_trace

ZEUS = PolicyPair("zeus", "jit")


def run(recurrence, batch_size=8, limit=100, cost=1.0, **more):
    """A run that used 2 J in 3 s."""
    values = {"traced_energy_j": 2.0, "traced_time_s": 3.0, "reached": True, "epochs": 1.0, "runtime_ratio": 1.0} | more
    return Run(recurrence, 0, batch_size, limit, False, cost_j=cost, **values)


def test_use_is_scaled_by_the_ratio_of_run_times():
    """Energy, time and cost add up, each times its job's ratio; what never ran used nothing, whatever it was booked."""
    never = run(1, traced_energy_j=0.0, traced_time_s=0.0, reached=False, epochs=0.0, cost=500.0)
    found = usage([run(0, runtime_ratio=2.0), never, run(1, reached=False), run(1)])
    assert (found.recurrences, found.runs) == (2, 3)
    assert (found.energy_j, found.time_s, found.cost_j) == (8.0, 12.0, 4.0)


def test_the_most_frequent_of_the_last_settings():
    """Of the last tenth of recurrences, five if there are as many, the most frequent setting; of equals the last."""
    assert [latest_recurrences(number) for number in (1, 5, 6, 50, 51, 100)] == [1, 5, 5, 5, 6, 10]
    early = [run(number, 16, 200) for number in range(15)]
    late = [run(15, 8, 100), run(16, 8, 100), run(16, 8, 100), run(17, 8, 200), run(18, 8, 200), run(19, 16, 100)]
    found = find_converged([*early, *late], [])
    assert (found.batch_size, found.power_limit_w, found.share, found.expected) == (8, 100, 0.5, None)
    runs = [run(0, 8), run(1, 16), run(2, 8), run(3, 16), run(4, 32)]
    assert (find_converged(runs, []).batch_size, find_converged([], [])) == (16, None)
    # A group's runs count by number, not by end.
    runs = [run(number, 8) for number in (9, 8, 7, 6, 5, 0)] + [run(1, 16)] * 5
    assert find_converged(runs, []).batch_size == 8


def test_distance_from_the_optimum(tmp_path):
    """Regret by hand: the optimum is 16 at 200 W, 4 epochs of 1,440 J; at 8 and 100 W it is 10 of 1,740 J."""
    trace = write_world(tmp_path)
    runs = tuple(run(number, 8, 100, cost=17_400.0) for number in range(3))
    found = summarise(trace, SimulationResult(Simulation(PAGES, 3), runs))
    assert found.optimum == Configuration(16, 200, 5120.0, 32.0, 5760.0, 1.0)
    assert (found.cumulative_regret_j, found.final_regret_j) == (34_920.0, 11_640.0)
    assert found.converged.expected == Configuration(8, 100, 10_800.0, 120.0, 17_400.0, 1.0)
    assert found.excess == pytest.approx(17_400 / 5_760 - 1)
    # Of ten recurrences the last five count: they cost 40 J more than the optimum, the others 1,000 J.
    runs = tuple(run(number, 16, 200, cost=6_760.0 if number < 5 else 5_800.0) for number in range(10))
    found = summarise(trace, SimulationResult(Simulation(PAGES, 10), runs))
    assert (found.final_regret_j, found.cumulative_regret_j, found.excess) == (40.0, 5_200.0, 0.0)
    # Where nothing reaches the target there is no optimum and no regret, and all figures are null.
    short = Simulation(replace(PAGES, max_epochs=2), 1)
    values = summarise(trace, SimulationResult(short, (run(0),), "stuck")).to_dict()
    assert [values[name] for name in ("optimum", "excess", "cumulative_regret_j", "final_regret_j")] == [None] * 4


# --- comparisons -------------------------------------------------------------------------------------------------


def make_result(job, pair, seed, cost, failure=None):
    """One recurrence that cost so much, a tenth of it energy, a hundredth time."""
    simulation = Simulation(job, 1, policy=pair.policy, power_policy=pair.power_policy, seed=seed)
    only = run(0, 16, 200, cost, traced_energy_j=cost / 10, traced_time_s=cost / 100)
    return SimulationResult(simulation, (only,), failure)


def test_pairs_as_they_are_written():
    """A policy alone comes with the power policy that suits it; a missing half is refused."""
    for text, pair in {
        "zeus": ("zeus", "jit"),
        "zeus+max-power": ("zeus", "max-power"),
        "default": ("default", "max-power"),
        "oracle": ("oracle", "oracle"),
        "mine:policy+mine:limits": ("mine:policy", "mine:limits"),
    }.items():
        assert PolicyPair.parse(text) == PolicyPair.parse(str(PolicyPair(*pair))) == PolicyPair(*pair)
    for text in ("", "zeus+", "+jit"):
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
        *(make_result(PAGES, BASELINE, seed, cost) for seed, cost in ((1, 100.0), (2, 200.0))),
        *(make_result(PAGES, ZEUS, seed, cost) for seed, cost in ((2, 300.0), (1, 50.0))),
    ]
    baseline, zeus = compare_policies(write_world(tmp_path), results)
    assert (zeus.cost_j.mean, zeus.energy_j.mean, zeus.time_s.mean) == (175.0, 17.5, 1.75)
    assert {zeus.relative[name].mean for name in ("cost", "energy", "time")} == {1.0}
    assert zeus.relative["cost"].half_width == pytest.approx(12.7062 * 0.5, rel=1e-5)
    assert (baseline.relative["cost"].mean, baseline.relative["cost"].half_width) == (1.0, 0.0)
    # The optimum costs 5,760 J.
    assert zeus.regret_j.mean == 175.0 - 5760.0


def test_failures_count_in_no_mean(tmp_path):
    """A failure is counted; its seed has no ratio, nor has one that the baseline lacks; where all fail is no mean."""
    trace = write_world(tmp_path)
    results = [
        make_result(PAGES, pair, seed, cost, "stuck" if seed == stuck else None)
        for pair, cost, stuck in ((BASELINE, 100.0, 3), (ZEUS, 50.0, 1))
        for seed in (1, 2, 3)
    ]
    baseline, zeus = compare_policies(trace, results)
    assert (baseline.failed, zeus.failed) == (1, 1)
    assert (zeus.cost_j.number, zeus.relative["cost"].number, zeus.relative["cost"].mean) == (2, 1, 0.5)
    (found,) = compare_policies(trace, [make_result(PAGES, BASELINE, 1, 100.0, "stuck")])
    assert (found.cost_j, found.regret_j, found.relative["cost"], found.failed) == (None, None, None, 1)
    assert found.to_dict()["job"]["dataset"] == "pages"


# --- groups ------------------------------------------------------------------------------------------------------


def total(job, seed, tries, failure=None):
    """A group of two jobs, the first of which was tried so often; a try takes 2 J and 1 s, and twice that."""
    group = Group("g", job.dataset, (GroupJob(0.0, 1.0, 2.0), GroupJob(0.0, 1.0, 2.0)))
    numbers = [(0, attempt) for attempt in range(tries)] + [(1, 0)]
    runs = tuple(Run(*number, 8, 100, False, True, 1.0, 3.0, 2.0, 2.0, 1.0) for number in numbers)
    return SimulationResult(Simulation(job, None, group, seed=seed), runs, failure)


def test_totals_by_dataset_and_seed():
    """By hand: with seed 1 five runs in all, with seed 2 seven; rows are means over both, and add up."""
    results = [[total(PAGES, 1, 1), total(WORDS, 1, 2)], [total(PAGES, 2, 2), total(WORDS, 2, 3, "stuck")]]
    rows = group_totals(results)
    facts = [(row.dataset, row.groups, row.jobs, row.failed) for row in rows]
    assert facts == [("pages", 1, 2, 0), ("words", 1, 2, 1), (None, 2, 4, 1)]
    assert [row.retries.mean for row in rows] == [0.5, 1.5, 2.0]
    assert [row.energy_j.mean for row in rows] == [2.5 * 4, 3.5 * 4, 6.0 * 4]
    assert (rows[-1].time_s.mean, rows[-1].cost_j.mean) == (12.0, 36.0)
    assert rows[-1].energy_j.half_width == pytest.approx(12.7062 * 4, rel=1e-5)
    # What was simulated once has no spread that is known.
    *_, row = group_totals([[total(PAGES, 1, 1)]])
    assert (row.energy_j.mean, row.energy_j.half_width, row.energy_j.number) == (8.0, None, 1)


# --- the optimum of a trace -------------------------------------------------------------------------------------------

ETAS = st.sampled_from((0.0, 0.3, 0.5, 1.0))


def configure(sizes, eta=0.5, job=JOB):
    return configurations(training_trace(sizes).of(job), job, eta)


def some(batch_size=8, limit=100, energy=1.0, time=1.0, cost=1.0):
    return Configuration(batch_size, limit, energy, time, cost, 1.0)


def fixed(each):
    """A policy that keeps to one configuration, whatever happens."""
    return Oracle({JOB: each.batch_size}, {JOB: {each.batch_size: each.power_limit_w}})


def test_a_recurrence_by_hand():
    """Paths of 2, 4 and no end with 10 epochs: 16 epochs a turn, two successes, so 8 epochs a recurrence."""
    (found,) = configure({8: Measured([2.0, NEVER, 4.0], {100: (10.0, 50.0)})})
    # 8 epochs of 10 s and 500 J; the trace's highest limit is 100 W.
    assert found == Configuration(8, 100, 4000.0, 80.0, 0.5 * 4000.0 + 0.5 * 100 * 80.0, 2 / 3)


def test_what_cannot_reach_the_target_is_left_out():
    """No path within the epochs, or no run towards this target: not a configuration."""
    epochs = {100: (1.0, 50.0)}
    sizes = {4: Measured([11.0, NEVER], epochs), 8: Measured([10.0], epochs), 16: Measured([NEVER], epochs)}
    assert [each.batch_size for each in configure(sizes)] == [8]
    assert configure(sizes, job=replace(JOB, max_epochs=9)) == []


@given(sizes=measurements(most_paths=1), eta=ETAS, seed=st.integers(0, 100))
def test_regret_without_luck(sizes, eta, seed):
    """With one path a batch size the simulator regrets nothing with the oracle, and never gains by anything else."""
    trace = training_trace(sizes)
    found = configurations(trace.of(JOB), JOB, eta)
    best = optimum(found)
    for policy in (fixed(each) for each in found):
        runs = Simulator(trace, None, policy, policy, seed).job_runs(JOB, 5, math.inf, eta)
        assert min(regrets(runs, best)) >= -1e-9 * best.cost_j
    oracle = Oracle.of(trace, [JOB], eta)
    runs = Simulator(trace, None, oracle, oracle, seed).job_runs(JOB, 5, math.inf, eta)
    assert regrets(runs, best) == pytest.approx([0.0] * 5, abs=1e-9 * best.cost_j)


@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.integers(1, 6)).map(lambda pair: some(energy=pair[0], time=pair[1])), max_size=8
    )
)
def test_the_front_is_what_nothing_dominates(found):
    """Exactly the points that no other one beats stay, each once, from fast and hungry to slow and frugal."""
    points = {(each.time_s, each.energy_j) for each in found}
    best = [
        (time, energy)
        for time, energy in sorted(points)
        if not any(t <= time and e <= energy for t, e in points - {(time, energy)})
    ]
    assert [(each.time_s, each.energy_j) for each in pareto_front(found)] == best


def test_regrets_by_hand():
    """Tries of a recurrence add up, ones that never ran add nothing; a group's come in the order of their ends."""
    runs = [
        run(0, cost=5.0),
        run(1, cost=9.0, reached=False),
        run(1, cost=700.0, epochs=0.0, reached=False),
        run(1, cost=4.0),
        run(2, cost=1.0),
    ]
    assert regrets(runs, some(cost=3.0)) == regrets(runs[::-1], some(cost=3.0)) == [2.0, 10.0, -2.0]
    # Of equally cheap configurations the first one is the optimum.
    assert optimum([some(4, cost=3.0), some(8, 200, cost=2.0), some(8, 100, cost=2.0)]) == some(8, 200, cost=2.0)
