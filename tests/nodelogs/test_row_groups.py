"""Parquet logs of several row groups: written and read part by part, the same as at once."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bftrainer.errors import NodeLogError
from bftrainer.model import node_rows
from bftrainer.nodelogs import node_log_files, read_node_log, write_node_log

NS = 10**9
TIME, NODE, IDLE = [0, 0, 1, 1, 1, 4, 5], ["b", "a", "c", "b", "a", "a", "b"], [1, 1, 1, 0, 0, 1, 1]


def table(node: list[str | None] = NODE, time: list[int] = TIME) -> pa.Table:
    """A log of seven transitions without metadata."""
    times = pa.array([at * NS for at in time], pa.int64()).cast(pa.timestamp("ns", "UTC"))
    return pa.table({"time": times, "node": node, "idle": pa.array(map(bool, IDLE), pa.bool_())})


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_groups_of_any_size_are_one_log(size: int, tmp_path: Path) -> None:
    """Rows may span groups, and nodes may be named in a later group only."""
    pq.write_table(table(), tmp_path / "idle.parquet", row_group_size=size)
    log = read_node_log(tmp_path / "idle.parquet")
    assert log.nodes == ("a", "b", "c")
    assert [(time, joined, left) for time, joined, left in log.rows()] == [
        (0.0, [0, 1], []),
        (1.0, [2], [0, 1]),
        (4.0, [0], []),
        (5.0, [1], []),
    ]
    assert log.time_ns.tolist() == [at * NS for at in TIME]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_messages_count_rows_from_the_files_start(size: int, tmp_path: Path) -> None:
    """Faults are named by the row of the file, whatever group it is in."""
    path = tmp_path / "idle.parquet"
    for broken, what in (
        (table(time=[0, 0, 1, 1, 1, 4, 3]), r"row 7: Expected times to ascend, got .*03Z after .*04Z"),
        (table(node=[*NODE[:5], None, "b"]), r"row 6: Expected node to be text, got nothing"),
        (table(node=[*NODE[:5], "b", "b"]), r"row 7: Expected every transition to change the state"),
    ):
        pq.write_table(broken, path, row_group_size=size)
        with pytest.raises(NodeLogError, match=f"idle.parquet, {what}"):
            read_node_log(path)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_written_in_parts_is_written_at_once(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are those of one table with as large groups."""
    for module in (node_rows, node_log_files):
        monkeypatch.setattr(module, "BLOCK", size)
    pq.write_table(table(), tmp_path / "plain.parquet")
    log = read_node_log(tmp_path / "plain.parquet")
    write_node_log(tmp_path / "parts.parquet", log)
    names = pa.array(log.nodes)
    columns = [
        pa.array(log.time_ns.view("M8[ns]")).cast(pa.timestamp("ns", "UTC")),
        pa.DictionaryArray.from_arrays(pa.array(log.node), names),
        pa.array(log.idle),
    ]
    whole = pa.table(columns, pq.read_schema(tmp_path / "parts.parquet"))
    pq.write_table(whole, tmp_path / "whole.parquet", row_group_size=size, compression="zstd")
    assert (tmp_path / "parts.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
