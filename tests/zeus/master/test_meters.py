"""Each way to measure energy, against a fake of what it measures; GPUs that are found, and their power limits."""

import os
import sys
from types import SimpleNamespace

import pytest

from bftrainer.errors import SettingsError
from bftrainer.zeus.master import hardware
from tests.zeus.master.driven import Device, Nvml, gpus, plug


def test_nvml_adds_up_gpus():
    """Millijoules of all GPUs; those without an energy counter say so when the meter is made."""
    devices = Device(energy_mj=1500), Device(energy_mj=2500)
    meter = hardware.open_meter("nvml", 250.0, gpus(*devices))
    assert meter.energy_j() == 4.0
    devices[1].energy_mj += 1000
    assert meter.energy_j() == 5.0
    with pytest.raises(SettingsError, match="nvmlDeviceGetTotalEnergyConsumption: NVML failed"):
        hardware.open_meter("nvml", 250.0, gpus(Device(counts=False)))


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


def test_the_zeus_package_is_asked_window_by_window(monkeypatch):
    """Each look ends a window and begins the next; without a GPU processors count; what it raises becomes one line."""
    monkeypatch.setattr("bftrainer.plugins.find_spec", lambda name: name)

    def open_with(make_monitor):
        monkeypatch.setattr(hardware, "import_module", lambda _: SimpleNamespace(ZeusMonitor=make_monitor))
        return hardware.open_meter("zeus", 100.0, None)

    for monitor, used_j in ((Monitor(), [2.0, 4.0]), (Monitor(gpus=0, cpus=2), [4.0, 8.0])):
        meter = open_with(lambda monitor=monitor: monitor)
        assert [meter.energy_j(), meter.energy_j()] == used_j
        assert len(monitor.open) == 1
        meter.close()
        assert monitor.open == []
    for broken, said in ((lambda: Monitor(gpus=0), "found no GPU"), (lambda: 1 / 0, ".*: ZeroDivisionError")):
        with pytest.raises(SettingsError, match=f"zeus package {said}"):
            open_with(broken)


@pytest.mark.parametrize(
    ("cores", "steps", "used_j"),
    [
        # 100 W, 4 cores: 10 s idle take 500 J, 10 s with 2 cores busy 750 J, with 4 busy 1000 J.
        (4, [(10.0, 0.0), (10.0, 20.0), (10.0, 40.0)], [500.0, 750.0, 1000.0]),
        # Processor time that arrives at once, a tick's or an ended child's, counts as the cores could have used it.
        (2, [(1.0, 6.0), (1.0, 0.0), (2.0, 0.0)], [100.0, 100.0, 150.0]),
    ],
)
def test_the_model_is_linear_in_use(cores, steps, used_j):
    """Half of the power is drawn when idle, and no more than all of it."""
    now = [0.0, 0.0]
    meter = hardware.ModelMeter(100.0, cores, lambda: (now[0], now[1]))
    found = []
    for elapsed_s, busy_s in steps:
        before = meter.energy_j()
        now[0] += elapsed_s
        now[1] += busy_s
        found.append(meter.energy_j() - before)
    assert found == pytest.approx(used_j)


def test_a_wait_between_two_readings_is_no_energy():
    """A process that waits 9 s while it reads clock and meter reports no more than all of the power."""
    now = [0.0]

    def clock():
        now[0] += 9.0
        return now[0]

    meter = hardware.ModelMeter(100.0, 1, lambda: (now[0], now[0]))
    start = (clock(), meter.energy_j())
    time_s, energy_j = hardware.measure_since(start, clock, meter)
    assert 0 < energy_j <= 100.0 * time_s


def test_auto_takes_the_first_that_is_there(monkeypatch):
    """NVML where there are GPUs, else the model; one that was chosen is not replaced, and a missing extra is named."""
    assert hardware.open_meter("auto", 100.0, gpus(Device())).name == "nvml"
    assert hardware.open_meter("auto", 100.0, None).name == "model"
    with pytest.raises(SettingsError, match="No GPU found"):
        hardware.open_meter("nvml", 100.0, None)
    monkeypatch.setattr("bftrainer.plugins.find_spec", lambda _: None)
    for name, extra in (("zeus", "zeus"), ("nvml", "gpu")):
        with pytest.raises(SettingsError, match=rf"extra {extra} .*pip install '\.\[{extra}\]'"):
            hardware.open_meter(name, 100.0, None)


# --- GPUs --------------------------------------------------------------------------------------------------------


def test_gpus_that_cuda_may_use(monkeypatch):
    """By number or by the start of the identifier, in the order given; nothing after -1; others are refused."""
    three = [Device(name=f"gpu {n}", uuid=f"GPU-{n}{n}") for n in range(3)]
    for visible, numbers in ((None, "012"), ("2,GPU-0", "02"), ("1,-1,2", "1")):
        plug(monkeypatch, *three, visible=visible)
        assert hardware.find_gpus().models == [f"gpu {n}" for n in numbers]
    plug(monkeypatch, *three, visible="")
    assert hardware.find_gpus() is None
    for value in ("3", "GPU-", "MIG-00", "x"):
        plug(monkeypatch, *three, visible=value)
        with pytest.raises(SettingsError, match=f"CUDA_VISIBLE_DEVICES: .* GPUs from 0 to 2, got '{value}'"):
            hardware.find_gpus()


def test_hardware_is_found_or_said(monkeypatch):
    """Power and number are NVML's where they are not said, of one model; without GPUs the power has to be said."""
    one, others = [Device()], [Device(name="A"), Device(name="B", most_mw=400_000)]
    for arguments, devices, power_w in (
        ((None, None), one * 2, 500.0),
        ((300, 1), one * 2, 300.0),
        ((65, 2), [], 130.0),
        ((None, 1), others, 250.0),
    ):
        plug(monkeypatch, *devices)
        assert hardware.find_hardware(*arguments).total_power_w == power_w
    for arguments, devices, said in (
        ((None, None), [], r"highest power in watts \(max_power_w, --max-power\): no GPU"),
        ((None, 2), one, "Expected at most 1 GPUs, as many as were found, got 2"),
        ((None, None), others, r"Expected GPUs of one model, got A, B; choose some by CUDA_VISIBLE"),
    ):
        plug(monkeypatch, *devices)
        with pytest.raises(SettingsError, match=said):
            hardware.find_hardware(*arguments)
    plug(monkeypatch, *one, driver=False)
    assert hardware.find_gpus() is None


def test_power_limits_are_given_back(tmp_path):
    """At the end, after each run, and those from before an interruption; what others set between two nights stays."""
    device = Device(limit_mw=220_000)
    with hardware.restore_limits(tmp_path, gpus(device)) as restore:
        device.limit_mw = 125_000
        restore()
        assert device.limit_mw == 220_000
        device.limit_mw = 125_000
        kept = (tmp_path / hardware.LIMITS).read_bytes()
    assert device.limit_mw == 220_000
    device.limit_mw = 100_000
    (tmp_path / hardware.LIMITS).write_bytes(kept)
    with hardware.restore_limits(tmp_path, gpus(device)):
        pass
    assert device.limit_mw == 220_000
    device.limit_mw = 150_000
    with hardware.restore_limits(tmp_path, gpus(device)):
        device.limit_mw = 125_000
    assert device.limit_mw == 150_000


@pytest.mark.parametrize("content", ["[100.0, 100.0]", "5", '["a"]', '{"a": 1}', "[NaN]", "[-1]", os.mkfifo, os.mkdir])
def test_power_limits_that_were_kept_must_fit(tmp_path, content):
    """A file of other limits, or of none, is refused rather than guessed at; a pipe is not waited for."""
    path = tmp_path / hardware.LIMITS
    content(path) if callable(content) else path.write_text(content)
    refused = pytest.raises(SettingsError, match=r"power-limits\.json: Expected ")
    with refused, hardware.restore_limits(tmp_path, gpus(Device())):
        pass


def test_limits_to_try_suit_all():
    """25 W apart, from the highest that all can have; without permission they are one line."""
    two = gpus(Device(), Device(least_mw=149_500, most_mw=230_000))
    assert two.candidate_limits_w() == [230, 205, 180, 155]
    with pytest.raises(SettingsError, match=r"NVML.*Insufficient Permissions"):
        gpus(Device(root=False)).set_limit_w(100)


def test_the_real_library_has_what_is_called(monkeypatch):
    """Each function of NVML that we call is in nvidia-ml-py; where there is no GPU it says so."""
    monkeypatch.delitem(sys.modules, "pynvml")
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    called = [name for name in dir(Nvml()) if name.startswith(("nvml", "NVML"))]
    assert len(called) == 10
    assert [name for name in called if not hasattr(pynvml, name)] == []
    assert hardware.find_gpus() is None or len(hardware.find_gpus()) > 0
