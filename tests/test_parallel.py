"""Processes that share work: none outlives its parent, and all say the same, however many they are."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from bftrainer.errors import BftrainerError
from bftrainer.parallel import in_order
from tests.tiny import installed

WAIT_S = 60.0

SWEEP = """schema = 1
[base]
solver = "dp"
baseline = false
[grid]
seed = [1, 2, 3, 4, 5, 6, 7, 8]
max_tasks = [5, 6, 7, 8, 9, 10, 11, 12]
"""


def children(pid):
    """Processes that a process has started, and those that they have."""
    found = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += [int(word) for word in (thread / "children").read_text().split()]
    return found + [each for child in found for each in children(child)]


def workers(pid):
    """Processes of its pool."""
    found = []
    for child in children(pid):
        with suppress(OSError):
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


def wait_for_end(handles):
    """Wait until all those processes have ended; a time that none should need ends the wait."""
    poll = select.poll()
    for handle in handles:
        poll.register(handle, select.POLLIN)
    deadline = time.monotonic() + WAIT_S
    left = set(handles)
    while left:
        ended = poll.poll(1000.0 * max(0.0, deadline - time.monotonic()))
        assert ended, f"{len(left)} processes live on"
        for handle, _ in ended:
            poll.unregister(handle)
            left.discard(handle)


@pytest.mark.parametrize(
    "words",
    [
        ("zeus", "simulate", "--workers", "2", "--recurrences", "2000", "--seeds", "200"),
        ("zeus", "compare", "--workers", "2", "--recurrences", "2000", "--seeds", "200"),
        ("zeus", "groups", "--workers", "2", "--seeds", "200"),
        ("spot", "sweep", "--jobs", "2", "--repeats", "5000", "--days", "30"),
        ("forecast", "--deadline", "8h", "--workers", "2", "--solver", "dp", "--stretches", "1000"),
        ("sweep", "sweep.toml", "--workers", "2"),
    ],
    ids=" ".join,
)
def test_workers_end_with_their_parent(tmp_path, words):
    """Killed, a command leaves nobody behind: neither its workers, nor what those have started."""
    (tmp_path / "sweep.toml").write_text(SWEEP)
    with (tmp_path / "said").open("wb") as said:
        parent = subprocess.Popen([installed("bftrainer"), *words], cwd=tmp_path, stdout=said, stderr=said)
    handles = []
    try:
        deadline = time.monotonic() + WAIT_S
        while len(workers(parent.pid)) < 2:
            assert parent.poll() is None, (tmp_path / "said").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        handles = [os.pidfd_open(child) for child in children(parent.pid)]
        parent.kill()
        assert parent.wait(WAIT_S) == -signal.SIGKILL
        wait_for_end(handles)
    finally:
        parent.kill()
        for handle in handles:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)


def odd(number):
    """The number, unless it is even."""
    if number % 2 == 0:
        raise ValueError(f"{number} is even")
    return number


def ending(number):
    """End the process."""
    os._exit(number)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("chunk", [1, 3])
def test_results_come_in_order(workers, chunk):
    """Whatever the pieces: results in the order of the items, until the first that fails, whose error is raised."""
    found = []
    with pytest.raises(ValueError, match="4 is even"):
        found.extend(in_order(odd, [7, 5, 3, 1, 9, 11, 13, 4, 2, 15, 8], workers, chunk))
    assert found == [7, 5, 3, 1, 9, 11, 13]
    assert list(in_order(odd, [], workers, chunk)) == []


def test_what_ends_its_process_is_given_up():
    """After three tries, as an error of ours."""
    with pytest.raises(BftrainerError, match="ended abruptly, 3 times"):
        list(in_order(ending, [1, 2], 2))
