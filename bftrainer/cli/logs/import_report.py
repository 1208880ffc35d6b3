"""The data quality of an imported log as a table."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from bftrainer.cli._shared.rows import duration, percent, write_rows

if TYPE_CHECKING:
    from bftrainer.schedulers.import_report import DataQuality

__all__ = ["write_quality"]

_BUSY = {"job": "jobs", "down": "down", "reserved": "reserved", "unknown": "unknown", "away": "away"}


def write_quality(quality: DataQuality, out: IO[str]) -> None:
    """Write what became of a log's records to `out`."""
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
        ("idle", f"{percent(quality.idle_share)}, {quality.idle_node_s / 3600:,.1f} node-hours"),
        ("overlap factor", "-" if quality.overlap_factor is None else f"{quality.overlap_factor:.3f}"),
        ("over capacity", _over_capacity(quality)),
        *((("notes" if number == 0 else ""), note) for number, note in enumerate(quality.notes)),
    ]
    write_rows(title, rows, out)


def _unusable(quality: DataQuality) -> str | None:
    if not quality.bad:
        return None
    share = percent(quality.bad / quality.records)
    return f"{quality.bad:,} ({share}), the first: {quality.bad_examples[0]}"


def _nodes(quality: DataQuality) -> str:
    if quality.over_capacity_share is not None:
        return f"{quality.nodes:,}, which the log does not name"
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
    hours = ", ".join(f"{_BUSY[kind]} {node_s / 3600:,.1f}" for kind, node_s in quality.busy_node_s.items())
    return f"{percent(1 - quality.idle_share)}" + (f" (node-hours: {hours})" if hours else "")


def _over_capacity(quality: DataQuality) -> str:
    share = quality.over_capacity_share
    return "-" if share is None else f"{100 * share:.4g} % of the window"
