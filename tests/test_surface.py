"""What the packages show: `__all__` is what is there, entry points load, and examples do what they show."""

import configparser
import doctest
import importlib
import inspect
import pkgutil
import subprocess
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

import bftrainer

ROOT = Path(__file__).parents[1]


def modules() -> list[str]:
    """Names of all our modules."""
    paths = [path.relative_to(ROOT) for room in ("bftrainer", "solvers") for path in (ROOT / room).rglob("*.py")]
    return sorted(".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths)


def packages() -> list[str]:
    """Names of those that are packages."""
    return [name for name in modules() if hasattr(importlib.import_module(name), "__path__")]


CONFIG = configparser.ConfigParser()
CONFIG.read(ROOT / "setup.cfg")


def declared() -> dict[str, dict[str, str]]:
    """Entry points that `setup.cfg` declares, by group and name."""
    groups = CONFIG["options.entry_points"]
    lines = {group: [line for line in groups[group].splitlines() if line] for group in groups}
    return {group: dict(line.split(" = ") for line in points) for group, points in lines.items()}


def test_all_is_there():
    """Each name of an `__all__` exists, once; a package's public names are these and modules; a typo is an error."""
    for name in modules():
        module = importlib.import_module(name)
        listed = getattr(module, "__all__", [])
        assert len(set(listed)) == len(listed), name
        assert [key for key in listed if not hasattr(module, key)] == [], name
        if hasattr(module, "__path__"):
            assert exported(module) <= {*listed} <= {*dir(module)}, name
    with pytest.raises(AttributeError, match="no attribute 'run_reply'"):
        _ = bftrainer.run_reply


def exported(module: ModuleType) -> set[str]:
    """Names of ours in a package that are none of its modules."""
    inside = {module_name for _, module_name, _ in pkgutil.iter_modules(module.__path__)}
    return {
        key
        for key, value in vars(module).items()
        if not key.startswith("_")
        and key not in inside
        and not inspect.ismodule(value)
        and str(getattr(value, "__module__", "")).split(".")[0] in ("bftrainer", "solvers")
    }


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
    assert {*CONFIG["options"]["packages"].split()} == {*packages(), "bftrainer.data"}


@pytest.mark.long
def test_the_smoke_set_is_there():
    """Each folder and file that `scripts/test` names for a newcomer exists."""
    (line,) = [line for line in (ROOT / "scripts" / "test").read_text().splitlines() if line.startswith("smoke=")]
    command = ["bash", "-c", f'{line}; printf "%s\n" "${{smoke[@]}}"']
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [name for name in told.stdout.split() if not (ROOT / name).exists()] == []


def test_examples_in_docstrings():
    """Examples in docstrings do what they show."""
    shown = [name for name in modules() if ">>> " in inspect.getsource(importlib.import_module(name))]
    assert len(shown) > 5
    assert [name for name in shown if doctest.testmod(importlib.import_module(name)).failed] == []
