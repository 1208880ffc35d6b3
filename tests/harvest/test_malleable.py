"""Scripts made malleable: they go on from checkpoints, tell what they do, and end after the same step."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from bftrainer.harvest import malleable
from bftrainer.harvest.malleable import MalleableTraining, training
from tests.waiting import until


@pytest.fixture
def environ(tmp_path):
    """What a harvest gives a rank."""
    found = {"BFTRAINER_CHECKPOINT_DIR": str(tmp_path / "place"), "BFTRAINER_PROGRESS": str(tmp_path / "progress")}
    before = signal.getsignal(signal.SIGTERM)
    yield found | {"BFTRAINER_WORK": "10"}
    signal.signal(signal.SIGTERM, before)


def made(environ, state, **more):
    """A training whose state is a list of numbers."""

    def load(path):
        state[:] = map(int, path.read_text().split())

    return MalleableTraining(lambda path: path.write_text(" ".join(map(str, state))), load, environ=environ, **more)


def trained(environ, state, then=lambda _: None):
    """Train in steps of two units of work; after each, something happens."""
    with made(environ, state) as run:
        for step in run:
            state.append(step)
            run.report(2)
            then(step)


def test_it_trains_until_the_work_is_done(environ, tmp_path):
    """Ten units of work in steps of two; the last checkpoint alone stays; progress says what is done and saved."""
    state = []
    trained(environ, state)
    assert state == [0, 1, 2, 3, 4]
    assert [path.name for path in (tmp_path / "place").iterdir()] == ["save-000000000005"]
    assert [float(word) for word in (tmp_path / "progress").read_text().split()[:2]] == [10.0, 10.0]


def test_asked_to_end_it_saves_and_goes_on_from_there(environ):
    """SIGTERM in a step: the step is done, the script ends with status 0, the next one begins with the step after."""
    state, again = [], []
    with pytest.raises(SystemExit) as ended:
        trained(environ, state, lambda step: step == 1 and os.kill(os.getpid(), signal.SIGTERM))
    assert ended.value.code == 0
    trained(environ, again)
    assert (state, again) == ([0, 1], [0, 1, 2, 3, 4])


def test_a_script_that_fails_saves_nothing(environ, tmp_path):
    """Its error is not hidden."""

    def fail(_):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        trained(environ, [], fail)
    assert [*(tmp_path / "place").glob("save-*")] == []


def test_checkpoints_between(environ, tmp_path):
    """Every step with `every_s` of 0: what is saved is told."""
    with made(environ, [], every_s=0.0) as run:
        steps = iter(run)
        next(steps)
        run.report(2)
        next(steps)
        assert (tmp_path / "progress").read_text().split()[:2] == ["2.0", "2.0"]


def test_ranks_have_the_same_mean_and_end_together(environ, tmp_path):
    """Three ranks; one is asked to end in its third step: all end after it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared = environ | {
        "WORLD_SIZE": "3",
        "MASTER_ADDR": "127.0.0.1",
        "BFTRAINER_PORT": str(port),
        "BFTRAINER_WORK": "99",
    }
    found, codes = {rank: [] for rank in range(3)}, {}

    def rank(number):
        run = made(shared | {"RANK": str(number), "BFTRAINER_CHECKPOINT_DIR": str(tmp_path / "all")}, [])
        run._place.mkdir(exist_ok=True)
        try:
            for step in run:
                if (number, step) == (1, 2):
                    run._ask(signal.SIGTERM, None)
                found[number].append(run.mean(np.array([float(number), step])).tolist())
                run.report(1)
        except SystemExit as ended:
            codes[number] = ended.code
        for peer in run._peers:
            peer.close()

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]] for number in range(3)}
    assert codes == dict.fromkeys(range(3), 0)


def test_strangers_take_no_part(environ, monkeypatch):
    """Who connects to the first rank without its generation's secret, or says nothing, is sent away."""
    monkeypatch.setattr(malleable, "_HELLO_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    shared = environ | {"WORLD_SIZE": "2", "MASTER_ADDR": address[0], "BFTRAINER_PORT": str(address[1])}
    first, second = (made(shared | {"RANK": rank, "BFTRAINER_SECRET": "ours"}, []) for rank in "01")
    with ThreadPoolExecutor(2) as pool:
        mean = pool.submit(first.mean, [1.0])

        def connected():
            with suppress(ConnectionRefusedError):
                return socket.create_connection(address, timeout=60)

        with until(connected) as silent, socket.create_connection(address, timeout=60) as loud:
            loud.sendall(struct.pack("<q", 1) + b"none")
            assert pool.submit(second.mean, [3.0]).result() == mean.result() == [2.0]
            assert silent.recv(1) == loud.recv(1) == b""
    # However long another one saves, a rank waits for it.
    assert [peer.gettimeout() for peer in (*first._peers, *second._peers)] == [None, None]
    for peer in (*first._peers, *second._peers):
        peer.close()


@pytest.mark.parametrize(("given", "asked", "total"), [({}, None, np.inf), ({}, 5, 5), ({"BFTRAINER_WORK": "9"}, 5, 9)])
def test_how_much_there_is_to_do(given, asked, total):
    """By hand what the script says, or it goes on without end; in a harvest what its task says."""
    assert made(given, [], total=asked).total == total


def test_alone_it_needs_no_harvest(tmp_path, monkeypatch):
    """A script run by hand: one rank, checkpoints beside it, means of one."""
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    with training(lambda path: path.touch(), lambda _: None, total=2) as run:
        for _ in run:
            assert run.mean([1.0, 2.0]) == [1.0, 2.0]
            run.report(1)
    signal.signal(signal.SIGTERM, before)
    assert Path("checkpoint/save-000000000002/state").exists()
