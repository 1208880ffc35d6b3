"""Rows of sacct with pseudonyms for jobs, nodes, users and all else that has a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from bftrainer.errors import HostlistError
from bftrainer.traces.anonymise import Pseudonyms
from bftrainer.traces.hostlist import expanded, known_part
from bftrainer.traces.log_files import Block, line_blocks
from bftrainer.traces.slurm import Layout, is_header, layout_of
from bftrainer.traces.writing import replacing

__all__ = ["AnonymousRows", "anonymise_sacct"]

_PLAIN = frozenset(
    {
        "elapsed",
        "elapsedraw",
        "suspended",
        "timelimit",
        "timelimitraw",
        "nnodes",
        "ncpus",
        "reqcpus",
        "alloccpus",
        "ntasks",
    }
    | {
        "exitcode",
        "derivedexitcode",
        "reqmem",
        "alloctres",
        "reqtres",
        "allocnodes",
        "reqnodes",
        "priority",
        "restarts",
    }
)
_TIMES = frozenset({"start", "end", "submit", "eligible"})
_NAMES = {
    "account": "account",
    "cluster": "cluster",
    "gid": "group",
    "group": "group",
    "jobname": "jobname",
    "partition": "partition",
    "qos": "qos",
    "uid": "user",
    "user": "user",
}
_NUMBER = re.compile(r"\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class AnonymousRows:
    """What became of a table.

    Parameters
    ----------
    rows : int
        Rows written.
    dropped : int
        Rows left out because they are malformed.
    columns : tuple of str
        Columns left out, as nothing is known of what they tell.
    """

    rows: int
    dropped: int
    columns: tuple[str, ...]


def anonymise_sacct(
    source: Path, target: Path, names: Pseudonyms, shift_s: int = 0, columns: Sequence[str] | None = None
) -> AnonymousRows:
    """Write a table of sacct in which nothing has its name, under a header.

    Numbers of jobs keep what they say of arrays, steps and heterogeneous jobs; of states the first word is kept.

    Parameters
    ----------
    source, target : Path
    names : Pseudonyms
    shift_s : int
        Added to all times.
    columns : sequence of str, optional
        Names of columns, if there is no header.

    Raises
    ------
    LogError, SettingsError
        If the source is no such table.
    OutputError
        If the target cannot be written.
    """
    rows = dropped = 0
    layout: Layout | None = None
    rules: list[tuple[int, Callable[[str], str]]] = []
    with replacing(target) as stream:
        for block in line_blocks(source):
            if layout is None:
                layout = layout_of(block, columns)
                rules = _rules(layout.names, names, shift_s)
                stream.write(("|".join(layout.names[at] for at, _ in rules) + "\n").encode())
            lines, bad = _lines(block, layout, rules)
            stream.writelines(lines)
            rows, dropped = rows + len(lines), dropped + bad
    known = {at for at, _ in rules}
    left_out = () if layout is None else tuple(name for at, name in enumerate(layout.names) if at not in known)
    return AnonymousRows(rows, dropped, left_out)


def _lines(block: Block, layout: Layout, rules: Sequence[tuple[int, Callable[[str], str]]]) -> tuple[list[bytes], int]:
    """Rows of a block as they are written, and how many were malformed."""
    lines, bad = [], 0
    for line in block.lines:
        if not line or is_header(line):
            continue
        fields = layout.split(line)
        try:
            if len(fields) != layout.count:
                raise ValueError
            lines.append(("|".join(rule(fields[at]) for at, rule in rules) + "\n").encode())
        except (HostlistError, ValueError, OverflowError):
            bad += 1
    return lines, bad


def _rules(columns: Sequence[str], names: Pseudonyms, shift_s: int) -> list[tuple[int, Callable[[str], str]]]:
    """What becomes of each column that is kept."""
    rules: list[tuple[int, Callable[[str], str]]] = []
    for at, column in enumerate(columns):
        name = column.lower()
        if name in ("jobid", "jobidraw"):
            rules.append((at, lambda text: _NUMBER.sub(lambda found: names.number("job", found[0]), text, count=1)))
        elif name == "state":
            rules.append((at, lambda text: text.partition(" ")[0]))
        elif name == "nodelist":
            rules.append((at, lambda text: _nodes(text, names)))
        elif name in _TIMES:
            rules.append((at, lambda text: _shifted(text, shift_s)))
        elif name in _NAMES:
            rules.append((at, partial(_pseudonym, names, _NAMES[name])))
        elif name in _PLAIN:
            rules.append((at, lambda text: text))
    return rules


def _pseudonym(names: Pseudonyms, kind: str, text: str) -> str:
    return names.of(kind, text) if text else ""


def _nodes(text: str, names: Pseudonyms) -> str:
    """Pseudonyms of a hostlist; of one that was cut off those of its known part, in an open bracket again."""
    if not text or text.startswith("None"):
        return text
    if text.count("[") > text.count("]"):
        return ",".join((*(names.of("node", node) for node in known_part(text)), "["))
    return ",".join(names.of("node", node) for node in expanded(text))


def _shifted(text: str, shift_s: int) -> str:
    """A time, later by some seconds.

    Raises
    ------
    ValueError, OverflowError
        If it is none.
    """
    if text in ("", "Unknown", "None"):
        return text
    if text.isdecimal():
        return str(int(text) + shift_s)
    return (datetime.fromisoformat(text) + timedelta(seconds=shift_s)).strftime("%Y-%m-%dT%H:%M:%S")
