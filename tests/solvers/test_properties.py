"""Properties that hold for any problem, found wanting by Hypothesis if they do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers import AllocationProblem, Held, Limits, LinearRow, TaskOptions, check, objective
from solvers.registry import get_solver, names, solve
from tests.examples import examples
from tests.solvers.support import usable

EVERYWHERE = [name for name in names() if name != "node-level"]


@st.composite
def tasks(draw: st.DrawFn) -> TaskOptions:
    """Any few counts, any values: whole ones, so that ties abound, or real ones."""
    counts = [0, *sorted(draw(st.sets(st.integers(1, 9), max_size=6)))]
    whole = st.integers(-5, 9).map(float)
    real = st.floats(-1e3, 1e3, allow_subnormal=False).map(lambda value: round(value, 3))
    values = draw(st.lists(draw(st.sampled_from([whole, real])), min_size=len(counts), max_size=len(counts)))
    current = draw(st.integers(0, 10))
    minimum = counts[1] if len(counts) > 1 else 1
    return TaskOptions(np.array(counts), np.array(values), current, minimum, max(counts[-1], minimum))


@st.composite
def allocation_problems(draw: st.DrawFn, *, rows: bool = False) -> AllocationProblem:
    """Up to four such tasks and a pool; with `rows`, one more that giving nobody anything satisfies."""
    chosen = tuple(draw(st.lists(tasks(), min_size=1, max_size=4)))
    extra: tuple[LinearRow, ...] = ()
    if rows:
        coefficients = draw(st.lists(st.integers(-3, 3), min_size=len(chosen), max_size=len(chosen)))
        bounds = draw(st.integers(-9, 0)), draw(st.integers(0, 9))
        extra = (LinearRow(np.array(coefficients, dtype=np.float64), float(bounds[0]), float(bounds[1])),)
    return AllocationProblem(chosen, draw(st.integers(0, 25)), extra)


@pytest.mark.parametrize("name", EVERYWHERE)
@examples(40)
@given(asked=allocation_problems(), prune=st.booleans())
def test_every_solver_on_any_problem(name: str, asked: AllocationProblem, prune: bool) -> None:
    """The answer passes check(), its objective is objective()'s, its bound is above, and exact ones are optimal."""
    solver = usable(name)
    result = solve(solver, asked, Limits(prune=prune))
    check(asked, result.counts)
    assert result.objective == objective(asked, result.counts)
    assert result.bound >= result.objective
    if solver.exact:
        best = solve(get_solver("exhaustive"), asked, Limits()).objective
        assert result.held is Held.OPTIMAL
        assert result.objective == pytest.approx(best, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ["cbc", "highs", "gurobi"])
@examples(40)
@given(asked=allocation_problems(rows=True), prune=st.booleans())
def test_rows_on_any_problem(name: str, asked: AllocationProblem, prune: bool) -> None:
    """With an extra row as well, of either sign, the backends find what enumeration finds."""
    result = solve(usable(name), asked, Limits(prune=prune))
    check(asked, result.counts)
    best = solve(get_solver("exhaustive"), asked, Limits()).objective
    assert result.objective == pytest.approx(best, rel=1e-9, abs=1e-9)


@pytest.mark.long
@examples(300)
@given(asked=allocation_problems(), prune=st.booleans())
def test_the_dynamic_programme_breaks_ties_as_enumeration_does(asked: AllocationProblem, prune: bool) -> None:
    """The same counts, not only the same objective, pruned or whole."""
    result = solve(get_solver("dp"), asked, Limits(prune=prune))
    assert result.counts == solve(get_solver("exhaustive"), asked, Limits()).counts
