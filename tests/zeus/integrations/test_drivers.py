"""Runs that a batch-size server decides on; several ranks; callbacks and the loader, as frameworks' documents say."""

import json
import math
import sys
import threading
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from queue import SimpleQueue
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bftrainer.errors import BatchSizeServerError, SettingsError, TrainingStoppedError, TuningError, TuningInputError
from bftrainer.zeus import integrations
from bftrainer.zeus.integrations import sample_digits
from bftrainer.zeus.master.script import TrainingReport, read_report
from bftrainer.zeus.server import BatchSizeClient, JobSpec, TuningParams
from tests.zeus.master.driven import Device, World, instruct, plug
from tests.zeus.server.support import SPEC, carrying


class ScriptedRun(integrations.TrialDriver):
    """Ends after some epochs, or at the first metric of 0.9; breaks where it is told to."""

    def __init__(self, max_epochs: int = 5, breaks_at: int | None = None) -> None:
        self.batch_size, self.max_epochs, self.breaks_at = 32, max_epochs, breaks_at
        self.epochs_done, self.reached, self.begun = 0, False, False
        self.steps_seen, self.metrics = 0, []

    def begin_epoch(self) -> bool:
        """Begin an epoch, unless it breaks."""
        self.epochs_done += self.begun
        if self.epochs_done == self.breaks_at:
            raise OSError("the server is gone")
        self.begun = not self.reached and self.epochs_done < self.max_epochs
        return self.begun

    def step(self) -> None:
        """Count."""
        self.steps_seen += 1

    def report(self, metric: float) -> bool:
        """Note."""
        self.metrics.append(round(metric, 4))
        self.reached = metric >= 0.9
        return self.reached


class ThreadRanks(integrations.Ranks):
    """Ranks that are threads of this process."""

    def __init__(self, rank: int, queues: list[SimpleQueue]) -> None:
        self.rank, self.size, self.queues = rank, len(queues), queues

    def broadcast(self, value: Any) -> Any:
        """Send by queues."""
        if self.rank == 0:
            for queue in self.queues[1:]:
                queue.put(value)
            return value
        return self.queues[self.rank].get(timeout=60)


def on_threads(size: int, work: Any) -> list[Any]:
    """What `work(ranks)` returns or raises on each of some ranks."""
    queues = [SimpleQueue() for _ in range(size)]
    found: list[Any] = [None] * size

    def one(rank: int) -> None:
        try:
            found[rank] = work(ThreadRanks(rank, queues))
        except Exception as error:  # the test says which it expects
            found[rank] = error

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return found


PARAMS = {name: SPEC[name] for name in ("job_id", "job_id_prefix", "batch_sizes", "default_batch_size", "mab_seed")}


@pytest.fixture
def client(tmp_path):
    """A client of a server of its own."""
    with carrying(tmp_path) as within, BatchSizeClient("http://server", transport=within) as client:
        yield client


def train(client, world, metrics, job=None, epoch_s=1.0, **options):
    """Train epochs of a second each until told to stop; give the run."""
    scores = iter(metrics)
    measuring = {"meter": world, "clock": world.clock} | options
    with integrations.server_run(client, job or JobSpec(**SPEC), **measuring) as run:
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


def test_a_run_without_reports_is_no_result(client, caplog):
    """Epochs without a metric end at the last one; the trial is ended, and handed out again; so does a crash."""
    for _ in range(2):
        with integrations.server_run(client, JobSpec(**SPEC | {"max_epochs": 4}), meter=World()) as run:
            assert list(run.epochs()) == [0, 1, 2, 3]
        assert (run.batch_size, run.reached) == (16, False)
    with pytest.raises(TypeError):
        train(client, World(), [], job="t-1", epoch_s="a crash")
    assert [row.status for row in client.trials("t-1")] == ["Failed"] * 3
    # A script that forgets its metric is warned once a run; one that reports is not.
    said = [each.getMessage() for each in caplog.records if each.name == "bftrainer.zeus.integrations.drivers"]
    assert [text.partition(" ended")[0] for text in said] == [f"t-1, trial {number}: epoch 1" for number in (1, 2)]
    caplog.clear()
    train(client, World(power_w=80.0), [], job="t-1")
    assert not [each for each in caplog.records if each.name == "bftrainer.zeus.integrations.drivers"]


@pytest.mark.long
def test_the_gpus_are_found(client, monkeypatch):
    """Parameters without GPUs get those of this machine, whose energy is measured."""
    devices, world = (Device(), Device(uuid="GPU-2b")), World()
    plug(monkeypatch, *devices)
    with integrations.server_run(client, TuningParams(**PARAMS), clock=world.clock) as run:
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
    with integrations.server_run(client, TuningParams(**PARAMS), max_power_w=40.0, measure="model") as run:
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
        integrations.server_run(client, JobSpec(**SPEC), meter=World()) as run,
    ):
        run.report(0.5)
    with pytest.raises(TuningInputError, match=r"metric: Input should be a valid number, .* got 'x'"):
        train(client, World(), ["x"])


# --- several ranks ----------------------------------------------------------------------------------------------------


@contextmanager
def scripted(opened, **settings):
    """A driver, noted when it is opened and closed; one that breaks at -1 cannot be opened."""
    if settings.get("breaks_at") == -1:
        raise OSError("the server is gone")
    opened.append(ScriptedRun(**settings))
    yield opened[-1]
    opened.append("closed")


def train_rank(ranks, opening):
    """Train on one rank, where the metric rises with the epochs and from rank to rank; give what it saw."""
    with integrations.on_all_ranks(opening, ranks) as run:
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


@pytest.mark.parametrize("breaks_at", [-1, 0, 2])
def test_a_failure_on_rank_0_is_everyones(breaks_at):
    """What rank 0 raises ends the others with its message, rather than having them wait."""
    first, *others = on_threads(3, lambda ranks: train_rank(ranks, scripted([], breaks_at=breaks_at)))
    assert isinstance(first, OSError)
    assert [type(error) for error in others] == [TrainingStoppedError] * 2
    assert {str(error) for error in others} == {"Rank 0 failed: OSError: the server is gone"}


def test_ranks_that_are_refused(monkeypatch):
    """Several processes without a group, and nodes whose energy nobody measures; one process has the driver itself."""
    opened = []
    monkeypatch.setenv("WORLD_SIZE", "1")
    with integrations.on_all_ranks(scripted(opened)) as run:
        assert run is opened[0]
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    for ranks, said in (
        (None, r"init_process_group\(\) first, as WORLD_SIZE is 2"),
        (ThreadRanks(0, [None, None]), r"Expected all 2 ranks on one node, .* got 1"),
    ):
        with pytest.raises(SettingsError, match=said), integrations.on_all_ranks(scripted([]), ranks):
            pass

    def all_measured(ranks):
        with integrations.on_all_ranks(scripted([]), ranks, all_nodes_measured=True) as run:
            return run.batch_size

    assert on_threads(2, all_measured) == [32, 32]


# --- callbacks, by the hooks that frameworks call; test_frameworks.py has the frameworks themselves -------------------


@pytest.fixture
def fake(monkeypatch):
    """Puts modules with some names in the place of a framework."""

    def put(name, **names):
        for at in range(1, len(parts := name.split(".")) + 1):
            module = ModuleType(".".join(parts[:at]))
            vars(module).update(names)
            monkeypatch.setitem(sys.modules, module.__name__, module)

    return put


def lightning_fit(callback, metrics):
    """The hooks of Lightning's ``Trainer.fit``: an epoch's validation is over when `on_train_epoch_end` is called."""
    trainer = SimpleNamespace(should_stop=False, callback_metrics={})
    callback.on_train_start(trainer, None)
    for value in metrics:
        for batch in range(2):
            callback.on_train_batch_start(trainer, None, None, batch)
        trainer.callback_metrics = {"val_acc": value}
        callback.on_train_epoch_end(trainer, None)
        if trainer.should_stop:
            return


def transformers_train(callback, metrics, strategy="epoch"):
    """The hooks of ``Trainer.train``, which resets its control first; evaluations around it call a hook as well."""
    args, control = SimpleNamespace(eval_strategy=strategy), SimpleNamespace(should_training_stop=False)
    callback.on_evaluate(args, None, control, metrics={"eval_acc": 0.95})
    callback.on_train_begin(args, None, control)
    for value in metrics:
        for _ in range(2):
            callback.on_step_begin(args, None, control)
        callback.on_evaluate(args, None, control, metrics={"eval_acc": value})
        if control.should_training_stop:
            break
    callback.on_evaluate(args, None, control, metrics={"eval_acc": 0.0})


def keras_fit(callback, metrics):
    """The hooks of ``Model.fit``."""
    callback.model = SimpleNamespace(stop_training=False)
    callback.on_train_begin()
    for epoch, value in enumerate(metrics):
        for batch in range(2):
            callback.on_train_batch_begin(batch)
        callback.on_epoch_end(epoch, {"val_acc": value})
        if callback.model.stop_training:
            return


FITS = {
    "lightning.pytorch": ({"Callback": object}, integrations.lightning_callback, lightning_fit, "val_acc"),
    "pytorch_lightning": ({"Callback": object}, integrations.lightning_callback, lightning_fit, "val_acc"),
    "transformers": ({"TrainerCallback": object}, integrations.transformers_callback, transformers_train, "eval_acc"),
    "keras": ({"callbacks": SimpleNamespace(Callback=object)}, integrations.keras_callback, keras_fit, "val_acc"),
}
RISING = [0.2, 0.4, 0.91, 0.6, 0.7, 0.8, 0.85, 0.86]


@pytest.mark.parametrize("framework", FITS)
def test_training_ends_when_the_driver_says_so(fake, framework):
    """At the target, or at the driver's last epoch; it is shown each step and metric; an unknown metric is named."""
    names, make, fit, monitor = FITS[framework]
    fake(framework, **names)
    for metrics, epochs in ((RISING, 3), ([0.1] * 8, 5)):
        run = ScriptedRun(max_epochs=5)
        fit(make(run, monitor), metrics)
        assert (run.epochs_done, run.steps_seen, run.metrics) == (epochs, 2 * epochs, metrics[:epochs])
        assert run.reached == (epochs == 3)
    with pytest.raises(SettingsError, match=f"Unknown metric '{monitor}uracy'. Did you mean '{monitor}'"):
        fit(make(ScriptedRun(), f"{monitor}uracy"), RISING)
    if framework == "transformers":  # without evaluations there would be nothing to report
        with pytest.raises(SettingsError, match="Expected eval_strategy='epoch', got 'no'"):
            fit(make(ScriptedRun(), monitor), RISING, strategy="no")


# --- the loader --------------------------------------------------------------------------------------------------


class Loader:
    """What is used of ``torch.utils.data.DataLoader``."""

    def __init__(self, dataset, batch_size=1, shuffle=False):
        self.dataset, self.batch_size, self.shuffled = dataset, batch_size, shuffle

    def __iter__(self):
        return iter([self.dataset[at : at + self.batch_size] for at in range(0, len(self.dataset), self.batch_size)])

    def __len__(self):
        return -(-len(self.dataset) // self.batch_size)


@pytest.fixture
def tell(fake, monkeypatch, tmp_path):
    """Sets the environment of a run in a folder, with a PyTorch that has no GPU."""
    group = SimpleNamespace(is_available=lambda: False)
    fake("torch.utils.data", DataLoader=Loader, cuda=SimpleNamespace(is_available=lambda: False), distributed=group)

    def set_environment(**changes):
        instruct(monkeypatch, tmp_path, BFTRAINER_MEASURE="model", **changes)
        return tmp_path

    return set_environment


def train_on(loader, metrics, **better):
    """Train on a loader; give the batches of each epoch."""
    seen = []
    for epoch in loader.epochs():
        seen.append(list(loader))
        loader.report_metric(metrics[epoch], **better)
    return seen


def test_the_loader_leads_to_the_target(tell, monkeypatch):
    """Each epoch has all batches; the report has the published name and keys."""
    folder = tell(ZEUS_JOB_ID="rec01+try01")
    loader = integrations.ZeusDataLoader([1, 2, 3], batch_size=2, max_epochs=9, shuffle=True)
    assert (loader.target_metric, len(loader), loader.shuffled) == (0.5, 2, True)
    assert list(integrations.ZeusDataLoader([4], batch_size=1)) == [[4]]
    assert train_on(loader, [0.1, 0.7]) == [[[1, 2], [3]]] * 2
    written = json.loads((folder / "rec01+try01+bs2.train.json").read_text())
    assert {"energy", "time", "cost", "num_epochs", "reached"} <= set(written)
    assert (written["num_epochs"], written["reached"]) == (2, True)
    # Its batches are the run's steps, in which power limits are tried.
    run = ScriptedRun()
    monkeypatch.setattr(integrations.drivers, "training_run", lambda *_, **__: nullcontext(run))
    train_on(loader, [0.1, 0.95])
    assert run.steps_seen == 4


@pytest.mark.parametrize(("metrics", "higher", "epochs"), [([0.9, 0.5], False, 2), ([0.1] * 3, True, 3)])
def test_lower_metrics_and_targets_that_are_missed(tell, metrics, higher, epochs):
    """Whether lower is better is said with the metric; at the last epoch the report says that the target was missed."""
    folder = tell()
    assert (
        len(train_on(integrations.ZeusDataLoader([1], batch_size=1, max_epochs=3), metrics, higher_is_better=higher))
        == epochs
    )
    assert read_report(folder / "zeus+bs1.train.json").reached == (epochs == 2)
    # As published, of a run that would cost too much the report is written, then an exception ends the script.
    tell(ZEUS_COST_THRESH="1e-12")
    with pytest.raises(TrainingStoppedError, match="One more epoch after 1 would reach the cost threshold"):
        train_on(integrations.ZeusDataLoader([1], batch_size=1, max_epochs=3), [0.1] * 3)
    assert not read_report(folder / "zeus+bs1.train.json").reached


def test_what_a_loader_refuses(tell):
    """Metrics and epochs of loaders that don't lead, another distribution, no target."""
    tell()
    evaluation = integrations.ZeusDataLoader([1], batch_size=1)
    with pytest.raises(TuningError, match="made with max_epochs"):
        list(evaluation.epochs())
    with pytest.raises(TuningError, match=r"one of the epochs\(\)"):
        evaluation.report_metric(0.5)
    with pytest.raises(SettingsError, match="Expected distributed to be None or 'dp', got 'ddp'"):
        integrations.ZeusDataLoader([1], batch_size=1, distributed="ddp")
    tell(ZEUS_TARGET_METRIC=None)
    with pytest.raises(TuningInputError, match="ZEUS_TARGET_METRIC"):
        integrations.ZeusDataLoader([1], batch_size=1, max_epochs=3)


def test_loaders_of_several_ranks(tell):
    """With ``dp`` there is one report, of the batch size of all ranks together, and all hear rank 0's metric."""
    folder = tell()

    def work(ranks):
        loader = integrations.ZeusDataLoader([1, 2], batch_size=2, max_epochs=9, distributed="dp")
        loader._ranks = ranks  # there is no group of processes here
        return len(train_on(loader, [0.1, 0.6 - ranks.rank, 0.1]))

    assert on_threads(2, work) == [2, 2]
    assert [path.name for path in folder.iterdir()] == ["zeus+bs4.train.json"]
    assert isinstance(read_report(folder / "zeus+bs4.train.json"), TrainingReport)


# --- the sample: trains as it says, whatever leads it -----------------------------------------------------------------


@pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn is not installed")
def test_the_sample_learns():
    """Each whole batch makes one update; equal seeds learn the same; smaller batches learn more in an epoch."""

    def train_once(batch_size, seed=1):
        run = ScriptedRun(max_epochs=1)
        run.batch_size = batch_size
        sample_digits.train(run, 0.05, seed)
        return run

    run = train_once(100)
    assert run.steps_seen == 14
    assert run.metrics == train_once(100).metrics
    assert run.metrics != train_once(100, seed=4).metrics
    scores = [train_once(size).metrics[0] for size in (512, 64, 16)]
    assert scores == sorted(scores)
    assert scores[2] > scores[0] + 0.05
