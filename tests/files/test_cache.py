"""The cache of arrays: what was kept is found as it was, or not at all."""

import errno
import logging
import os
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bftrainer._core import core, why_not
from bftrainer.errors import SettingsError
from bftrainer.files import cache as module
from bftrainer.files.cache import Cache, user_cache
from bftrainer.files.writing import replacing

ARRAYS = {
    "times": np.array([-1, 2**40], dtype=np.int64),
    "flags": np.array([True, False, True]),
    "none": np.empty(0, dtype=np.int32),
}


@pytest.fixture
def kept(tmp_path: Path) -> Cache:
    """A cache with one entry."""
    cache = Cache(tmp_path / "cache", 10_000)
    cache.keep("one", {"name": "Jülich", "sizes": [1, 2.5]}, ARRAYS)
    return cache


def file_of(cache: Cache, key: str = "one") -> Path:
    """File of an entry."""
    return cache.directory / f"{key}.bftrainer-arrays"


def test_what_was_kept_is_found(kept: Cache) -> None:
    """An entry has the same text, numbers and types; its memory cannot be written."""
    found = kept.find("one")
    assert found is not None
    assert found.about == {"name": "Jülich", "sizes": [1, 2.5]}
    assert {name: array.dtype for name, array in found.arrays.items()} == {n: a.dtype for n, a in ARRAYS.items()}
    assert all((found.arrays[name] == array).all() for name, array in ARRAYS.items())
    with pytest.raises(ValueError, match="read-only"):
        found.arrays["times"][0] = 1
    assert kept.find("other") is None


def test_a_changed_entry_is_not_found(kept: Cache) -> None:
    """Whichever of its octets is changed, and wherever it is cut off, an entry is ignored; it can be written again."""
    whole = file_of(kept).read_bytes()
    for place in range(len(whole)):
        file_of(kept).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        found = kept.find("one")
        # Only what fills the gap between header and arrays may change.
        assert found is None or (whole[place] == 0 and all((found.arrays[n] == a).all() for n, a in ARRAYS.items()))
        file_of(kept).write_bytes(whole[:place])
        assert kept.find("one") is None
    kept.keep("one", {}, ARRAYS)
    assert kept.find("one") is not None


@pytest.mark.parametrize("length", [0, 2**31 - 1, 2**32 - 1])
def test_a_damaged_size_takes_no_memory(length: int, kept: Cache) -> None:
    """A header is never taken to be longer than its file."""
    whole = file_of(kept).read_bytes()
    place = len(module._MAGIC)
    file_of(kept).write_bytes(whole[:place] + length.to_bytes(4, "little") + whole[place + 4 :])
    tracemalloc.start()
    try:
        assert kept.find("one") is None
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 100_000,
        b'{"about": {}, "checksum": 0, "arrays": [["x", "<i8", 1e400, 0]]}',
        b'{"about": {}, "checksum": 0, "arrays": [["x", "<i8", 1, %d]]}' % 2**70,
        b'{"about": {}, "checksum": 0, "arrays": [["x", "O", 1, 0]]}',
    ],
)
def test_a_header_of_others_is_not_found(header: bytes, kept: Cache) -> None:
    """A header that is whole, but nests too deeply or has numbers and types of no array, is ignored."""
    head = module._MAGIC + module._HEAD.pack(len(header), zlib.crc32(header)) + header
    file_of(kept).write_bytes(head + bytes(-len(head) % module._ALIGNED))
    assert kept.find("one") is None


def test_files_of_others_stay(tmp_path: Path) -> None:
    """Files that only have the suffix of an entry are neither deleted nor counted."""
    other = tmp_path / "measured.arrays"
    other.write_bytes(b"x" * 5_000)
    os.utime(other, (1000, 1000))
    cache = Cache(tmp_path, 3_000)
    for key in "abcd":
        cache.keep(key, {}, {"x": np.zeros(100, dtype=np.int64)})
    assert other.exists()
    assert [cache.find(key) is not None for key in "abcd"] == [False, True, True, True]


def test_an_open_entry_outlives_its_file(kept: Cache) -> None:
    """What one process replaces or deletes stays as it was for another one."""
    found = kept.find("one")
    kept.keep("one", {}, {"times": np.array([7], dtype=np.int64)})
    file_of(kept).unlink()
    assert found is not None
    assert found.arrays["times"].tolist() == [-1, 2**40]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink(path, path)])
def test_what_is_no_file_is_not_waited_for(kept: Cache, make: Callable[[Path], None]) -> None:
    """A pipe, a directory or a loop of links in the place of an entry is no entry; a pipe or a link is replaced."""
    file_of(kept).unlink()
    make(file_of(kept))
    assert kept.find("one") is None
    kept.keep("one", {}, ARRAYS)
    assert (kept.find("one") is None) == (make is os.mkdir)


@pytest.mark.skipif(core is None, reason=why_not)
def test_an_entry_that_is_cut_off_in_use_is_one_line(kept: Cache) -> None:
    """Whoever reads it ends with a line and status 2, and has no wrong figures; it takes force to get there."""
    kept.keep("large", {}, {"a": np.arange(900)})
    assert file_of(kept, "large").stat().st_mode & 0o222 == 0
    lines = (
        "import os, sys, pathlib; from bftrainer.files.cache import Cache",
        "found = Cache(pathlib.Path(sys.argv[1]), 10_000).find('large')",
        "path = pathlib.Path(sys.argv[1], 'large.bftrainer-arrays'); path.chmod(0o600); os.truncate(path, 0)",
        "print(found.arrays['a'].sum())",
    )
    words = [sys.executable, "-c", "\n".join(lines), str(kept.directory)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"Error: {file_of(kept, 'large')}: " + (
        "Expected an entry of the cache that stays as it is, got one that was cut off.\n"
    )


def test_the_oldest_entries_go(tmp_path: Path) -> None:
    """The entry that was not used for longest makes room; one that is too large is not kept."""
    cache = Cache(tmp_path, 3_000)
    for age, key in enumerate("abc"):
        cache.keep(key, {}, {"x": np.zeros(100, dtype=np.int64)})
        os.utime(file_of(cache, key), (1000 + age, 1000))
    assert cache.find("a") is not None  # used now, so that "b" is the oldest
    cache.keep("d", {}, {"x": np.zeros(100, dtype=np.int64)})
    assert [cache.find(key) is not None for key in "abcd"] == [True, False, True, True]
    cache.keep("e", {}, {"x": np.zeros(1_000, dtype=np.int64)})
    assert cache.find("e") is None
    assert cache.find("d") is not None


def test_what_killed_processes_left_goes(kept: Cache) -> None:
    """A temporary file that nobody has locked is deleted, whatever its date; another one is still being written."""
    left = kept.directory / ".one.bftrainer-arrays.abcdefgh"
    left.write_bytes(b"half")
    os.utime(left, (2**33, 2**33))
    with replacing(kept.directory / "one.bftrainer-arrays") as stream:
        kept.keep("two", {}, ARRAYS)
        assert not left.exists()
        stream.write(b"whole")
    assert (kept.directory / "one.bftrainer-arrays").read_bytes() == b"whole"


def test_a_full_disk_is_reported_once(
    kept: Cache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be written is one line on a process's stderr, and leaves nothing behind."""

    def full(*_: object, **__: object) -> tuple[int, str]:
        """Fail as a file system without room does."""
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "_reported", set())
    monkeypatch.setattr("tempfile.mkstemp", full)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            kept.keep("two", {}, ARRAYS)
    (line,) = caplog.messages
    assert "not kept in the cache" in line
    assert os.strerror(errno.ENOSPC) in line
    assert [path.name for path in kept.directory.iterdir()] == ["one.bftrainer-arrays"]


def test_a_cache_that_is_no_directory_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file in the place of the directory is no failure."""
    (tmp_path / "cache").touch()
    cache = Cache(tmp_path / "cache", 10_000)
    with caplog.at_level(logging.WARNING):
        cache.keep("one", {}, ARRAYS)
    assert str(tmp_path / "cache") in caplog.text
    assert cache.find("one") is None


def test_the_environment_says_where_and_how_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory is the one asked for, else that of XDG, else below the home directory."""
    monkeypatch.setenv("BFTRAINER_CACHE_GIB", "0.5")
    assert user_cache() == Cache(Path(os.environ["BFTRAINER_CACHE"]), 2**29)
    monkeypatch.delenv("BFTRAINER_CACHE_GIB")
    monkeypatch.delenv("BFTRAINER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert user_cache() == Cache(Path("/somewhere/bftrainer"), 8 * 2**30)
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", "/home/me")
    assert user_cache() == Cache(Path("/home/me/.cache/bftrainer"), 8 * 2**30)


@pytest.mark.parametrize("size", ["much", "-1", "nan", "inf", "1e300"])
def test_a_size_is_a_number(size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anything else is refused by name."""
    monkeypatch.setenv("BFTRAINER_CACHE_GIB", size)
    with pytest.raises(SettingsError, match=rf"BFTRAINER_CACHE_GIB of 0 or more, got '{size}'"):
        user_cache()
