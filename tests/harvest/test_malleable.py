"""Scripts made malleable: they go on from checkpoints, tell what they do, and end after the same step."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from bftrainer.harvest.malleable import MalleableTraining, training


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


def trained(environ, state, then=lambda _: None, **more):
    """Train in steps of two units of work; after each, something happens."""
    with made(environ, state, **more) as run:
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


def test_ranks_end_together(environ):
    """Where they agree on it, one that was not asked to ends after the same step as one that was."""
    state = []
    with pytest.raises(SystemExit) as ended:
        trained(environ, state, agree=lambda asked: asked or len(state) == 2)
    assert (ended.value.code, state) == (0, [0, 1])


def test_a_rank_whose_peers_are_gone_ends_as_they_did(environ):
    """It fails as they were asked to end; when it is asked to as well, it saves what it has, with status 0."""
    with pytest.raises(SystemExit) as ended:
        trained(environ | {"WORLD_SIZE": "2"}, [], lambda _: run_away())
    assert ended.value.code == 0
    assert [*Path(environ["BFTRAINER_CHECKPOINT_DIR"]).glob("save-*")]


def run_away():
    """Be asked to end, and lose a peer."""
    os.kill(os.getpid(), signal.SIGTERM)
    raise ConnectionError("A peer is gone.")


@pytest.mark.parametrize(("given", "asked", "total"), [({}, None, np.inf), ({}, 5, 5), ({"BFTRAINER_WORK": "9"}, 5, 9)])
def test_how_much_there_is_to_do(given, asked, total):
    """By hand what the script says, or it goes on without end; in a harvest what its task says."""
    assert made(given, [], total=asked).total == total


def test_alone_it_needs_no_harvest(tmp_path, monkeypatch):
    """A script run by hand: one rank, checkpoints beside it."""
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    with training(lambda path: path.touch(), lambda _: None, total=2) as run:
        for _ in run:
            run.report(1)
    signal.signal(signal.SIGTERM, before)
    assert Path("checkpoint/save-000000000002/state").exists()
