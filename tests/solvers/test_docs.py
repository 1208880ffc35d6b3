"""The documentation's example runs."""

from __future__ import annotations

import re
from pathlib import Path

from solvers import Limits
from solvers.registry import names, solve, solver_class
from tests.solvers.known_optima import linear, problem

DOCS = Path(__file__).parents[2] / "docs" / "dev"


def test_the_example_solver_works() -> None:
    """The class shown in docs/dev/extending.md answers a problem through the registry's wrapper."""
    text = (DOCS / "extending.md").read_text()
    [code] = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "def solve" in block]
    namespace: dict[str, type] = {}
    exec(code, namespace)
    result = solve(namespace["LargestFirst"](), problem(linear(1.0, 3), linear(2.0, 3), nodes=4), Limits())
    assert (result.counts, result.objective) == ((1, 3), 7.0)


def test_every_solver_is_in_the_table() -> None:
    """Each registered solver has its row on the page, which says what it takes."""
    lines = (DOCS / "solvers.md").read_text().splitlines()
    rows = [line.strip("|").split("|") for line in lines if line.startswith("| `")]
    table = {name: row for row in rows for name in re.findall(r"`([a-z-]+)`", row[0]) if len(row) == 8}
    assert set(table) == set(names())
    for name, row in table.items():
        taken = [getattr(solver_class(name), each, False) for each in ("exact", "extra_rows", "capacities", "floor")]
        assert [cell.strip() for cell in row[2:6]] == ["yes" if each else "no" for each in taken], name
