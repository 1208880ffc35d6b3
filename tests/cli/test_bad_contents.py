"""What is wrong in a node log or a task set is told with the file and the row, the task or the key."""

from __future__ import annotations

from collections.abc import Callable

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


NODE_LOGS = {
    "duplicate nodes": (lambda f: f.set_axis(pd.Index(list("abbd")), axis=1), "unique node names, got 'b' twice"),
    "two": (lambda f: at(f, 1, "c", 2, "int8"), "0 or 1, got 2 .*row 2.*node c"),
    "no rows": (lambda f: f.iloc[:0], "rows of node states, got an empty frame"),
    "no times": (lambda f: f.reset_index(drop=True), "an index of datetimes"),
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
    "time": ("yesterday,a,1", "bad.csv:2: Expected time to be an ISO date and time, got 'yesterday'"),
    "unsorted": ("2021-02-10T00:01:00Z,a,1\n2021-02-10T00:00:00Z,b,1", "bad.csv:3: Expected times to ascend"),
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
    "Jmax beyond the curve": (put("Jmax", 8.0), r"task J1.*scaling curve \(to 4\), got 8"),
    "Pmax 0": (put("Pmax", 0.0), r"task J1.*work > 0, got 0\.0"),
    "no Pmax": (lambda f: f.drop(columns="Pmax"), "got none called Pmax"),
    "another index": (lambda f: f.set_axis(pd.Index(["J0", "J2"], dtype=object), axis=0), r"not in bad.pkl \(J1\)"),
}


@pytest.mark.parametrize(("change", "said"), BOUNDS.values(), ids=BOUNDS.keys())
def test_bounds(refused, here, change, said):
    """A fault in the bounds is told with file, task and field."""
    change(bounds_frame()).to_pickle(here / "bad.pkl")
    error = refused("-bdfn", "bad.pkl")
    assert "bad.pkl" in error
    assert_matches(said, error)


SCALING = {
    "Ns not increasing": (put("Ns", [0, 2, 2, 4]), r"task J1.*increase strictly, got \[0, 2, 2, 4\]"),
    "short of Jmax": (put("Ns", [0, 1, 2, 3]), r"task J1.*max_nodes within the scaling curve \(to 3\), got 4"),
    "another index": (lambda f: f.set_axis(pd.Index(["J0", "K1"], dtype=object), axis=0), "K1"),
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
    "text for a number": (("max_nodes = 4", 'max_nodes = "4"'), "task J0: Expected max_nodes to be whole, got '4'"),
    "unknown key": (("grow_cost_s", "grow_cost"), "task J0: Unknown key 'grow_cost'. Did you mean 'grow_cost_s'?"),
    "unknown scaling key": (("throughput", "thruput"), "Unknown key 'thruput' in scaling. Did you mean 'throughput'?"),
    "missing key": (("work = 50.0\n", ""), "task J0: Missing key 'work'"),
    "bounds": (("min_nodes = 1", "min_nodes = 9"), "task J0: Expected min_nodes <= max_nodes, got 9 > 4"),
}


@pytest.mark.parametrize(("change", "said"), TOML.values(), ids=TOML.keys())
def test_toml(refused, here, change, said):
    """A fault in a TOML task set is told with file, task and key, with a suggestion for an unknown one."""
    old, new = change
    (here / "tasks.toml").write_text(TASKS_TOML.replace(old, new, 1))
    error = refused("-bdfn", "tasks.toml", without=("-scfn",))
    assert error.startswith("Error: tasks.toml")
    assert said in error
