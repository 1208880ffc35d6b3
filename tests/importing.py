"""What tests of importers share: a reading's records and a node log's idle intervals as plain rows."""

from pathlib import Path
from typing import Any

from bftrainer.model import NodeLog
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS, idle_spans
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.import_log import Imported, import_log
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.schedulers.reading import Reading, get_importer

NS = 10**9
OPEN_START, OPEN_END = float("-inf"), float("inf")


def records_of(reading: Reading, origin_s: int = 0) -> list[tuple[str, float, float, BusyKind]]:
    """Nodes (between commas), start, end and kind of each record, in seconds from `origin_s`."""
    records = reading.rows.records()
    rows = []
    for at in range(len(records)):
        some = records.set_nodes[records.set_ends[records["nodes"][at]] : records.set_ends[records["nodes"][at] + 1]]
        start, end = int(records["start_ns"][at]), int(records["end_ns"][at])
        rows.append(
            (
                ",".join(records.names[node] for node in some),
                OPEN_START if start == OPEN_START_NS else start / NS - origin_s,
                OPEN_END if end == OPEN_END_NS else end / NS - origin_s,
                BusyKind(records["kind"][at]),
            )
        )
    return rows


def read_text(
    name: str, path: Path, text: str, origin_s: int = 0, **settings: Any
) -> tuple[Reading, list[tuple[str, float, float, BusyKind]]]:
    """The reading of a file with this text, and its records; `max_bad` is 1 unless the settings say otherwise."""
    path.write_text(text)
    reading = Reading(ImportSettings(**({"max_bad": 1.0} | settings)))
    get_importer(name).read([path], reading)
    return reading, records_of(reading, origin_s)


def import_text(path: Path, name: str, *texts: str, **settings: Any) -> Imported:
    """The import of files with these texts; a setting of several lines is what a file beside them holds."""
    paths = [path.with_stem(f"{path.stem}{number or ''}") for number in range(len(texts))]
    for some, text in zip(paths, texts, strict=True):
        some.write_text(text)
    for key, text in settings.items():
        if "\n" in str(text):
            (path.parent / key).write_text(text)
            settings[key] = str(path.parent / key) if key == "nodes" else (path.parent / key,)
    return import_log(name, paths, ImportSettings(**settings))


def idle_of(log: NodeLog, origin_s: float = 0.0, unit_s: float = 1.0) -> dict[str, list[tuple[float, float]]]:
    """Idle intervals by node, in units from `origin_s`."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in log.nodes}
    spans = idle_spans(log)
    for node, start, end in zip(spans.node.tolist(), spans.start_ns.tolist(), spans.end_ns.tolist(), strict=True):
        found[log.nodes[node]].append(((start / NS - origin_s) / unit_s, (end / NS - origin_s) / unit_s))
    return found
