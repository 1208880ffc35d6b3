"""What a run of a training script reports: `train.json`."""

from __future__ import annotations

import json
import math
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bftrainer.errors import TrainingReportError
from bftrainer.files.documents import parsed_json
from bftrainer.files.opening import one_line
from bftrainer.files.writing import replacing

__all__ = ["TrainingReport", "read_report", "write_report"]

# A report has a handful of numbers; what is larger is something else.
MOST_BYTES = 1 << 20
# Joules, and seconds: years of a power station. Costs of such reports can still be squared and added up.
MOST_AMOUNT = 1e18


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """Energy, time and verdict of one run.

    Parameters
    ----------
    energy_j, time_s : float
        Used by the run.
    reached : bool
        Whether it reached its target.

    Raises
    ------
    TrainingReportError
        If energy or time is negative, not finite, or more than any run can use.
    """

    energy_j: float
    time_s: float
    reached: bool

    def __post_init__(self) -> None:
        for name, value in (("energy", self.energy_j), ("time", self.time_s)):
            if not (value >= 0 and math.isfinite(value)):
                raise TrainingReportError(f"Expected {name} to be a finite number of 0 or more, got {value}.")
            if value > MOST_AMOUNT:
                raise TrainingReportError(f"Expected {name} to be at most {MOST_AMOUNT:g}, got {value}.")


def read_report(path: Path) -> TrainingReport:
    """The report in a file; numbers may be text, and so may the verdict, of which only "true" is one.

    Raises
    ------
    TrainingReportError
        Naming file and key, if there is no such file, or it holds something else.
    """
    try:
        with open(path, "rb", opener=_opened) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise TrainingReportError(f"{path}: Expected a file, got something else.")
            text = stream.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise TrainingReportError(f"{path} does not exist.") from None
    except OSError as cause:
        raise TrainingReportError(f"{path}: {cause.strerror or cause}.") from None
    if len(text) > MOST_BYTES:
        raise TrainingReportError(f"{path}: Expected a report of at most {MOST_BYTES:,} bytes, got a larger file.")
    document = parsed_json(path, text, TrainingReportError)
    if not isinstance(document, dict):
        raise TrainingReportError(f"{path}: Expected an object, got {one_line(document)}.")
    try:
        return TrainingReport(_number(document, "energy"), _number(document, "time"), _verdict(document))
    except TrainingReportError as fault:
        raise TrainingReportError(f"{path}: {fault}") from None


def write_report(path: Path, report: TrainingReport, **more: Any) -> None:
    """Write a report, whole or not at all; `more` are further keys, which the master does not read."""
    document = {"energy": report.energy_j, "time": report.time_s, "reached": report.reached} | more
    with replacing(path) as stream:
        stream.write(f"{json.dumps(document, allow_nan=False)}\n".encode())


def _opened(path: str, flags: int) -> int:
    """Open without waiting for a writer, which a pipe may never get."""
    return os.open(path, flags | os.O_NONBLOCK)


def _number(document: dict[str, Any], key: str) -> float:
    value = _there(document, key)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TrainingReportError(f"Expected {key} to be a number, got {one_line(value)}.")
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise TrainingReportError(f"Expected {key} to be a number, got {one_line(repr(value))}.") from None


def _verdict(document: dict[str, Any]) -> bool:
    value = _there(document, "reached")
    if not isinstance(value, bool | str):
        raise TrainingReportError(f"Expected reached to be true or false, got {one_line(value)}.")
    return value if isinstance(value, bool) else value.lower() == "true"


def _there(document: dict[str, Any], key: str) -> Any:
    if key not in document:
        raise TrainingReportError(f"Missing key {key!r}.")
    return document[key]
