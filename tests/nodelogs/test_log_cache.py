"""Node logs in the cache: read once, and the same afterwards."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bftrainer.errors import NodeLogError
from bftrainer.files.writing import file_source
from bftrainer.model import NodeLog
from bftrainer.nodelogs import node_log_files, read_node_log, write_node_log
from bftrainer.nodelogs.native_logs import metadata

NS = 10**9
FORMS = ("idle.pkl", "idle.pkl.gz", "idle.csv", "idle.parquet")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, which also keeps small Parquet files."""
    monkeypatch.setenv("BFTRAINER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(node_log_files, "SLOW_BYTES", 0)
    return tmp_path / "cache"


@pytest.fixture
def log() -> NodeLog:
    """Three nodes, a row without change, and a state before the window."""
    time = np.array([-1, 0, 1, 1, 7], dtype=np.int64) * NS
    node, idle = np.array([2, 0, 1, 2, 0], dtype=np.int32), np.array([True, True, True, False, False])
    return NodeLog(("a", "b", "c"), 0, 9 * NS, time, node, idle, {}, np.array([3 * NS]))


def digest(path: Path) -> Callable[[], str]:
    """What gives the checksum of a file."""
    return lambda: file_source(path)["sha256"]


def read(path: Path) -> tuple[NodeLog, list[str]]:
    """A log read through the cache, and the notes on it."""
    notes: list[str] = []
    return read_node_log(path, 0, notes.append, digest(path)), notes


def same(one: NodeLog, other: NodeLog) -> bool:
    """Whether two logs are equal in all their parts."""
    alike = metadata(one) == metadata(other)
    return alike and all((getattr(one, n) == getattr(other, n)).all() for n in ("time_ns", "node", "idle"))


def refuse_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a file is parsed from now on."""

    def parsed(path: Path, _: object) -> NodeLog:
        raise AssertionError(f"{path} was parsed")

    readers = dict.fromkeys(node_log_files._NODE_LOG_READERS, parsed)
    monkeypatch.setattr(node_log_files, "_NODE_LOG_READERS", readers)


@pytest.mark.parametrize("form", FORMS)
def test_a_log_is_parsed_once(
    form: str, log: NodeLog, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second reading, of a copy under another name, gives what parsing the copy would."""
    write_node_log(tmp_path / form, log)
    first, _ = read(tmp_path / form)
    assert len(list(cache.iterdir())) == 1
    folder = tmp_path / "other"
    folder.mkdir()
    for path in tmp_path.glob("idle.*"):
        shutil.copy(path, folder / path.name.replace("idle", "copy"))
    copy = folder / form.replace("idle", "copy")
    plain = read_node_log(copy)
    refuse_parsing(monkeypatch)
    again, notes = read(copy)
    assert same(again, plain)
    assert not notes
    assert [row[0] for row in again.rows()] == [row[0] for row in first.rows()]
    assert not again.node.flags.writeable


@pytest.mark.parametrize("form", ["idle.csv", "idle.parquet"])
def test_notes_are_repeated(
    form: str, log: NodeLog, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was assumed of a log without metadata is said each time, with the file's name."""
    import pyarrow.parquet as pq

    path = tmp_path / form
    write_node_log(path, log)
    if form == "idle.csv":
        path.with_suffix(".json").unlink()
    else:
        pq.write_table(pq.read_table(path).replace_schema_metadata({}), path)
    _, said = read(path)
    refuse_parsing(monkeypatch)
    assert cache.is_dir()
    assert read(path)[1] == said != []


def test_metadata_of_a_csv_is_part_of_it(log: NodeLog, tmp_path: Path, cache: Path) -> None:
    """With other metadata the same table is another log."""
    path = tmp_path / "idle.csv"
    write_node_log(path, log)
    read(path)
    beside = path.with_suffix(".json")
    beside.write_text(beside.read_text().replace('"c"', '"d", "c"'))
    assert read(path)[0].nodes == ("a", "b", "d", "c")
    beside.unlink()
    assert read(path)[0].end_ns == 7 * NS
    assert len(list(cache.iterdir())) == 3


def test_metadata_that_cannot_be_read_is_one_line(
    log: NodeLog, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata that the user may not read are refused by name, with the cache as without it."""
    path = tmp_path / "idle.csv"
    write_node_log(path, log)
    opened = os.open

    def refusing(name: str, *args: int, **kwargs: int) -> int:
        """Open any other file."""
        if str(name) == str(path.with_suffix(".json")):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(name, *args, **kwargs)

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(NodeLogError, match=r"idle.json: Permission denied"):
        read(path)
    with pytest.raises(NodeLogError, match=r"idle.json: Permission denied"):
        read_node_log(path)
    assert not cache.exists()


def test_a_damaged_entry_is_rewritten(log: NodeLog, tmp_path: Path, cache: Path) -> None:
    """It is ignored, and whole again after the next reading."""
    path = tmp_path / "idle.csv"
    write_node_log(path, log)
    expected = read_node_log(path)
    read(path)
    (entry,) = cache.iterdir()
    whole = entry.read_bytes()
    for damaged in (b"", whole[:-1], whole[:-64] + bytes(64), b"bftrainer arrays 0\n" + whole[19:]):
        entry.write_bytes(damaged)
        assert same(read(path)[0], expected)
        assert entry.read_bytes() == whole


def test_an_entry_of_other_readers_is_rewritten(
    log: NodeLog, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version of the readers does not take what an earlier one kept."""
    path = tmp_path / "idle.csv"
    write_node_log(path, log)
    read(path)
    monkeypatch.setattr(node_log_files, "READER", node_log_files.READER + 1)
    read(path)
    assert len(list(cache.iterdir())) == 2


def test_faults_are_not_kept(tmp_path: Path, cache: Path) -> None:
    """A log that is refused is refused again."""
    path = tmp_path / "idle.csv"
    path.write_text("time,node,idle\n2020-01-01T00:00:00,a,0\n")
    for _ in range(2):
        with pytest.raises(NodeLogError, match=r"idle.csv:2: .* first transition to be to idle"):
            read(path)
    assert not cache.exists()


def test_a_log_that_changes_while_it_is_read_is_refused(log: NodeLog, tmp_path: Path, cache: Path) -> None:
    """The checksum of one file and the contents of another would be kept together else."""
    path = tmp_path / "idle.csv"
    write_node_log(path, log)

    def appended() -> str:
        """Write to the file once its checksum is known."""
        found = digest(path)()
        with path.open("a") as stream:
            stream.write("1970-01-01T00:00:08Z,a,1\n")
        return found

    with pytest.raises(NodeLogError, match=r"idle.csv: Expected a log that stays as it is"):
        read_node_log(path, digest=appended)
    assert not cache.exists()
