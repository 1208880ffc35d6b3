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
from typing import Protocol, TypeVar

from bftrainer.errors import TuningInputError
from bftrainer.zeus.master.hardware import (
    Gpus,
    Hardware,
    Meter,
    PowerProfile,
    PowerProfiler,
    ProfiledLimit,
    best_limit,
    find_gpus,
    find_hardware,
    measure_since,
    open_meter,
    read_profile,
)
from bftrainer.zeus.master.script import RunEnvironment, TrainingReport, make_directory, write_json, write_report
from bftrainer.zeus.policies.job import zeus_cost

logger = logging.getLogger(__name__)

T = TypeVar("T")


class TrialDriver(Protocol):
    """Leads a script through one training run: says how long it goes on, and takes what it reaches."""

    batch_size: int
    max_epochs: int
    epochs_done: int
    reached: bool

    def begin_epoch(self) -> bool:
        """End the current epoch, if there is one, and begin the next; False if training is over."""

    def step(self) -> None:
        """Record that a step is about to begin."""

    def report(self, metric: float) -> bool:
        """Report the validation metric of an epoch; return whether training is over."""

    def epochs(self) -> Iterator[int]:
        """Yield the numbers of the epochs to train, from 0; all from first to last is booked, also evaluation."""
        while self.begin_epoch():
            yield self.epochs_done

    def steps(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield an epoch's batches unchanged; power limits may be measured meanwhile."""
        for batch in batches:
            self.step()
            yield batch


class TrainingRun(TrialDriver):
    """One training run: its epochs, the energy and time booked so far, and when it is over. Made by `training_run`.

    You et al., "Zeus", NSDI '23, sections 4.2 (power limits) and 4.4 (early stopping).
    """

    def __init__(
        self,
        environment: RunEnvironment,
        batch_size: int,
        max_epochs: int,
        hardware: Hardware,
        meter: Meter,
        control: Gpus | None = None,
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
        # Energy, time and number of the epochs without profiling.
        self._usual = (0.0, 0.0, 0)
        self._scale = (1.0, 1.0)
        self._best: ProfiledLimit | None = None
        self._profiler: PowerProfiler | None = None
        self._profiling = False
        if control is not None:
            self._find_limit(control)

    @property
    def cost_j(self) -> float:
        """Cost of the energy and time booked so far."""
        return self._cost(self.energy_j, self.time_s)

    @property
    def power_limit_w(self) -> int | None:
        """Power limit found best; None if none was measured."""
        return None if self._best is None else self._best.limit_w

    def begin_epoch(self) -> bool:
        """See `TrialDriver`; training is over at the target, at `max_epochs`, or before it would cost too much."""
        self.end_epoch()
        if self.reached or self.epochs_done == self.max_epochs:
            return False
        if self._is_too_costly():
            self.stopped_early = True
            return False
        self._since = (self.clock(), self.meter.energy_j())
        self._steps = 0
        return True

    def step(self) -> None:
        """Record that a step is about to begin; in the first epoch, measure power limits meanwhile."""
        self._steps += 1
        if self._profiler is not None:
            self._profiler.step()
            if self._profiler.done:
                limits, self._profiler = self._profiler.limits, None
                profile = PowerProfile(limits=limits).model_dump()
                write_json(self.environment.power_profile_path(self.batch_size), profile)
                self._use(limits)

    def report(self, metric: float) -> bool:
        """Report the validation metric of an epoch; return whether it reached the target, never for NaN."""
        target = self.environment.target_metric
        self.reached = self.reached or bool(metric >= target if self.higher_is_better else metric <= target)
        return self.reached

    def end_epoch(self) -> None:
        """Book the current epoch, if there is one."""
        if self._since is None:
            return
        time_s, energy_j = measure_since(self._since, self.clock, self.meter)
        self._since = None
        if self._profiling and not self._steps:
            logger.warning("Power limits are measured only if batches go through steps(); none did.")
            self._profiler, self._profiling = None, False
        if not self._profiling:
            # Profiled steps ran at all limits, and are booked as measured.
            energy_j, time_s = energy_j * self._scale[0], time_s * self._scale[1]
            self._usual = (self._usual[0] + energy_j, self._usual[1] + time_s, self._usual[2] + 1)
        self._profiling = self._profiler is not None
        self.energy_j += energy_j
        self.time_s += time_s
        self.epochs_done += 1

    def finish(self) -> None:
        """Book the current epoch, if there is one, and write the report."""
        self.end_epoch()
        write_report(
            self.environment.report_path(self.batch_size),
            TrainingReport(self.energy_j, self.time_s, self.reached),
            num_epochs=self.epochs_done,
            cost=self.cost_j,
            stopped_early=self.stopped_early,
            power_limit_w=self.power_limit_w,
            max_power_w=self.hardware.total_power_w,
            measured_by=self.meter.name,
        )

    def _find_limit(self, control: Gpus) -> None:
        """Use the limits that an earlier run measured, or prepare to measure them."""
        limits, environment = read_profile(self.environment.power_profile_path(self.batch_size)), self.environment
        if limits and {limit.limit_w for limit in limits} <= set(control.candidate_limits_w()):
            self._use(limits)
            return
        iterations = (environment.profile_warmup_iters, environment.profile_measure_iters)
        self._profiler = PowerProfiler(control, self.meter, self.clock, *iterations)
        self._profiling = True

    def _use(self, limits: Sequence[ProfiledLimit]) -> None:
        """Train at the best of the measured limits; in observer mode train at the highest, but book for the best."""
        assert self.control is not None
        self._best = best = best_limit(limits, self.environment.eta_knob, self.hardware.total_power_w)
        if not self.environment.observer_mode:
            self.control.set_limit_w(best.limit_w)
            return
        highest = max(limits, key=lambda limit: limit.limit_w)
        self.control.set_limit_w(highest.limit_w)
        slower = highest.steps_per_s / best.steps_per_s
        self._scale = (slower * best.power_w / highest.power_w if highest.power_w else 1.0, slower)

    def _is_too_costly(self) -> bool:
        """Whether one more epoch would reach the threshold; false before the first, and while limits are measured."""
        if self.epochs_done == 0 or self._profiling:
            return False
        return self.cost_j + self._cost(*self._predict_epoch()) >= self.environment.cost_threshold

    def _predict_epoch(self) -> tuple[float, float]:
        """Predict energy and time of the next epoch: the mean of earlier ones, or from the profile and the steps."""
        energy_j, time_s, count = self._usual
        if count:
            return energy_j / count, time_s / count
        assert self._best is not None  # all epochs so far were profiled, and profiling is over
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
    find: Callable[[], Gpus | None] = find_gpus,
) -> Iterator[TrainingRun]:
    """Measure a training run, stop it if it costs too much, and report it, as the environment asks.

    The report is written when the `with` block ends without an exception. Power limits are measured and set only if
    the master's settings allow it, and are restored at the end.

    Parameters
    ----------
    batch_size, max_epochs : int
        What to train with, and epochs after which the run gives up.
    higher_is_better : bool
        Whether the metric rises to its target, rather than falls.
    synchronize : callable, optional
        Waits until a GPU's work is done, such as ``torch.cuda.synchronize``; called before each measurement.
    environ, meter, clock, find : optional
        Instead of the process's environment, the meter that it names, the clock in seconds, and the GPUs found.

    Raises
    ------
    TuningInputError, SettingsError, OutputError
        If a variable of the environment is missing or invalid, energy cannot be measured as requested, power limits
        cannot be set, the highest power is unknown, or the report cannot be written.
    """
    environment = RunEnvironment.read(os.environ if environ is None else environ)
    hardware = find_hardware(environment.max_power_w, environment.gpus, find)
    make_directory(Path(environment.log_dir))
    with ExitStack() as stack:
        if meter is None:
            meter = open_meter(environment.measure, hardware.total_power_w, hardware.gpus)
            stack.callback(meter.close)
        control = hardware.gpus if environment.set_power_limits else None
        if control is not None:
            stack.callback(control.set_limits_w, control.limits_w())
        run = TrainingRun(
            environment,
            batch_size,
            max_epochs,
            hardware,
            meter,
            control,
            higher_is_better=higher_is_better,
            clock=synchronize_clock(clock, synchronize),
        )
        yield run
        run.finish()


def synchronize_clock(clock: Callable[[], float], synchronize: Callable[[], object] | None) -> Callable[[], float]:
    """Make a clock that waits for all submitted work before it is read."""

    def read_clock() -> float:
        if synchronize is not None:
            synchronize()
        return clock()

    return read_clock
