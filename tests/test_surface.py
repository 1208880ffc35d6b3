"""What the packages show: `__all__` is what is there, entry points load, and everything public says what it is."""

from __future__ import annotations

import configparser
import doctest
import importlib
import inspect
import pkgutil
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

import bftrainer
import solvers

ROOT = Path(__file__).parents[1]
# The data of an installed wheel; a package in name only.
NOT_CODE = ("bftrainer.data",)


def modules() -> list[str]:
    """Names of all our modules."""
    found = [package.__name__ for package in (bftrainer, solvers)]
    for package in (bftrainer, solvers):
        found += [module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    return [name for name in found if not name.startswith(NOT_CODE)]


def packages() -> list[str]:
    """Names of those that are packages."""
    return [name for name in modules() if hasattr(importlib.import_module(name), "__path__")]


def declared() -> dict[str, dict[str, str]]:
    """Entry points that `setup.cfg` declares, by group and name."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    groups = config["options.entry_points"]
    lines = {group: [line for line in groups[group].splitlines() if line] for group in groups}
    return {group: dict(line.split(" = ") for line in points) for group, points in lines.items()}


def public(module: ModuleType) -> dict[str, object]:
    """What a module offers and defines itself."""
    return {
        name: value
        for name in getattr(module, "__all__", ())
        if (inspect.isfunction(value := getattr(module, name)) or inspect.isclass(value))
        and value.__module__ == module.__name__
    }


@pytest.mark.parametrize("name", modules())
def test_all_is_there(name):
    """Each name of `__all__` exists, once; every module that defines something public has one."""
    module = importlib.import_module(name)
    listed = getattr(module, "__all__", None)
    defines = [
        key
        for key, value in vars(module).items()
        if not key.startswith("_") and getattr(value, "__module__", None) == name
    ]
    assert listed is not None or not defines or name.endswith("__main__"), defines
    listed = listed or []
    assert len(set(listed)) == len(listed)
    assert [key for key in listed if not hasattr(module, key)] == []


@pytest.mark.parametrize("name", packages())
def test_packages_export_what_they_list(name):
    """A package's public names are its `__all__` and its modules: nothing slips out, nothing is forgotten."""
    module = importlib.import_module(name)
    inside = {module_name for _, module_name, _ in pkgutil.iter_modules(module.__path__)}
    theirs = {
        key
        for key, value in vars(module).items()
        if not key.startswith("_")
        and key not in inside
        and not inspect.ismodule(value)
        and str(getattr(value, "__module__", "")).split(".")[0] in ("bftrainer", "solvers")
    }
    assert theirs <= set(module.__all__)
    assert set(module.__all__) <= set(dir(module))


def test_the_top_level_names():
    """`from bftrainer import ...` gives what `__all__` says, and a typo is an AttributeError."""
    assert dir(bftrainer) == bftrainer.__all__
    for name in bftrainer.__all__:
        assert getattr(bftrainer, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'run_reply'"):
        _ = bftrainer.run_reply


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [(group, name, value) for group, points in declared().items() for name, value in points.items()],
)
def test_entry_points_load(group, name, value):
    """Each entry point leads to something; solvers and objectives are called what they are registered as."""
    loaded = EntryPoint(name, value, group).load()
    assert callable(loaded)
    if group == "bftrainer.solvers":
        assert loaded.name == name
        assert isinstance(loaded.exact, bool)
        assert isinstance(loaded.extra_rows, bool)
        assert isinstance(loaded.requires, tuple)
    if group == "bftrainer.objectives":
        assert loaded.__name__ == name.replace("-", "_")
    if group == "bftrainer.objective_modifiers":
        assert loaded.kind == name


def test_every_package_is_installed():
    """`setup.cfg` lists each package that there is: a wheel misses none."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    assert listed == set(packages()) | {"bftrainer.data"}


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings(name):
    """Examples in docstrings do what they show."""
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("name", modules())
def test_everything_public_has_a_docstring(name):
    """Modules, public functions, classes and their public methods say what they are for."""
    module = importlib.import_module(name)
    assert module.__doc__
    for key, value in public(module).items():
        assert (getattr(value, "help", None) or value.__doc__ or "").strip(), f"{name}.{key}"
        if inspect.isclass(value):
            for method, function in vars(value).items():
                if inspect.isfunction(function) and not method.startswith("_"):
                    assert inspect.getdoc(getattr(value, method)), f"{name}.{key}.{method}"
