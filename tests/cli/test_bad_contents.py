"""What is wrong in a node log or a task set is told with the file and the row, the task or the key."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from tests.cli.conftest import assert_matches
from tests.tiny import TASKS_TOML, bounds_frame, log_frame, scaling_frame

# --- node logs -------------------------------------------------------------------------------------------------------


def at(frame: pd.DataFrame, row: int, column: str, value: object, dtype: str = "float64") -> pd.DataFrame:
    """The frame with one cell changed, and all of them of another type."""
    changed = frame.astype(dtype)
    changed.loc[changed.index[row], column] = value
    return changed


def times(frame: pd.DataFrame, *rows: int) -> pd.DataFrame:
    """The frame with its index in another order."""
    return frame.set_axis(frame.index[list(rows)], axis=0)


NODE_LOGS = {
    "duplicate times": (lambda f: times(f, 0, 1, 1, 3, 4), "unique times that ascend, got 2021-02-10T00:00:10.*row 3"),
    "unsorted times": (lambda f: times(f, 0, 2, 1, 3, 4), "times that ascend, got 2021-02-10T00:00:10.*row 3"),
    "duplicate nodes": (lambda f: f.set_axis(pd.Index(list("abbd")), axis=1), "unique node names, got 'b' twice"),
    "NaN": (lambda f: at(f, 1, "c", np.nan), "0 or 1, got nan .*row 2.*node c"),
    "two": (lambda f: at(f, 1, "c", 2, "int8"), "0 or 1, got 2 .*row 2.*node c"),
    "half": (lambda f: at(f, 4, "a", 0.5), r"0 or 1, got 0\.5 .*row 5.*node a"),
    "minus one": (lambda f: at(f, 0, "d", -1, "int8"), "0 or 1, got -1 .*row 1.*node d"),
    "text": (lambda f: at(f, 0, "d", "x", "object"), "0 or 1, got 'x' .*row 1.*node d"),
    "no rows": (lambda f: f.iloc[:0], "rows of node states, got an empty frame"),
    "no nodes": (lambda f: f.iloc[:, :0], "rows of node states, got an empty frame"),
    "no times": (lambda f: f.reset_index(drop=True), "an index of datetimes"),
    "NaT": (lambda f: f.set_axis([*f.index[:4], pd.NaT], axis=0), r"2262, got NaT \(row 5\)"),
}


@pytest.mark.parametrize(("change", "said"), NODE_LOGS.values(), ids=NODE_LOGS.keys())
def test_node_log(refused, here, change, said):
    """A fault in a node log is told with file, row and node."""
    change(log_frame()).to_pickle(here / "bad.pkl")
    error = refused("-ndmap", "bad.pkl")
    assert error.startswith("Error: bad.pkl: Expected ")
    assert_matches(said, error)


CSV_LOGS = {
    "value": ("2021-02-10T00:00:00Z,a,2", "bad.csv:2: Expected idle to be 0 or 1, got '2'"),
    "empty value": ("2021-02-10T00:00:00Z,a,", "bad.csv:2: Expected idle to be 0 or 1, got ''"),
    "time": ("yesterday,a,1", "bad.csv:2: Expected time to be an ISO date and time, got 'yesterday'"),
    "unsorted": ("2021-02-10T00:01:00Z,a,1\n2021-02-10T00:00:00Z,b,1", "bad.csv:3: Expected times to ascend"),
    "same twice": ("2021-02-10T00:00:00Z,a,1\n2021-02-10T00:00:00Z,a,1", "bad.csv:3: "),
    "short row": ("2021-02-10T00:00:00Z,a", "bad.csv:2: Expected 3 values, got 2"),
}


@pytest.mark.parametrize(("rows", "said"), CSV_LOGS.values(), ids=CSV_LOGS.keys())
def test_csv_node_log(refused, here, rows, said):
    """A fault in a CSV node log is told with file and line."""
    (here / "bad.csv").write_text(f"time,node,idle\n{rows}\n")
    assert said in refused("-ndmap", "bad.csv")


# --- tasks as published ----------------------------------------------------------------------------------------------


def put(column: str, value: object) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Set the second task's value."""

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        values = list(frame[column])
        values[1] = value
        return frame.assign(**{column: pd.Series(values, index=frame.index)})

    return change


BOUNDS = {
    "Jmin > Jmax": (put("Jmin", 5.0), "task J1.*min_nodes <= max_nodes, got 5 > 4"),
    "Jmin 0": (put("Jmin", 0.0), "task J1.*min_nodes >= 1, got 0"),
    "Jmin fractional": (put("Jmin", 1.5), r"task J1.*min_nodes to be whole, got 1\.5"),
    "Jmax fractional": (put("Jmax", 3.5), r"task J1.*max_nodes to be whole, got 3\.5"),
    "Jmax NaN": (put("Jmax", np.nan), "task J1.*max_nodes to be whole, got nan"),
    "Jmax beyond the curve": (put("Jmax", 8.0), r"task J1.*scaling curve \(to 4\), got 8"),
    "Tcup negative": (put("Tcup", -1.0), r"task J1.*grow_cost_s >= 0, got -1\.0"),
    "Tcdw negative": (put("Tcdw", -0.5), r"task J1.*shrink_cost_s >= 0, got -0\.5"),
    "Tcup infinite": (put("Tcup", np.inf), "task J1.*grow_cost_s >= 0, got inf"),
    "Pmax 0": (put("Pmax", 0.0), r"task J1.*work > 0, got 0\.0"),
    "Pmax negative": (put("Pmax", -5.0), r"task J1.*work > 0, got -5\.0"),
    "Pmax NaN": (put("Pmax", np.nan), "task J1.*work > 0, got nan"),
    "Tsub NaT": (put("Tsub", pd.NaT), "task J1.*Tsub to be a date and time"),
    "no Pmax": (lambda f: f.drop(columns="Pmax"), "got none called Pmax"),
    "another index": (lambda f: f.set_axis(pd.Index(["J0", "J2"], dtype=object), axis=0), r"not in bad.pkl \(J1\)"),
    "one task less": (lambda f: f.iloc[:1], r"1 in JNPs.pkl but not in bad.pkl \(J1\)"),
    "no task": (lambda f: f.iloc[:0], r"2 in JNPs.pkl but not in bad.pkl \(J0, J1\)"),
}


@pytest.mark.parametrize(("change", "said"), BOUNDS.values(), ids=BOUNDS.keys())
def test_bounds(refused, here, change, said):
    """A fault in the bounds is told with file, task and field."""
    change(bounds_frame()).to_pickle(here / "bad.pkl")
    error = refused("-bdfn", "bad.pkl")
    assert "bad.pkl" in error
    assert_matches(said, error)


def test_bounds_alone(refused, here):
    """Bounds that need no scalability are checked for names that come twice, and for tasks at all."""
    twice = bounds_frame().set_axis(pd.Index(["J0", "J0"], dtype=object), axis=0)
    for frame, said in (
        (twice, "task J0: Expected unique task names"),
        (twice.iloc[:0], "at least one task, got none"),
    ):
        frame.to_pickle(here / "bad.pkl")
        error = refused("-bdfn", "bad.pkl", without=("-scfn",))
        assert error.startswith("Error: bad.pkl")
        assert said in error


SCALING = {
    "Ns not increasing": (put("Ns", [0, 2, 2, 4]), r"task J1.*increase strictly, got \[0, 2, 2, 4\]"),
    "Ns not from 0": (put("Ns", [1, 2, 3, 4]), "task J1.*start at 0, got 1"),
    "Ns empty": (put("Ns", []), "task J1.*at least two node counts"),
    "Ns fractional": (put("Ns", [0, 1.5, 2, 4]), r"task J1.*nodes to be whole, got 1\.5"),
    "Ns no list": (put("Ns", 4), "task J1.*Ns to be a list of numbers, got 4"),
    "Ps shorter": (put("Ps", [0.0, 1.0]), "task J1.*4 values of throughput, one per node count, got 2"),
    "Os longer": (put("Os", [0.0] * 5), "task J1.*4 values of credit, one per node count, got 5"),
    "Ps negative": (put("Ps", [0.0, 1.0, -2.0, 4.0]), r"task J1.*throughput to be finite and >= 0, got -2\.0"),
    "Ps not 0 on 0": (put("Ps", [1.0, 1.0, 2.0, 4.0]), r"task J1.*throughput 0 on 0 nodes, got 1\.0"),
    "Os NaN": (put("Os", [0.0, 1.0, np.nan, 4.0]), "task J1.*credit to be finite and >= 0, got nan"),
    "short of Jmax": (put("Ns", [0, 1, 2, 3]), r"task J1.*max_nodes within the scaling curve \(to 3\), got 4"),
    "another index": (lambda f: f.set_axis(pd.Index(["J0", "K1"], dtype=object), axis=0), "K1"),
    "one task more": (lambda f: pd.concat([f, f.iloc[:1].set_axis(["J9"], axis=0)]), "J9"),
    "same name twice": (lambda f: pd.concat([f, f.iloc[:1]]), "task J0.*unique task names"),
}


@pytest.mark.parametrize(("change", "said"), SCALING.values(), ids=SCALING.keys())
def test_scalability(refused, here, change, said):
    """A fault in the scalability is told with file, task and field."""
    change(scaling_frame()).to_pickle(here / "bad.pkl")
    error = refused("-scfn", "bad.pkl")
    assert "Jbnd.pkl, task J1" in error if "within the scaling" in said else "bad.pkl" in error
    assert_matches(said, error)


# --- tasks as TOML ---------------------------------------------------------------------------------------------------

TOML = {
    "no TOML": (("schema = 1", "schema = = 1"), "tasks.toml: Expected TOML"),
    "wrong schema": (("schema = 1", "schema = 2"), "Expected schema = 1, got 2"),
    "text for a number": (("max_nodes = 4", 'max_nodes = "4"'), "task J0: Expected max_nodes to be whole, got '4'"),
    "fraction for a count": (("min_nodes = 1", "min_nodes = 1.5"), "task J0: Expected min_nodes to be whole, got 1.5"),
    "bool for a number": (("work = 50.0", "work = true"), "task J0: Expected work to be a number, got True"),
    "unknown key": (("grow_cost_s", "grow_cost"), "task J0: Unknown key 'grow_cost'. Did you mean 'grow_cost_s'?"),
    "unknown table": (("schema = 1", "schema = 1\ntsak = 2"), "Unknown key 'tsak'. Did you mean 'task'?"),
    "unknown scaling key": (("throughput", "thruput"), "Unknown key 'thruput' in scaling. Did you mean 'throughput'?"),
    "missing key": (("work = 50.0\n", ""), "task J0: Missing key 'work'"),
    "one name twice": (('"J1"', '"J0"'), "J0"),
    "bounds": (("min_nodes = 1", "min_nodes = 9"), "task J0: Expected min_nodes <= max_nodes, got 9 > 4"),
    "costs": (("grow_cost_s = 2.0", "grow_cost_s = -2.0"), "task J0: Expected grow_cost_s >= 0, got -2.0"),
    "work": (("work = 50.0", "work = 0.0"), "task J0: Expected work > 0, got 0.0"),
    "curve": (("nodes = [0, 1, 2, 4]", "nodes = [0, 2, 1, 4]"), "task J0: Expected node counts to increase strictly"),
    "infinite": (("work = 50.0", "work = inf"), "task J0: Expected work > 0, got inf"),
}


@pytest.mark.parametrize(("change", "said"), TOML.values(), ids=TOML.keys())
def test_toml(refused, here, change, said):
    """A fault in a TOML task set is told with file, task and key, with a suggestion for an unknown one."""
    old, new = change
    (here / "tasks.toml").write_text(TASKS_TOML.replace(old, new, 1))
    error = refused("-bdfn", "tasks.toml", without=("-scfn",))
    assert error.startswith("Error: tasks.toml")
    assert said in error
