"""Context manager that a training script runs its epochs in when a batch-size server decides: measures and reports.

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
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from bftrainer.errors import SettingsError, TuningError, TuningInputError
from bftrainer.zeus.master.hardware import Gpus, find_gpus, find_hardware
from bftrainer.zeus.master.meters import Meter, measure_since, open_meter
from bftrainer.zeus.master.script import RunSettings, check_table
from bftrainer.zeus.master.training import TrialDriver, synchronize_clock
from bftrainer.zeus.server.client import BatchSizeClient, Trial
from bftrainer.zeus.server.messages import JobSpec, TuningParams

logger = logging.getLogger(__name__)


class ServerRun(TrialDriver):
    """One training run that a batch-size server decides on. Made by `server_run`.

    Time (s) and energy (J) are those from the start of the first epoch to the last report; `verdict` is what the server
    answered that.
    """

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
    measure : str
        How energy is measured, see `open_meter`; or a `meter` does it.
    synchronize : callable, optional
        Waits until a GPU's work is done, such as ``torch.cuda.synchronize``; called before each measurement.
    clock, find : callable
        Returns the time in seconds, and finds GPUs.

    Raises
    ------
    SettingsError, TuningInputError
        If the job has no `job_id`, power, GPUs or way to measure is out of range, energy cannot be measured as
        requested, or the highest power is unknown.
    ServerRequestError
        If the server is not reached, refuses the job, or has no batch size left for it.
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
