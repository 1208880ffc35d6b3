"""Claims of directories: one writer at a time, which is named."""

from __future__ import annotations

import errno
import os

import pytest

from bftrainer.errors import OutputError
from bftrainer.files import claims
from bftrainer.files.claims import LOCK, claimed
from bftrainer.files.directories import result_directory
from tests.files.test_directory import names, replaced, results


def test_one_writer(tmp_path):
    """A second one is refused by the first one's number, in another process and in the same."""
    place = results(tmp_path / "out")
    with result_directory([place], force=True):
        with pytest.raises(OutputError, match=f"{place}: This process is writing there"):
            replaced(place)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            claims.Claim._held.clear()
            claims.PATIENCE_S = 0.0
            with pytest.raises(OutputError) as refused:
                replaced(place)
            os.write(write, str(refused.value).encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 1000).decode().startswith(f"{place}: Process {os.getpid()} on ")
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("is_alive", [True, False])
def test_without_locks_the_process_number_counts(tmp_path, monkeypatch, is_alive):
    """On file systems that have no locks a writer that is alive is respected, and a dead one is not."""
    number = os.getpid() if is_alive else 2**22 + 1
    host = claims.socket.gethostname()
    (tmp_path / LOCK).write_text(f"Process {number} on {host}")

    def none(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(claims.fcntl, "lockf", none)
    monkeypatch.setattr(claims, "PATIENCE_S", 0.0)
    if is_alive:
        with pytest.raises(OutputError, match=f"Process {number} on {host} is writing there"), claimed(tmp_path):
            pytest.fail("claimed twice")
    else:
        with claimed(tmp_path):
            assert names(tmp_path) == [LOCK]
        assert names(tmp_path) == []


def test_a_lock_that_is_a_pipe(tmp_path):
    """Nobody writes where a pipe has the name of the lock; looking does not wait, writing is refused."""
    os.mkfifo(tmp_path / LOCK)
    assert claims.writer_of(tmp_path) == ""
    with pytest.raises(OutputError, match=f"{tmp_path}: Cannot write results: "), claimed(tmp_path):
        pytest.fail("claimed a pipe")
