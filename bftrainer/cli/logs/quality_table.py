"""Print the data quality of an import as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

from bftrainer.cli._shared.stdio import duration, write_rows
from bftrainer.report.glossary import format_value

if TYPE_CHECKING:
    from bftrainer.schedulers.data_quality import DataQuality


def write_quality(quality: DataQuality, out: IO[str]) -> None:
    """Write the data quality of an import to `out`."""
    title = f"Import of {quality.format}: {quality.records:,} records read, {quality.kept:,} kept"
    rows = [
        ("dropped", ", ".join(f"{count:,} {reason}" for reason, count in quality.dropped.items()) or "none"),
        ("duplicates", f"{quality.duplicates:,}"),
        ("unusable", _unusable(quality)),
        ("nodes unknown", f"{quality.unknown:,} records; their nodes count as busy" if quality.unknown else None),
        ("outside the window", f"{quality.outside_window:,}" if quality.outside_window else None),
        ("window", f"{quality.window_start[:19]} to {quality.window_end[:19]} UTC, {duration(quality.window_s)}"),
        ("zone", quality.zone or "not needed"),
        ("nodes", _nodes(quality)),
        ("not in the inventory", _outside(quality)),
        ("busy", _busy(quality)),
        ("idle", f"{format_value(quality.idle_share, 'share')}, {quality.idle_node_s / 3600:,.1f} node-hours"),
        ("idle, whole nodes", _whole_nodes(quality)),
        *(("  " + name, _group(figures)) for name, figures in quality.by.items()),
        ("overlap factor", "-" if quality.overlap_factor is None else f"{quality.overlap_factor:.3f}"),
        ("over capacity", _over_capacity(quality)),
        *((("notes" if number == 0 else ""), note) for number, note in enumerate(quality.notes)),
    ]
    write_rows(title, rows, out)


def _unusable(quality: DataQuality) -> str | None:
    if not quality.bad:
        return None
    share = format_value(quality.bad / quality.records, "share")
    return f"{quality.bad:,} ({share}), the first: {quality.bad_examples[0]}"


def _nodes(quality: DataQuality) -> str:
    if quality.over_capacity_share is not None:
        blocks = f" blocks of {quality.nodes_per_block:,} nodes" if quality.nodes_per_block > 1 else ""
        return f"{quality.nodes:,}{blocks}, which the log does not name"
    if quality.unit != "node":
        return f"{quality.nodes:,} {quality.unit}s, on {quality.nodes_seen:,} nodes that the log names and others"
    text = f"{quality.nodes:,}, of them {quality.nodes_seen:,} named by the log"
    return text + (
        f"; {quality.nodes_unseen:,} that it never names are {quality.unseen}" if quality.nodes_unseen else ""
    )


def _outside(quality: DataQuality) -> str | None:
    if not quality.nodes_outside:
        return None
    more = quality.nodes_outside - len(quality.outside_examples)
    tail = f" and {more:,} more" if more else ""
    return f"{quality.nodes_outside:,} nodes, left out: {', '.join(quality.outside_examples)}{tail}"


def _busy(quality: DataQuality) -> str:
    hours = ", ".join(f"{cause_name(kind)} {node_s / 3600:,.1f}" for kind, node_s in quality.busy_node_s.items())
    return f"{format_value(1 - quality.idle_share, 'share')}" + (f" (node-hours: {hours})" if hours else "")


def _group(figures: Mapping[str, Any]) -> str:
    share, holes = format_value(figures["idle_share"], "share"), figures["holes"]
    lengths = f", {duration(figures['hole_mean_s'])} long on average" if holes else ""
    return f"{share} idle of {figures['nodes']:,}, {holes:,} intervals{lengths}"


def _whole_nodes(quality: DataQuality) -> str | None:
    if quality.whole_idle_share is None:
        return None
    return f"{format_value(quality.whole_idle_share, 'share')}; the figures above are those of {quality.unit}s"


def cause_name(kind: str) -> str:
    """A cause for which nodes are not idle, for people."""
    return "jobs" if kind == "job" else kind.replace("_", " ")


def _over_capacity(quality: DataQuality) -> str:
    share = quality.over_capacity_share
    return "-" if share is None else f"{100 * share:.4g} % of the window"
