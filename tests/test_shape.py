"""How the code is cut: no function and no module grows beyond what one takes in at a time."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Parts of a module that may hold a function.
HOLDING = (ast.stmt, ast.excepthandler, ast.match_case)
FUNCTION_LINES, ALGORITHM_LINES, MODULE_LINES, FOLDER_FILES, REPEATED_LINES = 60, 100, 700, 20, 8
FEWEST_LINES = 60
# Functions that are an algorithm, which one reads in one piece, may have up to 100 lines: `module.py:function`.
ALGORITHMS = {"bftrainer/replay/loop.py:replay", "bftrainer/schedulers/coverage.py:judge_coverage"}


def sources() -> Iterator[Path]:
    """All our Python: modules, and scripts that have no suffix."""
    for folder in ("bftrainer", "solvers", "benchmarks", "tests"):
        yield from sorted((ROOT / folder).rglob("*.py"))
    for path in sorted((ROOT / "scripts").iterdir()):
        if path.is_file() and path.read_bytes().startswith((b"#!/usr/bin/env python3", b'"""')):
            yield path


@dataclass(frozen=True, slots=True)
class Function:
    """Name and length of a function."""

    name: str
    lines: int


@cache
def functions(path: Path) -> list[Function]:
    """All functions of a file, also methods, and those within functions."""
    found = []
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(Function(node.name, node.end_lineno - node.lineno + 1))
        waiting += [each for each in ast.iter_child_nodes(node) if isinstance(each, HOLDING)]
    return found


SOURCES = list(sources())
CODE = [path for path in SOURCES if ROOT / "tests" not in path.parents]
PRODUCT = [path for path in CODE if path.relative_to(ROOT).parts[0] in ("bftrainer", "solvers")]

# Classes and functions of one name, and modules, that may have it for good.
ALIKE = {
    "main": "what a process of its own begins with",
    "serve": "what a process does that serves, in the batch-size server and behind a solver",
    "simulate": "published by `bftrainer.spot` and by `bftrainer.zeus`, each of what it is about",
}
MODULES_ALIKE = {
    "run": "`bftrainer.spot.run` is documented",
    "sweep": "`bftrainer.spot.sweep` is documented",
}
# Modules of few lines that are worth a file.
SHORT = {
    "bftrainer/_version.py": "read where nothing may be imported",
}


def named(path: Path) -> str:
    """A file's name within the repository."""
    return path.relative_to(ROOT).as_posix()


@pytest.mark.long
def test_nothing_grows_too_long():
    """Functions have at most 60 lines with their docstrings, those named as algorithms 100; modules 700."""
    for path in SOURCES:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= MODULE_LINES, named(path)
        long = [each.name for each in functions(path) if each.lines > limit(path, each)]
        assert long == [], named(path)


def limit(path: Path, function: Function) -> int:
    """Lines that a function may have."""
    return ALGORITHM_LINES if f"{named(path)}:{function.name}" in ALGORITHMS else FUNCTION_LINES


def commands(path: Path) -> set[str]:
    """Functions of a file that are commands: these are called what users type, and may call what is called so."""
    found = [each for each in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(each, ast.FunctionDef)]
    marks = {each.name: [ast.unparse(mark) for mark in each.decorator_list] for each in found}
    return {name for name, some in marks.items() if any(".command" in mark or ".group" in mark for mark in some)}


@pytest.mark.long
def test_each_name_means_one_thing():
    """No two public classes or functions of the product have one name, nor two modules, but for commands."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    names, modules = Counter(), Counter()
    for path in PRODUCT:
        typed = commands(path)
        body = ast.parse(path.read_text(encoding="utf-8")).body
        defined = [each.name for each in body if isinstance(each, kinds) and not each.name.startswith("_")]
        names.update(name for name in defined if name not in typed)
        modules.update([path.stem] if path.stem not in ("__init__", *typed) else [])
    assert {name for name, times in names.items() if times > 1} == set(ALIKE)
    assert {name for name, times in modules.items() if times > 1} == set(MODULES_ALIKE)


def test_modules_hide_something():
    """A module of fewer than 60 lines has a reason."""
    lengths = {named(path): len(path.read_text(encoding="utf-8").splitlines()) for path in PRODUCT}
    short = {name for name, length in lengths.items() if length < FEWEST_LINES and not name.endswith("__init__.py")}
    assert short == set(SHORT)


def test_private_functions_say_in_one_line_what_they_do():
    """Their docstrings have one line; what must be known besides is a comment at its place."""
    for path in PRODUCT:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("_"):
                text = None if node.name.startswith("__") else ast.get_docstring(node, clean=False)
                assert text is None or "\n" not in text, f"{named(path)}:{node.name}"


def test_folders_hold_what_one_overlooks():
    """A folder of the product has at most 20 modules."""
    sizes = Counter(path.parent for path in CODE)
    assert {named(folder): size for folder, size in sizes.items() if size > FOLDER_FILES} == {}


@pytest.mark.long
def test_nothing_is_written_twice():
    """No eight lines in sequence of the product stand in two places, but for imports, and lists of what is offered."""
    seen: dict[tuple[str, ...], str] = {}
    twice = set()
    for path in CODE:
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
