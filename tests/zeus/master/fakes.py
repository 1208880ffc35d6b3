"""Hardware that isn't there: NVML, a clock, a meter."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from bftrainer.zeus.master.hardware import Gpus


@dataclass
class Device:
    """A GPU."""

    name: str = "Fake V100"
    uuid: str = "GPU-1a"
    least_mw: int = 100_000
    most_mw: int = 250_000
    limit_mw: int = 250_000
    energy_mj: int = 0
    root: bool = True
    counts: bool = True


class Nvml:
    """The functions of ``pynvml`` that are used, over some devices."""

    __spec__ = SimpleNamespace()

    class NVMLError(Exception):
        """What NVML raises."""

    def __init__(self, *devices: Device, driver: bool = True) -> None:
        self.devices, self.driver = devices, driver

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.driver:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:  # noqa: N802
        return self.devices[index]

    def nvmlDeviceGetName(self, device: Device) -> str:  # noqa: N802
        return device.name

    def nvmlDeviceGetUUID(self, device: Device) -> str:  # noqa: N802
        return device.uuid

    def nvmlDeviceGetPowerManagementLimitConstraints(self, device: Device) -> list[int]:  # noqa: N802
        return [device.least_mw, device.most_mw]

    def nvmlDeviceGetPowerManagementLimit(self, device: Device) -> int:  # noqa: N802
        return device.limit_mw

    def nvmlDeviceSetPowerManagementLimit(self, device: Device, limit: int) -> None:  # noqa: N802
        if not device.root:
            raise self.NVMLError("Insufficient Permissions")
        assert device.least_mw <= limit <= device.most_mw
        device.limit_mw = limit

    def nvmlDeviceGetTotalEnergyConsumption(self, device: Device) -> int:  # noqa: N802
        if not device.counts:
            raise self.NVMLError("Not Supported")
        return device.energy_mj


def gpus(*devices: Device) -> Gpus:
    """These GPUs."""
    return Gpus(Nvml(*devices), devices)


def plug(monkeypatch: Any, *devices: Device, driver: bool = True, visible: str | None = None) -> None:
    """Have these GPUs in this machine, of which CUDA may use those visible."""
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(*devices, driver=driver))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)


class World:
    """A clock that moves when told to, and a GPU that draws what its limit allows."""

    def __init__(self, device: Device | None = None, power_w: float = 200.0) -> None:
        self.now_s, self.used_j, self.device, self.power_w = 0.0, 0.0, device, power_w
        self.name = "fake"

    def clock(self) -> float:
        """Seconds."""
        return self.now_s

    def energy_j(self) -> float:
        """Joules."""
        return self.used_j

    def close(self) -> None:
        """Nothing to do."""

    def work(self, time_s: float) -> None:
        """Let time pass, at full power or at the limit if that is less."""
        limit_w = self.device.limit_mw / 1000 if self.device else self.power_w
        self.now_s += time_s
        self.used_j += min(limit_w, self.power_w) * time_s


def instruct(monkeypatch: Any, folder: Any, **changes: Any) -> None:
    """Tell a training script what it is to do; None: nothing."""
    said = {"ZEUS_TARGET_METRIC": 0.5, "ZEUS_LOG_DIR": folder, "BFTRAINER_MAX_POWER_W": 250} | changes
    for name, value in said.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, str(value))
