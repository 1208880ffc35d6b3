"""Files and journals hold what they were given, whole, whatever becomes of the process, the disk or the machine."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import signal
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import OutputError
from bftrainer.files import writing
from bftrainer.files.writing import LineJournal, lock_file, replacing, replacing_together, seal_line, unseal_line
from bftrainer.model import NodeLog
from bftrainer.nodelogs import write_node_log
from tests.killing import run_killed
from tests.tiny import contents

LINES = ["first", "second", "", "ä ☃", "a b c"]


def test_failure_leaves_the_earlier_file(tmp_path):
    """If writing fails half-way the earlier file stays as it was, and nothing is left over."""
    path = tmp_path / "x.csv"
    path.write_text("earlier")
    with pytest.raises(TypeError), replacing(path) as stream:
        stream.writelines([b"half", None])
    assert path.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def full_disk():
    """Files cannot grow beyond 64 KiB."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("first", ["log.csv", "log.csv.gz"])
@pytest.mark.usefixtures("full_disk")
def test_full_disk_leaves_an_earlier_pair(tmp_path, first):
    """A node log that no longer fits spoils neither the table nor the metadata of the one before it."""
    small = NodeLog(("n1",), 0, 10, np.array([0]), np.array([0], np.int32), np.array([True]))
    write_node_log(tmp_path / first, small)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    names = tuple(f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}" for number in range(3000))
    times, nodes = np.arange(3000), np.arange(3000, dtype=np.int32)
    large = NodeLog(names, 0, 3000, times, nodes, np.ones(3000, dtype=np.bool_))
    with pytest.raises(OutputError, match="cannot be written"):
        write_node_log(tmp_path / first, large)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("earlier", [False, True])
def test_files_that_belong_together(tmp_path, earlier):
    """Wherever the process is killed, what is found belongs together; the next one deletes what was left."""

    def write(content):
        with replacing_together(tmp_path / "a.json", tmp_path / "a.csv") as streams:
            for stream in streams:
                stream.write(content)

    for number in itertools.count(1):
        if earlier:
            write(b"old")
        was_killed = run_killed(number, lambda: write(b"new"), {"os.rename", "os.remove"})
        if (tmp_path / "a.csv").exists():
            assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "a.json").read_bytes()
        write(b"newest")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.json"]
        if not was_killed:
            break
        (tmp_path / "a.csv").unlink()
    assert number > 3


def test_two_writers_of_a_file(tmp_path, monkeypatch):
    """While one writes a file, another one is refused; what a killed one left is written over."""
    monkeypatch.setattr(writing, "PATIENCE_S", 0.0)
    (tmp_path / ".x.csv.bftpart").write_text("half of something long")
    with replacing(tmp_path / "x.csv") as stream:
        stream.write(b"1")
        with pytest.raises(OutputError, match=r"x\.csv: Another process is writing"), replacing(tmp_path / "x.csv"):
            pytest.fail("written twice at once")
    assert contents(tmp_path) == {"x.csv": b"1"}


def test_the_name_of_a_lock_passes_to_whoever_waits(tmp_path):
    """Who has ended takes no other's lock away, also if that one came when the file was renamed."""
    with lock_file(tmp_path / "lock", "it"):
        (tmp_path / "lock").rename(tmp_path / "result")
        with lock_file(tmp_path / "lock", "it"):
            pass
        with lock_file(tmp_path / "lock", "it") as held:
            os.fstat(held)
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


def test_permissions_are_the_usual_ones(tmp_path):
    """A file written is as readable to others as one opened in the usual way."""
    (tmp_path / "usual").touch()
    with replacing(tmp_path / "x") as stream:
        stream.write(b"x")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


@pytest.mark.parametrize("kind", ["symlink_to", "hardlink_to"])
def test_links_in_the_place_of_a_temporary_file_are_refused(tmp_path, kind):
    """What they lead to stays as it was."""
    (tmp_path / "victim").write_text("precious")
    getattr(tmp_path / ".x.csv.bftpart", kind)(tmp_path / "victim")
    with pytest.raises(OutputError, match=r"x\.csv: cannot be written"), replacing(tmp_path / "x.csv") as stream:
        stream.write(b"ours")
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_private_file_is_never_open_to_others(tmp_path):
    """Not while it is written either, whatever permissions a leftover has."""
    (tmp_path / ".x.csv.bftpart").touch(0o644)
    with replacing(tmp_path / "x.csv", private=True) as stream:
        stream.write(b"ours")
        assert (tmp_path / ".x.csv.bftpart").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "x.csv").stat().st_mode & 0o777 == 0o600


@pytest.fixture
def journal_path(tmp_path):
    """A journal of some lines."""
    journal = LineJournal(tmp_path / "x.journal")
    assert journal.read() == []
    journal.append(map(seal_line, LINES[:1]))
    journal.append(map(seal_line, LINES[1:]))
    return journal.path


def test_lines_come_back(journal_path):
    """A journal has lines in their order; it goes on where it was."""
    journal = LineJournal(journal_path)
    journal.append([seal_line("more")])
    assert list(map(unseal_line, journal.read())) == [*LINES, "more"]
    assert LineJournal(journal_path).read() == journal.read()


@given(text=st.text(st.characters(codec=None)))
def test_any_text_is_one_line(text):
    """Whatever is seal_line, it is one line, and reads back as one."""
    line = seal_line(text)
    assert not set(b"\r\n") & set(line)
    assert unseal_line(line) is not None


def test_a_torn_end_heals(journal_path):
    """Wherever the last line breaks off, whatever stands there now, whole ones stay and the next one follows."""
    whole = journal_path.read_bytes()
    last = len(whole.removesuffix(b"\n").rpartition(b"\n")[0]) + 1
    torn = [whole[:end] for end in range(last + 1, len(whole))]
    for data in [*torn, whole[:last] + b"\0" * 4096, whole[:last] + b"x\n\0y\n", whole[:last] + whole[-5:]]:
        journal_path.write_bytes(data)
        LineJournal(journal_path, lambda line: unseal_line(line) is not None).append([seal_line("next")])
        assert list(map(unseal_line, LineJournal(journal_path).read())) == [*LINES[:-1], "next"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
def test_a_write_that_failed_leaves_nothing_of_itself(journal_path, monkeypatch, error):
    """The journal goes on when there is room."""
    journal, before = LineJournal(journal_path), journal_path.read_bytes()

    def fail(_):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises((OutputError, KeyboardInterrupt), match=r"x\.journal: cannot be written \(No space left|^$"):
            journal.append(["too much", "and more"])
    assert journal_path.read_bytes() == before
    journal.append(["fits"])
    assert journal.read()[-1] == b"fits"


def test_places_that_are_refused(journal_path, tmp_path, monkeypatch):
    """One that is not there, and another user's journal, as its lines decide what is done."""
    with pytest.raises(OutputError, match="No such file or directory"):
        LineJournal(tmp_path / "nowhere" / "x.journal").append(["a"])
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    with pytest.raises(OutputError, match="Expected a journal of your own, found one of another user"):
        LineJournal(journal_path)
