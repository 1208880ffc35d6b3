"""Import traces of available nodes: node counts over time, and spot nodes that are added and removed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from bftrainer.errors import NodeLogError, SettingsError
from bftrainer.nodelogs.availability import COUNT_COLUMNS, read_count_trace, read_spot_trace
from bftrainer.nodelogs.availability_trace import NO_TIME
from bftrainer.schedulers.reading import Importer, Reading
from bftrainer.schedulers.selected_nodes import count_nodes

_PLACEMENT = (
    "last in, first out: the trace has no node names. "
    "Idle counts are exact, which nodes are idle and for how long at a stretch is not."
)
_ROW = re.compile(r"\d+\s*,\s*(add|remove)\s*,\s*\S+\s*", re.ASCII)


class CountsImporter(Importer):
    """Rows `timestamp,count`, each of which says that many nodes are idle from then on."""

    name: ClassVar[str] = "counts"
    is_availability: ClassVar[bool] = True

    def recognises(self, lines: Sequence[str]) -> bool:
        """A header with the columns timestamp and count."""
        return bool(lines) and set(COUNT_COLUMNS) <= {name.strip('" ') for name in lines[0].split(",")}

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files, one after the other."""
        trace = read_count_trace(*paths)
        most = int(trace.count.max())
        if most == 0:
            raise NodeLogError(f"{paths[0]}: Expected counts of nodes above 0, got none.")
        names = count_nodes(reading.settings.nodes, most).names  # the first ones come first and stay longest
        if len(names) < most:
            raise SettingsError(
                f"Expected --nodes with {most:,} nodes or more, as many as were counted, got {len(names):,}."
            )
        reading.take_presence(trace.log(), names, records=trace.count.size)
        reading.placement = _PLACEMENT
        reading.note("the trace names no nodes: idle counts are exact, lengths of idle fragments are not.")


class SpotImporter(Importer):
    """Nodes are idle from their addition to their removal.

    References
    ----------
    Thorpe et al., "Bamboo: Making Preemptible Instances Resilient for Affordable Training of Large DNNs", NSDI 2023:
    the published traces are of this form.
    """

    name: ClassVar[str] = "spot"
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
        reading.take_presence(log, log.nodes, records=log.node.size + 2 * sum(without.values()))
