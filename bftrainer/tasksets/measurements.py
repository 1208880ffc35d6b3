"""Read measurements: throughputs, whose means are a scaling curve; and profiles of training runs."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bftrainer.errors import InvalidTaskError, add_place
from bftrainer.files.opening import one_line
from bftrainer.files.text_files import count_cell, number_cell, table_rows, toml_content
from bftrainer.model import ScalingCurve
from bftrainer.model.task import MOST_NODES
from bftrainer.model.type_checks import convert_fields, make_record, require


def read_throughput_csv(path: str | Path) -> ScalingCurve:
    """Curve through the means of measurements: rows of `nodes` and `throughput` (work/s), with counts in any order."""
    measured: dict[int, list[float]] = defaultdict(list)
    for where, row in table_rows(Path(path), ("nodes", "throughput"), InvalidTaskError):
        nodes = count_cell(where, "nodes", row["nodes"], InvalidTaskError, range(MOST_NODES + 1))
        throughput = number_cell(where, "throughput", row["throughput"], InvalidTaskError)
        if throughput < 0 or (nodes == 0) != (throughput == 0):
            got = f"{throughput:g} on {nodes}"
            raise InvalidTaskError(f"{where}: Expected throughput above 0, on 0 nodes 0, got {got}.")
        if nodes:
            measured[nodes].append(throughput)
    if not measured:
        raise InvalidTaskError(f"{path}: Expected at least one measurement on one node or more, got none.")
    counts = sorted(measured)
    means = (math.fsum(rate / len(measured[count]) for rate in measured[count]) for count in counts)
    return ScalingCurve((0, *counts), (0.0, *means))


_MOST = 10**9
"""Largest number of nodes, or of seconds: sums of such times in nanoseconds still fit."""
_MOST_SAMPLES = 1e15


@dataclass(frozen=True, slots=True)
class TrainingProfile:
    """Measured mean times of a training run: `InvalidTaskError` for numbers out of range.

    `iteration_s` is the time of an iteration on each number of nodes of `world_size`; the others are the times to form
    new pipelines, to write a checkpoint during training, and to load one.
    """

    world_size: tuple[int, ...]
    iteration_s: tuple[float, ...]
    reconfiguration_s: float
    checkpoint_s: float
    load_s: float = 0.0
    samples_per_iteration: float | None = None

    def __post_init__(self) -> None:
        convert_fields(self, InvalidTaskError)
        sizes, times, samples = self.world_size, self.iteration_s, self.samples_per_iteration
        require(
            InvalidTaskError,
            (len(sizes) > 0, "iteration times for at least one world size, got none"),
            (len(sizes) == len(times), f"as many iteration times as world sizes, got {len(times)} for {len(sizes)}"),
            (
                all(low < high for low, high in pairwise((0, *sizes, _MOST + 1))),
                f"world sizes that increase from 1 or more to at most {_MOST:g}, got {one_line(sizes)}",
            ),
            *(
                (1e-6 <= time_s < _MOST, f"1e-06 <= iteration_s at world size {size} < 1e9, got {time_s}")
                for size, time_s in zip(sizes, times, strict=False)
            ),
            *(
                (0.0 <= getattr(self, name) < _MOST, f"0 <= {name} < 1e9, got {getattr(self, name)}")
                for name in ("reconfiguration_s", "checkpoint_s", "load_s")
            ),
            (samples is None or 0 < samples <= _MOST_SAMPLES, f"0 < samples_per_iteration <= 1e15, got {samples}"),
        )

    def iteration_time_s(self, world_size: int) -> float:
        """Time of an iteration on any number of nodes from 1 on.

        Between profiled sizes it is linear in ``1 / size``; beyond them node-seconds per iteration are the same as at
        the nearest profiled size.
        """
        sizes, times = self.world_size, self.iteration_s
        at = bisect_left(sizes, world_size)
        if at < len(sizes) and sizes[at] == world_size:
            return times[at]
        if at in (0, len(sizes)):
            nearest = min(at, len(sizes) - 1)
            return times[nearest] * sizes[nearest] / world_size
        low, high = sizes[at - 1], sizes[at]
        share = (1 / low - 1 / world_size) / (1 / low - 1 / high)
        return times[at - 1] + share * (times[at] - times[at - 1])


def read_training_profile(path: str | Path) -> TrainingProfile:
    """Read a profile: a TOML file with the fields of `TrainingProfile` and ``schema = 1``."""
    path = Path(path)
    with add_place(path, InvalidTaskError):
        table = toml_content(path, InvalidTaskError)
        del table["schema"]
        return make_record(TrainingProfile, table, InvalidTaskError)
