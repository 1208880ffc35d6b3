"""Hardware to train on, the energy that it uses, and its power limits, the best of which is found while training."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError

from bftrainer.errors import SettingsError
from bftrainer.files.text_files import json_file
from bftrainer.files.writing import replacing
from bftrainer.model.type_checks import fault_text
from bftrainer.plugins import require_extra

# Distance between the power limits that are tried, from the highest down.
STEP_W = 25
LIMITS = "power-limits.json"
# Share of its highest power that an idle machine draws.
IDLE_SHARE = 0.5
_VISIBLE = "CUDA_VISIBLE_DEVICES"


class Meter(Protocol):
    """Counts energy."""

    name: str

    def energy_j(self) -> float:
        """Energy since a fixed instant."""

    def close(self) -> object:
        """Stop counting; by default do nothing."""
        return None


class Gpus(Meter):
    """Some GPUs of this machine, at least one, of an initialised ``pynvml`` of nvidia-ml-py; a meter of their energy.

    All methods raise `SettingsError` if NVML fails: GPUs before Volta count no energy, and only root may set limits.
    See NVIDIA, "NVML API Reference", https://docs.nvidia.com/deploy/nvml-api/, device queries and commands.
    """

    name = "nvml"

    def __init__(self, library: Any, handles: Sequence[Any]) -> None:
        self._library, self._handles = library, list(handles)

    def __len__(self) -> int:
        return len(self._handles)

    def first(self, count: int) -> Gpus:
        """Select the first `count` GPUs."""
        if count > len(self):
            raise SettingsError(f"Expected at most {len(self)} GPUs, as many as were found, got {count}.")
        return Gpus(self._library, self._handles[:count])

    @property
    def models(self) -> list[str]:
        """Names of the GPUs' models, each once."""
        return sorted({self._call("nvmlDeviceGetName", handle) for handle in self._handles})

    def energy_j(self) -> float:
        """Energy that all GPUs used since their driver was loaded."""
        used_mj = sum(self._call("nvmlDeviceGetTotalEnergyConsumption", handle) for handle in self._handles)
        return float(used_mj / 1000.0)

    def candidate_limits_w(self) -> list[int]:
        """List power limits that all GPUs support, from the highest down, 25 W apart."""
        ranges = self._limit_ranges_mw()
        highest = min(most // 1000 for _, most in ranges)
        return list(range(highest, max(-(-least // 1000) for least, _ in ranges) - 1, -STEP_W))

    @property
    def max_power_w(self) -> float:
        """Highest power limit of any of the GPUs."""
        return float(max(most // 1000 for _, most in self._limit_ranges_mw()))

    def limits_w(self) -> list[float]:
        """Read the GPUs' present power limits."""
        return [self._call("nvmlDeviceGetPowerManagementLimit", handle) / 1000.0 for handle in self._handles]

    def set_limits_w(self, limits_w: Sequence[float]) -> None:
        """Set the power limit of each GPU."""
        for handle, limit in zip(self._handles, limits_w, strict=True):
            self._call("nvmlDeviceSetPowerManagementLimit", handle, round(limit * 1000))

    def set_limit_w(self, limit_w: float) -> None:
        """Set the same power limit for all GPUs."""
        self.set_limits_w([limit_w] * len(self))

    def _limit_ranges_mw(self) -> list[tuple[int, int]]:
        return [self._call("nvmlDeviceGetPowerManagementLimitConstraints", handle) for handle in self._handles]

    def _call(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._library, function)(*arguments)
        except self._library.NVMLError as error:
            raise SettingsError(f"{function}: NVML failed: {error}.") from None


def find_gpus() -> Gpus | None:
    """Find the GPUs of this machine that NVML (``pynvml``) reports and CUDA_VISIBLE_DEVICES allows; or None."""
    try:
        library: Any = import_module("pynvml")
    except ImportError:
        return None
    try:
        library.nvmlInit()
        handles = [library.nvmlDeviceGetHandleByIndex(index) for index in range(library.nvmlDeviceGetCount())]
        uuids = [library.nvmlDeviceGetUUID(handle) for handle in handles]
    except library.NVMLError:  # no driver, or no permission to use it: no usable GPU
        return None
    if (allowed := os.environ.get(_VISIBLE)) is not None:
        handles = [handles[index] for index in _visible_indices(allowed, uuids)]
    return Gpus(library, handles) if handles else None


def _visible_indices(allowed: str, uuids: Sequence[str]) -> list[int]:
    """List the indices of the GPUs that the variable allows, in its order; like CUDA, stop at -1."""
    indices: list[int] = []
    for name in filter(None, map(str.strip, allowed.split(","))):
        if name == "-1":
            break
        index = int(name) if name.isdecimal() else None
        matching = [number for number, uuid in enumerate(uuids) if uuid.startswith(name)]
        if index is None and len(matching) == 1:
            index = matching[0]
        if index is None or index >= len(uuids):
            raise SettingsError(f"{_VISIBLE}: Expected whole GPUs from 0 to {len(uuids) - 1}, got {name!r}.")
        indices.append(index)
    return indices


@dataclass(frozen=True, slots=True)
class Hardware:
    """GPUs, or a machine without any (then `count` is 1), that a run trains on, with the highest power of one."""

    max_power_w: float
    count: int
    gpus: Gpus | None

    @property
    def model(self) -> str:
        """Names of the GPUs' models, or of the processor's architecture."""
        return ", ".join(self.gpus.models) if self.gpus is not None else platform.machine() or "unknown"

    @property
    def total_power_w(self) -> float:
        """Highest power of all GPUs together."""
        return self.max_power_w * self.count


def find_hardware(max_power_w: float | None, count: int | None) -> Hardware:
    """Describe the hardware of a run, finding out what the arguments leave open: `SettingsError` if it is not clear."""
    gpus = find_gpus()
    if gpus is None:
        if max_power_w is None:
            missing = "Missing highest power in watts (max_power_w, --max-power): no GPU was found that reports it."
            require_extra(f"{missing} To find GPUs takes", "gpu")
            raise SettingsError(missing)
        return Hardware(float(max_power_w), count or 1, None)
    gpus = gpus if count is None else gpus.first(count)
    if len(gpus.models) > 1:
        raise SettingsError(
            f"Expected GPUs of one model, got {', '.join(gpus.models)}; choose some by {_VISIBLE} or a number."
        )
    return Hardware(gpus.max_power_w if max_power_w is None else float(max_power_w), len(gpus), gpus)


@contextmanager
def restore_limits(logdir: Path, gpus: Gpus | None) -> Iterator[Callable[[], None]]:
    """Restore the power limits that GPUs had at the start: at the end, and whenever the yielded function is called.

    A file holds them meanwhile, as a script or master that is killed cannot restore them.
    """
    if gpus is None:
        yield lambda: None
        return
    path, original_w = logdir / LIMITS, gpus.limits_w()
    if path.exists():
        number = Field(min_length=len(gpus), max_length=len(gpus))
        try:
            kind = TypeAdapter(Annotated[list[Annotated[FiniteFloat, Field(gt=0.0)]], number])
            original_w = kind.validate_python(json_file(path, SettingsError))
        except ValidationError as fault:
            raise SettingsError(f"{path}: Expected power limits in watts: {fault_text(fault)}") from None
    else:
        write_json(path, original_w)

    def restore() -> None:
        """Set those limits that have changed."""
        if gpus.limits_w() != original_w:
            gpus.set_limits_w(original_w)

    try:
        yield restore
    finally:
        restore()
        # Without the file, the next run cannot undo limits that other users set from now on.
        path.unlink(missing_ok=True)


class ZeusMeter(Meter):
    """Measures with the monitor of the ``zeus`` package (https://ml.energy/zeus/measure/): GPUs, else processors."""

    name = "zeus"
    _WINDOW = "bftrainer"

    def __init__(self) -> None:
        require_extra("Its measurements need", "zeus")
        try:
            self._monitor: Any = import_module("zeus.monitor").ZeusMonitor()
        except Exception as error:  # its errors are many, and have no common root
            raise SettingsError(f"The zeus package cannot measure: {type(error).__name__}: {error}.") from None
        if not (self._monitor.gpu_indices or self._monitor.cpu_indices):
            # It would measure 0 J.
            raise SettingsError("The zeus package found no GPU, and no processor whose energy it may read.")
        self._total_j = 0.0
        self._begin()

    def energy_j(self) -> float:
        """Energy since this meter was made; each reading ends one window and begins the next."""
        self._total_j += self.close()
        self._begin()
        return self._total_j

    def _begin(self) -> None:
        # Synchronising is up to the script, which passes `synchronize` to `training_run`.
        self._monitor.begin_window(self._WINDOW, sync_execution=False)

    def close(self) -> float:
        """End the window; return its energy."""
        used = self._monitor.end_window(self._WINDOW, sync_execution=False)
        if self._monitor.gpu_indices:
            return float(used.total_energy)
        return float(sum((used.cpu_energy or {}).values()) + sum((used.dram_energy or {}).values()))


def read_process_times() -> tuple[float, float]:
    """Read a clock, and the processor time of this process and its finished children, in seconds."""
    times = os.times()
    return time.monotonic(), times.user + times.system + times.children_user + times.children_system


class ModelMeter(Meter):
    """Estimates a machine's energy: power is linear in the load of its cores, from half of the highest when idle.

    Fan, Weber and Barroso, "Power provisioning for a warehouse-sized computer", ISCA 2007, section 4 (linear);
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


def write_json(path: Path, document: object) -> None:
    """Write a JSON file whole or not at all, and to the disk, as the machine may lose power."""
    with replacing(path) as stream:
        stream.write(f"{json.dumps(document, allow_nan=False)}\n".encode())


def measure_since(start: tuple[float, float], clock: Callable[[], float], meter: Meter) -> tuple[float, float]:
    """Return seconds and joules since `start`, when first the clock was read and then the meter; the time is longer."""
    clock()  # which waits for GPUs
    energy_j = meter.energy_j() - start[1]
    return clock() - start[0], energy_j


def require_gpus(gpus: Gpus | None) -> Gpus:
    """Return GPUs that were found: `SettingsError` if none were, which may be for want of an extra."""
    if gpus is None:
        require_extra("GPUs need", "gpu")
        raise SettingsError("No GPU found whose power can be measured and limited.")
    return gpus


def open_meter(measure: str, total_power_w: float, gpus: Gpus | None) -> Meter:
    """Open the meter of a name: nvml, zeus or model (of the highest power); auto is nvml if there are GPUs."""
    if measure == "nvml" or (measure == "auto" and gpus is not None):
        counting = require_gpus(gpus)
        counting.energy_j()  # which GPUs without a counter refuse
        return counting
    return ZeusMeter() if measure == "zeus" else ModelMeter(total_power_w, os.cpu_count() or 1)


class ProfiledLimit(BaseModel):
    """Speed (steps per second) and average power of training at one power limit."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    limit_w: Annotated[int, Field(gt=0)]
    power_w: Annotated[float, Field(ge=0)]
    steps_per_s: Annotated[float, Field(gt=0)]


def read_profile(path: Path) -> list[ProfiledLimit]:
    """Read the limits that an earlier run measured; empty if none can be used, so that they are measured again."""
    try:
        return TypeAdapter(list[ProfiledLimit]).validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return []


def best_limit(limits: Sequence[ProfiledLimit], eta_knob: float, max_power_w: float) -> ProfiledLimit:
    """Find the limit at which a step costs least, of equal ones the highest (NSDI '23, equation 7)."""
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
            time_s, energy_j = measure_since(self._start, self._clock, self._meter)
            time_s = max(time_s, 1e-9)  # a clock may be too coarse to see a few short steps
            power_w, steps_per_s = energy_j / time_s, self._measured / time_s
            limit_w = self._remaining_w.pop(0)
            self.limits.append(ProfiledLimit(limit_w=limit_w, power_w=power_w, steps_per_s=steps_per_s))
            self._steps = 0
            if self.done:
                return
            self._gpus.set_limit_w(self._remaining_w[0])
        if self._steps == self._warmup:
            self._start = (self._clock(), self._meter.energy_j())
        self._steps += 1
