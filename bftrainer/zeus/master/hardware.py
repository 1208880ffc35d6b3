"""What trains, and how much power it may draw."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bftrainer.errors import MeasurementError
from bftrainer.extras import EXTRAS, absent, missing_extra, require_extra
from bftrainer.files.documents import json_file
from bftrainer.files.writing import replacing
from bftrainer.zeus.master.nvml import Gpus, found_gpus

__all__ = ["LIMITS", "Hardware", "find_hardware", "restoring_limits"]

LIMITS = "power-limits.json"


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a run trains on.

    Parameters
    ----------
    max_power_w : float
        Highest power of one GPU, or of the machine if it has none.
    count : int
        How many GPUs, 1 for a machine without.
    gpus : Gpus or None
        Those that NVML found.
    """

    max_power_w: float
    count: int
    gpus: Gpus | None

    @property
    def model(self) -> str:
        """What it is: the GPUs' models, or the processor's architecture."""
        return ", ".join(self.gpus.models) if self.gpus is not None else platform.machine() or "unknown"

    @property
    def total_power_w(self) -> float:
        """Highest power of all."""
        return self.max_power_w * self.count

    def check_limits(self) -> None:
        """Find out whether power limits can be set, by setting those that there are.

        Raises
        ------
        MeasurementError
            If there is no GPU, or that is not allowed.
        """
        if self.gpus is None:
            require_extra("Power limits need", "gpu", error=MeasurementError)
            raise MeasurementError("Expected a GPU whose power can be limited, found none.")
        self.gpus.set_limits_w(self.gpus.limits_w())


def find_hardware(
    max_power_w: float | None,
    count: int | None,
    *,
    allow_mixed: bool = False,
    find: Callable[[], Gpus | None] = found_gpus,
) -> Hardware:
    """What a run trains on, as far as it is not said.

    Parameters
    ----------
    max_power_w : float or None
        Highest power of one GPU; None: as NVML says.
    count : int or None
        GPUs of a run; None: those that NVML finds, else 1.
    allow_mixed : bool
        Whether GPUs may be of several models.
    find : callable
        Finds them.

    Raises
    ------
    MeasurementError
        If the power is neither said nor found, there are fewer GPUs, or they are of several models and must not be.
    """
    gpus = find()
    if gpus is not None:
        gpus = gpus if count is None else gpus.first(count)
        if len(gpus.models) > 1 and not allow_mixed:
            raise MeasurementError(
                f"Expected GPUs of one model, got {', '.join(gpus.models)}; choose some, or allow mixed ones."
            )
    elif max_power_w is None:
        missing = absent(*EXTRAS["gpu"])
        hint = f" {missing_extra('To find GPUs takes', 'gpu', missing)}." if missing else ""
        raise MeasurementError(
            f"Expected the highest power in watts (max_power_w, --max-power), as no GPU was found that tells it.{hint}"
        )
    power = gpus.max_power_w if max_power_w is None and gpus is not None else max_power_w
    assert power is not None  # one of the two says it
    return Hardware(float(power), count or (len(gpus) if gpus is not None else 1), gpus)


@contextmanager
def restoring_limits(logdir: Path, gpus: Gpus | None) -> Iterator[Callable[[], None]]:
    """Give GPUs back the power limits that they had at the beginning; at the end, and when called.

    A script that is killed leaves the limit that it set, and so does a master: meanwhile the limits are kept in a file.

    Raises
    ------
    MeasurementError
        If they cannot be set.
    """
    if gpus is None:
        yield lambda: None
        return
    path, before = logdir / LIMITS, gpus.limits_w()
    if path.exists():
        before = _kept(path, len(gpus))
    else:
        with replacing(path) as stream:
            stream.write(f"{json.dumps(before)}\n".encode())

    def restore() -> None:
        """Set what is not as it was."""
        if gpus.limits_w() != before:
            gpus.set_limits_w(before)

    try:
        yield restore
    finally:
        restore()
        # What somebody else sets from now on is not to be undone by the next run.
        path.unlink(missing_ok=True)


def _kept(path: Path, count: int) -> list[float]:
    try:
        limits = [float(limit) for limit in json_file(path, MeasurementError)]
    except (ArithmeticError, ValueError, TypeError) as fault:
        raise MeasurementError(f"{path}: Expected power limits in watts, got something else ({fault}).") from None
    if len(limits) != count:
        raise MeasurementError(f"{path}: Expected the power limits of {count} GPUs, got {len(limits)}.")
    return limits
