"""A small made-up job to tune: four batch sizes, three power limits, and tasks that are recurrences of it."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from bftrainer.model import ScalingCurve, TaskSpec, TuningSpec
from bftrainer.model.records import PowerRecord, Recording
from bftrainer.objectives import as_given
from bftrainer.replay import Allocator, PowerMeter, Recorder, Settings, replay
from bftrainer.runs.config import DecideOn
from bftrainer.zeus import Job, TrainingTrace
from bftrainer.zeus.tuned_task import GroupTuner
from tests.worlds import numbered

FILES = ("train.csv", "power.csv")
TARGET, MAX_EPOCHS, DEFAULT = 0.9, 30, 32
# Epochs to target of four measured runs a batch size; None: never. The largest one never converges.
EPOCHS = {16: (9, 10, 12, 10), 32: (7, 8, 7, 9), 64: (11, 10, 14, 12), 128: (None, None, None, None)}
# Seconds and watts of an epoch by limit, at batch size 32; others scale the time.
POINTS = {100: (30.0, 95.0), 150: (22.0, 140.0), 200: (20.0, 185.0)}
JOB = ("made-up", "net", "sgd")


def frames() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The two tables of measurements."""
    names = dict(zip(("dataset", "network", "optimizer"), JOB, strict=True))
    train = [
        {**names, "batch_size": size, "target_metric": TARGET, "target_epoch": epochs, "run": run}
        for size, runs in EPOCHS.items()
        for run, epochs in enumerate(runs)
    ]
    power = [
        {**names, "batch_size": size, "power_limit": limit, "time_per_epoch": time_s * (32 / size) ** 0.5}
        | {"average_power": power_w}
        for size in EPOCHS
        for limit, (time_s, power_w) in POINTS.items()
    ]
    return pd.DataFrame(train), pd.DataFrame(power)


def trace() -> TrainingTrace:
    """The measurements, joined."""
    return TrainingTrace(*frames())


def job() -> Job:
    """The job as the simulator takes it."""
    return Job(*JOB, TARGET, MAX_EPOCHS, DEFAULT)


def section(**changes: Any) -> TuningSpec:
    """The job as a task asks for it."""
    dataset, network, optimizer = JOB
    defaults = {"dataset": dataset, "network": network, "optimizer": optimizer, "target_metric": TARGET}
    defaults |= {"max_epochs": MAX_EPOCHS, "default_batch_size": DEFAULT}
    return TuningSpec(*FILES, **(defaults | changes))


def recurrences(count: int, most: int = 1, group: str | None = "g", **changes: Any) -> tuple[TaskSpec, ...]:
    """Tasks of one group on up to `most` nodes, twice as fast on twice as many, that rescale for nothing."""
    tuning = changes.pop("tuning", section())
    fields = {"work": 1.0, "scaling": ScalingCurve.linear(3.0, most), "group": group, "tuning": tuning}
    return tuple(TaskSpec(f"J{number}", 1, most, **(fields | changes)) for number in range(count))


def tuner(tasks: Sequence[TaskSpec], seed: int = 1, power_options: str = "chosen") -> GroupTuner:
    """A tuner for the tasks that has learnt nothing yet."""
    return GroupTuner(tasks, {FILES: trace()}, seed, power_options)  # type: ignore[arg-type]


def run(
    tasks: Sequence[TaskSpec],
    rows: Sequence[tuple[float, Sequence[str], Sequence[str]]],
    end_s: float = 1e9,
    *,
    seed: int = 1,
    power_options: str = "chosen",
    power_caps_w: Sequence[tuple[float, float]] = (),
    decide_on: DecideOn = "all",
    **settings: Any,
) -> tuple[Recording, PowerRecord, GroupTuner]:
    """Replay tuned tasks; what was recorded, metered, and the tuner that learnt from it."""
    learning = tuner(tasks, seed, power_options)
    defaults = {"objective": as_given, "solver": "dp", "forward_time_s": 60.0}
    defaults["completions"] = "reported" if decide_on == "all" else "noticed"
    asked = Settings(**(defaults | settings))
    numbers, names = numbered(rows)
    recorder, meter = Recorder(), PowerMeter(asked.idle_node_w)
    allocator = Allocator(tasks, asked, names, tuner=learning)
    replay(numbers, end_s, allocator, power_caps_w=power_caps_w, observers=[recorder, meter])
    return recorder.recording, meter.record(), learning
