"""Each way to measure energy, against a fake of what it measures."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from bftrainer.errors import SettingsError
from bftrainer.zeus.master import hardware
from bftrainer.zeus.master.hardware import (
    LIMITS,
    ModelMeter,
    ZeusMeter,
    find_gpus,
    find_hardware,
    measure_since,
    open_meter,
    restore_limits,
)
from tests.zeus.master.fakes import Device, Nvml, gpus


def test_nvml_adds_up_gpus():
    """Millijoules of all GPUs."""
    devices = Device(energy_mj=1500), Device(energy_mj=2500)
    meter = open_meter("nvml", 250.0, gpus(*devices))
    assert meter.energy_j() == 4.0
    devices[1].energy_mj += 1000
    assert meter.energy_j() == 5.0


def test_nvml_that_does_not_count():
    """GPUs without an energy counter say so when the meter is made."""
    with pytest.raises(SettingsError, match="nvmlDeviceGetTotalEnergyConsumption: NVML failed"):
        open_meter("nvml", 250.0, gpus(Device(counts=False)))


class Monitor:
    """The monitor of the zeus package: each window used 2 J of GPUs, or 3 J of two processors and 1 J of memory."""

    def __init__(self, gpus=1, cpus=0):
        self.gpu_indices, self.cpu_indices = list(range(gpus)), list(range(cpus))
        self.open = []

    def begin_window(self, key, sync_execution):
        assert key not in self.open
        assert not sync_execution
        self.open.append(key)

    def end_window(self, key, sync_execution):
        assert not sync_execution
        self.open.remove(key)
        return SimpleNamespace(time=1.0, total_energy=2.0, cpu_energy={0: 1.0, 1: 2.0}, dram_energy={0: 1.0})


def test_the_zeus_package_measures_processors_where_there_is_no_gpu():
    """Packages and memory are added up; their counters are the package's business."""
    meter = ZeusMeter(Monitor(gpus=0, cpus=2))
    assert [meter.energy_j(), meter.energy_j()] == [4.0, 8.0]


def test_the_zeus_package_is_asked_window_by_window():
    """Each look ends a window and begins the next, so nothing between two looks is lost."""
    monitor = Monitor()
    meter = ZeusMeter(monitor)
    assert [meter.energy_j(), meter.energy_j()] == [2.0, 4.0]
    assert len(monitor.open) == 1
    meter.close()
    assert monitor.open == []


def test_the_zeus_package_without_a_gpu():
    """Where it finds no GPU the package measures 0 J; that is refused rather than booked."""
    with pytest.raises(SettingsError, match="zeus package found no GPU"):
        ZeusMeter(Monitor(gpus=0))


def test_the_model_is_linear_in_use():
    """By hand: 100 W, 4 cores; 10 s idle take 500 J, 10 s with 2 cores busy 750 J, with 4 busy 1000 J."""
    now = [0.0, 0.0]
    meter = ModelMeter(100.0, 4, lambda: (now[0], now[1]))
    found = []
    for busy_s in (0.0, 20.0, 40.0):
        before = meter.energy_j()
        now[0] += 10.0
        now[1] += busy_s
        found.append(meter.energy_j() - before)
    assert found == pytest.approx([500.0, 750.0, 1000.0])


def test_the_model_draws_no_more_than_all_of_the_power():
    """Processor time that arrives at once, a tick's or an ended child's, counts as the cores could have used it."""
    now = [0.0, 0.0]
    meter = ModelMeter(100.0, 2, lambda: (now[0], now[1]))
    found = []
    for elapsed_s, busy_s in ((1.0, 6.0), (1.0, 0.0), (2.0, 0.0)):
        before = meter.energy_j()
        now[0] += elapsed_s
        now[1] += busy_s
        found.append(meter.energy_j() - before)
    assert found == pytest.approx([100.0, 100.0, 150.0])


def test_a_wait_between_two_readings_is_no_energy():
    """A process that waits 9 s while it reads clock and meter reports no more than all of the power."""
    now = [0.0]

    def clock():
        now[0] += 9.0
        return now[0]

    meter = ModelMeter(100.0, 1, lambda: (now[0], now[0]))
    start = (clock(), meter.energy_j())
    time_s, energy_j = measure_since(start, clock, meter)
    assert 0 < energy_j <= 100.0 * time_s


def test_auto_takes_the_first_that_is_there():
    """NVML where there are GPUs, else the model; a meter that was chosen is not replaced by another one."""
    assert open_meter("auto", 100.0, gpus(Device())).name == "nvml"
    assert open_meter("auto", 100.0, None).name == "model"
    with pytest.raises(SettingsError, match="No GPU found"):
        open_meter("nvml", 100.0, None)


@pytest.mark.parametrize(("name", "extra"), [("zeus", "zeus"), ("nvml", "gpu")])
def test_the_extra_is_named_where_it_is_missing(monkeypatch, name, extra):
    """Without the package, the message says how to get it."""
    monkeypatch.setattr("bftrainer.extras.find_spec", lambda _: None)
    with pytest.raises(SettingsError, match=rf"extra {extra} .*pip install '\.\[{extra}\]'"):
        open_meter(name, 100.0, None)


def test_the_zeus_package_may_fail(monkeypatch):
    """Whatever it raises becomes one line."""

    class Broken:
        def ZeusMonitor(self):  # noqa: N802
            raise LookupError("nothing here")

    monkeypatch.setattr("bftrainer.extras.find_spec", lambda name: name)
    monkeypatch.setattr(hardware, "import_module", lambda name: Broken())  # noqa: ARG005
    with pytest.raises(SettingsError, match=r"zeus package .*: LookupError: nothing here"):
        open_meter("zeus", 100.0, None)


# --- GPUs --------------------------------------------------------------------------------------------------------


def test_gpus_that_cuda_may_use():
    """By number or by the start of the identifier, in the order given; nothing after -1."""
    three = [Device(name=f"gpu {n}", uuid=f"GPU-{n}{n}") for n in range(3)]
    assert gpus(*three, CUDA_VISIBLE_DEVICES="2,GPU-0").models == ["gpu 0", "gpu 2"]
    assert gpus(*three, CUDA_VISIBLE_DEVICES="1,-1,2").models == ["gpu 1"]
    assert gpus(*three, CUDA_VISIBLE_DEVICES="") is None
    assert len(gpus(*three)) == 3


@pytest.mark.parametrize("value", ["3", "GPU-", "MIG-00", "x"])
def test_gpus_that_are_not_there(value):
    """Numbers beyond the last, identifiers of none or of several, and parts of GPUs are refused."""
    with pytest.raises(SettingsError, match=f"CUDA_VISIBLE_DEVICES: Expected whole GPUs from 0 to 1, got '{value}'"):
        gpus(Device(uuid="GPU-a"), Device(uuid="GPU-b"), CUDA_VISIBLE_DEVICES=value)


def test_no_driver_is_no_gpu():
    """A machine without a driver or without GPUs has none."""
    assert find_gpus({}, Nvml(driver=False)) is None
    assert gpus() is None


def test_hardware_is_found_or_said():
    """Power and number are NVML's where they are not said; without GPUs the power has to be said."""
    found = find_hardware(None, None, find=lambda: gpus(Device(), Device()))
    assert (found.max_power_w, found.count, found.total_power_w) == (250.0, 2, 500.0)
    assert find_hardware(300, 1, find=lambda: gpus(Device(), Device())).total_power_w == 300.0
    assert find_hardware(65, None, find=lambda: None).total_power_w == 65.0
    assert find_hardware(65, 2, find=lambda: None).total_power_w == 130.0
    with pytest.raises(SettingsError, match=r"highest power in watts \(max_power_w, --max-power\): no GPU"):
        find_hardware(None, None, find=lambda: None)
    with pytest.raises(SettingsError, match="Expected at most 1 GPUs, as many as were found, got 2"):
        find_hardware(None, 2, find=lambda: gpus(Device()))


def test_gpus_are_of_one_model():
    """Runs on several models would not compare; a choice of one is taken."""
    two = Device(name="A"), Device(name="B", most_mw=400_000)
    with pytest.raises(SettingsError, match=r"Expected GPUs of one model, got A, B; choose some by CUDA_VISIBLE"):
        find_hardware(None, None, find=lambda: gpus(*two))
    assert find_hardware(None, 1, find=lambda: gpus(*two)).max_power_w == 250.0


def test_limits_to_try_suit_all():
    """25 W apart, from the highest that all can have."""
    two = gpus(Device(), Device(least_mw=149_500, most_mw=230_000))
    assert two.candidate_limits_w() == [230, 205, 180, 155]


def test_power_limits_are_given_back(tmp_path):
    """At the end, after each run, and those from before an interruption, whatever holds by then."""
    device = Device(limit_mw=220_000)
    with restore_limits(tmp_path, gpus(device)) as restore:
        device.limit_mw = 125_000
        restore()
        assert device.limit_mw == 220_000
        device.limit_mw = 125_000
        kept = (tmp_path / LIMITS).read_bytes()
    assert device.limit_mw == 220_000
    device.limit_mw = 100_000
    (tmp_path / LIMITS).write_bytes(kept)
    with restore_limits(tmp_path, gpus(device)):
        pass
    assert device.limit_mw == 220_000


def test_power_limits_that_others_set_stay(tmp_path):
    """What is set between two nights, each of which gave back what it found, holds after the second one."""
    device = Device(limit_mw=220_000)
    for limit_mw in (220_000, 150_000):
        device.limit_mw = limit_mw
        with restore_limits(tmp_path, gpus(device)):
            device.limit_mw = 125_000
        assert device.limit_mw == limit_mw


@pytest.mark.parametrize("content", ["[100.0, 100.0]", "5", "null", '["a"]', "[null]", '{"a": 1}', "[NaN]", "[-1]"])
def test_power_limits_that_were_kept_must_fit(tmp_path, content):
    """A file of other limits, or of none, is refused rather than guessed at."""
    (tmp_path / "power-limits.json").write_text(content)
    with (
        pytest.raises(SettingsError, match=r"power-limits\.json: Expected "),
        restore_limits(tmp_path, gpus(Device())),
    ):
        pass


def test_without_permission():
    """Power limits that may not be set are one line."""
    with pytest.raises(SettingsError, match=r"NVML.*Insufficient Permissions"):
        gpus(Device(root=False)).set_limit_w(100)


def test_the_real_library_has_what_is_called():
    """Each function of NVML that we call is in nvidia-ml-py; where there is no GPU it says so."""
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    called = [name for name in dir(Nvml) if name.startswith(("nvml", "NVML"))]
    assert len(called) == 10
    assert [name for name in called if not hasattr(pynvml, name)] == []
    code = "from bftrainer.zeus.master.hardware import find_gpus; print(find_gpus() is None or len(find_gpus()))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=dict(os.environ), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "True" or int(done.stdout) > 0
