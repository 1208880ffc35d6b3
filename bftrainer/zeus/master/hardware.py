"""Hardware to train on: NVIDIA GPUs through NVML, or the whole machine; and its power limits."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bftrainer.errors import SettingsError
from bftrainer.extras import EXTRAS, absent, missing_extra, require_extra
from bftrainer.files.documents import json_file
from bftrainer.zeus.master.script import write_json

# Distance between the power limits that are tried, from the highest down.
STEP_W = 25
LIMITS = "power-limits.json"
_VISIBLE = "CUDA_VISIBLE_DEVICES"


class Gpus:
    """Some GPUs of this machine, which count their energy as a `bftrainer.zeus.master.meters.Meter` does.

    They are made of ``pynvml`` of nvidia-ml-py, initialised, and its handles, at least one. All methods raise
    `SettingsError` if NVML fails: GPUs before Volta count no energy, and only root may set power limits.

    References
    ----------
    NVIDIA, "NVML API Reference", https://docs.nvidia.com/deploy/nvml-api/, device queries and commands.
    """

    name = "nvml"

    def __init__(self, library: Any, handles: Sequence[Any]) -> None:
        self._library, self._handles = library, list(handles)

    def __len__(self) -> int:
        return len(self._handles)

    def first(self, count: int) -> Gpus:
        """Select the first `count` GPUs; there must be as many."""
        if count > len(self):
            raise SettingsError(f"Expected at most {len(self)} GPUs, as many as were found, got {count}.")
        return Gpus(self._library, self._handles[:count])

    @property
    def models(self) -> list[str]:
        """Names of the GPUs' models, each once."""
        return sorted({_text(self._call("nvmlDeviceGetName", handle)) for handle in self._handles})

    @property
    def max_power_w(self) -> float:
        """Highest power limit of any of the GPUs."""
        return float(max(self._limit_ranges_w()[1]))

    def energy_j(self) -> float:
        """Energy that all GPUs used since their driver was loaded."""
        counted_mj = [self._call("nvmlDeviceGetTotalEnergyConsumption", handle) for handle in self._handles]
        return float(sum(counted_mj) / 1000.0)

    def close(self) -> None:
        """Do nothing: counters need no end."""

    def candidate_limits_w(self) -> list[int]:
        """List power limits that all GPUs support, from the highest down, 25 W apart."""
        lowest, highest = self._limit_ranges_w()
        return list(range(min(highest), max(lowest) - 1, -STEP_W))

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

    def _limit_ranges_w(self) -> tuple[list[int], list[int]]:
        """Read the lowest and the highest power limits of the GPUs, in whole watts."""
        ranges = [self._call("nvmlDeviceGetPowerManagementLimitConstraints", handle) for handle in self._handles]
        return [-(-lowest // 1000) for lowest, _ in ranges], [highest // 1000 for _, highest in ranges]

    def _call(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._library, function)(*arguments)
        except self._library.NVMLError as error:
            raise SettingsError(f"{function}: NVML failed: {error}.") from None


def find_gpus(environ: Mapping[str, str] | None = None, library: Any = None) -> Gpus | None:
    """Find the GPUs of this machine that NVML reports and CUDA_VISIBLE_DEVICES allows; None if there are none.

    `library` is ``pynvml`` of nvidia-ml-py. `SettingsError` if the variable names GPUs that do not exist, or parts.
    """
    if library is None:
        if find_spec("pynvml") is None:
            return None
        library = import_module("pynvml")
    try:
        library.nvmlInit()
        handles = [library.nvmlDeviceGetHandleByIndex(index) for index in range(library.nvmlDeviceGetCount())]
        uuids = [_text(library.nvmlDeviceGetUUID(handle)) for handle in handles]
    except library.NVMLError:  # no driver, or no permission to use it: no usable GPU
        return None
    allowed = (os.environ if environ is None else environ).get(_VISIBLE)
    if allowed is not None:
        handles = [handles[index] for index in _visible_indices(allowed, uuids)]
    return Gpus(library, handles) if handles else None


def _text(name: str | bytes) -> str:
    """Return a name, which older versions of NVML's library give as bytes."""
    return name.decode() if isinstance(name, bytes) else name


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

    def check_limits(self) -> None:
        """Check that power limits can be set, by setting the present ones again: `SettingsError` if not."""
        if self.gpus is None:
            require_extra("Power limits need", "gpu", error=SettingsError)
            raise SettingsError("No GPU found whose power can be limited.")
        self.gpus.set_limits_w(self.gpus.limits_w())


def find_hardware(
    max_power_w: float | None, count: int | None, find: Callable[[], Gpus | None] = find_gpus
) -> Hardware:
    """Describe the hardware of a run, finding out what the arguments leave open.

    `SettingsError` if the power is neither given nor found, there are too few GPUs, or they are of several models.
    """
    gpus = find()
    if gpus is None:
        if max_power_w is None:
            missing = absent(*EXTRAS["gpu"])
            hint = f" {missing_extra('To find GPUs takes', 'gpu', missing)}." if missing else ""
            raise SettingsError(
                f"Missing highest power in watts (max_power_w, --max-power): no GPU was found that reports it.{hint}"
            )
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

    A killed script or master cannot restore the limits that were changed; so a file holds the original ones meanwhile.
    """
    if gpus is None:
        yield lambda: None
        return
    path, original_w = logdir / LIMITS, gpus.limits_w()
    if path.exists():
        original_w = _read_limits(path, len(gpus))
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


def _read_limits(path: Path, count: int) -> list[float]:
    try:
        limits_w = [float(limit) for limit in json_file(path, SettingsError)]
    except (ArithmeticError, ValueError, TypeError) as fault:
        raise SettingsError(f"{path}: Expected power limits in watts, got something else ({fault}).") from None
    if len(limits_w) != count:
        raise SettingsError(f"{path}: Expected the power limits of {count} GPUs, got {len(limits_w)}.")
    return limits_w
