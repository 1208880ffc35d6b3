"""The count-level model, by hand, and that it says the same as the options."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.instances import problems
from solvers import AllocationProblem, LinearRow
from solvers.concave_runs import runs
from solvers.option_pruning import unpruned
from solvers.segments import CountModel, formulate
from tests.solvers.known_optima import linear, problem, task


def whole(asked: AllocationProblem, **options: bool) -> CountModel:
    """The model of all that fits."""
    return formulate(unpruned(asked).choices, asked, **options)


def test_one_run_from_zero_needs_no_binary() -> None:
    """A task whose options are a single run enters by its segments alone."""
    model = whole(problem(linear(2.0, 5), nodes=3))
    assert model.upper.tolist() == [3.0]
    assert model.row_upper.tolist() == [3.0]


def test_coefficients_are_scaled() -> None:
    """Whatever the unit of values, the largest coefficient lies in [2**23, 2**24), and worth() undoes the scale."""
    for size in (1e-310, 1e-6, 1.0, 1e9, 1e300):
        model = whole(problem(linear(3.0 * size, 4), task({0: size, 2: 9 * size}), nodes=4))
        assert 2**23 <= np.abs(model.objective).max() < 2**24
        assert model.worth(model.objective @ model.lower) == pytest.approx(size, abs=0)


def test_gains_next_to_what_is_had_anyway() -> None:
    """Gains far too small to matter beside what x = 0 is worth keep that in the range of floats."""
    model = whole(problem(task({0: 1e300, 1: 1e300 + 1e285}), task({0: 0.0, 1: 1e-300}), nodes=2))
    assert np.isfinite(model.objective).all()
    assert model.worth(model.objective @ model.lower) == 1e300


def test_a_task_without_the_option_0_must_choose() -> None:
    """Once pruning has dropped 0, one of the runs is chosen; the model's lone task cannot stay idle."""
    asked = problem(task({0: 0.0, 2: 4.0, 5: 6.0}), nodes=9)
    model = formulate([np.array([1, 2])], asked)
    rows = dense(model)
    assert [1.0, 1.0] in rows[:, model.lower < 1].tolist()
    assert (model.row_lower.max(), model.row_upper.min()) == (1.0, 1.0)


def dense(model: CountModel) -> np.ndarray:
    """The rows as a matrix."""
    matrix = np.zeros((model.row_lower.size, model.objective.size))
    for row in range(len(matrix)):
        entries = slice(model.starts[row], model.starts[row + 1])
        matrix[row, model.indices[entries]] = model.coefficients[entries]
    return matrix


def encode(model: CountModel, asked: AllocationProblem, number: int, count: int) -> np.ndarray:
    """A solution that gives one task `count` nodes, written down by the docstring's rule."""
    x = model.lower.copy()
    columns = np.flatnonzero((model.owners == number) & (model.lower < 1)).tolist()
    given = asked.tasks[number]
    fits = given.counts <= asked.nodes
    pieces = runs(given.counts[fits], given.values[None, fits])
    single = len(pieces) == 1
    if not single and pieces[0].start == 0 and not pieces[0].segments:
        pieces = pieces[1:]
    for run in pieces:
        chosen = run.start <= count < run.start + run.options
        if not single:
            x[columns.pop(0)] = chosen
        left = count - run.start if chosen else 0
        for size, _ in run.segments:
            x[columns.pop(0)] = min(size, left)
            left -= min(size, left)
    assert not columns
    return x


def test_the_model_says_what_the_table_says() -> None:
    """For every option of every task there is a point of the model, decoded to it and worth exactly its value."""
    for asked in problems(3, 4, 40, 12):
        model = whole(asked)
        rows = dense(model)
        nothing = model.worth(model.objective @ model.lower)
        for number, (given, order) in enumerate(zip(asked.tasks, model.order, strict=True)):
            for choice in order.tolist():
                count, value = given.counts.item(choice), given.values.item(choice)
                x = encode(model, asked, number, count)
                assert model.decode(x)[number] == choice
                assert (rows @ x <= model.row_upper + 1e-9).all()
                assert (x <= model.upper).all()
                gained = model.worth(float(model.objective @ x)) - nothing
                assert gained == pytest.approx(value - given.values[0], rel=1e-9, abs=1e-9 * abs(nothing))


def test_equal_tasks_are_ordered() -> None:
    """Tasks of equal options get a row that gives the first the most; extra rows may tell them apart, so then not."""
    same = [task({0: 0.0, 3: 5.0}), linear(1.0, 2), task({0: 0.0, 3: 5.0})]
    asked = problem(*same, nodes=5)
    model = whole(asked, order_equals=True)
    assert dense(model)[-1].tolist() == [3.0, 0.0, -3.0]
    assert (model.row_lower[-1], model.row_upper[-1]) == (0.0, np.inf)
    with_row = whole(problem(*same, nodes=5, rows=(LinearRow(np.ones(3), upper=4.0),)), order_equals=True)
    assert with_row.row_lower.size == 2


def test_extra_rows_count_nodes() -> None:
    """An extra row bears on counts: weights of columns times coefficients of tasks, less what is fixed."""
    row = LinearRow(np.array([1.0, 2.0]), lower=1.0, upper=7.0)
    model = whole(problem(linear(2.0, 5), task({0: 0.0, 4: 8.0}), nodes=9, rows=(row,)))
    assert dense(model)[-1].tolist() == [1.0, 8.0]
    assert (model.row_lower[-1], model.row_upper[-1]) == (1.0, 7.0)
