"""Context manager that a training script runs its epochs in: measures, stops early, reports.

Examples
--------
>>> def train(batch_size, epochs, batches, step, accuracy):
...     with training_run(batch_size, epochs) as run:
...         for epoch in run.epochs():
...             for batch in run.steps(batches):
...                 step(batch)
...             run.report(accuracy())
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from bftrainer.errors import OutputError, TuningInputError
from bftrainer.zeus.master.hardware import Gpus, Hardware, find_hardware, found_gpus
from bftrainer.zeus.master.meters import (
    Meter,
    PowerControl,
    PowerProfiler,
    ProfiledLimit,
    best_limit,
    open_meter,
    read_profile,
    write_profile,
)
from bftrainer.zeus.master.script import RunEnvironment, TrainingReport, write_report
from bftrainer.zeus.policies.job import zeus_cost

logger = logging.getLogger(__name__)

T = TypeVar("T")


class TrainingRun:
    """One training run: its epochs, what they used, and when it is over. Made by `training_run`.

    Parameters
    ----------
    environment : RunEnvironment
        What the run was told.
    batch_size, max_epochs : int
    hardware : Hardware
        What it trains on.
    meter : Meter
        What measures its energy.
    control : PowerControl, optional
        What limits its power; without one no power limits are measured.
    higher_is_better : bool
        Whether the metric is to rise to its target, rather than fall.
    clock : callable
        Gives seconds, once all work asked for until then is done.

    Attributes
    ----------
    energy_j, time_s : float
        Booked so far.
    epochs_done : int
        Epochs that have ended.
    reached : bool
        Whether the target was reached.
    stopped_early : bool
        Whether the run was stopped because it would have cost too much.
    power_limit_w : int or None
        Power limit found best; None if none was measured.

    References
    ----------
    You et al., "Zeus", NSDI '23, sections 4.2 (power limits) and 4.4 (early stopping).
    """

    def __init__(
        self,
        environment: RunEnvironment,
        batch_size: int,
        max_epochs: int,
        hardware: Hardware,
        meter: Meter,
        control: PowerControl | None = None,
        *,
        higher_is_better: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if batch_size < 1 or max_epochs < 1:
            raise TuningInputError(f"Expected batch size and epochs of 1 or more, got {batch_size} and {max_epochs}.")
        self.environment, self.batch_size, self.max_epochs = environment, batch_size, max_epochs
        self.hardware, self.meter, self.control = hardware, meter, control
        self.higher_is_better, self.clock = higher_is_better, clock
        self.energy_j = self.time_s = 0.0
        self.epochs_done = 0
        self.reached = self.stopped_early = False
        self._since: tuple[float, float] | None = None
        self._steps = 0
        # Energy and time of epochs in which nothing was profiled, and how many those are.
        self._usual = (0.0, 0.0, 0)
        self._scale = (1.0, 1.0)
        self._best: ProfiledLimit | None = None
        self._profiler: PowerProfiler | None = None
        self._profiling = False
        if control is not None:
            self._find_limit(control)

    @property
    def target_metric(self) -> float:
        """Metric to reach."""
        return self.environment.target_metric

    @property
    def cost_j(self) -> float:
        """Cost of what was booked so far."""
        return self._cost(self.energy_j, self.time_s)

    @property
    def power_limit_w(self) -> int | None:
        """Power limit found best; None if none was measured."""
        return None if self._best is None else self._best.limit_w

    def epochs(self) -> Iterator[int]:
        """Numbers of the epochs to train, from 0.

        They end at the target, at `max_epochs`, or where one more would reach the cost threshold. Energy and time from
        the beginning of the first to the end of the last are booked, evaluation included.
        """
        for epoch in range(self.max_epochs):
            if self._too_costly():
                self.stopped_early = True
                return
            self._since = (self.clock(), self.meter.energy_j())
            self._steps = 0
            yield epoch
            self.end_epoch()
            if self.reached:
                return

    def steps(self, batches: Iterable[T]) -> Iterator[T]:
        """The batches of an epoch as they are; in the first epoch, power limits are measured while they go by."""
        for batch in batches:
            self._steps += 1
            if self._profiler is not None:
                self._profiler.step()
                if self._profiler.done:
                    limits, self._profiler = self._profiler.limits, None
                    write_profile(self.environment.power_profile_path(self.batch_size), limits)
                    self._use(limits)
            yield batch

    def report(self, metric: float) -> bool:
        """Say what validation gave after an epoch; whether the target is reached, which NaN never does."""
        target = self.target_metric
        self.reached = self.reached or bool(metric >= target if self.higher_is_better else metric <= target)
        return self.reached

    def end_epoch(self) -> None:
        """Book the epoch that is under way; nothing if none is."""
        if self._since is None:
            return
        time_s, energy_j = self.clock() - self._since[0], self.meter.energy_j() - self._since[1]
        self._since = None
        if self._profiling and not self._steps:
            logger.warning("Power limits are measured only if batches go through steps(); none did.")
            self._profiler, self._profiling = None, False
        if not self._profiling:
            # What was profiled ran at all limits, and is booked as it was.
            energy_j, time_s = energy_j * self._scale[0], time_s * self._scale[1]
            self._usual = (self._usual[0] + energy_j, self._usual[1] + time_s, self._usual[2] + 1)
        self._profiling = self._profiler is not None
        self.energy_j += energy_j
        self.time_s += time_s
        self.epochs_done += 1

    def finish(self) -> None:
        """Book the epoch that is under way, if one is, and write the report.

        Raises
        ------
        OutputError
            If it cannot be written.
        """
        self.end_epoch()
        write_report(
            self.environment.report_path(self.batch_size),
            TrainingReport(self.energy_j, self.time_s, self.reached),
            cost=self.cost_j,
            num_epochs=self.epochs_done,
            stopped_early=self.stopped_early,
            power_limit_w=self.power_limit_w,
            max_power_w=self.hardware.total_power_w,
            measured_by=self.meter.name,
        )

    def _find_limit(self, control: PowerControl) -> None:
        """Use the limits that an earlier run measured, or get ready to measure them."""
        kept = read_profile(self.environment.power_profile_path(self.batch_size))
        if kept is not None and {each.limit_w for each in kept} <= set(control.candidate_limits_w()):
            self._use(kept)
            return
        settings = self.environment.settings
        iterations = (settings.profile_warmup_iters, settings.profile_measure_iters)
        self._profiler = PowerProfiler(control, self.meter, self.clock, *iterations)
        self._profiling = True

    def _use(self, limits: Sequence[ProfiledLimit]) -> None:
        """Train at the best of measured limits; in observer mode at the highest, booking what the best would take."""
        assert self.control is not None
        self._best = best = best_limit(limits, self.environment.eta_knob, self.hardware.total_power_w)
        if not self.environment.settings.observer_mode:
            self.control.set_limit_w(best.limit_w)
            return
        highest = max(limits, key=lambda each: each.limit_w)
        self.control.set_limit_w(highest.limit_w)
        slower = highest.steps_per_s / best.steps_per_s
        self._scale = (slower * best.power_w / highest.power_w if highest.power_w else 1.0, slower)

    def _too_costly(self) -> bool:
        """Whether one more epoch would reach the threshold; never before the first, nor while limits are measured."""
        if self.epochs_done == 0 or self._profiling:
            return False
        return self.cost_j + self._cost(*self._predicted()) >= self.environment.cost_threshold

    def _predicted(self) -> tuple[float, float]:
        """Energy and time of the next epoch: the mean of those before, or what the profile makes of as many steps."""
        energy_j, time_s, count = self._usual
        if count:
            return energy_j / count, time_s / count
        assert self._best is not None  # all epochs so far were profiled, and that is over
        time_s = self._steps / self._best.steps_per_s
        return self._best.power_w * time_s, time_s

    def _cost(self, energy_j: float, time_s: float) -> float:
        return zeus_cost(energy_j, time_s, self.environment.eta_knob, self.hardware.total_power_w)


@contextmanager
def training_run(
    batch_size: int,
    max_epochs: int,
    *,
    higher_is_better: bool = True,
    synchronize: Callable[[], object] | None = None,
    environ: Mapping[str, str] | None = None,
    meter: Meter | None = None,
    clock: Callable[[], float] = time.monotonic,
    find: Callable[[], Gpus | None] = found_gpus,
) -> Iterator[TrainingRun]:
    """A training run as the environment describes it: measured, stopped where it costs too much, and reported.

    The report is written when the context ends without an exception. Power limits are measured and set only where the
    master was told to, and are given back at the end.

    Parameters
    ----------
    batch_size : int
    max_epochs : int
        Epochs after which the run gives up.
    higher_is_better : bool
        Whether the metric is to rise to its target, rather than fall.
    synchronize : callable, optional
        Waits until work given to a GPU is done, such as ``torch.cuda.synchronize``; called before each measurement.
    environ : mapping of str to str, optional
        By default the environment.
    meter : Meter, optional
        By default the one that the environment names.
    clock : callable
        Gives seconds.
    find : callable
        Finds GPUs.

    Raises
    ------
    TuningInputError
        If the environment has no target metric, or another variable is not what it should be.
    MeasurementError
        If energy cannot be measured as asked for, power limits cannot be set, or nothing says the highest power.
    OutputError
        If the report cannot be written.
    """
    told = RunEnvironment.read(os.environ if environ is None else environ)
    # Whether models may be mixed was the master's question.
    settings = told.settings
    hardware = find_hardware(settings.max_power_w, settings.gpus, allow_mixed=True, find=find)
    _make(Path(told.log_dir))
    with ExitStack() as stack:
        if meter is None:
            meter = open_meter(settings.measure, hardware.total_power_w, hardware.gpus)
            stack.callback(meter.close)
        control = hardware.gpus if settings.set_power_limits else None
        if control is not None:
            stack.callback(control.set_limits_w, control.limits_w())
        timer = clock if synchronize is None else _after(synchronize, clock)
        what = (told, batch_size, max_epochs, hardware, meter, control)
        run = TrainingRun(*what, higher_is_better=higher_is_better, clock=timer)
        yield run
        run.finish()


def _after(synchronize: Callable[[], object], clock: Callable[[], float]) -> Callable[[], float]:
    def waited() -> float:
        """Seconds, once all work asked for is done."""
        synchronize()
        return clock()

    return waited


def _make(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise OutputError(f"{path}: cannot be made ({cause.strerror or cause}).") from None
