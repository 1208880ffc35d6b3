"""Recurring jobs whose training script is a fake one, and hardware that isn't there: NVML, a clock, a meter."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bftrainer.zeus import HistoryEntry, Job, PruningGTSBatchSizeOptimizer
from bftrainer.zeus.master import ZeusMaster
from bftrainer.zeus.master.hardware import Gpus

DATA = Path(__file__).parent / "data"
FAKE = DATA / "fake_train.py"
BATCH_SIZES = [8, 16, 32, 64, 128]
# Less than starting Python with its site packages.
PYTHON = (sys.executable, "-I", "-S", "-u")


def fake_job(workdir: Path, mode: str = "ok", **changes: Any) -> Job:
    """A job that runs the fake script."""
    command = [*PYTHON, str(FAKE), "{batch_size}", "{lr}", "{seed}", "{epochs}", mode]
    return script_job(workdir, command, **changes)


def script_job(workdir: Path, command: list[str] | None, **changes: Any) -> Job:
    """A job that runs a command."""
    fields: dict[str, Any] = {"default_bs": 32, "default_lr": 0.1, "optimizer": "adam"} | changes
    return Job("d", "n", target_metric=0.5, max_epochs=7, workdir=str(workdir), command=command, **fields)


def master(log_base: Path, **options: Any) -> ZeusMaster:
    """A master with the published policy and one GPU of 250 W."""
    settings: dict[str, Any] = {"seed": 1, "max_power_w": 250, "grace_s": 0.3} | options
    policy = settings.pop("policy", None) or PruningGTSBatchSizeOptimizer(seed=1, verbose=False)
    return ZeusMaster(policy, str(log_base), "/opt/zeus_monitor", **settings)


def only(folder: Path) -> Path:
    """The one thing in a folder."""
    (found,) = folder.iterdir()
    return found


def read_history(path: Path) -> list[HistoryEntry]:
    """The history in a file."""
    return [HistoryEntry(**entry) for entry in json.loads(path.read_text())["history"]]


def told(log: Path) -> tuple[dict[str, str], list[str], str]:
    """Environment, arguments and directory that the fake script printed."""
    first, second, *_ = log.read_text().splitlines()
    arguments, _, workdir = second.removeprefix("ARGV ").partition(" CWD ")
    return json.loads(first.removeprefix("ENV ")), json.loads(arguments), workdir


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
        answers: dict[str, Callable[..., object]] = {
            "Count": lambda: len(devices),
            "HandleByIndex": lambda index: devices[index],
            "Name": lambda device: device.name,
            "UUID": lambda device: device.uuid,
            "PowerManagementLimitConstraints": lambda device: [device.least_mw, device.most_mw],
            "PowerManagementLimit": lambda device: device.limit_mw,
        }
        for name, answer in answers.items():
            setattr(self, f"nvmlDeviceGet{name}", answer)

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.driver:
            raise self.NVMLError("Driver Not Loaded")

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
