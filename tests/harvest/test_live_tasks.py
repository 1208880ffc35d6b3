"""Task files of a harvest: what they may say, and how faults are named."""

from contextlib import closing

import pytest

from bftrainer.errors import InvalidTaskError
from bftrainer.harvest.carrier_hub import CarrierHub
from bftrainer.harvest.harvest_events import StartRank
from bftrainer.harvest.live_tasks import OF_RANKS, read_live_tasks

TASK = '[[task]]\nname = "a"\nmin_nodes = 1\nmax_nodes = 4\nwork = 1e4\n'
COMMAND = 'command = "true --epochs 3"\n'


@pytest.fixture
def written(tmp_path):
    """A function that writes a task file."""

    def write(text, name="tasks.toml"):
        (tmp_path / name).write_text(f"schema = 1\n{text}")
        return tmp_path / name

    return write


def test_a_task_has_what_a_replay_needs_and_a_command(written):
    """Keys of both kinds; a text is split as a shell does; without a curve it is to be learnt."""
    text = TASK + COMMAND + 'grace_s = 3\nmax_failures = 5\nprogress = "stdout:step (\\\\d+)"\n'
    (task,) = read_live_tasks(written(text + '[task.env]\nOMP_NUM_THREADS = "1"\n'))
    assert (task.command, task.grace_s, task.max_failures) == (("true", "--epochs", "3"), 3, 5)
    assert (task.learned, task.env) == (True, {"OMP_NUM_THREADS": "1"})
    assert task.spec.work == 1e4


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (TASK, r"tasks.toml, task a: Missing key 'command'."),
        ('[[task]]\nname = "a"\n' + COMMAND, r"tasks.toml, task a: Missing key 'min_nodes'."),
        (TASK + 'command = "\'"\n', r"task a: command: Expected a text as a shell splits it"),
        (TASK + COMMAND + "grace = 3\n", r"task a: Unknown key 'grace'. Did you mean 'grace_s'\?"),
        (TASK + COMMAND + "grace_s = -1\n", r"task a: grace_s: Input should be greater than 0, got -1."),
        (TASK + COMMAND + 'progress = "stdout:("\n', r"task a: progress: Expected reported, file:PATH or stdout"),
        (TASK + COMMAND + 'env = {RANK = "7"}\n', r"env: Expected names .* does not set, got RANK\."),
        (TASK + 'command = ""\n', r"task a: command: Expected a program first, got none\."),
        (TASK + COMMAND + TASK + COMMAND, r"tasks.toml, task a: Expected unique task names, got this one twice."),
        (TASK + 'command = "no-such-program"\n', r"task a: Expected a program to run in .*, got 'no-such-program'."),
        (TASK.replace('"a"', '"a/b"') + COMMAND, r"Expected a name that a file may have, got 'a/b'."),
        ("", r"tasks.toml: Expected at least one task, got none."),
    ],
)
def test_faults_name_file_task_and_field(written, text, fault):
    """One line each."""
    with pytest.raises(InvalidTaskError, match=fault):
        read_live_tasks(written(text))


def test_variables_of_ranks(written, tmp_path, monkeypatch):
    """Those that a rank gets are the ones that a task file may not set."""
    with closing(CarrierHub(tmp_path)) as hub:
        monkeypatch.setattr(hub, "_order", lambda _, **order: orders.append(order))
        orders, (task,) = [], read_live_tasks(written(TASK + COMMAND))
        hub.start(StartRank("n1", "c", task, 1, 0, 1, "n1", 20_000))
    assert orders[0]["env"].keys() - {"PYTHONUNBUFFERED"} == OF_RANKS
