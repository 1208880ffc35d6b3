"""What a simulation says in numbers, on runs that are made up."""

from __future__ import annotations

import pytest

from bftrainer.zeus.policies.trace import Configuration
from bftrainer.zeus.simulation.campaign import Simulation, SimulationResult
from bftrainer.zeus.simulation.optimum import find_converged, latest_recurrences, summarise
from bftrainer.zeus.simulation.simulator import Run, usage
from tests.recurring import PAGES, write_world


def run(recurrence: int, batch_size: int = 8, limit: int = 100, cost: float = 1.0, **more: object) -> Run:
    """A run that used 2 J in 3 s."""
    values = {"traced_energy_j": 2.0, "traced_time_s": 3.0, "reached": True, "epochs": 1.0, "runtime_ratio": 1.0} | more
    return Run(recurrence, 0, batch_size, limit, False, cost_j=cost, **values)


def test_use_is_scaled_by_the_ratio_of_run_times():
    """Energy, time and cost add up, each times its job's ratio; what never ran used nothing, whatever it was booked."""
    never = run(1, traced_energy_j=0.0, traced_time_s=0.0, reached=False, epochs=0.0, cost=500.0)
    found = usage([run(0, runtime_ratio=2.0), never, run(1, reached=False), run(1)])
    assert (found.recurrences, found.runs) == (2, 3)
    assert (found.energy_j, found.time_s, found.cost_j) == (8.0, 12.0, 4.0)


@pytest.mark.parametrize(("number", "latest"), [(1, 1), (5, 5), (6, 5), (50, 5), (51, 6), (100, 10)])
def test_latest_recurrences(number, latest):
    """A tenth, rounded up, but five if there are as many."""
    assert latest_recurrences(number) == latest


def test_the_most_frequent_of_the_last_settings():
    """Only the last five of 20 recurrences count, with all their runs; a share says how many agree."""
    early = [run(number, 16, 200) for number in range(15)]
    late = [run(15, 8, 100), run(16, 8, 100), run(16, 8, 100), run(17, 8, 200), run(18, 8, 200), run(19, 16, 100)]
    found = find_converged([*early, *late], [])
    assert (found.batch_size, found.power_limit_w, found.share, found.expected) == (8, 100, 0.5, None)


def test_of_equally_frequent_settings_the_last_one():
    """8 and 16 were used twice each among the last five, 16 last."""
    runs = [run(0, 8), run(1, 16), run(2, 8), run(3, 16), run(4, 32)]
    assert find_converged(runs, []).batch_size == 16
    assert find_converged(runs[:0], []) is None


def test_a_groups_runs_count_by_number_not_by_end():
    """Jobs that overlap end in any order; the last ones are those that started last."""
    runs = [run(number, 8) for number in (9, 8, 7, 6, 5, 0)] + [run(1, 16)] * 5
    assert find_converged(runs, []).batch_size == 8


def test_distance_from_the_optimum(tmp_path):
    """Regret by hand: the optimum is 16 at 200 W, 4 epochs of 1,440 J; at 8 and 100 W it is 10 of 1,740 J."""
    trace = write_world(tmp_path)
    runs = tuple(run(number, 8, 100, cost=17_400.0) for number in range(3))
    found = summarise(trace, SimulationResult(Simulation(PAGES, 3), runs))
    assert found.optimum == Configuration(16, 200, 5120.0, 32.0, 5760.0, 1.0)
    assert found.cumulative_regret_j == 34_920.0
    assert found.final_regret_j == 11_640.0
    assert found.converged.expected == Configuration(8, 100, 10_800.0, 120.0, 17_400.0, 1.0)
    assert found.excess == pytest.approx(17_400 / 5_760 - 1)


def test_final_regret_is_that_of_the_last_recurrences(tmp_path):
    """Of ten recurrences the last five count: they cost 40 J more than the optimum, the others 1,000 J."""
    trace = write_world(tmp_path)
    runs = tuple(run(number, 16, 200, cost=6_760.0 if number < 5 else 5_800.0) for number in range(10))
    found = summarise(trace, SimulationResult(Simulation(PAGES, 10), runs))
    assert found.final_regret_j == 40.0
    assert found.cumulative_regret_j == 5_200.0
    assert found.excess == 0.0


def test_a_target_out_of_reach(tmp_path):
    """Where nothing reaches the target there is no optimum and no regret, and all figures are null."""
    trace = write_world(tmp_path)
    job = type(PAGES)(**PAGES.to_dict() | {"max_epochs": 2})
    found = summarise(trace, SimulationResult(Simulation(job, 1), (run(0),), "stuck"))
    assert found.optimum is None
    values = found.to_dict()
    assert (values["excess"], values["cumulative_regret_j"], values["final_regret_j"]) == (None, None, None)
