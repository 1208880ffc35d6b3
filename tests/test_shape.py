"""How the code is cut: nothing grows beyond what one takes in at a time, and no two modules need each other."""

import ast
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FUNCTION_LINES, ALGORITHM_LINES, MODULE_LINES, FOLDER_FILES, REPEATED_LINES = 60, 100, 700, 20, 8
FEWEST_LINES = 60
# Functions that are an algorithm, which one reads in one piece, may have up to 100 lines.
ALGORITHMS = {"bftrainer/replay/loop.py:replay", "bftrainer/schedulers/coverage.py:judge_coverage"}
CODE = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for folder in ("bftrainer", "solvers", "benchmarks", "tests", "scripts")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix == ".py"
    or (not path.suffix and path.is_file() and path.read_bytes().startswith(b"#!/usr/bin/env python3"))
}
PRODUCT = [name for name in CODE if name.startswith(("bftrainer/", "solvers/"))]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Classes and functions of one name, and modules, that may have it for good.
ALIKE = {
    "main": "what a process of its own begins with",
    "serve": "what a process does that serves, in the batch-size server and behind a solver",
    "simulate": "published by `bftrainer.spot` and by `bftrainer.zeus`, each of what it is about",
}
MODULES_ALIKE = {"run": "`bftrainer.spot.run` is documented", "sweep": "`bftrainer.spot.sweep` is documented"}
# Modules of few lines that are worth a file.
SHORT = {"bftrainer/_version.py": "read where nothing may be imported"}


@cache
def tree(name: str) -> ast.Module:
    """A file, parsed."""
    return ast.parse(CODE[name])


@pytest.mark.long
def test_nothing_grows_too_long():
    """Functions have at most 60 lines with their docstrings, those named as algorithms 100; modules 700."""
    assert [name for name, text in CODE.items() if len(text.splitlines()) > MODULE_LINES] == []
    for name in CODE:
        for node in ast.walk(tree(name)):
            if isinstance(node, FUNCTIONS):
                place = f"{name}:{node.name}"
                most = ALGORITHM_LINES if place in ALGORITHMS else FUNCTION_LINES
                assert node.end_lineno - node.lineno < most, place


@pytest.mark.long
def test_each_name_means_one_thing():
    """No two public classes or functions of the product have one name, nor two modules, but for commands.

    These are called what users type, and may call what is called so.
    """
    names, modules = Counter(), Counter()
    for name in PRODUCT:
        defined = [node for node in tree(name).body if isinstance(node, (*FUNCTIONS, ast.ClassDef))]
        marks = {node.name: " ".join(map(ast.unparse, node.decorator_list)) for node in defined}
        typed = {key for key, mark in marks.items() if ".command" in mark or ".group" in mark}
        names.update(key for key in marks.keys() - typed if not key.startswith("_"))
        modules.update({Path(name).stem} - typed - {"__init__"})
    assert {name for name, times in names.items() if times > 1} == set(ALIKE)
    assert {name for name, times in modules.items() if times > 1} == set(MODULES_ALIKE)


def test_modules_hide_something():
    """A module of fewer than 60 lines has a reason; a folder of the product has at most 20 of them."""
    short = {name for name in PRODUCT if len(CODE[name].splitlines()) < FEWEST_LINES}
    assert {name for name in short if not name.endswith("__init__.py")} == set(SHORT)
    sizes = Counter(Path(name).parent.as_posix() for name in CODE if not name.startswith("tests/"))
    assert {folder: size for folder, size in sizes.items() if size > FOLDER_FILES} == {}


def test_modules_import_each_other_in_no_circle():
    """Nor with the imports that stand in functions, or are for types alone."""
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name for name in PRODUCT}
    imports: dict[str, set[str]] = {module: set() for module in modules}
    for module, name in modules.items():
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {f"{getattr(node, 'module', '')}.{alias.name}".lstrip(".") for alias in node.names}
                imports[module] |= {one if one in modules else one.rpartition(".")[0] for one in names}
    TopologicalSorter(imports).prepare()  # names the modules of a circle, if there is one


def test_tuples_of_three_have_names():
    """No function takes or returns a tuple of three or more members; a `NamedTuple` says what they are."""
    for name in PRODUCT:
        for node in ast.walk(tree(name)):
            if isinstance(node, FUNCTIONS):
                hints = [node.returns, *(one.annotation for one in ast.walk(node.args) if isinstance(one, ast.arg))]
                shapes = [getattr(hint, "left", hint) for hint in hints if hint is not None]
                bare = [shape for shape in shapes if ast.unparse(shape).startswith("tuple[")]
                assert all(len(getattr(shape.slice, "elts", ())) < 3 for shape in bare), f"{name}:{node.name}"


def test_private_functions_say_in_one_line_what_they_do():
    """Their docstrings have one line; what must be known besides is a comment at its place."""
    for name in PRODUCT:
        for node in ast.walk(tree(name)):
            if isinstance(node, FUNCTIONS) and node.name.startswith("_") and not node.name.startswith("__"):
                assert "\n" not in (ast.get_docstring(node, clean=False) or ""), f"{name}:{node.name}"


@pytest.mark.long
def test_nothing_is_written_twice():
    """No eight lines in sequence of the product stand in two places, but for imports, and lists of what is offered."""
    seen: dict[tuple[str, ...], str] = {}
    twice = set()
    for name in CODE:
        lines = [] if name.startswith("tests/") else spoken_lines(name)
        for at in range(len(lines) - REPEATED_LINES + 1):
            run = tuple(text for _, text in lines[at : at + REPEATED_LINES])
            place = f"{name}:{lines[at][0]}"
            if seen.setdefault(run, place) != place:
                twice.add((seen[run], place))
    assert twice == set()


def spoken_lines(name: str) -> list[tuple[int, str]]:
    """Lines of a file, with their numbers, without imports, signatures, docstrings and comments."""
    passed: set[int] = set()
    for node in ast.walk(tree(name)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_listing = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        if is_text or is_listing or isinstance(node, ast.Import | ast.ImportFrom):
            passed |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if isinstance(node, FUNCTIONS):
            passed |= set(range(node.lineno, node.body[0].lineno))
    lines = [(number, line.strip()) for number, line in enumerate(CODE[name].splitlines(), start=1)]
    return [
        (number, text)
        for number, text in lines
        if number not in passed and text.strip("()[]{},:") and not text.startswith("#")
    ]
