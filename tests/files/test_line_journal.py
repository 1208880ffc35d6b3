"""What a journal was given is in it, whatever becomes of the process, the disk or the machine."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import OutputError, ResumeError
from bftrainer.files.line_journal import LineJournal, WorkJournal, sealed, unsealed

TITLE = b"kind 1: here"
LINES = ["first", "second", "", "ä ☃", "a b c"]


def lines_of(path):
    """Texts of a file's lines; None for a damaged one."""
    return [unsealed(line) for line in path.read_bytes().removesuffix(b"\n").split(b"\n")]


@pytest.fixture
def path(tmp_path):
    """A journal of some lines."""
    made = tmp_path / "x.journal"
    journal = LineJournal(made, "kind 1", "here")
    assert journal.last == "kind 1: here"
    journal.append(LINES[0])
    journal.append(*LINES[1:])
    assert journal.last == LINES[-1]
    journal.close()
    return made


def test_lines_come_back(path):
    """In their order, after the first one, which says what the journal is; it goes on where it was."""
    assert lines_of(path) == ["kind 1: here", *LINES]
    journal = LineJournal(path, "kind 1", "here")
    assert journal.last == LINES[-1]
    journal.append("more")
    journal.close()
    assert lines_of(path) == ["kind 1: here", *LINES, "more"]


@given(text=st.text(st.characters(codec=None)))
def test_any_text_is_one_line(text):
    """Whatever is written, it is one line, and reads back as one."""
    line = sealed(text)
    assert line.endswith(b"\n")
    assert not set(b"\r\n") & set(line[:-1])
    assert unsealed(line[:-1]) is not None


def test_a_torn_end_heals(path):
    """Wherever the last line breaks off, whatever stands there now, whole ones stay and the next one follows."""
    whole = path.read_bytes()
    last = len(whole.removesuffix(b"\n").rpartition(b"\n")[0]) + 1
    torn = [whole[:end] for end in range(last + 1, len(whole))]
    for data in [*torn, whole[:last] + b"\0" * 4096, whole[:last] + b"x\n\0y\n", whole[:last] + whole[-5:]]:
        path.write_bytes(data)
        journal = LineJournal(path, "kind 1", "here")
        assert journal.last == LINES[-2]
        journal.append("next")
        journal.close()
        assert lines_of(path) == ["kind 1: here", *LINES[:-1], "next"]


def test_a_torn_beginning_heals(path):
    """A journal whose first line was never whole begins anew."""
    whole = path.read_bytes()
    for end in range(whole.index(b"\n") + 1):
        path.write_bytes(whole[:end])
        LineJournal(path, "kind 1", "here").close()
        assert lines_of(path) == ["kind 1: here"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"somebody's notes\n", "Expected a journal of here, got something else"),
        (sealed("kind 1: there"), "Expected a journal of here, got one of there"),
        (sealed("kind 2: here"), "Expected a journal of here, got something else"),
    ],
)
def test_other_files_stay_as_they_are(tmp_path, data, message):
    """What is no journal, or one of something else, is refused in one line and not touched."""
    path = tmp_path / "x.journal"
    path.write_bytes(data)
    with pytest.raises(ResumeError, match=message):
        LineJournal(path, "kind 1", "here")
    assert path.read_bytes() == data


def test_a_full_disk(path, monkeypatch):
    """What finds no room leaves nothing of itself, and the journal goes on when there is some."""
    journal, before, write = LineJournal(path, "kind 1", "here"), path.read_bytes(), os.write
    calls = iter([3])

    def full(file, data):
        """Write some bytes, then find the disk full."""
        some = next(calls, None)
        if some is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data[:some])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OutputError, match=r"x\.journal: Cannot write the journal: No space left on device\."):
        journal.append("too much", "and more")
    assert path.read_bytes() == before
    monkeypatch.undo()
    journal.append("fits")
    journal.close()
    assert lines_of(path) == ["kind 1: here", *LINES, "fits"]


def test_a_place_that_is_none(tmp_path):
    """One line says where it cannot be."""
    with pytest.raises(OutputError, match="No such file or directory"):
        LineJournal(tmp_path / "nowhere" / "x.journal", "kind 1", "here")


@pytest.mark.parametrize("cut", [b"", b"{", b"[3, 4", b"\0" * 9])
def test_a_cut_line_of_work_is_written_over(tmp_path, cut):
    """The next lines follow the last whole one."""
    journal = WorkJournal(tmp_path / "journal")
    assert journal.lines == []
    journal.append(["[1]", "[2]"])
    with journal.path.open("ab") as file:
        file.write(cut)
    journal = WorkJournal(journal.path)
    assert journal.lines == [b"[1]", b"[2]"]
    journal.append(["[3]"])
    journal.append(["[4]"])
    assert journal.path.read_bytes() == b"[1]\n[2]\n[3]\n[4]\n"


def test_a_write_of_work_that_failed_leaves_nothing_of_itself(tmp_path, monkeypatch):
    """A line of which the disk took a part is written again, whole."""
    journal = WorkJournal(tmp_path / "journal")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: os.stat("nowhere"))
        with pytest.raises(OSError, match="nowhere"):
            journal.append(["[1]"])
    journal.append(["[1]"])
    assert journal.path.read_bytes() == b"[1]\n"


def test_another_users_work_is_refused(tmp_path, monkeypatch):
    """What it says decides what is computed."""
    WorkJournal(tmp_path / "journal").append(["[1]"])
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    with pytest.raises(ResumeError, match="Expected a journal of your own, found one of another user"):
        WorkJournal(tmp_path / "journal")
