"""Several ranks: one asks and reports, all of them stop together, and none waits for one that failed."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from bftrainer.errors import SettingsError, TrainingStoppedError
from bftrainer.zeus.integrations import on_all_ranks
from tests.zeus.integrations.driven import ScriptedRun, ThreadRanks, on_threads


@contextmanager
def scripted(opened, **settings):
    """A driver, noted when it is opened and closed."""
    opened.append(ScriptedRun(**settings))
    yield opened[-1]
    opened.append("closed")


def train(ranks, opening):
    """Train on one rank, where the metric rises with the epochs and from rank to rank; give what it saw."""
    with on_all_ranks(opening, ranks, environ={}) as run:
        seen = []
        for epoch in run.epochs():
            list(run.steps(range(3)))
            seen.append(run.report(0.45 * (epoch + 1) + ranks.rank))
        return run.batch_size, run.max_epochs, seen, run.epochs_done, run.reached


def test_all_ranks_do_what_rank_0_hears():
    """The driver is opened once, gets the metric of rank 0 alone, and its answers are everyone's."""
    opened = []
    found = on_threads(3, lambda ranks: train(ranks, scripted(opened)))
    assert found == [(32, 5, [False, True], 2, True)] * 3
    assert (len(opened), opened[0].metrics, opened[0].steps_seen) == (2, [0.45, 0.9], 6)


@pytest.mark.parametrize("breaks_at", [0, 2])
def test_a_failure_on_rank_0_is_everyones(breaks_at):
    """What rank 0 raises ends the others with its message, rather than having them wait."""
    first, *others = on_threads(3, lambda ranks: train(ranks, scripted([], breaks_at=breaks_at)))
    assert isinstance(first, OSError)
    assert [type(error) for error in others] == [TrainingStoppedError] * 2
    assert {str(error) for error in others} == {"Rank 0 failed: OSError: the server is gone"}


def test_a_driver_that_cannot_be_opened():
    """So does a failure before there is a driver."""

    @contextmanager
    def refusing():
        raise OSError("no server")
        yield

    first, second = on_threads(2, lambda ranks: train(ranks, refusing()))
    assert isinstance(first, OSError)
    assert str(second) == "Rank 0 failed: OSError: no server"


def test_one_process_has_the_driver_itself():
    """Where the environment tells of one process, there is nothing in between."""
    opened = []
    with on_all_ranks(scripted(opened), environ={"WORLD_SIZE": "1"}) as run:
        assert run is opened[0]


def test_what_is_refused():
    """Several processes without a group, and nodes whose energy nobody measures."""
    with (
        pytest.raises(SettingsError, match=r"init_process_group\(\) first, as WORLD_SIZE is 2"),
        on_all_ranks(scripted([]), environ={"WORLD_SIZE": "2"}),
    ):
        pass
    two_nodes = {"LOCAL_WORLD_SIZE": "1"}
    with (
        pytest.raises(SettingsError, match=r"Expected all 2 ranks on one node, .* got 1"),
        on_all_ranks(scripted([]), ThreadRanks(0, [None, None]), environ=two_nodes),
    ):
        pass

    def all_measured(ranks):
        with on_all_ranks(scripted([]), ranks, environ=two_nodes, all_nodes_measured=True) as run:
            return run.batch_size

    assert on_threads(2, all_measured) == [32, 32]
