"""Drivers of a training run: one that a server decides on, and any of them on several processes, or in a framework.

A callback for the loop of Lightning, Hugging Face's Trainer or Keras is made for a `TrialDriver`: with `server_run` a
batch-size server decides, with `training_run` the master that launched the script, with `on_all_ranks` either of them
for several processes. A loop of one's own runs over ``run.epochs()`` and ``run.steps(batches)``, and calls
``run.report(metric)``. Frameworks are imported when a callback is made. Zeus's data loader has its own run.

Examples
--------
>>> def train(client, job, train_epoch, accuracy):
...     with server_run(client, job) as run:
...         for epoch in run.epochs():
...             train_epoch(run.batch_size)
...             run.report(accuracy())
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from importlib import import_module
from typing import Any

from bftrainer.errors import SettingsError, TrainingStoppedError, TuningError, TuningInputError, suggestion
from bftrainer.zeus.master.hardware import Meter, find_gpus, find_hardware, measure_since, open_meter
from bftrainer.zeus.master.script import (
    RunEnvironment,
    RunSettings,
    TrainingRun,
    TrialDriver,
    check_table,
    synchronize_clock,
    training_run,
)
from bftrainer.zeus.server.client import BatchSizeClient, Trial
from bftrainer.zeus.server.messages import JobSpec, TuningParams

logger = logging.getLogger(__name__)


class ServerRun(TrialDriver):
    """One training run that a batch-size server decides on, its time and energy so far. Made by `server_run`."""

    def __init__(self, trial: Trial, max_epochs: int, meter: Meter, clock: Callable[[], float]) -> None:
        self.trial, self.max_epochs, self.meter, self.clock = trial, max_epochs, meter, clock
        self.batch_size, self.epochs_done, self.reached = trial.batch_size, 0, False
        self.time_s = self.energy_j = 0.0
        self.verdict = ""
        self._since: tuple[float, float] | None = None
        self._under_way = False

    def begin_epoch(self) -> bool:
        """See `TrialDriver`; training is over when the server says so, or at `max_epochs`."""
        if self._since is None:
            self._since = (self.clock(), self.meter.energy_j())
        self.epochs_done += self._under_way
        if self.epochs_done == 1 and not self.time_s:
            unreported = "%s, trial %d: epoch 1 ended without run.report(metric), by which alone runs have results."
            logger.warning(unreported, self.trial.id.job_id, self.trial.id.trial_number)
        self._under_way = not self.trial.finished and self.epochs_done < self.max_epochs
        return self._under_way

    def report(self, metric: float) -> bool:
        """Report metric, time and energy so far; return whether training is over."""
        if self._since is None:
            raise TuningError("Expected a report after the beginning of an epoch, got one before.")
        self.time_s, self.energy_j = measure_since(self._since, self.clock, self.meter)
        answer = self.trial.report(self.time_s, self.energy_j, metric, self.epochs_done + self._under_way)
        self.reached, self.verdict = answer.converged, answer.message
        return answer.stop_train


@contextmanager
def server_run(
    client: BatchSizeClient,
    job: JobSpec | TuningParams | str,
    *,
    measure: str = "auto",
    max_power_w: float | None = None,
    gpus: int | None = None,
    synchronize: Callable[[], object] | None = None,
    meter: Meter | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[ServerRun]:
    """Get a batch size from a server, measure a training run, report its epochs, and stop when the server says so.

    A block that is left before the server has a result ends the trial: its batch size is handed out again.

    Parameters
    ----------
    client : BatchSizeClient
    job : JobSpec, TuningParams or str
        The job, which is registered unless it is; or the name of one that is. `TuningParams` say nothing of GPUs: those
        of this machine are added, with `max_power_w` and `gpus`, by default what NVML finds.
    measure, meter : str and Meter
        How energy is measured, see `open_meter`; or what does it.
    synchronize : callable, optional
        Waits until a GPU's work is done, such as ``torch.cuda.synchronize``; called before each measurement.
    clock : callable
        Returns the time in seconds.

    Raises
    ------
    SettingsError, TuningInputError, BatchSizeServerError
        If a value is out of range, energy cannot be measured, or the server refuses the job or has no batch size left.
    """
    check_table(RunSettings, {"max_power_w": max_power_w, "gpus": gpus, "measure": measure}, TuningInputError)
    if isinstance(job, str):
        spec = client.job(job).spec
    elif job.job_id is None:
        raise SettingsError("Expected a job with a job_id, got none: each run would be a job of its own.")
    else:
        if not isinstance(job, JobSpec):
            hardware = find_hardware(max_power_w, gpus)
            of_gpus = {"max_power": hardware.total_power_w, "number_of_gpus": hardware.count}
            job = JobSpec.model_validate(job.model_dump() | of_gpus | {"gpu_model": hardware.model})
        spec = client.register_job(job)
    with ExitStack() as stack:
        if meter is None:
            devices = find_gpus()
            meter = open_meter(measure, spec.max_power, devices and devices.first(spec.number_of_gpus))
            stack.callback(meter.close)
        trial = stack.enter_context(client.trial(spec.job_id or ""))
        yield ServerRun(trial, spec.max_epochs, meter, synchronize_clock(clock, synchronize))


class Ranks:
    """The processes of ``torch.distributed``'s default group, which is initialised, whatever its backend.

    This one has the number `rank`, from 0 to `size` - 1; processes of another kind have the same three names.
    """

    def __init__(self) -> None:
        self._group = sys.modules["torch"].distributed
        self.rank, self.size = self._group.get_rank(), self._group.get_world_size()

    def broadcast(self, value: Any) -> Any:
        """Return rank 0's value, a text or a tuple of plain values, on all ranks; all have to call it."""
        values = [value]
        self._group.broadcast_object_list(values, src=0)
        return values[0]


def find_ranks() -> Ranks | None:
    """Find the processes of this run, if there are several: `SettingsError` if their group is not initialised."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        ranks = Ranks()
        return ranks if ranks.size > 1 else None
    if (size := os.environ.get("WORLD_SIZE", "1")) != "1":
        raise SettingsError(f"Expected torch.distributed.init_process_group() first, as WORLD_SIZE is {size}.")
    return None


class RankedRun(TrialDriver):
    """A run of several ranks: rank 0 opens the driver, the others hear from it. Made by `on_all_ranks`."""

    def __init__(self, ranks: Ranks, open_driver: Callable[[], TrialDriver]) -> None:
        self.ranks, self._open = ranks, open_driver
        self.driver: TrialDriver | None = None
        self._agree(lambda _: None)

    def begin_epoch(self) -> bool:
        """See `TrialDriver`; all ranks have to call it."""
        return bool(self._agree(lambda driver: driver.begin_epoch()))

    def step(self) -> None:
        """See `TrialDriver`; rank 0 sets the power limits of all GPUs."""
        if self.driver is not None:
            self.driver.step()

    def report(self, metric: float) -> bool:
        """See `TrialDriver`; all ranks have to call it, and the metric of rank 0 counts."""
        return bool(self._agree(lambda driver: driver.report(metric)))

    def _agree(self, ask: Callable[[TrialDriver], Any]) -> Any:
        """Ask the driver on rank 0, and return the answer on all ranks; where that fails, all ranks raise."""
        answer: Any = None
        if self.ranks.rank == 0:
            try:
                driver = self.driver = self.driver or self._open()
                answer = (ask(driver), driver.batch_size, driver.max_epochs, driver.epochs_done, driver.reached)
            except BaseException as error:  # whatever it is, the others must not wait for ever; it is raised again
                self.ranks.broadcast(f"{type(error).__name__}: {error}")
                raise
        if isinstance(heard := self.ranks.broadcast(answer), str):
            raise TrainingStoppedError(f"Rank 0 failed: {heard}")
        result, self.batch_size, self.max_epochs, self.epochs_done, self.reached = heard
        return result


@contextmanager
def on_all_ranks(
    opening: AbstractContextManager[TrialDriver],
    ranks: Ranks | None = None,
    *,
    all_nodes_measured: bool = False,
) -> Iterator[TrialDriver]:
    """Open a driver on rank 0 alone, and let all ranks train as it says.

    Parameters
    ----------
    opening : context manager of TrialDriver
        Made by `server_run` or `training_run`; ranks other than 0 do not enter it.
    ranks : Ranks, optional
        The processes; by default those of ``torch.distributed``, if there are several.
    all_nodes_measured : bool
        Whether the driver's meter counts the energy of all nodes. Those of this package count that of rank 0's node.

    Raises
    ------
    SettingsError, TrainingStoppedError
        If the processes' group is not initialised, or not all nodes are measured; on other ranks, if rank 0 failed.
    """
    ranks = ranks or find_ranks()
    if ranks is not None and not all_nodes_measured:
        here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks.size))
        if here < ranks.size:
            raise SettingsError(
                f"Expected all {ranks.size} ranks on one node, whose energy is measured, got {here}; with a meter of "
                "all nodes, say all_nodes_measured=True."
            )
    with ExitStack() as stack:
        open_driver = partial(stack.enter_context, opening)
        yield open_driver() if ranks is None else RankedRun(ranks, open_driver)


def _next_epoch(run: TrialDriver, metrics: Mapping[str, Any], monitor: str) -> bool:
    """Report a metric, end the epoch, and begin the next; False if training is over."""
    if monitor not in metrics:
        raise SettingsError(f"Unknown metric {monitor!r}.{suggestion(monitor, sorted(metrics))}")
    run.report(float(metrics[monitor]))
    return run.begin_epoch()


def _make_callback(base: Any, run: TrialDriver, begin: str, step: str, **hooks: Any) -> Any:
    """Make an object of a framework's class, whose hooks begin the first epoch, show each step, and do the rest."""
    usual = {begin: lambda *_, **__: run.begin_epoch(), step: lambda *_, **__: run.step()}
    return type("DrivenCallback", (base,), usual | hooks)()


def lightning_callback(run: TrialDriver, monitor: str) -> Any:
    """Make a callback for Lightning's ``Trainer``, of ``pytorch_lightning`` if only that has been imported.

    `monitor` is the name under which the module logs its metric, in training or validation steps.
    """
    older = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
    lightning: Any = import_module("pytorch_lightning" if older else "lightning.pytorch")

    def end_epoch(_callback: object, trainer: Any, _module: object) -> None:
        # The validation of an epoch is part of it, and over by now.
        trainer.should_stop |= not _next_epoch(run, trainer.callback_metrics, monitor)

    hooks = ("on_train_start", "on_train_batch_start")
    return _make_callback(lightning.Callback, run, *hooks, on_train_epoch_end=end_epoch)


def transformers_callback(run: TrialDriver, monitor: str) -> Any:
    """Make a callback for the ``Trainer`` of Hugging Face's transformers, with ``eval_strategy`` "epoch".

    `monitor` is the name of the metric, such as ``eval_accuracy``.
    """
    transformers: Any = import_module("transformers")

    def begin(callback: Any, args: Any, *_: object, **__: object) -> None:
        if (strategy := args.eval_strategy) != "epoch":
            raise SettingsError(f"Expected eval_strategy='epoch', got {getattr(strategy, 'value', strategy)!r}.")
        callback.is_training = run.begin_epoch()

    def end_epoch(callback: Any, _args: object, _state: object, control: Any, metrics: Any, **_: object) -> None:
        if callback.is_training:  # evaluations before and after training are none of the run's
            callback.is_training = _next_epoch(run, metrics, monitor)
            control.should_training_stop |= not callback.is_training

    hooks = {"is_training": False, "on_train_begin": begin, "on_evaluate": end_epoch}
    return _make_callback(transformers.TrainerCallback, run, "on_train_begin", "on_step_begin", **hooks)


def keras_callback(run: TrialDriver, monitor: str) -> Any:
    """Make a callback for ``fit`` of Keras 3, whatever its backend; `monitor` is a metric such as ``val_accuracy``."""
    keras: Any = import_module("keras")

    def end_epoch(callback: Any, _epoch: int, logs: Any = None) -> None:
        callback.model.stop_training |= not _next_epoch(run, logs or {}, monitor)

    hooks = ("on_train_begin", "on_train_batch_begin")
    return _make_callback(keras.callbacks.Callback, run, *hooks, on_epoch_end=end_epoch)


class ZeusDataLoader:
    """A loader of PyTorch that measures the training run, tries power limits in it, and reports it to the master.

    Parameters
    ----------
    *args, **kwargs : object
        Arguments of ``torch.utils.data.DataLoader``, the data set first.
    batch_size : int
        Samples in a batch of this process; the run's batch size is that of all processes together.
    max_epochs : int
        Epochs after which the run gives up; -1: this loader only loads.
    distributed : str or None
        ``dp`` for data-parallel training in several processes of one node, whose group is initialised.

    Raises
    ------
    SettingsError, TuningInputError
        If `distributed` is something else, the group is not initialised, or a variable is missing or invalid.

    References
    ----------
    https://ml.energy/zeus/, version 0.2, "Integrating Zeus".
    """

    _loader: Any = None  # a copy asks for attributes before it has its own

    def __init__(
        self, *args: Any, batch_size: int, max_epochs: int = -1, distributed: str | None = None, **kwargs: Any
    ) -> None:
        if distributed not in (None, "dp"):
            raise SettingsError(f"Expected distributed to be None or 'dp', got {distributed!r}.")
        self._loader = import_module("torch.utils.data").DataLoader(*args, batch_size=batch_size, **kwargs)
        self.max_epochs = max_epochs
        self._environment = None if max_epochs == -1 else RunEnvironment.read(os.environ)
        self._ranks = None if self._environment is None or distributed is None else find_ranks()
        self._run: TrialDriver | None = None

    @property
    def target_metric(self) -> float:
        """Metric at which the run has reached its target; of a loader that leads."""
        if self._environment is None:
            raise TuningError("Expected the loader that was made with max_epochs, got one without.")
        return self._environment.target_metric

    def epochs(self) -> Iterator[int]:
        """Yield the epochs to train, from 0, on all ranks: `TrainingStoppedError` if one more would cost too much."""
        _ = self.target_metric  # which only a loader that leads has
        cuda = import_module("torch").cuda
        batch_size = self._loader.batch_size * (1 if self._ranks is None else self._ranks.size)
        synchronize = cuda.synchronize if cuda.is_available() else None
        opening = training_run(batch_size, self.max_epochs, synchronize=synchronize)
        with opening if self._ranks is None else on_all_ranks(opening, self._ranks) as run:
            self._run = run
            try:
                yield from run.epochs()
            finally:
                self._run = None
        if not run.reached and run.epochs_done < run.max_epochs:
            raise TrainingStoppedError(f"One more epoch after {run.epochs_done} would reach the cost threshold.")

    def report_metric(self, metric: float, higher_is_better: bool = True) -> None:
        """Report the validation metric of an epoch, the same one on all ranks."""
        if self._run is None:
            raise TuningError("Expected a metric of one of the epochs(), got one before they began.")
        if isinstance(driver := getattr(self._run, "driver", self._run), TrainingRun):
            driver.higher_is_better = higher_is_better
        self._run.report(float(metric))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader) if self._run is None else self._run.steps(self._loader)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
