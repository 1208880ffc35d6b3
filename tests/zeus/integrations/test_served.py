"""Runs that a batch-size server decides on: when they stop, what becomes of trials left behind; several ranks."""

from __future__ import annotations

import logging
import math
from contextlib import contextmanager

import pytest

from bftrainer.errors import BatchSizeServerError, SettingsError, TrainingStoppedError, TuningError, TuningInputError
from bftrainer.zeus.integrations import on_all_ranks, server_run
from bftrainer.zeus.server import BatchSizeClient, JobSpec, TuningParams
from tests.zeus.integrations.driven import ScriptedRun, ThreadRanks, on_threads
from tests.zeus.master.fakes import Device, World, gpus
from tests.zeus.server.support import SPEC, carrying

PARAMS = {name: SPEC[name] for name in ("job_id", "job_id_prefix", "batch_sizes", "default_batch_size", "mab_seed")}


@pytest.fixture
def client(tmp_path):
    """A client of a server of its own."""
    with carrying(tmp_path) as within, BatchSizeClient("http://server", transport=within) as client:
        yield client


def train(client, world, metrics, job=None, epoch_s=1.0, **options):
    """Train epochs of a second each until told to stop; give the run."""
    scores = iter(metrics)
    measuring = {"meter": world, "clock": world.clock, "find": lambda: None} | options
    with server_run(client, job or JobSpec(**SPEC), **measuring) as run:
        world.work(50.0)  # before the first epoch, none of the run's
        for _ in run.epochs():
            for _ in run.steps(range(2)):
                world.work(epoch_s / 2)
            run.report(next(scores, 0.1))
        world.work(50.0)
    return run


def test_epochs_are_reported_until_the_target(client):
    """Time and energy count from the start of the first epoch; the server's verdict ends the run."""
    run = train(client, World(power_w=80.0), [0.1, math.nan, 0.6])
    assert (run.batch_size, run.epochs_done, run.reached, run.verdict) == (16, 3, True, "Train succeeded")
    (row,) = client.trials("t-1")
    assert (row.time, row.energy, row.converged) == (3.0, 240.0, True)


def test_a_registered_job_is_found_by_its_name(client):
    """The next run explores another batch size, and ends with the epoch in which it costs twice the first one."""
    client.register_job(JobSpec(**SPEC))
    train(client, World(power_w=80.0), [0.6], job="t-1")
    run = train(client, World(power_w=80.0), [], job="t-1")
    assert (run.batch_size, run.epochs_done, run.reached) == (8, 3, False)
    with pytest.raises(BatchSizeServerError, match=r"(?i)unknown job"):
        train(client, World(), [], job="t-2")


def test_a_run_without_reports_is_no_result(client):
    """Epochs without a metric end at the last one; the trial is ended, and handed out again; so does a crash."""
    for _ in range(2):
        with server_run(client, JobSpec(**SPEC | {"max_epochs": 4}), meter=World(), find=lambda: None) as run:
            assert list(run.epochs()) == [0, 1, 2, 3]
        assert (run.batch_size, run.reached) == (16, False)
    with pytest.raises(TypeError):
        train(client, World(), [], job="t-1", epoch_s="a crash")
    assert [row.status for row in client.trials("t-1")] == ["Failed"] * 3


@pytest.mark.parametrize(
    ("metrics", "epoch", "why"),
    [
        ([], 1, "ended without run.report"),
        ([0.1], 2, "ended without run.report"),
        ([math.nan] * 4, 1, "is not a number"),
    ],
)
def test_a_script_that_forgets_its_metric_is_warned(client, caplog, metrics, epoch, why):
    """Once a run: of the first epoch without a report, or whose metric is not a number."""
    caplog.set_level(logging.WARNING, "bftrainer.zeus.integrations")
    job = JobSpec(**SPEC | {"max_epochs": 4})
    with server_run(client, job, meter=World(), find=lambda: None) as run:
        for number in run.epochs():
            if number < len(metrics):
                run.report(metrics[number])
    (said,) = [each.getMessage() for each in caplog.records if each.name == "bftrainer.zeus.integrations.drivers"]
    assert said.startswith(f"t-1, trial 1, epoch {epoch}: ")
    assert why in said


def test_a_script_that_reports_is_not_warned(client, caplog):
    """Neither one that reaches its target nor one that misses it."""
    train(client, World(power_w=80.0), [0.1, 0.6])
    train(client, World(power_w=80.0), [])
    assert not [each for each in caplog.records if each.name == "bftrainer.zeus.integrations.drivers"]


@pytest.mark.long
def test_the_gpus_are_found(client):
    """Parameters without GPUs get those of this machine, whose energy is measured."""
    devices, world = (Device(), Device(uuid="GPU-2b")), World()
    with server_run(client, TuningParams(**PARAMS), find=lambda: gpus(*devices), clock=world.clock) as run:
        run.begin_epoch()
        world.work(1.0)
        devices[0].energy_mj, devices[1].energy_mj = 3000, 5000
        run.report(0.7)
    assert run.energy_j == 8.0
    spec = client.job("t-1").spec
    assert (spec.max_power, spec.number_of_gpus, spec.gpu_model) == (500.0, 2, "Fake V100")


def test_a_machine_without_gpus(client):
    """Its power has to be said; the model then counts half of it while it waits, and nothing else is asked for."""
    with pytest.raises(SettingsError, match="highest power"):
        train(client, World(), [], job=TuningParams(**PARAMS))
    with server_run(client, TuningParams(**PARAMS), max_power_w=40.0, measure="model", find=lambda: None) as run:
        run.begin_epoch()
        run.report(0.7)
    assert run.meter.name == "model"
    assert client.job("t-1").spec.max_power == 40.0


def test_what_is_refused(client):
    """A job without a name, since each run would be another one; unknown meters; a report before any epoch."""
    with pytest.raises(SettingsError, match="Expected a job with a job_id"):
        train(client, World(), [], job=JobSpec(**SPEC | {"job_id": None}))
    with pytest.raises(TuningInputError, match=r"measure: Input should be .*, got 'ralp'"):
        train(client, World(), [], measure="ralp")
    with (
        pytest.raises(TuningError, match="Expected a report after"),
        server_run(client, JobSpec(**SPEC), meter=World(), find=lambda: None) as run,
    ):
        run.report(0.5)
    with pytest.raises(TuningInputError, match="Expected a metric that is a number, got 'x'"):
        train(client, World(), ["x"])


# --- several ranks ----------------------------------------------------------------------------------------------------


@contextmanager
def scripted(opened, **settings):
    """A driver, noted when it is opened and closed."""
    opened.append(ScriptedRun(**settings))
    yield opened[-1]
    opened.append("closed")


def train_rank(ranks, opening):
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
    found = on_threads(3, lambda ranks: train_rank(ranks, scripted(opened)))
    assert found == [(32, 5, [False, True], 2, True)] * 3
    assert (len(opened), opened[0].metrics, opened[0].steps_seen) == (2, [0.45, 0.9], 6)


@pytest.mark.parametrize("breaks_at", [0, 2])
def test_a_failure_on_rank_0_is_everyones(breaks_at):
    """What rank 0 raises ends the others with its message, rather than having them wait."""
    first, *others = on_threads(3, lambda ranks: train_rank(ranks, scripted([], breaks_at=breaks_at)))
    assert isinstance(first, OSError)
    assert [type(error) for error in others] == [TrainingStoppedError] * 2
    assert {str(error) for error in others} == {"Rank 0 failed: OSError: the server is gone"}


def test_a_driver_that_cannot_be_opened():
    """So does a failure before there is a driver."""

    @contextmanager
    def refusing():
        raise OSError("no server")
        yield

    first, second = on_threads(2, lambda ranks: train_rank(ranks, refusing()))
    assert isinstance(first, OSError)
    assert str(second) == "Rank 0 failed: OSError: no server"


def test_one_process_has_the_driver_itself():
    """Where the environment tells of one process, there is nothing in between."""
    opened = []
    with on_all_ranks(scripted(opened), environ={"WORLD_SIZE": "1"}) as run:
        assert run is opened[0]


def test_ranks_that_are_refused():
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
