"""Measure energy and power limits: by NVML, RAPL, the ``zeus`` package, or a power model."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from bftrainer.errors import MeasurementError
from bftrainer.extras import require_extra
from bftrainer.files.documents import json_file
from bftrainer.zeus.master.hardware import Gpus
from bftrainer.zeus.master.script import write_json

POWERCAP = Path("/sys/class/powercap")

# RAPL's counters wrap around after some 2^32 uJ or 2^38 uJ: the smaller ones after a minute at 70 W.
RAPL_PERIOD_S = 30.0

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


class RaplMeter:
    """Reads the energy of all processor packages and their memory from the kernel's powercap files.

    Parameters
    ----------
    root : Path
        Directory of the powercap files.

    Raises
    ------
    MeasurementError
        If there are no such files, or they cannot be read.

    References
    ----------
    Linux kernel documentation, "Power Capping Framework", https://docs.kernel.org/power/powercap/powercap.html.
    """

    name = "rapl"

    def __init__(self, root: Path = POWERCAP) -> None:
        # Only packages and memory: the platform's zone includes them, and packages include the zones of cores.
        zones = [
            zone
            for zone in sorted(root.glob("intel-rapl:*"))
            if (name := (zone / "name").read_text().strip()).startswith("package") or name == "dram"
        ]
        if not zones:
            raise MeasurementError(f"{root}: No processor packages found that count energy.")
        self._zones = [(zone / "energy_uj", int((zone / "max_energy_range_uj").read_text())) for zone in zones]
        self._last = [self._count(path) for path, _ in self._zones]
        self._total_uj = 0
        self._lock, self._closed = threading.Lock(), threading.Event()
        # Reads often enough that no counter wraps around twice between two readings.
        threading.Thread(target=self._watch, name="rapl", daemon=True).start()

    def energy_j(self) -> float:
        """Energy since this meter was made."""
        with self._lock:
            for index, (path, most) in enumerate(self._zones):
                count = self._count(path)
                passed = count - self._last[index]
                self._total_uj += passed if passed >= 0 else passed + most
                self._last[index] = count
            return self._total_uj / 1e6

    def close(self) -> None:
        """Stop reading the counters."""
        self._closed.set()

    def _watch(self) -> None:
        # The next call of `energy_j` raises the same error.
        with suppress(MeasurementError):
            while not self._closed.wait(RAPL_PERIOD_S):
                self.energy_j()

    @staticmethod
    def _count(path: Path) -> int:
        try:
            return int(path.read_text())
        except OSError as cause:
            raise MeasurementError(f"{path}: cannot be read ({cause.strerror}).") from None


class ZeusMeter:
    """Measures the energy of GPUs with the monitor of the ``zeus`` package.

    Parameters
    ----------
    monitor : ZeusMonitor, optional
        By default a new monitor of all GPUs that it finds.

    Raises
    ------
    MeasurementError
        If the package is not installed, or finds no GPU.

    References
    ----------
    https://ml.energy/zeus/measure/, "Programmatic measurement".
    """

    name = "zeus"
    _WINDOW = "bftrainer"

    def __init__(self, monitor: Any = None) -> None:
        if monitor is None:
            require_extra("Its measurements need", "zeus", error=MeasurementError)
            try:
                monitor = import_module("zeus.monitor").ZeusMonitor()
            except Exception as error:  # its errors are many, and have no common root
                raise MeasurementError(f"The zeus package cannot measure: {type(error).__name__}: {error}.") from None
        self._monitor = monitor
        if not self._monitor.gpu_indices:
            # Without GPUs, it would measure 0 J.
            raise MeasurementError("The zeus package found no GPU.")
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
        return float(self._monitor.end_window(self._WINDOW, sync_execution=False).total_energy)


def process_times() -> tuple[float, float]:
    """Return a clock's time, and the processor time of this process and its finished children, in seconds."""
    times = os.times()
    return time.monotonic(), times.user + times.system + times.children_user + times.children_system


class ModelMeter(Meter):
    """Estimates the energy of a machine without meters: power is linear in the load of the processor cores.

    ``P(u) = P_max (1/2 + u/2)``, with `u` the share of all cores' time that this process and its children used.

    Parameters
    ----------
    max_power_w : float
        Power of the machine with all cores busy.
    cores : int
        Number of cores of the machine.
    times : callable
        Returns a clock's time and the processor time used, in seconds.

    References
    ----------
    Fan, Weber and Barroso, "Power provisioning for a warehouse-sized computer", ISCA 2007, section 4 (linear model);
    Barroso and Hölzle, "The case for energy-proportional computing", Computer 40(12), 2007 (half the power when idle).
    """

    name = "model"

    def __init__(
        self, max_power_w: float, cores: int, times: Callable[[], tuple[float, float]] = process_times
    ) -> None:
        self.max_power_w, self.cores, self._times = max_power_w, cores, times

    def energy_j(self) -> float:
        """Energy since the clock's start."""
        clock_s, busy_s = self._times()
        return self.max_power_w * (IDLE_SHARE * clock_s + (1.0 - IDLE_SHARE) * busy_s / self.cores)


def open_meter(measure: str, total_power_w: float, gpus: Gpus | None, root: Path = POWERCAP) -> Meter:
    """Open the meter of a name.

    Parameters
    ----------
    measure : str
        nvml, rapl, zeus or model; auto takes the first of nvml and rapl that is available, else model.
    total_power_w : float
        Highest power of all GPUs, or of the machine, for the model.
    gpus : Gpus or None
        GPUs that train.
    root : Path
        Directory of RAPL's powercap files.

    Raises
    ------
    MeasurementError
        If that meter is not available.
    """
    if measure == "nvml" or (measure == "auto" and gpus is not None):
        if gpus is None:
            require_extra("GPUs need", "gpu", error=MeasurementError)
            raise MeasurementError("No GPU found.")
        gpus.energy_j()  # which GPUs without a counter refuse
        return gpus
    if measure == "zeus":
        return ZeusMeter()
    if measure in ("rapl", "auto"):
        try:
            return RaplMeter(root)
        except MeasurementError:
            if measure == "rapl":
                raise
    return ModelMeter(total_power_w, os.cpu_count() or 1)


# Version of the files of power profiles.
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class ProfiledLimit:
    """Speed and power of training at one power limit.

    Parameters
    ----------
    limit_w : int
    power_w : float
        Average power.
    steps_per_s : float
        Steps (iterations) per second.

    Raises
    ------
    ValueError
        If a value is not finite and above 0; only the power may be 0.
    """

    limit_w: int
    power_w: float
    steps_per_s: float

    def __post_init__(self) -> None:
        if not (self.limit_w > 0 and 0 <= self.power_w < math.inf and 0 < self.steps_per_s < math.inf):
            raise ValueError(f"Expected a measured power limit, got {self}.")


def best_limit(limits: Sequence[ProfiledLimit], eta_knob: float, max_power_w: float) -> ProfiledLimit:
    """Find the limit at which a step costs least; of equal ones the highest.

    References
    ----------
    You et al., "Zeus", NSDI '23, equation 7.
    """
    ordered = sorted(limits, key=lambda each: -each.limit_w)
    return min(ordered, key=lambda each: (eta_knob * each.power_w + (1 - eta_knob) * max_power_w) / each.steps_per_s)


class PowerProfiler:
    """Tries power limits one after the other while training steps run.

    Parameters
    ----------
    gpus : Gpus
        GPUs whose power is limited.
    meter : Meter
        Measures energy.
    clock : callable
        Returns the time in seconds.
    warmup_steps, measured_steps : int
        Steps before and during the measurement of each limit.
    """

    def __init__(
        self, gpus: Gpus, meter: Meter, clock: Callable[[], float], warmup_steps: int, measured_steps: int
    ) -> None:
        self._gpus, self._meter, self._clock = gpus, meter, clock
        self._warmup, self._measured = warmup_steps, measured_steps
        self._ahead = gpus.candidate_limits_w()
        self._steps = 0
        self._since = (0.0, 0.0)
        self.limits: list[ProfiledLimit] = []
        self._gpus.set_limit_w(self._ahead[0])

    @property
    def done(self) -> bool:
        """Whether all limits are measured."""
        return not self._ahead

    def step(self) -> None:
        """Record that a step is about to begin and all earlier ones have ended."""
        if self.done:
            return
        if self._steps == self._warmup + self._measured:
            self._measure()
            if self.done:
                return
        if self._steps == self._warmup:
            self._since = (self._clock(), self._meter.energy_j())
        self._steps += 1

    def _measure(self) -> None:
        time_s, energy_j = self._clock() - self._since[0], self._meter.energy_j() - self._since[1]
        # A clock may be too coarse to see a few short steps.
        time_s = max(time_s, 1e-9)
        self.limits.append(ProfiledLimit(self._ahead.pop(0), energy_j / time_s, self._measured / time_s))
        self._steps = 0
        if self._ahead:
            self._gpus.set_limit_w(self._ahead[0])


def write_profile(path: Path, limits: Sequence[ProfiledLimit]) -> None:
    """Write a power profile for later runs."""
    write_json(path, {"schema": SCHEMA, "limits": [asdict(each) for each in limits]})


def read_profile(path: Path) -> list[ProfiledLimit] | None:
    """Read an earlier run's power profile; None if there is none that can be used, so it is measured again."""
    try:
        document = json_file(path, MeasurementError)
        if document["schema"] != SCHEMA:
            return None
        limits = [ProfiledLimit(**each) for each in document["limits"]]
    except (MeasurementError, ValueError, TypeError, LookupError):
        return None
    return limits or None
