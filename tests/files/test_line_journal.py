"""What a journal was given is in it, whatever becomes of the process, the disk or the machine."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import OutputError
from bftrainer.files.line_journal import LineJournal, seal_line, unseal_line

LINES = ["first", "second", "", "ä ☃", "a b c"]


@pytest.fixture
def path(tmp_path):
    """A journal of some lines."""
    journal = LineJournal(tmp_path / "x.journal")
    assert journal.read() == []
    journal.append(map(seal_line, LINES[:1]))
    journal.append(map(seal_line, LINES[1:]))
    return journal.path


def test_lines_come_back(path):
    """In their order; it goes on where it was."""
    journal = LineJournal(path)
    journal.append([seal_line("more")])
    assert list(map(unseal_line, journal.read())) == [*LINES, "more"]
    assert LineJournal(path).read() == journal.read()


@given(text=st.text(st.characters(codec=None)))
def test_any_text_is_one_line(text):
    """Whatever is seal_line, it is one line, and reads back as one."""
    line = seal_line(text)
    assert not set(b"\r\n") & set(line)
    assert unseal_line(line) is not None


def test_a_torn_end_heals(path):
    """Wherever the last line breaks off, whatever stands there now, whole ones stay and the next one follows."""
    whole = path.read_bytes()
    last = len(whole.removesuffix(b"\n").rpartition(b"\n")[0]) + 1
    torn = [whole[:end] for end in range(last + 1, len(whole))]
    for data in [*torn, whole[:last] + b"\0" * 4096, whole[:last] + b"x\n\0y\n", whole[:last] + whole[-5:]]:
        path.write_bytes(data)
        LineJournal(path, lambda line: unseal_line(line) is not None).append([seal_line("next")])
        assert list(map(unseal_line, LineJournal(path).read())) == [*LINES[:-1], "next"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
def test_a_write_that_failed_leaves_nothing_of_itself(path, monkeypatch, error):
    """The journal goes on when there is room."""
    journal, before = LineJournal(path), path.read_bytes()

    def fail(_):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises((OutputError, KeyboardInterrupt), match=r"x\.journal: Cannot write .*: No space left|^$"):
            journal.append(["too much", "and more"])
    assert path.read_bytes() == before
    journal.append(["fits"])
    assert journal.read()[-1] == b"fits"


def test_places_that_are_refused(path, tmp_path, monkeypatch):
    """One that is not there, and another user's journal, as its lines decide what is done."""
    with pytest.raises(OutputError, match="No such file or directory"):
        LineJournal(tmp_path / "nowhere" / "x.journal").append(["a"])
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    with pytest.raises(OutputError, match="Expected a journal of your own, found one of another user"):
        LineJournal(path)
