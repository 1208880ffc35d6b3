"""Files, pickles, objectives and licences that cannot be used are refused by name; nothing is executed."""

from __future__ import annotations

import builtins
import os
import pickle
import sys

import numpy as np
import pandas as pd
import pytest

from tests.cli.conftest import assert_matches
from tests.tiny import bounds_frame


def test_missing_file(refused):
    """A file that is not there is named."""
    for option in ("-ndmap", "-bdfn", "-scfn"):
        assert refused(option, "absent.pkl") == "Error: absent.pkl: No such file.\n"


def test_directory_for_a_file(refused, here):
    """So is a directory in its place, also one that is called by no name of its own."""
    (here / "folder").mkdir()
    for folder in ("folder", ".", "/"):
        assert refused("-ndmap", folder) == f"Error: {folder}: Expected a file, got a directory.\n"


def test_pipe_for_a_file(refused):
    """A pipe cannot be read twice, once to tell its form; that is what is said."""
    reader, writer = os.pipe()
    os.close(writer)
    for option in ("-ndmap", "-bdfn", "-scfn"):
        path = f"/dev/fd/{reader}"
        assert_matches(f"{path}: .*pipe", refused(option, path))
    os.close(reader)


@pytest.mark.parametrize("name", ["empty.pkl", "empty.toml"])
def test_empty_file(refused, here, name):
    """An empty file is said to be empty, whatever its name promises."""
    (here / name).touch()
    for option in ("-ndmap", "-bdfn"):
        assert f"{name}: Expected data, got an empty file." in refused(option, name)


@pytest.mark.parametrize("name", ["junk.parquet", "junk.tar.gz", "junk"])
def test_not_what_its_name_says(refused, here, name):
    """Noise is refused by its name in every form."""
    (here / name).write_bytes(b"\x00\x01 no data at all\n\xff")
    for option in ("-ndmap", "-bdfn"):
        assert f"{name}" in refused(option, name)


# --- hostile pickles -------------------------------------------------------------------------------------------------


class Hostile:
    """Executes a command when it is unpickled by an ordinary reader."""

    def __reduce__(self):
        return os.system, ("touch pwned",)


def nested() -> pd.DataFrame:
    """A frame that is what it should be, but for one cell."""
    frame = bounds_frame()
    frame["Tcup"] = pd.Series([1.0, Hostile()], index=frame.index, dtype=object)
    return frame


@pytest.mark.parametrize("protocol", [0, 2, 5])
@pytest.mark.parametrize("payload", [Hostile, lambda: {"a": [(Hostile(),)]}, nested], ids=["bare", "nested", "cell"])
def test_hostile_pickle(refused, here, payload, protocol):
    """A pickle that asks for os.system is refused by that name and not executed, in each protocol and at any depth."""
    (here / "hostile.pkl").write_bytes(pickle.dumps(payload(), protocol))
    for option in ("-ndmap", "-bdfn", "-scfn"):
        assert refused(option, "hostile.pkl").startswith("Error: hostile.pkl: refused to load posix.system ")
    assert not (here / "pwned").exists()


@pytest.fixture
def unloadable(here, monkeypatch):
    """Importing pyarrow fails as the system says it, in a page of advice."""
    del here  # written before
    real = builtins.__import__

    def importing(name, *rest, **options):
        if name.split(".")[0] != "pyarrow":
            return real(name, *rest, **options)
        try:
            raise ImportError("libarrow.so: failed to map segment from shared object", name="pyarrow.lib")
        except ImportError as cause:
            raise ImportError("\n\nIMPORTANT: PLEASE READ THIS\n" * 40, name="pyarrow.lib") from cause

    monkeypatch.setattr(builtins, "__import__", importing)


@pytest.mark.usefixtures("unloadable")
def test_a_library_that_cannot_be_loaded(call, here):
    """One line with what the system said, and status 1: the input is not at fault."""
    (here / "idle.parquet").write_bytes(b"PAR1")
    done = call("replay", "-ndmap", "idle.parquet", "-bdfn", "Jbnd.pkl")
    assert (done.status, done.out) == (1, ""), done.err
    assert done.err == "Error: Cannot load pyarrow.lib: libarrow.so: failed to map segment from shared object.\n"


# --- objectives ------------------------------------------------------------------------------------------------------

OBJECTIVES = {
    "NaN": ("return counts * float('nan')", "objective credit, task J0: Expected finite credit, got nan for 0 nodes"),
    "shape": ("return counts[1:]", r"Expected credit of shape \(5,\), got \(4,\)"),
    "divides": ("1 / 0", "raised ZeroDivisionError: division by zero"),
    "leaves": ("raise SystemExit(0)", r"task J0: raised SystemExit: 0 \(goal_\d+.py, line 2\)\.$"),
}


@pytest.mark.parametrize(("body", "said"), OBJECTIVES.values(), ids=OBJECTIVES.keys())
def test_objective(refused, here, monkeypatch, body, said, request):
    """An objective that answers nonsense at its first decision is told by name and task, and leaves nothing."""
    name = f"goal_{abs(hash(request.node.name))}"
    (here / f"{name}.py").write_text(f"def credit(task, counts, now_s):\n    {body}\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with np.errstate(divide="ignore", invalid="ignore"):
        assert_matches(said, refused("--objective", f"{name}:credit"))


def test_objective_that_cannot_be_imported(refused, here, monkeypatch):
    """A syntax error in an objective's module is one line, as is one that ends Python."""
    (here / "broken_goal.py").write_text("def credit(:\n")
    (here / "leaving_goal.py").write_text("raise SystemExit(0)\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name, error in {"broken_goal": "SyntaxError", "leaving_goal": "SystemExit"}.items():
        said = refused("--objective", f"{name}:credit")
        assert f"objective {name}:credit: Cannot import the module: {error}" in said
