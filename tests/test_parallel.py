"""Processes that share work: none outlives its parent, and all say the same, however many they are."""

import os
import signal
import subprocess
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from bftrainer.errors import BftrainerError
from bftrainer.parallel import map_in_order
from bftrainer.supervisor import descendants
from tests.tiny import installed
from tests.waiting import alive, until

WAIT_S = 60.0

SWEEP = """schema = 1
[base]
solver = "dp"
baseline = false
[grid]
large_idle = [1, 2, 3, 4, 5, 6, 7, 8]
max_tasks = [5, 6, 7, 8, 9, 10, 11, 12]
"""


def workers(pid):
    """Processes of its pool."""
    found = []
    for child in descendants(pid):
        with suppress(OSError):
            if b"popen_loky" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


COMMANDS = (
    "zeus simulate --workers 2 --recurrences 2000 --seeds 200",
    "spot sweep --jobs 2 --repeats 5000 --days 30",
    "sweep sweep.toml --workers 2",
)


class Started:
    """A command in a process group of its own, as a shell starts it, and the processes that it had at work."""

    def __init__(self, folder, *words):
        self._said, self.processes = folder / "said", []
        with self._said.open("wb") as said:
            self.parent = subprocess.Popen(
                [installed("bftrainer"), *words], cwd=folder, stdout=said, stderr=said, start_new_session=True
            )

    def wait_for_workers(self):
        """Wait until two workers are there; they are kept in mind."""
        until(lambda: self.parent.poll() is not None or len(workers(self.parent.pid)) >= 2)
        assert self.parent.poll() is None, self.said
        self.processes = descendants(self.parent.pid)

    @property
    def said(self):
        """All lines so far, but for the empty one that follows the terminal's ^C."""
        return [line for line in self._said.read_text().splitlines() if line]

    def status(self):
        """Wait until it and all that it has started have ended."""
        status = self.parent.wait(WAIT_S)
        until(lambda: not any(map(alive, self.processes)))
        return status

    def close(self):
        """Leave nothing behind, whatever the test has found."""
        self.parent.kill()
        self.parent.wait()
        for process in filter(alive, self.processes):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@pytest.fixture
def start(tmp_path):
    """`start("sweep", ...)` starts a command in a folder with a sweep in it."""
    (tmp_path / "sweep.toml").write_text(SWEEP)
    with ExitStack() as stack:
        yield lambda *words: stack.enter_context(closing(Started(tmp_path, *words)))


@pytest.mark.long
@pytest.mark.parametrize("line", COMMANDS)
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "interrupted"])
def test_workers_end_with_their_parent(start, line, is_killed):
    """Nobody is left, neither workers nor what those have started; Ctrl-C, also while they start, is told in a line."""
    command = start(*line.split())
    command.wait_for_workers()
    if is_killed:
        command.parent.kill()
        assert command.status() == -signal.SIGKILL
        assert not any("leaked" in line for line in command.said)
        return
    with suppress(ProcessLookupError):  # as Ctrl-C does, which tells all processes
        os.killpg(command.parent.pid, signal.SIGINT)
    assert command.status() == 130
    assert [line for line in command.said if not line.startswith("Finished points are kept")] == ["Interrupted."]


def odd(number):
    """The number, unless it is even."""
    if number % 2 == 0:
        raise ValueError(f"{number} is even")
    return number


def end(number):
    """The end of the process."""
    os._exit(number)


@pytest.mark.long
def test_what_ends_its_process_is_given_up():
    """After three times, as a fourth would end the same way."""
    with pytest.raises(BftrainerError, match="ended abruptly, 3 times"):
        list(map_in_order(end, [1, 2], 2))


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("chunk", [1, 3])
def test_results_come_in_order(workers, chunk):
    """Whatever the pieces: results in the order of the items, until the first that fails, whose error is raised."""
    found = []
    with pytest.raises(ValueError, match="4 is even"):
        found.extend(map_in_order(odd, [7, 5, 3, 1, 9, 11, 13, 4, 2, 15, 8], workers, chunk))
    assert found == [7, 5, 3, 1, 9, 11, 13]
    assert list(map_in_order(odd, [], workers, chunk)) == []
