"""The audit's own arithmetic: the best allocation, values of decisions, and the books of one task."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bftrainer.audit.accounts import Account
from bftrainer.audit.audited_objectives import AuditedObjective, Situation
from bftrainer.audit.best_allocation import Choice, best_sum, best_with_floor, better_than
from bftrainer.audit.decisions import Judge, Rules
from bftrainer.audit.input_files import Series, Task


def some_task(rate, credit=None, least=1, grow_s=1.0, shrink_s=2.0):
    """A task of those rates."""
    rate = np.array(rate, dtype=float)
    credit = rate if credit is None else np.array(credit, dtype=float)
    return Task("J", least, rate.size - 1, 100.0, grow_s, shrink_s, 1.0, 0, rate, credit)


def allocations(tables, nodes):
    """All counts that share the nodes."""
    for counts in itertools.product(*(range(table.size) for table in tables)):
        if sum(counts) <= nodes:
            yield counts


def test_optimum_is_that_of_all_allocations():
    """On random tables, also with forbidden counts, the dynamic programme finds the best of all allocations."""
    rng = np.random.default_rng(1)
    for _ in range(100):
        tables = [rng.normal(size=rng.integers(2, 5)) for _ in range(3)]
        tables[0][1] = -np.inf
        nodes = int(rng.integers(0, 8))
        worth = [sum(map(float, map(np.take, tables, counts))) for counts in allocations(tables, nodes)]
        assert best_sum(tables, nodes) == pytest.approx(max(worth), rel=1e-12)


def test_the_best_with_a_floor_is_that_of_all_allocations():
    """So it is where the least that an owner gets counts as well, whoever owns which tasks."""
    rng = np.random.default_rng(2)
    for _ in range(60):
        tables = [np.append(0.0, rng.normal(1.0, 2.0, size=3)) for _ in range(3)]
        owners, nodes = ([[0], [1, 2]] if rng.integers(2) else [[0], [1], [2]]), int(rng.integers(0, 9))
        owed, weight = rng.uniform(0.5, 2.0, size=len(owners)).tolist(), float(rng.uniform(0.1, 10.0))
        worth = []
        for counts in allocations(tables, nodes):
            each = [float(table[count]) for table, count in zip(tables, counts, strict=True)]
            least = min(sum(each[place] for place in group) * by for group, by in zip(owners, owed, strict=True))
            worth.append(sum(each) + weight * least)
        assert best_with_floor(tables, owners, owed, weight, nodes) == pytest.approx(max(worth), rel=1e-9)


@pytest.mark.parametrize("resources", [1, 2])
def test_what_is_better_under_capacities_is_found(resources):
    """Of random options that take watts as well, one above a value is found just if there is one."""
    rng = np.random.default_rng(resources)
    for _ in range(60):
        counts = np.array([0, 1, 1, 2, 3])
        choices = [
            Choice(counts, rng.normal(1, 2, 5) * (counts > 0), rng.uniform(0, 5, (resources, 5)) * (counts > 0))
            for _ in range(3)
        ]
        nodes, caps = int(rng.integers(0, 8)), rng.uniform(1, 9, resources)
        best = max(
            sum(choice.values[place] for choice, place in zip(choices, places, strict=True))
            for places in itertools.product(range(5), repeat=3)
            if counts[list(places)].sum() <= nodes
            and (sum(choice.uses[:, place] for choice, place in zip(choices, places, strict=True)) <= caps).all()
        )
        assert better_than(best + 1e-9, choices, nodes, caps) is None
        found = better_than(best - 1e-9, choices, nodes, caps)
        assert found == pytest.approx(best, abs=1e-8)


def values(task, held, full_start=False):
    """Values of a task's counts, 10 s ahead."""
    rules = Rules(max_tasks=10, forward_s=10.0, solvers=("dp",), full_start=full_start)
    (table,) = Judge(AuditedObjective("as-given"), rules, False)._tables(Situation(Account(task), held, 0.0, 0))
    return table.tolist()


def test_values_charge_the_rate_before():
    """Growing and shrinking cost the credit held before, counts below the minimum are forbidden."""
    assert values(some_task([0, 10, 18, 24, 28], least=2), 3) == [-48.0, -np.inf, 180 - 48.0, 240.0, 280 - 24.0]


def test_values_of_a_start():
    """From nothing, or from less than the minimum, a start is free, or with the full cost pays its own rate."""
    task = some_task([0, 10, 18, 24], least=2)
    assert values(task, 1) == [0.0, -np.inf, 180.0, 240.0]
    assert values(task, 0, full_start=True) == [0.0, -np.inf, 162.0, 216.0]


def cost(before, after, full_start=False):
    """What a decision takes from a task of throughput 10, 18 that is credited alike on any count."""
    account = Account(some_task([0, 10, 18], credit=[0, 1, 1]), count=before)
    account.adopt(after, account.mode, full_start, 0)
    return account.pending


def test_rescale_costs_are_booked_in_throughput():
    """What the objective credits does not matter to the work that a rescaling loses."""
    assert [cost(1, 2), cost(2, 1), cost(0, 2), cost(0, 2, full_start=True), cost(2, 2)] == [10.0, 36.0, 0.0, 18.0, 0.0]


def test_losing_several_nodes_costs_once():
    """A preemption costs shrink time at the rate held, whatever the number of nodes lost."""
    account = Account(some_task([0, 10, 18, 24]), count=3, rate=24.0)
    account.preempt(2)
    assert (account.count, account.preemption_cost, account.preemptions) == (1, 48.0, 1)


def test_a_series_holds_until_its_next_value():
    """Pieces of an interval, and changes within a window; what stays the same is none."""
    series = Series((0.0, 10.0, 20.0, 30.0), (5.0, 5.0, 7.0, 6.0))
    assert series.pieces(5.0, 25.0) == [(5.0, 10.0, 5.0), (10.0, 20.0, 5.0), (20.0, 25.0, 7.0)]
    assert series.changes(30.0) == [20.0]
