import itertools

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


def test_another_order_is_aligned_by_name(read):
    """Scalability in another order belongs to the tasks of the same names."""
    assert read(bounds(), scalability().iloc[::-1]).tasks == read(bounds(), scalability()).tasks


def test_submission_of_the_bounds_counts(read):
    """If the two submissions differ, the bounds' one is used and a warning says so."""
    given = read(bounds(), scalability(Tsub=TIMES + np.timedelta64(1, "s")))
    assert given.tasks[0].submit_ns == int(TIMES[0].astype(np.int64))
    assert len(given.warnings) == 1
    assert "Tsub of 2 tasks differs" in given.warnings[0]


def test_sibling_is_found(tmp_path):
    """Without scalability the file with JNPs for Jbnd in its name is used, and a note says so."""
    bounds().to_pickle(tmp_path / "x-Jbnd-2J.pkl")
    scalability().to_pickle(tmp_path / "x-JNPs-2J.pkl")
    given = read_task_set(tmp_path / "x-Jbnd-2J.pkl")
    assert given.tasks[1].scaling.credit == (0.0, 1.0, 3.0)
    assert [warning.rsplit("/", 1)[1] for warning in given.warnings] == ["x-JNPs-2J.pkl."]


@pytest.mark.parametrize(("named", "taken"), [("jbnd.pkl", "jnps.pkl"), ("X-JBND-1.PKL", "X-JNPS-1.PKL")])
def test_siblings_in_their_case(tmp_path, named, taken):
    """The sibling whose name is in the same case is taken, one in another case is left to the user to name."""
    bounds().to_pickle(tmp_path / named, compression=None)
    scalability().to_pickle(tmp_path / "JNPs.pkl")
    assert read_task_set(tmp_path / named).assumed_scaling is not None
    scalability().to_pickle(tmp_path / taken, compression=None)
    given = read_task_set(tmp_path / named)
    assert given.sources == (tmp_path / named, tmp_path / taken)
    assert given.assumed_scaling is None


def test_pairs_are_written_in_the_case_of_their_name(tmp_path, read):
    """Scalability goes to the file from which it is read again."""
    tasks = read(bounds(), scalability()).tasks
    for named, beside in (("x-jbnd.pkl", "x-jnps.pkl"), ("y-JBND.pkl", "y-JNPS.pkl"), ("z-Jbnd.pkl", "z-JNPs.pkl")):
        write_task_set(tmp_path / named, tasks)
        assert (tmp_path / beside).exists()
        assert read_task_set(tmp_path / named).tasks == tasks


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Jmin": [1.0, 5.0]}, r"b\.pkl, task J1: Expected min_nodes <= max_nodes, got 5 > 4\."),
        ({"Jmin": [0.0, 1.0]}, r"b\.pkl, task J0: Expected min_nodes >= 1, got 0\."),
        ({"Jmin": [1.5, 1.0]}, r"b\.pkl, task J0: Expected min_nodes to be whole, got 1\.5\."),
        ({"Jmax": [8.5, 4.0]}, r"b\.pkl, task J0: Expected max_nodes to be whole, got 8\.5\."),
        ({"Jmax": [9.0, 4.0]}, r"b\.pkl, task J0: Expected max_nodes within the scaling curve \(to 8\), got 9\."),
        (
            {"Jmax": [1e12, 4.0]},
            r"b\.pkl, task J0: Expected max_nodes within the scaling curve \(to 8\), got 1000000000000\.",
        ),
        ({"Jmax": [np.inf, 4.0]}, r"b\.pkl, task J0: Expected max_nodes to be whole, got inf\."),
        ({"Tcup": [-1.0, 1.0]}, r"b\.pkl, task J0: Expected grow_cost_s >= 0, got -1\.0\."),
        ({"Tcdw": [1.0, -1.0]}, r"b\.pkl, task J1: Expected shrink_cost_s >= 0, got -1\.0\."),
        ({"Pmax": [0.0, 1.0]}, r"b\.pkl, task J0: Expected work > 0, got 0\.0\."),
        ({"Pmax": [-3.0, 1.0]}, r"b\.pkl, task J0: Expected work > 0, got -3\.0\."),
        ({"Pmax": [np.inf, 1.0]}, r"b\.pkl, task J0: Expected work > 0, got inf\."),
        ({"Pmax": [np.nan, 1.0]}, r"b\.pkl, task J0: Expected work > 0, got nan\."),
        ({"Jmin": [1.0, np.nan]}, r"b\.pkl, task J1: Expected min_nodes to be whole, got nan\."),
        ({"Jmin": ["one", 1.0]}, r"b\.pkl, task J0: Expected Jmin to be a number, got 'one'\."),
        (
            {"Jmin": pd.Series([True, 1], index=["J0", "J1"], dtype=object)},
            r"task J0: Expected Jmin to be a number, got True",
        ),
        (
            {"Tsub": [TIMES[0], np.datetime64("NaT", "ns")]},
            r"b\.pkl, task J1: Expected Tsub to be a date and time between the years 1678 and 2262, got NaT\.",
        ),
        (
            {"Pmax": pd.Series([10**400, 1], index=["J0", "J1"], dtype=object)},
            r"b\.pkl, task J0: Expected Pmax to be a number, got a number of many digits\.",
        ),
        (
            {"Tsub": [0.0, 1.0]},
            r"b\.pkl, task J0: Expected Tsub to be a date and time between the years 1678 and 2262, got 0\.0\.",
        ),
    ],
)
def test_bad_bounds(read, change, message):
    """A bound out of range is refused in one line that names file and task."""
    with pytest.raises(InvalidTaskError, match=message) as caught:
        read(bounds(**change), scalability())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "shown"), [(None, "None"), ((1, 2), r"\(1, 2\)"), (1.5, r"1\.5"), (True, "True"), (b"J0", "b'J0'")]
)
def test_bad_names(read, name, shown):
    """A task is named by text or a whole number."""
    index = pd.Index([name, "J1"], dtype=object, tupleize_cols=False)
    with pytest.raises(InvalidTaskError, match=rf"b\.pkl: Expected task names to be text, got {shown}\."):
        read(bounds().set_axis(index), scalability())
    numbered = [frame.set_axis([3, 4]) for frame in (bounds(), scalability())]
    assert [task.name for task in read(*numbered).tasks] == ["3", "4"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Ns": [[0, 2, 2], [0, 1, 8]]}, r"J0: Expected node counts to increase strictly, got \[0, 2, 2\]\."),
        ({"Ns": [[1, 2, 8], [0, 1, 8]]}, r"J0: Expected node counts to start at 0, got 1\."),
        ({"Ns": [[0, 8], [0, 1, 8]]}, r"J0: Expected 2 values of throughput, one per node count, got 3\."),
        ({"Ns": [[0, 1.5, 8], [0, 1, 8]]}, r"J0: Expected nodes to be whole, got 1\.5\."),
        ({"Ns": [3, [0, 1, 8]]}, r"J0: Expected Ns to be a list of numbers, got 3\."),
        ({"Ps": [[0, 1.0], [0, 1.0, 7.0]]}, r"J0: Expected 3 values of throughput, one per node count, got 2\."),
        ({"Ps": [[0, 1.0, np.nan], [0, 1.0, 7.0]]}, r"J0: Expected throughput to be finite and >= 0, got nan\."),
        ({"Ps": [[0, -1.0, 7.0], [0, 1.0, 7.0]]}, r"J0: Expected throughput to be finite and >= 0, got -1\.0\."),
        ({"Os": [[0, 1.0, 7.0], [0, 1.0]]}, r"J1: Expected 3 values of credit, one per node count, got 2\."),
        ({"Os": [[0, 1.0, 7.0], [1, 1.0, 7.0]]}, r"J1: Expected credit 0 on 0 nodes, got 1\.0\."),
    ],
)
def test_bad_scalability(read, change, message):
    """A curve that is none is refused in one line that names file and task."""
    with pytest.raises(InvalidTaskError, match=r"s\.pkl, task " + message) as caught:
        read(bounds(), scalability(**change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("column", ["Tcup", "Tcdw", "Jmin", "Jmax", "Pmax", "Tsub"])
def test_missing_columns(read, column):
    """A bound that is missing is named."""
    with pytest.raises(InvalidTaskError, match=rf"b\.pkl: Expected columns .*, got none called {column}\."):
        read(bounds().drop(columns=column))


def test_missing_scalability_columns(read):
    """A column of scalability that is missing is named."""
    with pytest.raises(InvalidTaskError, match=r"s\.pkl: Expected columns .*, got none called Ns, Ps\."):
        read(bounds(), scalability().drop(columns=["Ns", "Ps"]))


@pytest.mark.parametrize(("index", "more"), [(["J0", "J2"], "J2"), (["J1"], "J0")])
def test_other_tasks(read, index, more):
    """Bounds and scalability of different tasks are refused; a few of them are named."""
    other = scalability().set_axis(["J0", "J2"]) if len(index) == 2 else scalability().iloc[1:]
    with pytest.raises(InvalidTaskError, match=rf"Expected the tasks of .*b\.pkl, got 1 in .* \({more}\)\."):
        read(bounds(), other)


def test_duplicate_names(read):
    """Two tasks of one name are refused, in the bounds and in the scalability."""
    with pytest.raises(InvalidTaskError, match=r"b\.pkl, task J0: Expected unique task names, got 'J0' twice\."):
        read(bounds().set_axis(["J0", "J0"]))
    with pytest.raises(InvalidTaskError, match=r"s\.pkl, task J0: Expected unique task names, got 'J0' twice"):
        read(bounds().iloc[:1], scalability().set_axis(["J0", "J0"]))


def test_empty(read):
    """Bounds without tasks are refused."""
    with pytest.raises(InvalidTaskError, match=r"b\.pkl: Expected at least one task, got none\."):
        read(bounds().iloc[:0])


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
    assert bool(lost) == any(task.weight != 1 or task.gpus_per_node != 1 or _extras(task) for task in given_tasks)


def _extras(task):
    return any(getattr(task, key) is not None for key in ("deadline_s", "deadline_ns", "group", "user"))


def test_unwritable(tmp_path, read):
    """A pair needs a name with Jbnd in it, and dates to submit at."""
    tasks = read(bounds(), scalability()).tasks
    with pytest.raises(OutputError, match="Expected a name with Jbnd in it"):
        write_task_set(tmp_path / "x.pkl", tasks)
    from dataclasses import replace

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
