"""How the code is cut: no function and no module grows beyond what one takes in at a time."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Parts of a module that may hold a function.
HOLDING = (ast.stmt, ast.excepthandler, ast.match_case)
FUNCTION_LINES, MODULE_LINES, FOLDER_FILES, REPEATED_LINES = 60, 400, 24, 8


def sources() -> Iterator[Path]:
    """All our Python: modules, and scripts that have no suffix."""
    for folder in ("bftrainer", "solvers", "benchmarks", "tests"):
        yield from sorted((ROOT / folder).rglob("*.py"))
    for path in sorted((ROOT / "scripts").iterdir()):
        if path.is_file() and path.read_bytes().startswith((b"#!/usr/bin/env python3", b'"""')):
            yield path


@dataclass(frozen=True, slots=True)
class Function:
    """What is asked of a function: its name and length, and whether it says what it is for."""

    name: str
    lines: int
    documented: bool
    inner: bool


@cache
def functions(path: Path) -> list[Function]:
    """All functions of a file, also methods, and those within functions."""
    found = []
    waiting: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text(encoding="utf-8")), False)]
    while waiting:
        node, inner = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            found.append(Function(node.name, lines, ast.get_docstring(node) is not None, inner))
            inner = True
        waiting += [(each, inner) for each in ast.iter_child_nodes(node) if isinstance(each, HOLDING)]
    return found


SOURCES = list(sources())
CODE = [path for path in SOURCES if ROOT / "tests" not in path.parents]


def named(path: Path) -> str:
    """A file's name within the repository."""
    return path.relative_to(ROOT).as_posix()


def test_nothing_grows_too_long():
    """Functions have at most 60 lines with their docstrings, modules 400."""
    for path in SOURCES:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= MODULE_LINES, named(path)
        assert [each for each in functions(path) if each.lines > FUNCTION_LINES] == [], named(path)


def test_folders_hold_what_one_overlooks():
    """A folder of the product has at most 24 modules."""
    sizes = Counter(path.parent for path in CODE)
    assert {named(folder): size for folder, size in sizes.items() if size > FOLDER_FILES} == {}


def test_what_has_a_plain_name_says_what_it_is_for():
    """Each function without a leading underscore has a docstring, but for those within functions."""
    for path in CODE:
        plain = [each for each in functions(path) if not each.inner and not each.name.startswith("_")]
        assert [each.name for each in plain if not each.documented] == [], named(path)


def test_nothing_is_written_twice():
    """No eight lines in sequence of the product stand in two places, but for imports, and lists of what is offered."""
    apart = ("bftrainer/audit/", "bftrainer/zeus/server/migrations/")  # checks by code of its own; tables as they were
    seen: dict[tuple[str, ...], str] = {}
    twice = set()
    for path in CODE:
        if named(path).startswith(apart):
            continue
        lines = spoken(path)
        for at in range(len(lines) - REPEATED_LINES + 1):
            run = tuple(text for _, text in lines[at : at + REPEATED_LINES])
            place = f"{named(path)}:{lines[at][0]}"
            if seen.setdefault(run, place) != place:
                twice.add((seen[run], place))
    assert twice == set()


def spoken(path: Path) -> list[tuple[int, str]]:
    """Lines of a file, with their numbers, without imports, signatures, docstrings and comments."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    passed: set[int] = set()
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_listing = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        if is_text or is_listing or isinstance(node, ast.Import | ast.ImportFrom):
            passed |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            passed |= set(range(node.lineno, node.body[0].lineno))
    found = [
        (number, line.strip())
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if number not in passed
    ]
    return [(number, text) for number, text in found if text.strip("()[]{},:") and not text.startswith("#")]


def test_all_kinds_of_source_are_looked_at():
    """Packages, tests and scripts with and without a suffix are among them."""
    found = set(map(named, SOURCES))
    assert {
        "bftrainer/replay/engine.py",
        "scripts/make_sample",
        "scripts/_checksums.py",
        "tests/test_shape.py",
    } <= found
