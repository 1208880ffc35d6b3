"""What is wrong in a node log or a task set is told with the file and the row, the task or the key."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

from tests.cli.conftest import assert_matches
from tests.tiny import TASKS_TOML, bounds_frame, log_frame, scaling_frame


def put(column: str, value: object) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Set the second task's value."""

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        values = [frame[column].iloc[0], value]
        return frame.assign(**{column: pd.Series(values, index=frame.index)})

    return change


def rename(*names: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Give the tasks other names."""
    return lambda frame: frame.set_axis(pd.Index(names, dtype=object), axis=0)


FRAMES = {"-ndmap": log_frame, "-bdfn": bounds_frame, "-scfn": scaling_frame}
FAULTS = [
    ("-ndmap", lambda f: f.set_axis(list("abbd"), axis=1), "unique node names, got 'b' twice"),
    ("-ndmap", lambda f: f.replace(0, 2), "0 or 1, got 2 .*row 4.*node a"),
    ("-ndmap", lambda f: f.iloc[:0], "rows of node states, got an empty frame"),
    ("-ndmap", lambda f: f.reset_index(drop=True), "an index of datetimes"),
    ("-bdfn", put("Jmin", 5.0), "task J1.*min_nodes <= max_nodes, got 5 > 4"),
    ("-bdfn", put("Jmax", 8.0), r"task J1.*scaling curve \(to 4\), got 8"),
    ("-bdfn", put("Pmax", 0.0), r"task J1.*work > 0, got 0\.0"),
    ("-bdfn", lambda f: f.drop(columns="Pmax"), "got none called Pmax"),
    ("-bdfn", rename("J0", "J2"), r"not in bad.pkl \(J1\)"),
    ("-scfn", put("Ns", [0, 2, 2, 4]), r"task J1.*increase strictly, got \[0, 2, 2, 4\]"),
    ("-scfn", rename("J0", "K1"), "K1"),
]


@pytest.mark.parametrize(("option", "change", "said"), FAULTS)
def test_frames(refused, here, option, change, said):
    """A fault in a published form is told with file and row, or task and field."""
    change(FRAMES[option]()).to_pickle(here / "bad.pkl")
    error = refused(option, "bad.pkl")
    assert "bad.pkl" in error
    assert_matches(said, error)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("2021-02-10T00:00:00Z,a,2", "bad.csv:2: Expected idle to be 0 or 1, got '2'"),
        ("yesterday,a,1", "bad.csv:2: Expected time to be an ISO date and time, got 'yesterday'"),
        ("2021-02-10T00:01:00Z,a,1\n2021-02-10T00:00:00Z,b,1", "bad.csv:3: Expected times to ascend"),
        ("2021-02-10T00:00:00Z,a", "bad.csv:2: Expected 3 values, got 2"),
    ],
)
def test_csv_node_log(refused, here, rows, said):
    """A fault in a CSV node log is told with file and line."""
    (here / "bad.csv").write_text(f"time,node,idle\n{rows}\n")
    assert said in refused("-ndmap", "bad.csv")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("schema = 1", "schema = = 1", "tasks.toml: Expected TOML"),
        ("max_nodes = 4", 'max_nodes = "4"', "task J0: Expected max_nodes to be whole, got '4'"),
        ("grow_cost_s", "grow_cost", "task J0: Unknown key 'grow_cost'. Did you mean 'grow_cost_s'?"),
        ("throughput", "thruput", "Unknown key 'thruput' in scaling. Did you mean 'throughput'?"),
        ("work = 50.0\n", "", "task J0: Missing key 'work'"),
        ("min_nodes = 1", "min_nodes = 9", "task J0: Expected min_nodes <= max_nodes, got 9 > 4"),
    ],
)
def test_toml(refused, here, old, new, said):
    """A fault in a TOML task set is told with file, task and key, with a suggestion for an unknown one."""
    (here / "tasks.toml").write_text(TASKS_TOML.replace(old, new, 1))
    error = refused("-bdfn", "tasks.toml", without=("-scfn",))
    assert error.startswith("Error: tasks.toml")
    assert said in error
