import gzip
import io
import tarfile

import numpy as np
import pandas as pd
import pytest

from bftrainer.errors import LogError, SettingsError
from bftrainer.nodelogs import read_node_log

TIMES = np.array(["2021-02-10T00:00:00", "2021-02-10T00:01:00", "2021-02-10T00:02:00"], dtype="M8[ns]")
T0 = int(TIMES[0].astype(np.int64))


def frame(states, times=TIMES, nodes=("a", "b")):
    """A matrix of states as users have it."""
    return pd.DataFrame(states, index=pd.DatetimeIndex(times), columns=list(nodes))


def rows(log):
    """Rows of a log as (seconds, names that joined, names that left)."""
    return [(t, [log.nodes[n] for n in joined], [log.nodes[n] for n in left]) for t, joined, left in log.rows()]


@pytest.fixture
def path(tmp_path):
    """Where the log lies."""
    return tmp_path / "evt.pkl"


def test_matrix_becomes_transitions(path):
    """A matrix gives its transitions by time and node; the window reaches from the first row to the last."""
    frame(np.array([[1, 0], [1, 0], [0, 1]], dtype=np.int8)).to_pickle(path)
    log = read_node_log(path)
    assert rows(log) == [(0.0, ["a"], []), (120.0, ["b"], ["a"])]
    assert (log.start_ns, log.end_ns) == (T0, T0 + 120 * 10**9)
    assert log.provenance == {"source": "evt.pkl", "rows": 3}


@pytest.mark.parametrize("kind", [np.int8, np.float32, bool, object])
@pytest.mark.parametrize("order", ["C", "F"])
def test_any_type_and_layout(path, kind, order):
    """States are read from whatever type and memory layout holds zeros and ones."""
    states = np.random.default_rng(3).integers(0, 2, (40, 150)).astype(np.int8)
    times = TIMES[0] + np.arange(40) * np.timedelta64(7, "s")
    frame(np.asarray(states.astype(kind), order=order), times, range(150)).to_pickle(path)
    log = read_node_log(path)
    assert log.nodes == tuple(map(str, range(150)))  # nodes that are numbered are named by their numbers
    state = np.zeros(150, dtype=np.int8)
    changes = {time: (joined, left) for time, joined, left in log.rows()}
    for row in range(40):
        joined, left = changes.get(row * 7.0, ([], []))
        state[joined], state[left] = 1, 0
        assert state.tolist() == states[row].tolist()


def test_skipping_counts_rows_of_the_file(path):
    """Skipped rows are the file's, also those in which nothing changes; the next row opens the window."""
    frame(np.array([[1, 0], [1, 0], [0, 1]], dtype=np.int8)).to_pickle(path)
    log = read_node_log(path, skip_events=1)
    assert rows(log) == [(0.0, ["a"], []), (60.0, ["b"], ["a"])]
    assert log.start_ns == T0 + 60 * 10**9
    for count in (3, -1):
        with pytest.raises(SettingsError, match=r"evt\.pkl: Expected to skip fewer rows than the log's 3, got"):
            read_node_log(path, skip_events=count)


def tar_of(content, *names):
    """A tar with such members, all of one content."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


@pytest.mark.parametrize("form", ["evt.pkl", "evt.pkl.gz", "evt.tar.gz", "evt.tar", "renamed.dat"])
def test_packings(tmp_path, form):
    """The pickle is read bare, gzipped, or from a tar, told by content; a tar holds one."""
    bare = io.BytesIO()
    frame(np.array([[1, 0], [1, 1], [0, 1]], dtype=np.int8)).to_pickle(bare, compression=None)
    content = tar_of(bare.getvalue(), "notes.txt", "../../evt.pkl") if "tar" in form else bare.getvalue()
    (tmp_path / form).write_bytes(gzip.compress(content) if form.endswith("gz") else content)
    assert len(rows(read_node_log(tmp_path / form))) == 3
    assert [entry.name for entry in tmp_path.iterdir()] == [form]
    for names, got in ((["x.txt"], "none"), (["x.txt", "a.pkl", "b.pkl"], "several")):
        (tmp_path / "evt.tar").write_bytes(tar_of(bare.getvalue(), *names))
        with pytest.raises(LogError, match=rf"evt\.tar: Expected (a|one) \.pkl in the archive, got {got}\."):
            read_node_log(tmp_path / "evt.tar")


GOOD = frame([[1, 0]] * 3)
BAD = [
    (GOOD.set_axis(TIMES[[0, 1, 1]]), r"unique times that ascend, got 2021-02-10T00:01:00.*\(row 3\)"),
    (GOOD.set_axis(TIMES[[0, 2, 1]]), r"unique times that ascend, got .*00:01:00.* after .*00:02:00.*\(row 3\)"),
    (GOOD.set_axis(["a", "a"], axis=1), r"Expected unique node names, got 'a' twice"),
    (GOOD.set_axis(["a", ""], axis=1), r"Expected nodes to be names, got '' among them\."),
    (GOOD.set_axis(pd.Index(["a", None], dtype=object), axis=1), r"Expected node names to be text, got None\."),
    (GOOD.set_axis([(1, 2), None], axis=1), r"Expected node names to be text, got \(1, 2\)\."),
    (GOOD.set_axis(["a", True], axis=1), r"Expected node names to be text, got True\."),
    (GOOD.set_axis(["a", 10**5000], axis=1), r"Expected node names to be text, got a number of many digits\."),
    (GOOD.set_axis(TIMES[:2], axis=1), r"Expected node names to be text, got 2021-02-10T00:00:00"),
    (frame(np.array([[1, 0], [1, 0], [1, 3]], np.int8)), r"to be 0 or 1, got 3 \(row 3, 2021-02-10T.*Z, node b\)"),
    (frame([[1, 0], [1, -1], [1, 0]]), r"to be 0 or 1, got -1 \(row 2, .*node b\)"),
    (frame([[1, 0], [np.nan, 0], [1, 0]]), r"to be 0 or 1, got nan \(row 2, .*node a\)"),
    (frame([[1, "x"]] * 3), r"to be 0 or 1, got 'x' \(row 1, .*node b\)"),
    (frame([[TIMES[0], 1]] * 3), r"to be 0 or 1, got 2021-02-10T"),
    (GOOD.reset_index(drop=True), r"Expected an index of datetimes, got whole numbers"),
    (GOOD.set_axis([1.0, 2.0, 3.0]), r"Expected an index of datetimes, got float64"),
    (GOOD.set_axis(np.array(["2021", "NaT", "2022"], "M8[ns]")), r"the years 1678 and 2262, got NaT \(row 2\)"),
    (GOOD.set_axis(np.array(["2021", "2022", "3021"], "M8[s]")), r"between the years 1678 and 2262"),
    (GOOD.iloc[:0], r"got an empty frame"),
    (GOOD[[]], r"got an empty frame"),
    (pd.Series([1]), r"Expected a pickled pandas DataFrame, got a pickled Series"),
]


@pytest.mark.parametrize(("value", "message"), BAD, ids=range(len(BAD)))
def test_bad_logs(path, value, message):
    """A malformed log is refused in one line that names file, row and node."""
    value.to_pickle(path)
    with pytest.raises(LogError, match=rf"evt\.pkl: .*{message}"):
        read_node_log(path)


def test_published_log(published):
    """The published Summit log has the facts known of it, straight from its archive."""
    log = read_node_log(published / "ndstat-10sdn6-evt.tar.gz")
    assert log.provenance["rows"] == log.row_times_ns().size == 23_883
    assert (len(log.nodes), log.time_ns.size) == (4_734, 846_856)
    assert log.window_s / 3600 == pytest.approx(358.18, abs=0.005)
    to_end_s = (log.end_ns - log.time_ns) / 10**9
    assert np.where(log.idle, to_end_s, -to_end_s).sum() / 3600 == pytest.approx(140_182.3, abs=0.05)
