"""The audit's own arithmetic: values, the best allocation, and the books of one task."""

from __future__ import annotations

import dataclasses
import itertools
import sys

import numpy as np
import pytest


def some_task(inputs, rate, credit=None, least=1, grow_s=1.0, shrink_s=2.0):
    """A task of those rates."""
    rate = np.array(rate, dtype=float)
    credit = rate if credit is None else np.array(credit, dtype=float)
    return inputs.Task("J", least, rate.size - 1, 100.0, grow_s, shrink_s, 1.0, 0, rate, credit)


def test_optimum_is_that_of_all_allocations(model):
    """On random tables, also with forbidden counts, the dynamic programme finds the best of all allocations."""
    rng = np.random.default_rng(1)
    for _ in range(100):
        tables = [rng.normal(size=rng.integers(2, 5)) for _ in range(3)]
        tables[0][1] = -np.inf
        nodes = int(rng.integers(0, 8))
        every = itertools.product(*(range(table.size) for table in tables))
        best = max(
            sum(table[count] for table, count in zip(tables, counts, strict=True))
            for counts in every
            if sum(counts) <= nodes
        )
        assert model.optimum(tables, nodes) == pytest.approx(best, rel=1e-12)


def test_values_charge_the_rate_before(model, inputs):
    """Growing and shrinking cost the credit held before, counts below the minimum are forbidden."""
    task = some_task(inputs, [0, 10, 18, 24, 28], least=2)
    assert model.values(task, task.rate, 3, 10.0, False).tolist() == [-48.0, -np.inf, 180 - 48.0, 240.0, 280 - 24.0]


def test_values_of_a_start(model, inputs):
    """From nothing, or from less than the minimum, a start is free, or with the full cost pays its own rate."""
    task = some_task(inputs, [0, 10, 18, 24], least=2)
    assert model.values(task, task.rate, 1, 10.0, False).tolist() == [0.0, -np.inf, 180.0, 240.0]
    assert model.values(task, task.rate, 0, 10.0, True).tolist() == [0.0, -np.inf, 162.0, 216.0]


def test_rescale_costs_are_booked_in_throughput(model, inputs):
    """What the objective credits does not matter to the work that a rescaling loses."""
    task = some_task(inputs, [0, 10, 18], credit=[0, 1, 1])
    assert [model.rescale_cost(task, 1, 2, False), model.rescale_cost(task, 2, 1, False)] == [10.0, 36.0]
    assert [model.rescale_cost(task, 0, 2, False), model.rescale_cost(task, 0, 2, True)] == [0.0, 18.0]


def test_losing_several_nodes_costs_once(model, inputs):
    """A preemption costs shrink time at the rate held, whatever the number of nodes lost."""
    account = model.Account(some_task(inputs, [0, 10, 18, 24]), count=3, rate=24.0)
    account.preempt(2)
    assert (account.count, account.preemption_cost, account.preemptions) == (1, 48.0, 1)


def booked(audit, inputs, rows, decisions=(), moves=(), completed=(), **settings):
    """Books of one task of 300 work (10, 18, 24 work/s; 1 s to grow) over 100 s on nodes n1 and n2."""
    time, node, idle = (np.array(column) for column in zip(*rows, strict=True))
    log = inputs.Log(["n1", "n2"], 0, 100 * 10**9, time * 10**9, node, idle)
    task = dataclasses.replace(some_task(inputs, [0, 10, 18, 24]), work=300.0)
    module = sys.modules[audit.Books.__module__]
    moves = [(second * 10**9, node, name) for second, node, name in moves]
    records = module.Records(decisions, moves, {name: second * 10**9 for name, second in completed})
    books = module.Books(log, [task], module.Settings(max_tasks=1, end_ns=log.end_ns, **settings), records)
    books.run()
    return books


def test_a_random_start_costs_a_start_up(audit, inputs):
    """Nodes drawn at the start come without a decision and cost growing at the rate they give."""
    moves = [(0, "n1", "J"), (31, "n1", None)]
    books = booked(audit, inputs, [(0, 0, True)], moves=moves, initial="random", completed=[("J", 31)])
    assert not any(check.problems for check in books.checks)
    assert (books.accounts["J"].rescale_cost, books.accounts["J"].node_s) == (10.0, 31.0)


def test_completions_wait_for_the_next_row_of_the_log(audit, inputs):
    """Deciding on node events only, a task completes at the next row, and what it did beyond its work is clipped."""
    decision = {"event": 0, "time": 0, "tasks": ["J"], "before": [0], "after": [2]}
    rows = [(0, 0, True), (0, 1, True), (20, 1, False)]
    moves = [(0, "n1", "J"), (0, "n2", "J"), (20, "n2", None), (20, "n1", None)]
    books = booked(audit, inputs, rows, [decision], moves, [("J", 20)], decide_on="nodes")
    assert not any(check.problems for check in books.checks)
    assert (books.accounts["J"].progress, books.accounts["J"].preemption_cost) == (300.0, 36.0)
