"""Callbacks and the loader against the interfaces that the frameworks document: which hooks they call, in which order.

`test_frameworks.py` has the frameworks themselves, where they are installed.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from types import ModuleType, SimpleNamespace

import pytest

from bftrainer.errors import SettingsError, TrainingStoppedError, TuningError, TuningInputError
from bftrainer.zeus.integrations import (
    ZeusDataLoader,
    keras_callback,
    lightning_callback,
    training_run,
    transformers_callback,
)
from bftrainer.zeus.master.hardware import read_profile
from bftrainer.zeus.master.script import TrainingReport, read_report
from tests.zeus.integrations.driven import ScriptedRun, on_threads
from tests.zeus.master.fakes import Device, World, instruct, plug
from tests.zeus.master.test_training import STEP_S


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
    "lightning.pytorch": ({"Callback": object}, lightning_callback, lightning_fit, "val_acc"),
    "pytorch_lightning": ({"Callback": object}, lightning_callback, lightning_fit, "val_acc"),
    "transformers": ({"TrainerCallback": object}, transformers_callback, transformers_train, "eval_acc"),
    "keras": ({"callbacks": SimpleNamespace(Callback=object)}, keras_callback, keras_fit, "val_acc"),
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


def train(loader, metrics, **better):
    """Train on a loader; give the batches of each epoch."""
    seen = []
    for epoch in loader.epochs():
        seen.append(list(loader))
        loader.report_metric(metrics[epoch], **better)
    return seen


def test_the_loader_leads_to_the_target(tell):
    """Each epoch has all batches; the report has the published name and keys."""
    folder = tell(ZEUS_JOB_ID="rec01+try01")
    loader = ZeusDataLoader([1, 2, 3], batch_size=2, max_epochs=9, shuffle=True)
    assert (loader.target_metric, len(loader), loader.shuffled) == (0.5, 2, True)
    assert list(ZeusDataLoader([4], batch_size=1)) == [[4]]
    assert train(loader, [0.1, 0.7]) == [[[1, 2], [3]]] * 2
    written = json.loads((folder / "rec01+try01+bs2.train.json").read_text())
    assert {"energy", "time", "cost", "num_epochs", "reached"} <= set(written)
    assert (written["num_epochs"], written["reached"]) == (2, True)


@pytest.mark.parametrize(("metrics", "higher", "epochs"), [([0.9, 0.5], False, 2), ([0.1] * 3, True, 3)])
def test_lower_metrics_and_targets_that_are_missed(tell, metrics, higher, epochs):
    """Whether lower is better is said with the metric; at the last epoch the report says that the target was missed."""
    folder = tell()
    assert len(train(ZeusDataLoader([1], batch_size=1, max_epochs=3), metrics, higher_is_better=higher)) == epochs
    assert read_report(folder / "zeus+bs1.train.json").reached == (epochs == 2)
    # As published, of a run that would cost too much the report is written, then an exception ends the script.
    tell(ZEUS_COST_THRESH="1e-12")
    with pytest.raises(TrainingStoppedError, match="One more epoch after 1 would reach the cost threshold"):
        train(ZeusDataLoader([1], batch_size=1, max_epochs=3), [0.1] * 3)
    assert not read_report(folder / "zeus+bs1.train.json").reached


def test_the_loader_tries_power_limits(tell, monkeypatch):
    """A warm-up batch and two that are measured at each limit, in the first epoch; then the best one, until the end."""
    device = Device()
    world, seen = World(device), []
    plug(monkeypatch, device)
    on_gpu = partial(training_run, meter=world, clock=world.clock)
    monkeypatch.setattr("bftrainer.zeus.integrations.drivers.training_run", on_gpu)
    folder = tell(BFTRAINER_SET_POWER_LIMITS=True, ZEUS_PROFILE_PARAMS="1,2", ZEUS_ETA_KNOB=1)
    loader = ZeusDataLoader(list(range(25)), batch_size=1, max_epochs=1)
    for _ in loader.epochs():
        for _ in loader:
            seen.append(device.limit_mw // 1000)
            world.work(STEP_S[seen[-1]])
    assert seen == [limit for limit in STEP_S for _ in range(3)] + [175] * 4
    assert device.limit_mw == 250_000
    assert [each.limit_w for each in read_profile(folder / "bs1.power.json")] == list(STEP_S)


def test_what_a_loader_refuses(tell):
    """Metrics and epochs of loaders that don't lead, another distribution, no target."""
    tell()
    evaluation = ZeusDataLoader([1], batch_size=1)
    with pytest.raises(TuningError, match="made with max_epochs"):
        list(evaluation.epochs())
    with pytest.raises(TuningError, match=r"one of the epochs\(\)"):
        evaluation.report_metric(0.5)
    with pytest.raises(SettingsError, match="Expected distributed to be None or 'dp', got 'ddp'"):
        ZeusDataLoader([1], batch_size=1, distributed="ddp")
    tell(ZEUS_TARGET_METRIC=None)
    with pytest.raises(TuningInputError, match="ZEUS_TARGET_METRIC"):
        ZeusDataLoader([1], batch_size=1, max_epochs=3)


def test_loaders_of_several_ranks(tell):
    """With ``dp`` there is one report, of the batch size of all ranks together, and all hear rank 0's metric."""
    folder = tell()

    def work(ranks):
        loader = ZeusDataLoader([1, 2], batch_size=2, max_epochs=9, distributed="dp")
        loader._ranks = ranks  # there is no group of processes here
        return len(train(loader, [0.1, 0.6 - ranks.rank, 0.1]))

    assert on_threads(2, work) == [2, 2]
    assert [path.name for path in folder.iterdir()] == ["zeus+bs4.train.json"]
    assert isinstance(read_report(folder / "zeus+bs4.train.json"), TrainingReport)
