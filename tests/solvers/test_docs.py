"""The documentation's example runs."""

from __future__ import annotations

import re
from pathlib import Path

from solvers import Limits
from solvers.registry import names, solve
from tests.solvers.known_optima import linear, problem

PAGE = Path(__file__).parents[2] / "docs" / "solvers.md"


def test_the_example_solver_works() -> None:
    """The class shown in docs/solvers.md answers a problem through the registry's wrapper."""
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    namespace: dict[str, type] = {}
    exec(code, namespace)
    result = solve(namespace["FirstCome"](), problem(linear(1.0, 3), linear(2.0, 3), nodes=4), Limits())
    assert (result.counts, result.objective) == ((3, 1), 5.0)


def test_every_solver_is_in_the_table() -> None:
    """Each registered solver has its place on the page."""
    text = PAGE.read_text()
    assert all(f"`{name}`" in text for name in names())
