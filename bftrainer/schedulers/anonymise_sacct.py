"""Replace the names in a sacct table (jobs, nodes, users, ...) by pseudonyms."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from bftrainer.errors import HostlistError, LogError, UnusedOptionsError
from bftrainer.files.log_files import line_blocks
from bftrainer.files.writing import replacing
from bftrainer.nodelogs.edit import Pseudonyms
from bftrainer.nodelogs.hostlist import expanded, known_part
from bftrainer.schedulers.formats.sacct_rows import Layout, layout_of, sections

_PLAIN = frozenset(
    (
        *("elapsed", "elapsedraw", "suspended", "timelimit", "timelimitraw", "nnodes", "ncpus", "reqcpus"),
        *("alloccpus", "ntasks", "exitcode", "derivedexitcode", "reqmem", "allocnodes", "reqnodes", "priority"),
        "restarts",
    )
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
# What a column holds that is kept as it is: bars in a job's name push names into the columns behind it.
_PLAIN_TEXT = re.compile(r"[\d.:+-]*[KMGTPEcnZ?]{0,2}|UNLIMITED|Partition_Limit|INVALID", re.ASCII)
_RESOURCE = re.compile(r"(?:cpu|mem|node|billing|energy|pages|vmem|gres/gpu|fs/disk)=[\d.]+[KMGTPE]?", re.ASCII)
_JOB = re.compile(
    r"\d+(?:_\d+|_\[(?:0x[\dA-F]+|[\d,%:.-]+)\])?(?:\+\d+)?(?:\.(?:\d+(?:\+\d+)?|batch|extern|interactive))?", re.ASCII
)
_STATE = re.compile(r"[A-Z_]+\+?", re.ASCII)
_RESOURCES = frozenset({"alloctres", "reqtres"})
_NO_NODES = frozenset({"", "None", "None assigned", "(null)"})


@dataclass(frozen=True, slots=True)
class AnonymousRows:
    """Result of replacing the names in a table.

    Parameters
    ----------
    rows : int
        Number of rows written.
    dropped : int
        Number of malformed rows, which are left out.
    columns : tuple of str
        Columns left out because their content is unknown.
    """

    rows: int
    dropped: int
    columns: tuple[str, ...]


def anonymise_sacct(
    source: Path, target: Path, names: Pseudonyms, shift_s: int = 0, columns: Sequence[str] | None = None
) -> AnonymousRows:
    """Write a sacct table with a header and with pseudonyms for all names.

    Numbers of jobs keep what they say of arrays, steps and heterogeneous jobs; of states the first word is kept, of
    resources those that all sites have. A row with another text where none but numbers belong is malformed.

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
        If the source is not a sacct table.
    OutputError
        If the target cannot be written.
    """
    rows = dropped = 0
    layout: Layout | None = None
    rules: list[tuple[int, Callable[[str], str]]] = []
    with replacing(target) as stream:
        for block, is_headed in itertools.chain.from_iterable(map(sections, line_blocks(source))):
            if columns is not None and layout is None and is_headed:
                raise UnusedOptionsError({"--columns": f"{source} has a header"})
            if layout is None or is_headed:
                again = layout_of(block, columns)
                if layout is not None and again.names != layout.names:
                    raise LogError(f"{block.path}:{block.first}: Expected the columns of the first header, got others.")
                if layout is None:
                    rules = _rules(again.names, names, shift_s)
                    stream.write(("|".join(again.names[at] for at, _ in rules) + "\n").encode())
                layout = again
            lines, bad = _lines(block.lines[is_headed:], layout, rules)
            stream.writelines(lines)
            rows, dropped = rows + len(lines), dropped + bad
    known = {at for at, _ in rules}
    left_out = () if layout is None else tuple(name for at, name in enumerate(layout.names) if at not in known)
    return AnonymousRows(rows, dropped, left_out)


def _lines(
    source: Sequence[str], layout: Layout, rules: Sequence[tuple[int, Callable[[str], str]]]
) -> tuple[list[bytes], int]:
    """Rows of a block as written, and the number of malformed ones."""
    lines, bad = [], 0
    for line in source:
        if not line:
            continue
        fields = layout.split(line)
        try:
            if len(fields) != layout.count or ("|" in fields[-1] and layout.names[-1].lower() != "jobname"):
                raise ValueError
            lines.append(("|".join(rule(fields[at]) for at, rule in rules) + "\n").encode())
        except (HostlistError, ValueError, OverflowError):
            bad += 1
    return lines, bad


def _rules(columns: Sequence[str], names: Pseudonyms, shift_s: int) -> list[tuple[int, Callable[[str], str]]]:
    """The replacement for each column that is kept."""
    rules: list[tuple[int, Callable[[str], str]]] = []
    for at, column in enumerate(columns):
        name = column.lower()
        if name in ("jobid", "jobidraw"):
            rules.append((at, partial(_job, names)))
        elif name == "state":
            rules.append((at, lambda text: _kept(_STATE, text.partition(" ")[0])))
        elif name in _RESOURCES:
            rules.append((at, _resources))
        elif name == "nodelist":
            rules.append((at, lambda text: _nodes(text, names)))
        elif name in _TIMES:
            rules.append((at, lambda text: _shifted(text, shift_s)))
        elif name in _NAMES:
            rules.append((at, partial(_pseudonym, names, _NAMES[name])))
        elif name in _PLAIN:
            rules.append((at, partial(_kept, _PLAIN_TEXT)))
    return rules


def _pseudonym(names: Pseudonyms, kind: str, text: str) -> str:
    return names.of(kind, text) if text else ""


def _kept(form: re.Pattern[str], text: str) -> str:
    """Check a text that is kept because it cannot be a name.

    Raises
    ------
    ValueError
        If it is not of this form.
    """
    if text and not form.fullmatch(text):
        raise ValueError(text)
    return text


def _job(names: Pseudonyms, text: str) -> str:
    """Replace a job's number, and keep its suffixes for arrays, steps and heterogeneous jobs."""
    return _NUMBER.sub(lambda found: names.number("job", found[0]), _kept(_JOB, text), count=1)


def _resources(text: str) -> str:
    """Keep the resources that all sites have; others, such as licences, have names of the site."""
    parts = text.split(",")
    if text and not all("=" in part for part in parts):
        raise ValueError(text)
    return ",".join(part for part in parts if _RESOURCE.fullmatch(part))


def _nodes(text: str, names: Pseudonyms) -> str:
    """Pseudonyms of a hostlist; if it was cut off, those of its known part, again in an open bracket."""
    if text in _NO_NODES:
        return text
    if text.count("[") > text.count("]"):
        return ",".join((*(names.of("node", node) for node in known_part(text)), "["))
    return ",".join(names.of("node", node) for node in expanded(text))


def _shifted(text: str, shift_s: int) -> str:
    """Shift a time by some seconds.

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
