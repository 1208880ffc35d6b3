"""The account of an import: what was read, left out, trusted and assumed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from bftrainer.errors import SettingsError
from bftrainer.files.writing import replacing
from bftrainer.model import NS_PER_S, NodeLog, iso
from bftrainer.nodelogs.node_spans import Window
from bftrainer.schedulers.coverage import Coverage
from bftrainer.schedulers.idle_spans import Swept
from bftrainer.schedulers.reading import Importer, Reading
from bftrainer.schedulers.selected_nodes import NodeChoice

DUPLICATE = "duplicate"
_EXAMPLES = 10


class DataQuality(SimpleNamespace):
    """Quality of an imported log: the figures that docs/import.md describes, "The account", as attributes."""

    def summary(self) -> dict[str, Any]:
        """The figures as plain data for JSON."""
        return dict(vars(self))


@dataclass(slots=True, eq=False)
class SweptLog:
    """Result of a log's line sweep, with its window and nodes."""

    window: Window
    chosen: NodeChoice
    swept: Swept
    coverage: Coverage | None
    jobs: pd.DataFrame
    outside: int
    unknown: int = 0
    whole_idle_share: float | None = None
    over_capacity_share: float | None = None
    block: int = 1
    runaways: int = 0
    runaway_share: float = 0.0

    @property
    def busy_node_s(self) -> dict[str, float]:
        """Node-seconds of the machine that were not idle, by cause."""
        return {name: node_s * self.block for name, node_s in sorted(self.swept.busy_node_s.items())}


def idle_share(swept: Swept, window: Window) -> float:
    """Share of the nodes' time in a window that was idle, without the time in which they were not there."""
    there_s = swept.away_s.size * window.length_ns / NS_PER_S - float(swept.away_s.sum())
    return swept.idle.node_s / there_s if there_s else 0.0


def _idle_figures(result: SweptLog, members: Sequence[str]) -> dict[str, float | None]:
    """Number, idle share and idle intervals of some nodes; times in seconds, of intervals within the window."""
    wanted, swept = set(members), result.swept
    is_member = np.array([name in wanted for name in result.chosen.names], dtype=np.bool_)
    spans = swept.idle.where(is_member[swept.idle.node])
    lengths_s = (spans.end_ns - spans.start_ns) / NS_PER_S
    return {
        "nodes": len(wanted),
        "idle_share": idle_share(replace(swept, idle=spans, away_s=swept.away_s[is_member]), result.window),
        "idle_node_s": spans.node_s,
        "holes": len(spans),
        "hole_mean_s": float(lengths_s.mean()) if len(spans) else None,
        "hole_median_s": float(np.median(lengths_s)) if len(spans) else None,
    }


def _groups(result: SweptLog, reading: Reading) -> dict[str, dict[str, Any]]:
    """Idle time of each partition, or of each type of nodes."""
    by, chosen = reading.settings.by, result.chosen
    if by is None:
        return {}
    groups = chosen.partitions if by == "partition" else chosen.types
    if not groups:
        raise SettingsError(f"--by {by}: neither the log nor --nodes tells the {by} of nodes.")
    return {name: _idle_figures(result, some) for name, some in groups.items()}


def make_quality(
    importer: Importer, reading: Reading, result: SweptLog, log: NodeLog, trust: Mapping[str, Any] | None
) -> DataQuality:
    """The account of an import that made `log`; `trust` says what of it can be trusted."""
    tally, chosen, swept = reading.tally, result.chosen, result.swept
    dropped = dict(tally.dropped.most_common())
    return DataQuality(
        format=importer.name,
        records=tally.records,
        kept=tally.records - tally.dropped.total(),
        outside_window=result.outside,
        dropped=dropped,
        bad=tally.bad,
        bad_examples=tuple(tally.examples),
        duplicates=dropped.get(DUPLICATE, 0),
        unknown=result.unknown,
        nodes_per_block=result.block,
        nodes=len(log.nodes),
        nodes_seen=chosen.seen,
        nodes_unseen=chosen.unseen,
        unseen=chosen.unseen_are,
        nodes_outside=len(chosen.outside),
        outside_examples=chosen.outside[:_EXAMPLES],
        window_start=iso(log.start_ns),
        window_end=iso(log.end_ns),
        window_s=log.window_s,
        zone=reading.clock.zone,
        coverage=trust,
        busy_node_s=result.busy_node_s,
        idle_node_s=swept.idle.node_s * result.block,
        idle_share=idle_share(swept, result.window),
        away_node_s=float(swept.away_s.sum()),
        by=_groups(result, reading),
        unit=reading.settings.unit,
        whole_idle_share=result.whole_idle_share,
        overlap_factor=swept.overlap_factor,
        over_capacity_share=result.over_capacity_share,
        notes=tuple(reading.notes),
    )


def quality_path(path: Path) -> Path:
    """Path of a node log's data quality: `idle.quality.json` for `idle.parquet` and `idle.csv.gz`."""
    return path.parent / f"{path.name.removesuffix('.gz').rpartition('.')[0]}.quality.json"


def write_quality_json(path: Path, quality: DataQuality) -> None:
    """Write the data quality as JSON."""
    with replacing(path) as stream:
        stream.write((json.dumps(quality.summary(), indent=1) + "\n").encode())
