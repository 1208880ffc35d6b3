"""Columns that grow are whole again, in memory or in files, and files are no error that cannot be told."""

import errno
import mmap
from pathlib import Path

import numpy as np
import pytest

from bftrainer.errors import OutputError
from bftrainer.files.mapped import GrowingColumns, map_file, release_mapped

PARTS = [
    {"time": np.array([0.5, 1.5]), "flag": np.array([True, False]), "none": np.empty(0, dtype=np.int32)},
    {"time": np.empty(0), "flag": np.array([True]), "none": np.empty(0, dtype=np.int32)},
    {"time": np.array([-0.0]), "flag": np.empty(0, dtype=np.bool_), "none": np.empty(0, dtype=np.int32)},
]


@pytest.mark.parametrize("most_bytes", [0, 10, 1_000])
@pytest.mark.parametrize("count", [1, 3])
def test_parts_are_joined(most_bytes: int, count: int) -> None:
    """Columns have the values of all parts in their order, and the same types, whether they were in files or not."""
    columns = GrowingColumns(most_bytes)
    for part in PARTS[:count]:
        columns.add(part)
    found = columns.joined()
    for name, column in found.items():
        wanted = np.concatenate([part[name] for part in PARTS[:count]])
        assert column.dtype == wanted.dtype
        assert column.tobytes() == wanted.tobytes()
    assert list(found) == ["time", "flag", "none"]


def test_what_is_in_memory_is_not_copied() -> None:
    """A column that came in one part is that part."""
    columns = GrowingColumns(1_000)
    columns.add(PARTS[0])
    assert columns.joined()["time"] is PARTS[0]["time"]


def test_memory_comes_back(tmp_path: Path) -> None:
    """What was given back is read again, with the same contents."""
    (tmp_path / "file").write_bytes(b"abc" * 10_000)
    with (tmp_path / "file").open("rb") as file:
        mapped = map_file(file)
    assert mapped[:3] == b"abc"
    release_mapped()
    assert mapped[:] == b"abc" * 10_000
    assert isinstance(mapped, mmap.mmap)


def test_no_room_for_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says so."""

    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(OutputError, match=r"^No temporary file for records: No space left on device\.$"):
        GrowingColumns(0).add(PARTS[0])


def test_growing_columns_give_what_is_new_once():
    """In memory and in files, whatever was added since the last call, and nothing twice."""
    for most in (10**9, 100):
        columns, found = GrowingColumns(most), {"a": [], "b": []}
        rng = np.random.default_rng(1)
        for _ in range(20):
            columns.add({"a": rng.integers(9, size=7), "b": rng.random(3)})
            if rng.random() < 0.4:
                for part in columns.taken():
                    for name, values in part.items():
                        found[name].append(values)
        for part in columns.taken():
            for name, values in part.items():
                found[name].append(values)
        for name, values in columns.joined().items():
            assert np.concatenate(found[name]).tolist() == values.tolist()
