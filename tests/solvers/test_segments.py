"""The count-level model: runs and segments by hand, and that it says the same as the value table."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.instances import problems
from solvers import LinearRow
from solvers.pruning import Pruned, unpruned
from solvers.segments import CountModel, Run, formulate, runs
from tests.solvers.known_optima import linear, problem, task


def cut(values: dict[int, float]) -> list[Run]:
    """Runs of a table."""
    return runs(np.array(list(values)), np.array(list(values.values()), dtype=np.float64))


def test_a_linear_curve_is_one_segment() -> None:
    """However many counts, a straight line is a single run of a single segment; rounding does not break it."""
    assert cut({n: 2.0 * n for n in range(9)}) == [Run(0, 0.0, ((8, 2.0),))]
    [run] = cut({n: 0.1 * n for n in range(65)})
    assert run.segments == ((64, pytest.approx(0.1)),)


def test_a_concave_curve_is_one_run() -> None:
    """Slopes that fall share a run, steepest first."""
    assert cut({0: 0.0, 1: 5.0, 2: 8.0, 3: 11.0, 4: 12.0}) == [Run(0, 0.0, ((1, 5.0), (2, 3.0), (1, 1.0)))]


def test_a_convex_corner_starts_a_run() -> None:
    """Where the slope rises, a new run begins after the step; the step itself belongs to neither."""
    assert cut({0: 0.0, 1: 1.0, 2: 2.0, 3: 6.0, 4: 10.0}) == [Run(0, 0.0, ((2, 1.0),)), Run(3, 6.0, ((1, 4.0),))]


def test_a_gap_starts_a_run() -> None:
    """A minimum above 1 leaves the lone point 0 and a run from the minimum on."""
    assert cut({0: 0.0, 4: 8.0, 5: 9.0}) == [Run(0, 0.0, ()), Run(4, 8.0, ((1, 1.0),))]


def test_the_cost_of_rescaling_cuts_around_the_current_count() -> None:
    """A linear task that pays for every change keeps its count as the head of a run of its own."""
    values = {n: 10.0 * n - (25.0 if n != 3 else 0.0) for n in range(7)}
    assert [run.start for run in cut(values)] == [0, 3, 5]


def test_one_run_from_zero_needs_no_binary() -> None:
    """A task whose options are a single run enters by its segments alone."""
    model = formulate(unpruned(problem(linear(2.0, 5), nodes=3)), 3)
    assert model.upper.tolist() == [3.0]
    assert model.row_upper.tolist() == [3.0]


def test_coefficients_are_scaled() -> None:
    """Whatever the unit of values, the largest coefficient lies in [2**23, 2**24), and worth() undoes the scale."""
    for size in (1e-310, 1e-6, 1.0, 1e9, 1e300):
        model = formulate(unpruned(problem(linear(3.0 * size, 4), task({0: size, 2: 9 * size}), nodes=4)), 4)
        assert 2**23 <= np.abs(model.objective).max() < 2**24
        assert model.worth(model.objective @ model.lower) == pytest.approx(size, abs=0)


def test_gains_next_to_what_is_had_anyway() -> None:
    """Gains far too small to matter beside what x = 0 is worth keep that in the range of floats."""
    model = formulate(unpruned(problem(task({0: 1e300, 1: 1e300 + 1e285}), task({0: 0.0, 1: 1e-300}), nodes=2)), 2)
    assert np.isfinite(model.objective).all()
    assert model.worth(model.objective @ model.lower) == 1e300


def test_a_task_without_the_option_0_must_choose() -> None:
    """Once pruning has dropped 0, one of the runs is chosen; the model's lone task cannot stay idle."""
    options = Pruned((np.array([2, 5]),), (np.array([4.0, 6.0]),), None, np.inf)
    model = formulate(options, 9)
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


def encode(model: CountModel, options: Pruned, task_number: int, count: int) -> np.ndarray:
    """A solution that gives one task `count` nodes, written down by the docstring's rule."""
    x = model.lower.copy()
    columns = np.flatnonzero((model.owners == task_number) & (model.lower < 1)).tolist()
    pieces = runs(options.counts[task_number], options.values[task_number])
    if len(pieces) > 1 and pieces[0] == Run(0, pieces[0].value, ()):
        pieces = pieces[1:]
        single = False
    else:
        single = len(pieces) == 1
    for run in pieces:
        length = sum(size for size, _ in run.segments)
        chosen = run.start <= count <= run.start + length
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
        options = unpruned(asked)
        model = formulate(options, asked.nodes)
        rows = dense(model)
        nothing = model.worth(model.objective @ model.lower)
        for number, (counts, values) in enumerate(zip(options.counts, options.values, strict=True)):
            for count, value in zip(counts.tolist(), values.tolist(), strict=True):
                x = encode(model, options, number, count)
                assert model.decode(x)[number] == count
                assert (rows @ x <= model.row_upper + 1e-9).all()
                assert (x <= model.upper).all()
                gained = model.worth(float(model.objective @ x)) - nothing
                assert gained == pytest.approx(value - values[0], rel=1e-9, abs=1e-9 * abs(nothing))


def test_equal_tasks_are_ordered() -> None:
    """Tasks of equal options get a row that gives the first the most; extra rows may tell them apart, so then not."""
    same = [task({0: 0.0, 3: 5.0}), linear(1.0, 2), task({0: 0.0, 3: 5.0})]
    asked = problem(*same, nodes=5)
    model = formulate(unpruned(asked), 5, order_equals=True)
    assert dense(model)[-1].tolist() == [3.0, 0.0, -3.0]
    assert (model.row_lower[-1], model.row_upper[-1]) == (0.0, np.inf)
    with_row = formulate(unpruned(asked), 5, (LinearRow(np.ones(3), upper=4.0),), order_equals=True)
    assert with_row.row_lower.size == 2


def test_extra_rows_count_nodes() -> None:
    """An extra row bears on counts: weights of columns times coefficients of tasks, less what is fixed."""
    asked = problem(linear(2.0, 5), task({0: 0.0, 4: 8.0}), nodes=9)
    model = formulate(unpruned(asked), 9, (LinearRow(np.array([1.0, 2.0]), lower=1.0, upper=7.0),))
    assert dense(model)[-1].tolist() == [1.0, 8.0]
    assert (model.row_lower[-1], model.row_upper[-1]) == (1.0, 7.0)
