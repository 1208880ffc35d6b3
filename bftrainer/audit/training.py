"""Measured training runs, and what one run of a recurring job does at a batch size and a power limit.

Written from the published description (You et al., "Zeus", NSDI '23) and its tables alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.audit.inputs import table_rows, unpacked
from bftrainer.audit.parts import UnusableError

Job = tuple[str, str, str]


@dataclass(frozen=True)
class Point:
    """Time and power of an epoch at one power limit."""

    limit_w: int
    time_s: float
    power_w: float

    @property
    def energy_j(self) -> float:
        """Energy of an epoch."""
        return self.time_s * self.power_w


@dataclass(frozen=True)
class Measured:
    """What is known of a job: its power limits in file order and its runs' epochs (NaN: never), by batch size."""

    points: dict[int, list[Point]]
    epochs: dict[int, list[float]]
    max_power_w: int

    def highest_first(self, size: int) -> list[Point]:
        """Power limits of a batch size, from the highest down."""
        return sorted(self.points[size], key=lambda point: -point.limit_w)

    def chosen(self, size: int, eta: float) -> Point:
        """The limit whose epoch costs least; of equal ones the highest."""
        points = self.highest_first(size)
        full_w = points[0].limit_w
        return min(points, key=lambda point: (eta * point.power_w + (1.0 - eta) * full_w) * point.time_s)

    def pareto(self, size: int) -> list[Point]:
        """Limits that no other beats in both time and energy of an epoch, from the highest down."""
        points = self.highest_first(size)
        return [
            point
            for point in points
            if not any(
                (other.time_s, other.energy_j) != (point.time_s, point.energy_j)
                and other.time_s <= point.time_s
                and other.energy_j <= point.energy_j
                for other in points
            )
        ]

    def profiling(self, size: int) -> tuple[float, float]:
        """Energy and time of the epoch that tries all limits: their means, a row of the joined table each."""
        repeated = self.points[size] * len(self.epochs[size])
        return float(np.mean([p.energy_j for p in repeated])), float(np.mean([p.time_s for p in repeated]))


class Tables:
    """The training runs and the power measurements of two files, joined by the columns that both have."""

    def __init__(self, train: Path, power: Path) -> None:
        runs, points = list(table_rows(unpacked(train))), list(table_rows(unpacked(power)))
        if not runs or not points:
            raise UnusableError(f"{train}, {power}: Expected rows in both")
        shared = [name for name in runs[0] if name in points[0]]
        measured: dict[tuple[object, ...], list[Point]] = defaultdict(list)
        for row in points:
            point = Point(int(float(row["power_limit"])), float(row["time_per_epoch"]), float(row["average_power"]))
            measured[_key(row, shared)].append(point)
        self._points: dict[Job, dict[int, list[Point]]] = defaultdict(dict)
        self._epochs: dict[tuple[Job, float], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in runs:
            key = _key(row, shared)
            if key in measured:
                job, size = (
                    (row["dataset"].strip(), row["network"].strip(), row["optimizer"].strip()),
                    row["batch_size"],
                )
                self._points[job][int(float(size))] = measured[key]
                target = float(row["target_metric"])
                self._epochs[job, target][int(float(size))].append(_epochs(row["target_epoch"]))
        limits = [p.limit_w for sizes in self._points.values() for each in sizes.values() for p in each]
        self._max_power_w = max(limits, default=0)

    def of(self, section: dict[str, Any]) -> Measured:
        """What is known of the job of a zeus section."""
        job = (section["dataset"], section["network"], section["optimizer"])
        if job not in self._points:
            raise UnusableError(f"Expected {','.join(job)} in the training traces")
        runs = self._epochs[job, float(section["target_metric"])]
        points = self._points[job]
        return Measured(
            {size: points[size] for size in sorted(points)},
            {size: list(runs.get(size, ())) for size in points},
            self._max_power_w,
        )


def _epochs(cell: str) -> float:
    return math.nan if cell.strip().lower() in ("", "nan", "na", "n/a", "<na>", "null", "none") else float(cell)


def _key(row: dict[str, str], shared: list[str]) -> tuple[object, ...]:
    return tuple(_comparable(row[name]) for name in shared)


def _comparable(cell: str) -> object:
    try:
        number = float(cell)
    except ValueError:
        return cell.strip()
    return "nan" if math.isnan(number) else number


def cost_j(energy_j: float, time_s: float, eta: float, power_w: float) -> float:
    """What a run costs: energy, and time at full power, weighed against each other."""
    return eta * energy_j + (1.0 - eta) * power_w * time_s
