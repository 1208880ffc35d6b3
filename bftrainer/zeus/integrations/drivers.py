"""Drivers of a training run: one that a batch-size server decides on, and any of them on several processes.

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
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from bftrainer.errors import (
    SettingsError,
    TrainingStoppedError,
    TuningError,
    TuningInputError,
)
from bftrainer.zeus.master.hardware import Gpus, Meter, find_gpus, find_hardware, measure_since, open_meter
from bftrainer.zeus.master.script import RunSettings, check_table
from bftrainer.zeus.master.training import TrialDriver, synchronize_clock
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
        self._under_way = self._warned = False
        self._reported = 0  # the last epoch with a report

    def begin_epoch(self) -> bool:
        """See `TrialDriver`; training is over when the server says so, or at `max_epochs`."""
        if self._since is None:
            self._since = (self.clock(), self.meter.energy_j())
        self.epochs_done += self._under_way
        if self._reported < self.epochs_done:
            self._warn(self.epochs_done, "it ended without run.report(metric), by which alone runs have results")
        self._under_way = not self.trial.finished and self.epochs_done < self.max_epochs
        return self._under_way

    def step(self) -> None:
        """Do nothing: only a master has power limits measured."""

    def report(self, metric: float) -> bool:
        """Report metric, time and energy so far; return whether training is over."""
        if self._since is None:
            raise TuningError("Expected a report after the beginning of an epoch, got one before.")
        try:
            metric = float(metric)
        except (TypeError, ValueError):
            raise TuningInputError(f"Expected a metric that is a number, got {str(metric)[:60]!r}.") from None
        self._reported = self.epochs_done + self._under_way
        if math.isnan(metric):
            self._warn(self._reported, "its metric is not a number, which reaches no target")
        self.time_s, self.energy_j = measure_since(self._since, self.clock, self.meter)
        answer = self.trial.report(self.time_s, self.energy_j, metric, self._reported)
        self.reached, self.verdict = answer.converged, answer.message
        return answer.stop_train

    def _warn(self, epoch: int, why: str) -> None:
        """Say once what keeps a run from reaching its target."""
        if not self._warned:
            of = self.trial.id
            logger.warning("%s, trial %d, epoch %d: %s.", of.job_id, of.trial_number, epoch, why)
        self._warned = True


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
    find: Callable[[], Gpus | None] = find_gpus,
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
    clock, find : callable
        Returns the time in seconds, and finds GPUs.

    Raises
    ------
    SettingsError, TuningInputError, BatchSizeServerError
        If a value is out of range, energy cannot be measured, or the server refuses the job or has no batch size left.
    """
    check_table(RunSettings, {"max_power_w": max_power_w, "gpus": gpus, "measure": measure}, TuningInputError)
    with ExitStack() as stack:
        spec = _register(client, job, max_power_w, gpus, find)
        if meter is None:
            machine_gpus = find()
            meter = open_meter(
                measure, spec.max_power, None if machine_gpus is None else machine_gpus.first(spec.number_of_gpus)
            )
            stack.callback(meter.close)
        trial = stack.enter_context(client.trial(spec.job_id or ""))
        yield ServerRun(trial, spec.max_epochs, meter, synchronize_clock(clock, synchronize))


def _register(
    client: BatchSizeClient,
    job: JobSpec | TuningParams | str,
    max_power_w: float | None,
    gpus: int | None,
    find: Callable[[], Gpus | None],
) -> JobSpec:
    """Register a job, on this machine's GPUs if it names none; or look it up by its name."""
    if isinstance(job, str):
        return client.job(job).spec
    if job.job_id is None:
        raise SettingsError("Expected a job with a job_id, got none: each run would be a job of its own.")
    if not isinstance(job, JobSpec):
        hardware = find_hardware(max_power_w, gpus, find)
        of_gpus = {"max_power": hardware.total_power_w, "number_of_gpus": hardware.count, "gpu_model": hardware.model}
        job = JobSpec.model_validate(job.model_dump() | of_gpus)
    return client.register_job(job)


class Ranks:
    """The processes of ``torch.distributed``'s default group, which is initialised, whatever its backend.

    This one has the number `rank`, from 0 to `size` - 1; processes of another kind have the same three names.
    """

    def __init__(self) -> None:
        self._group = sys.modules["torch"].distributed
        self.rank, self.size = self._group.get_rank(), self._group.get_world_size()

    def broadcast(self, value: Any) -> Any:
        """Return rank 0's value, a tuple of plain values, on all ranks; all have to call it."""
        values = [value]
        self._group.broadcast_object_list(values, src=0)
        return values[0]


def find_ranks(environ: Mapping[str, str]) -> Ranks | None:
    """Find the processes of this run, if there are several: `SettingsError` if their group is not initialised."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        ranks = Ranks()
        return ranks if ranks.size > 1 else None
    if (size := environ.get("WORLD_SIZE", "1")) != "1":
        raise SettingsError(f"Expected torch.distributed.init_process_group() first, as WORLD_SIZE is {size}.")
    return None


class RankedRun(TrialDriver):
    """A run of several ranks: rank 0 opens the driver, the others hear from it. Made by `on_all_ranks`."""

    def __init__(self, ranks: Ranks, open_driver: Callable[[], TrialDriver]) -> None:
        self.ranks, self._open = ranks, open_driver
        self._driver: TrialDriver | None = None
        self._agree(lambda _: None)

    def begin_epoch(self) -> bool:
        """See `TrialDriver`; all ranks have to call it."""
        return bool(self._agree(lambda driver: driver.begin_epoch()))

    def step(self) -> None:
        """See `TrialDriver`; rank 0 sets the power limits of all GPUs."""
        if self._driver is not None:
            self._driver.step()

    def report(self, metric: float) -> bool:
        """See `TrialDriver`; all ranks have to call it, and the metric of rank 0 counts."""
        return bool(self._agree(lambda driver: driver.report(metric)))

    def _agree(self, ask: Callable[[TrialDriver], Any]) -> Any:
        """Ask the driver on rank 0, and return the answer on all ranks; where that fails, all ranks raise."""
        answer: tuple[Any, ...] = ()
        if self.ranks.rank == 0:
            try:
                driver = self._driver = self._driver or self._open()
                answer = (None, ask(driver), driver.batch_size, driver.max_epochs, driver.epochs_done, driver.reached)
            except BaseException as error:  # whatever it is, the others must not wait for ever; it is raised again
                self.ranks.broadcast((f"{type(error).__name__}: {error}",))
                raise
        failure, *state = self.ranks.broadcast(answer)
        if failure is not None:
            raise TrainingStoppedError(f"Rank 0 failed: {failure}")
        result, self.batch_size, self.max_epochs, self.epochs_done, self.reached = state
        return result


@contextmanager
def on_all_ranks(
    opening: AbstractContextManager[TrialDriver],
    ranks: Ranks | None = None,
    *,
    all_nodes_measured: bool = False,
    environ: Mapping[str, str] | None = None,
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
    environ : mapping of str to str, optional
        Variables that ``torchrun`` sets; by default the process's environment.

    Raises
    ------
    SettingsError, TrainingStoppedError
        If the processes' group is not initialised, or not all nodes are measured; on other ranks, if rank 0 failed.
    """
    environ = os.environ if environ is None else environ
    ranks = ranks or find_ranks(environ)
    if ranks is None:
        with opening as driver:
            yield driver
        return
    here = int(environ.get("LOCAL_WORLD_SIZE", ranks.size))
    if here < ranks.size and not all_nodes_measured:
        raise SettingsError(
            f"Expected all {ranks.size} ranks on one node, whose energy is measured, got {here}; with a meter of all "
            "nodes, say all_nodes_measured=True."
        )
    with ExitStack() as stack:
        yield RankedRun(ranks, lambda: stack.enter_context(opening))
