"""Cobalt's accounting logs: lines as PBS writes them, more types of them, and locations in place of hosts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from bftrainer.errors import HostlistError
from bftrainer.nodelogs.intervals import OPEN_START_NS
from bftrainer.schedulers.busy_book import Kind
from bftrainer.schedulers.formats.accounting import LINE, Entry, entries, in_order_of_time
from bftrainer.schedulers.formats.locations import located
from bftrainer.schedulers.formats.runs import (
    NO_RUN,
    RESERVATION,
    UNDATED,
    NodeList,
    Run,
    Runs,
    end_run,
    interrupt_run,
    kind_of,
    occupy,
    start_run,
)
from bftrainer.schedulers.reading import Reading

__all__ = ["CobaltImporter"]

_DOWN = "down "
_OWN_TYPES = frozenset({"NU", "ND", "TS", "TE", "QA", "HA", "HR", "YA"})


class CobaltImporter:
    """Runs as in PBS; nodes that go down (`ND`) and come up (`NU`).

    References
    ----------
    Cobalt, https://github.com/ido/cobalt: `src/lib/accounting.py` lists the types of records and their fields.
    """

    name: ClassVar[str] = "cobalt"
    needs_window: ClassVar[bool] = False
    is_availability: ClassVar[bool] = False

    def recognises(self, lines: Sequence[str]) -> bool:
        """Lines as of PBS, some of a type that only Cobalt has, or with a host list without slots."""
        found = [match for match in map(LINE.fullmatch, lines) if match is not None]
        if any(match[5] in _OWN_TYPES for match in found):
            return True
        texts = [match[7] or "" for match in found if match[5] in ("S", "E")]
        hosts = [word for text in texts for word in text.split() if word.startswith("exec_host=")]
        return bool(hosts) and not any("/" in host for host in hosts)

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files in the order of their first lines."""
        runs = Runs(reading, lambda fields: _node_list(fields, reading))
        switched: set[str] = set()
        for entry in entries(in_order_of_time(paths), reading):
            try:
                _take(entry, runs, switched)
            except HostlistError as fault:
                reading.refuse("unreadable node list", entry.block, entry.at, str(fault))
        going_on = runs.end_all(lambda name: Kind.DOWN if name.startswith(_DOWN) else kind_of(name))
        if going_on:
            reading.note(f"{going_on:,} runs have no end in the log: their nodes are busy to the end of the window.")


def _take(entry: Entry, runs: Runs, switched: set[str]) -> None:
    """Let a line begin or end a run, or a node's downtime."""
    if entry.type == "E":
        end_run(entry, runs)
    elif entry.type == "S":
        start_run(entry, runs)
    elif entry.type in ("R", "C"):
        interrupt_run(entry, runs)
    elif entry.type in ("ND", "NU"):
        _switch(entry, runs, switched)
    elif entry.type in ("B", "F", "K", "k") and runs.reading.settings.reserved_busy:
        occupy(entry, runs, RESERVATION, "B")
    else:
        # Aborting (A) announces an end, as deleting does; tasks (TS, TE) run on their job's nodes.
        runs.reading.tally.drop(NO_RUN)


def _switch(entry: Entry, runs: Runs, switched: set[str]) -> None:
    """ND: nodes go down. NU: they are up again; those of which the log tells nothing before were down until then."""
    fields, book = entry.fields(), runs.reading.book
    at = runs.moment_ns(entry)
    if at is None:
        runs.reading.tally.drop(UNDATED)
        return
    for node in located(_location(fields) or entry.id):
        name = f"{_DOWN}{node}"
        nodes = book.nodes(node, lambda text: (text,)), Kind.DOWN
        if entry.type == "ND":
            if name not in runs.open:
                runs.begin(name, Run(at, nodes))
        elif not runs.close(name, at, Kind.DOWN) and node not in switched:
            runs.write(name, OPEN_START_NS, at, nodes, -1, Kind.DOWN)
        switched.add(node)


def _location(fields: dict[str, str]) -> str:
    return next((fields[key] for key in ("exec_host", "location", "nodes") if fields.get(key)), "")


def _node_list(fields: dict[str, str], reading: Reading) -> NodeList | None:
    """Nodes of a line."""
    node_set = reading.book.nodes(_location(fields), located)
    return (node_set, Kind.JOB) if reading.book.size(node_set) else None
