"""Power limits measured while a run trains, and which of them is best."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from bftrainer.errors import MeasurementError
from bftrainer.files.documents import json_file
from bftrainer.files.writing import replacing
from bftrainer.zeus.master.meters import Meter

__all__ = ["PowerControl", "PowerProfiler", "ProfiledLimit", "best_limit", "read_profile", "write_profile"]

SCHEMA = 1


class PowerControl(Protocol):
    """Something whose power can be limited; `bftrainer.zeus.master.nvml.Gpus` can."""

    def candidate_limits_w(self) -> list[int]:
        """Power limits to try, from the highest down."""

    def set_limit_w(self, limit_w: float) -> None:
        """Limit the power."""


@dataclass(frozen=True, slots=True)
class ProfiledLimit:
    """What training does at one power limit.

    Parameters
    ----------
    limit_w : int
    power_w : float
        Average power.
    steps_per_s : float
        Steps (iterations) a second.

    Raises
    ------
    ValueError
        If a value is not finite and above 0, but for a power of 0.
    """

    limit_w: int
    power_w: float
    steps_per_s: float

    def __post_init__(self) -> None:
        if not (self.limit_w > 0 and 0 <= self.power_w < math.inf and 0 < self.steps_per_s < math.inf):
            raise ValueError(f"Expected a measured power limit, got {self}.")


def best_limit(limits: Sequence[ProfiledLimit], eta_knob: float, max_power_w: float) -> ProfiledLimit:
    """The limit at which a step costs least; of equal ones the highest.

    References
    ----------
    You et al., "Zeus", NSDI '23, equation 7.
    """
    ordered = sorted(limits, key=lambda each: -each.limit_w)
    return min(ordered, key=lambda each: (eta_knob * each.power_w + (1 - eta_knob) * max_power_w) / each.steps_per_s)


class PowerProfiler:
    """Tries power limits, one after the other, while steps go by.

    Parameters
    ----------
    control : PowerControl
        What limits power.
    meter : Meter
        What measures energy.
    clock : callable
        Gives seconds.
    warmup_steps, measured_steps : int
        Steps before and during the measurement of each limit.
    """

    def __init__(
        self, control: PowerControl, meter: Meter, clock: Callable[[], float], warmup_steps: int, measured_steps: int
    ) -> None:
        self._control, self._meter, self._clock = control, meter, clock
        self._warmup, self._measured = warmup_steps, measured_steps
        self._ahead = control.candidate_limits_w()
        self._steps = 0
        self._since = (0.0, 0.0)
        self.limits: list[ProfiledLimit] = []
        self._control.set_limit_w(self._ahead[0])

    @property
    def done(self) -> bool:
        """Whether all limits are measured."""
        return not self._ahead

    def step(self) -> None:
        """A step is about to begin, all earlier ones have ended."""
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
            self._control.set_limit_w(self._ahead[0])


def write_profile(path: Path, limits: Sequence[ProfiledLimit]) -> None:
    """Keep a profile for later runs."""
    with replacing(path) as stream:
        document = {"schema": SCHEMA, "limits": [asdict(each) for each in limits]}
        stream.write(f"{json.dumps(document, allow_nan=False)}\n".encode())


def read_profile(path: Path) -> list[ProfiledLimit] | None:
    """A profile that an earlier run kept; None if there is none that can be used, so that it is measured again."""
    try:
        document = json_file(path, MeasurementError)
        if document["schema"] != SCHEMA:
            return None
        limits = [ProfiledLimit(**each) for each in document["limits"]]
    except (MeasurementError, ValueError, TypeError, LookupError):
        return None
    return limits or None
