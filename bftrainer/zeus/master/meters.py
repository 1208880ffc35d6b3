"""Measure the energy of training by NVML, the ``zeus`` package or a power model, and find the best power limit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bftrainer.errors import SettingsError
from bftrainer.extras import require_extra
from bftrainer.files.documents import json_file
from bftrainer.zeus.master.hardware import Gpus

# Share of its highest power that an idle machine draws.
IDLE_SHARE = 0.5


class Meter(Protocol):
    """Counts energy."""

    name: str

    def energy_j(self) -> float:
        """Energy since a fixed instant."""

    def close(self) -> None:
        """Stop counting; by default do nothing."""
        return


class ZeusMeter:
    """Measures with the monitor of the ``zeus`` package: its GPUs, or without any its processors and their memory.

    `SettingsError` if the package is not installed, or finds nothing that it can measure. See
    https://ml.energy/zeus/measure/, "Programmatic measurement".
    """

    name = "zeus"
    _WINDOW = "bftrainer"

    def __init__(self, monitor: Any = None) -> None:
        if monitor is None:
            require_extra("Its measurements need", "zeus", error=SettingsError)
            try:
                monitor = import_module("zeus.monitor").ZeusMonitor()
            except Exception as error:  # its errors are many, and have no common root
                raise SettingsError(f"The zeus package cannot measure: {type(error).__name__}: {error}.") from None
        self._monitor = monitor
        if not (self._monitor.gpu_indices or self._monitor.cpu_indices):
            # It would measure 0 J.
            raise SettingsError("The zeus package found no GPU, and no processor whose energy it may read.")
        self._total_j = 0.0
        self._begin()

    def energy_j(self) -> float:
        """Energy since this meter was made; each reading ends one window and begins the next."""
        self._total_j += self._end()
        self._begin()
        return self._total_j

    def close(self) -> None:
        """End the window."""
        self._end()

    def _begin(self) -> None:
        # Synchronising is up to the script, which passes `synchronize` to `training_run`.
        self._monitor.begin_window(self._WINDOW, sync_execution=False)

    def _end(self) -> float:
        used = self._monitor.end_window(self._WINDOW, sync_execution=False)
        if self._monitor.gpu_indices:
            return float(used.total_energy)
        return float(sum((used.cpu_energy or {}).values()) + sum((used.dram_energy or {}).values()))


def read_process_times() -> tuple[float, float]:
    """Read a clock, and the processor time of this process and its finished children, in seconds."""
    times = os.times()
    return time.monotonic(), times.user + times.system + times.children_user + times.children_system


class ModelMeter(Meter):
    """Estimates the energy of a machine without meters: power is linear in the load of the processor cores.

    ``P(u) = P_max (1/2 + u/2)``, with `u` the share of all cores' time that this process and its children used.

    References
    ----------
    Fan, Weber and Barroso, "Power provisioning for a warehouse-sized computer", ISCA 2007, section 4 (linear model);
    Barroso and Hölzle, "The case for energy-proportional computing", Computer 40(12), 2007 (half the power when idle).
    """

    name = "model"

    def __init__(
        self, max_power_w: float, cores: int, times: Callable[[], tuple[float, float]] = read_process_times
    ) -> None:
        self.max_power_w, self.cores, self._times = max_power_w, cores, times
        self._clock_s, self._busy_s = times()

    def energy_j(self) -> float:
        """Energy since some instant, of at most `max_power_w`."""
        last_s = self._clock_s
        self._clock_s, busy_s = self._times()
        # Processor time comes in ticks, and a child's all at once: what the cores could not use yet counts later.
        self._busy_s = min(busy_s, self._busy_s + (self._clock_s - last_s) * self.cores)
        return self.max_power_w * (IDLE_SHARE * self._clock_s + (1.0 - IDLE_SHARE) * self._busy_s / self.cores)


def measure_since(start: tuple[float, float], clock: Callable[[], float], meter: Meter) -> tuple[float, float]:
    """Return seconds and joules since `start`, when first the clock was read and then the meter; the time is longer."""
    clock()  # which waits for GPUs
    energy_j = meter.energy_j() - start[1]
    return clock() - start[0], energy_j


def open_meter(measure: str, total_power_w: float, gpus: Gpus | None) -> Meter:
    """Open the meter of a name, nvml, zeus or model; auto is nvml if there are GPUs, else model.

    `total_power_w` is the highest power of all GPUs, or of the machine, for the model; `gpus` are those that train.
    `SettingsError` if that meter is not available.
    """
    if measure == "nvml" or (measure == "auto" and gpus is not None):
        if gpus is None:
            require_extra("GPUs need", "gpu", error=SettingsError)
            raise SettingsError("No GPU found.")
        gpus.energy_j()  # which GPUs without a counter refuse
        return gpus
    return ZeusMeter() if measure == "zeus" else ModelMeter(total_power_w, os.cpu_count() or 1)


class ProfiledLimit(BaseModel):
    """Speed (steps per second) and average power of training at one power limit."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    limit_w: Annotated[int, Field(gt=0)]
    power_w: Annotated[float, Field(ge=0)]
    steps_per_s: Annotated[float, Field(gt=0)]


class PowerProfile(BaseModel):
    """The file of power limits that were measured at a batch size, for later runs."""

    model_config = ConfigDict(extra="forbid")

    limits: Annotated[list[ProfiledLimit], Field(min_length=1)]


def read_profile(path: Path) -> list[ProfiledLimit]:
    """Read an earlier run's power profile; empty if there is none that can be used, so it is measured again."""
    try:
        return PowerProfile.model_validate(json_file(path, SettingsError)).limits
    except (SettingsError, ValidationError):
        return []


def best_limit(limits: Sequence[ProfiledLimit], eta_knob: float, max_power_w: float) -> ProfiledLimit:
    """Find the limit at which a step costs least; of equal ones the highest.

    References
    ----------
    You et al., "Zeus", NSDI '23, equation 7.
    """
    ordered = sorted(limits, key=lambda limit: -limit.limit_w)
    return min(ordered, key=lambda limit: (eta_knob * limit.power_w + (1 - eta_knob) * max_power_w) / limit.steps_per_s)


class PowerProfiler:
    """Tries power limits one after the other while training steps run: some to warm up, some measured."""

    def __init__(
        self, gpus: Gpus, meter: Meter, clock: Callable[[], float], warmup_steps: int, measured_steps: int
    ) -> None:
        self._gpus, self._meter, self._clock = gpus, meter, clock
        self._warmup, self._measured = warmup_steps, measured_steps
        self._remaining_w = gpus.candidate_limits_w()
        self._steps = 0
        self._start = (0.0, 0.0)
        self.limits: list[ProfiledLimit] = []
        gpus.set_limit_w(self._remaining_w[0])

    @property
    def done(self) -> bool:
        """Whether all limits are measured."""
        return not self._remaining_w

    def step(self) -> None:
        """Record that a step is about to begin and all earlier ones have ended."""
        if self._steps == self._warmup + self._measured:
            self._measure()
        if self.done:
            return
        if self._steps == self._warmup:
            self._start = (self._clock(), self._meter.energy_j())
        self._steps += 1

    def _measure(self) -> None:
        time_s, energy_j = measure_since(self._start, self._clock, self._meter)
        time_s = max(time_s, 1e-9)  # a clock may be too coarse to see a few short steps
        power_w, steps_per_s = energy_j / time_s, self._measured / time_s
        self.limits.append(ProfiledLimit(limit_w=self._remaining_w.pop(0), power_w=power_w, steps_per_s=steps_per_s))
        self._steps = 0
        if self._remaining_w:
            self._gpus.set_limit_w(self._remaining_w[0])
