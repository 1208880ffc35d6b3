"""Spot event traces: rows of milliseconds, add or remove, and a node."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from bftrainer.model.availability import NO_TIME
from bftrainer.nodelogs.spot_trace import read_spot_trace
from bftrainer.schedulers.reading import Reading

__all__ = ["SpotImporter"]

_ROW = re.compile(r"\d+\s*,\s*(add|remove)\s*,\s*\S+\s*", re.ASCII)


class SpotImporter:
    """Nodes are idle from their addition to their removal.

    References
    ----------
    Thorpe et al., "Bamboo: Making Preemptible Instances Resilient for Affordable Training of Large DNNs", NSDI 2023:
    the published traces are of this form.
    """

    name: ClassVar[str] = "spot"
    needs_window: ClassVar[bool] = False
    is_availability: ClassVar[bool] = True

    def recognises(self, lines: Sequence[str]) -> bool:
        """A first row of three columns, the second of which says add or remove."""
        return bool(lines) and _ROW.fullmatch(lines[0]) is not None

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files, one after the other."""
        log = read_spot_trace(*paths, start_ns=reading.origin_ns())
        without = log.provenance[NO_TIME]
        reading.tally.drop("node added and removed in the same millisecond", 2 * without["stays"])
        reading.tally.drop("node removed and added in the same millisecond", 2 * without["absences"])
        reading.take_presence(log, log.nodes, records=log.time_ns.size + 2 * sum(without.values()))
