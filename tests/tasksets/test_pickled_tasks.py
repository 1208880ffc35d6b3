import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from bftrainer.errors import InvalidTaskError, OutputError
from bftrainer.tasksets import read_task_set, write_task_set
from tests.strategies import task_sets

TIMES = np.array(["2021-02-10T00:00:00", "2021-02-10T00:01:00"], dtype="M8[ns]")


def bounds(**change):
    """Good bounds of two tasks, with columns changed."""
    columns = {
        "Tcup": [18.0, 18.0],
        "Tcdw": [12.0, 12.0],
        "Jmin": [1.0, 2.0],
        "Jmax": [8.0, 4.0],
        "Pmax": [1e8, 1e8],
        "Tsub": TIMES,
    }
    return pd.DataFrame(columns | change, index=["J0", "J1"])


def scalability(**change):
    """Good scalability of the same tasks, with columns changed."""
    columns = {
        "Ns": [[0, 1, 8], [0, 1, 8]],
        "Ps": [[0, 1.0, 7.0], [0, 1.0, 7.0]],
        "Os": [[0, 1.0, 7.0], [0, 1.0, 3.0]],
        "Tsub": TIMES,
    }
    return pd.DataFrame(columns | change, index=["J0", "J1"])


@pytest.fixture
def read(tmp_path):
    """Write frames and read them as a task set."""

    def reader(one, other=None, **options):
        one.to_pickle(tmp_path / "b.pkl")
        if other is not None:
            other.to_pickle(tmp_path / "s.pkl")
        return read_task_set(tmp_path / "b.pkl", None if other is None else tmp_path / "s.pkl", **options)

    return reader


def test_pair(read):
    """Bounds and scalability give tasks in file order; credit equal to the throughput is no credit of its own."""
    given = read(bounds(), scalability())
    first, second = given.tasks
    assert (first.name, first.min_nodes, first.max_nodes, first.work) == ("J0", 1, 8, 1e8)
    assert (first.grow_cost_s, first.shrink_cost_s) == (18.0, 12.0)
    assert first.submit_ns == int(TIMES[0].astype(np.int64))
    assert (first.scaling.nodes, first.scaling.throughput) == ((0, 1, 8), (0.0, 1.0, 7.0))
    assert (first.scaling.credit, second.scaling.credit) == (None, (0.0, 1.0, 3.0))
    assert given.warnings == ()
    assert [path.name for path in given.sources] == ["b.pkl", "s.pkl"]


@pytest.mark.parametrize("kind", ["bounds", "bounds-objects"])
@pytest.mark.parametrize("version", ["1.1", "1.5", "2.2", "3.1"])
def test_pairs_of_every_pandas(fixtures, kind, version):
    """Pairs pickled by any pandas in any protocol give the same tasks."""
    pairs = itertools.product(
        sorted(fixtures.glob(f"{kind}-pandas{version}-*.pkl")),
        sorted(fixtures.glob(f"scalability-pandas{version}-*.pkl")),
    )
    expected = read_task_set(
        fixtures / "bounds-pandas3.1-protocol5.pkl", fixtures / "scalability-pandas3.1-protocol5.pkl"
    )
    read = [read_task_set(one, other).tasks for one, other in pairs]
    assert read
    assert all(tasks == expected.tasks for tasks in read)
    assert expected.tasks[1].scaling.credit == (0.0, 1.0, 3.0)


def test_the_two_files_are_joined_by_name(read):
    """Scalability may be in another order; if the two submissions differ, the bounds' one counts, which is said."""
    assert read(bounds(), scalability().iloc[::-1]).tasks == read(bounds(), scalability()).tasks
    task_set = read(bounds(), scalability(Tsub=TIMES + np.timedelta64(1, "s")))
    assert task_set.tasks[0].submit_ns == int(TIMES[0].astype(np.int64))
    assert [warning.split(": ")[1].split(" differs")[0] for warning in task_set.warnings] == ["Tsub of 2 tasks"]


@pytest.mark.parametrize(
    ("named", "taken"), [("x-Jbnd-2J.pkl", "x-JNPs-2J.pkl"), ("jbnd.pkl", "jnps.pkl"), ("X-JBND.PKL", "X-JNPS.PKL")]
)
def test_siblings_in_their_case(tmp_path, named, taken):
    """The sibling whose name is in the same case is read, which is said, and written; no other one is taken."""
    bounds().to_pickle(tmp_path / named, compression=None)
    scalability().to_pickle(tmp_path / "JNPs.pkl")
    assert read_task_set(tmp_path / named).assumed_scaling is not None
    scalability().to_pickle(tmp_path / taken, compression=None)
    task_set = read_task_set(tmp_path / named)
    assert task_set.sources == (tmp_path / named, tmp_path / taken)
    assert task_set.tasks[1].scaling.credit == (0.0, 1.0, 3.0)
    assert [warning.rsplit("/", 1)[1] for warning in task_set.warnings] == [f"{taken}."]
    if named.endswith(".pkl"):
        (tmp_path / taken).unlink()
        write_task_set(tmp_path / named, task_set.tasks)
        assert read_task_set(tmp_path / named).tasks == task_set.tasks


@pytest.mark.parametrize(
    ("scaling", "rate_at_4"), [(None, 4.0), ("linear", 4.0), ("amdahl:0.5", 1.6), ("amdahl:0", 1.0), ("amdahl:1", 4.0)]
)
def test_assumed_scaling(read, scaling, rate_at_4):
    """Without any scalability a law is assumed, linear unless asked, with a warning."""
    given = read(bounds(), scaling=scaling)
    assert given.tasks[0].scaling.at(4) == pytest.approx(rate_at_4)
    assert given.assumed_scaling.is_default == (scaling is None)
    assert len(given.warnings) == 1
    assert "without scaling" in given.warnings[0]
    assert given.warnings[0].count("2 of 2 tasks") == 1
    assert "-scfn" in given.warnings[0]
    assert ("--scaling" in given.warnings[0]) == (scaling is None)


def objects(*values):
    """A column of objects."""
    return pd.Series(values, index=["J0", "J1"], dtype=object)


BAD_BOUNDS = [
    ({"Jmin": [1.0, 5.0]}, r"J1: Expected min_nodes <= max_nodes, got 5 > 4\."),
    ({"Jmin": [1.5, 1.0]}, r"J0: Expected min_nodes to be whole, got 1\.5\."),
    ({"Jmin": [1.0, np.nan]}, r"J1: Expected min_nodes to be whole, got nan\."),
    ({"Jmax": [np.inf, 4.0]}, r"J0: Expected max_nodes to be whole, got inf\."),
    ({"Pmax": objects(10**400, 1)}, r"J0: Expected Pmax to be a number, got a number of many digits\."),
    ({"Jmin": ["one", 1.0]}, r"J0: Expected Jmin to be a number, got 'one'\."),
    ({"Jmin": objects(True, 1)}, r"J0: Expected Jmin to be a number, got True\."),
    ({"Jmin": [True, True]}, r"J0: Expected Jmin to be a number, got True\."),
    ({"Jmin": objects(np.array(1.0), 1)}, r"J0: Expected Jmin to be a number, got \[1\.0\]\."),
    ({"Pmax": objects([2.0], 1)}, r"J0: Expected Pmax to be a number, got \[2\.0\]\."),
    ({"Pmax": objects({"a": [2.0]}, 1)}, r"J0: Expected Pmax to be a number, got \{'a': \[2\.0\]\}\."),
    ({"Tsub": [TIMES[0], np.datetime64("NaT", "ns")]}, r"J1: Expected Tsub to be a date and time between.*, got NaT\."),
    ({"Tsub": [0.0, 1.0]}, r"J0: Expected Tsub to be a date and time between the years 1678 and 2262, got 0\.0\."),
]
BAD_CURVES = [
    ({"Ns": [[0, 2, 2], [0, 1, 8]]}, r"J0: Expected node counts to increase strictly, got \[0, 2, 2\]\."),
    ({"Ns": [3, [0, 1, 8]]}, r"J0: Expected Ns to be a list of numbers, got 3\."),
    ({"Ns": objects([[0], 1, 8], [0, 1, 8])}, r"J0: Expected Ns to be a number, got \[0\]\."),
    ({"Os": objects(None, None)}, r"J0: Expected Os to be a list of numbers, got None\."),
    ({"Os": [[0, 1.0, 7.0], [0, 1.0]]}, r"J1: Expected 3 values of credit, one per node count, got 2\."),
]
BAD_PAIRS = [
    *((bounds(**change), scalability(), rf"b\.pkl, task {message}") for change, message in BAD_BOUNDS),
    *((bounds(), scalability(**change), rf"s\.pkl, task {message}") for change, message in BAD_CURVES),
    *(
        (bounds().drop(columns=column), None, rf"b\.pkl: Expected columns .*, got none called {column}\.")
        for column in ("Tcup", "Tcdw", "Jmin", "Jmax", "Pmax", "Tsub")
    ),
    (bounds(), scalability().drop(columns=["Ns", "Ps"]), r"s\.pkl: Expected columns .*, got none called Ns, Ps\."),
    (bounds(), scalability().set_axis(["J0", "J2"]), r"the tasks of .*b\.pkl, got 1 in .* \(J2\)\."),
    (bounds(), scalability().iloc[1:], r"Expected the tasks of .*b\.pkl, got 1 in .* \(J0\)\."),
    (bounds().set_axis(["J0"] * 2), None, r"b\.pkl, task J0: Expected unique task names, got 'J0' twice\."),
    (bounds().iloc[:1], scalability().set_axis(["J0"] * 2), r"s\.pkl, task J0: Expected unique task names, got 'J0'"),
    (bounds().iloc[:0], None, r"b\.pkl: Expected at least one task, got none\."),
]


@pytest.mark.parametrize(("one", "other", "message"), BAD_PAIRS, ids=range(len(BAD_PAIRS)))
def test_bad_pairs(read, one, other, message):
    """What is out of range or missing, and files that are no pair, are refused in one line with its place."""
    with pytest.raises(InvalidTaskError, match=message):
        read(one, other)


@pytest.mark.parametrize(("name", "shown"), [(None, "None"), ((1, 2), r"\(1, 2\)"), (1.5, r"1\.5"), (True, "True")])
def test_bad_names(read, name, shown):
    """A task is named by text or a whole number."""
    index = pd.Index([name, "J1"], dtype=object, tupleize_cols=False)
    with pytest.raises(InvalidTaskError, match=rf"b\.pkl: Expected task names to be text, got {shown}\."):
        read(bounds().set_axis(index), scalability())
    numbered = [frame.set_axis([3, 4]) for frame in (bounds(), scalability())]
    assert [task.name for task in read(*numbered).tasks] == ["3", "4"]


@given(task_sets(dated=True))
def test_round_trip(tmp_path_factory, given_tasks):
    """What a pickled pair can hold comes back the same; what it cannot is said."""
    path = tmp_path_factory.mktemp("round") / "x-Jbnd.pkl"
    lost = write_task_set(path, given_tasks)
    back = read_task_set(path).tasks
    kept = ("name", "min_nodes", "max_nodes", "work", "grow_cost_s", "shrink_cost_s", "submit_ns")
    for one, other in zip(back, given_tasks, strict=True):
        assert all(getattr(one, key) == getattr(other, key) for key in kept)
        assert np.array_equal(one.rates, other.rates)
        assert np.array_equal(one.credits, other.credits)
    extras = ("deadline_s", "deadline_ns", "group", "user")
    assert bool(lost) == any(
        task.weight != 1 or task.gpus_per_node != 1 or any(getattr(task, key) is not None for key in extras)
        for task in given_tasks
    )


def test_unwritable(tmp_path, read):
    """A pair needs a name with Jbnd in it, and dates to submit at."""
    tasks = read(bounds(), scalability()).tasks
    with pytest.raises(OutputError, match="Expected a name with Jbnd in it"):
        write_task_set(tmp_path / "x.pkl", tasks)
    with pytest.raises(InvalidTaskError, match=r"Expected submission by date, got 3\.0 s \(task J0\)"):
        write_task_set(tmp_path / "x-Jbnd.pkl", [replace(tasks[0], submit_ns=None, submit_s=3.0)])
    assert not (tmp_path / "x-Jbnd.pkl").exists()


@pytest.mark.parametrize(("name", "count"), [("hps-shufflenet-Jbnd-1000J", 1000), ("ImageNet-imgps-Jbnd-1001J", 1001)])
def test_published_tasks(published, name, count):
    """The published task sets are read whole, with their measured throughputs."""
    tasks = read_task_set(published / f"{name}.pkl").tasks
    assert len(tasks) == count
    assert {task.work for task in tasks} == {1.3e8}
    shufflenet = next(task for task in tasks if "ImageNet" not in name or "shufflenet" in task.name)
    assert shufflenet.rates[[1, 2, 4, 8]].tolist() == [2831.0, 5259.0, 9988.0, 20379.2]
