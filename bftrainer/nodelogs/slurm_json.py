"""Slurm's JSON (`--json`, slurmrestd) as rows between bars, as `sacct -P` and `sacctmgr -P` print them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

from bftrainer.errors import LogError
from bftrainer.files.opening import DOCUMENT_BYTES, check_bytes
from bftrainer.files.text_files import Block, line_blocks

_ARRAY = re.compile(r'"(jobs|nodes|reservations)"\s*:\s*\[')
_SIGNS = re.compile(r'"(job_id|job_state|data_parser|node_list|hostname|partitions)"\s*:|openapi/')
_PARSER = re.compile(r'"data_parser"\s*:\s*"[^"]*?v([\d.]+)"|"openapi/\w*?v(\d[\d.]*)"')
_BETWEEN = re.compile(r"[\s,]*")
_KNOWN_PARSERS = tuple(map(str, range(38, 45)))
_NO_VALUE = 0xFFFFFFFE
"""From here on numbers of Slurm stand for none, or for infinitely many."""
_GOES_ON = ("RUNNING", "SUSPENDED", "STOPPED")
_ROWS_AT_A_TIME = 1 << 13
_UNSET = "Unknown"
_SPACE = re.compile(r"\s+")
_BAR = re.compile(r"[|\x00-\x1f]")

JOB_COLUMNS = (
    *("JobIDRaw", "JobID", "Cluster", "Partition", "State", "Submit", "Start", "End", "ElapsedRaw", "Suspended"),
    *("Timelimit", "NNodes", "AllocTRES", "NodeList"),
)
DOWN_COLUMNS = ("NodeName", "TimeStart", "TimeEnd", "State")


def is_slurm_json(lines: Sequence[str]) -> bool:
    """Whether a file that begins with these lines is a JSON document of Slurm."""
    text = "\n".join(lines)
    return text.lstrip().startswith("{") and '"t_submit"' not in text and bool(_SIGNS.search(text))


def words(value: Any, separator: str = "+") -> str:
    """States and other words, a list or one of them, joined."""
    return separator.join(map(str, value)) if isinstance(value, list) else str(value or "")


def states_of(node: Mapping[str, Any]) -> str:
    """States of a node; older versions have those beside the first in `state_flags`."""
    return "+".join(filter(None, (words(node.get("state")), words(node.get("state_flags")))))


def _number(value: Any) -> int | None:
    """A number, plain or `{set, infinite, number}`; None if it is not set, infinite or stands for none."""
    if isinstance(value, dict):
        value = None if value.get("infinite") or not value.get("set", True) else value.get("number")
    return int(value) if isinstance(value, int | float) and 0 <= value < _NO_VALUE else None


def _time(value: Any) -> object:
    """Seconds since 1970, or that they are unknown; what is no number as it stands, so that it is refused."""
    plain = value.get("number") if isinstance(value, dict) and value else value
    is_number = plain is None or (isinstance(plain, int | float) and not isinstance(plain, bool))
    return (_number(value) or _UNSET) if is_number else str(plain)


@dataclass(slots=True)
class SlurmDocument:
    """A document whose objects are read one after another, as exports of accounting are large.

    It may hold those of `kinds`: jobs, nodes, reservations. `notes` say what is unusual, after the last object.
    """

    path: Path
    kinds: tuple[str, ...]
    notes: list[str] = field(default_factory=list)

    def objects(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Kind and content of each job, node or reservation: `LogError` if the document is cut off, or has none."""
        decode, text, around, number = json.JSONDecoder().raw_decode, "", "", 0
        kind, is_over = "", False
        for block in line_blocks(self.path):
            text += block.data.decode() + "\n"
            if not kind and (opening := _ARRAY.search(text)):
                kind, around, text = opening[1], text[: opening.start()], text[opening.end() :]
                if kind not in self.kinds:
                    raise LogError(f"{self.path}: Expected {' or '.join(self.kinds)} of Slurm, got {kind}.")
            at = 0
            while kind and not is_over:
                at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
                is_over = text.startswith("]", at)
                try:
                    value, at = (None, at) if is_over else decode(text, at)
                except (ValueError, RecursionError):
                    break  # the object may go on in the next block
                if value is not None:
                    number += 1
                    yield kind, value if isinstance(value, dict) else {}
            text = text[at:]
            check_bytes(self.path, len(text), DOCUMENT_BYTES, "in an object")
        if not is_over:
            shown = f"{kind} that are malformed or cut off after {number:,}" if kind else "something else"
            raise LogError(f"{self.path}: Expected {' or '.join(self.kinds)} of Slurm in whole JSON, got {shown}.")
        if parser := _PARSER.search(around + text):
            version = parser[1] or parser[2]
            if version.rpartition(".")[2] not in _KNOWN_PARSERS:
                self.notes.append(f"{self.path}: data parser {version} is unknown: read like the known ones.")

    def rows(self, is_down: Callable[[str], bool] = bool) -> Iterator[Block]:
        """Blocks of rows: jobs as `sacct -P` prints them; reservations, and nodes that `is_down`, as downtimes.

        A row's number is that of its object; the header's is 0.
        """
        header = "|".join(JOB_COLUMNS if "jobs" in self.kinds else DOWN_COLUMNS)
        cells = (_make_cells(kind, value, is_down) for kind, value in self.objects())
        lines = chain([header], ("|".join(_BAR.sub(" ", str(cell)) for cell in row) for row in cells))
        for first in count(0, _ROWS_AT_A_TIME):
            some = list(islice(lines, _ROWS_AT_A_TIME))
            if not some:
                return
            yield Block(self.path, first, "\n".join(some).encode("utf-8", errors="replace"))

    def shown_nodes(self) -> Iterator[dict[str, str]]:
        """Keys and values of each node, as `scontrol show node` prints them."""
        for _, node in self.objects():
            if not node.get("name"):
                raise LogError(f"{self.path}: Expected nodes of Slurm with names, got one without.")
            values = {
                "NodeName": node["name"],
                "State": states_of(node),
                "Partitions": words(node.get("partitions"), ","),
                "CPUTot": node.get("cpus"),
                "CfgTRES": node.get("tres"),
                "Gres": node.get("gres"),
            }
            yield {key: _SPACE.sub("", str(value)) for key, value in values.items() if value}


def _make_cells(kind: str, content: Mapping[str, Any], is_down: Callable[[str], bool]) -> Sequence[object]:
    """Cells of a job by `JOB_COLUMNS`, or of a node or a reservation by `DOWN_COLUMNS`."""
    if kind == "jobs":
        return _make_job_cells(content)
    if kind == "nodes":
        state, since = states_of(content), _time(content.get("reason_changed_at"))
        return content.get("name") or "" if is_down(state) else "", since, _UNSET, state
    start, end = (_time(content.get(name)) for name in ("start_time", "end_time"))
    return content.get("node_list") or "", start, end, words(content.get("flags"))


def _make_job_cells(job: Mapping[str, Any]) -> Sequence[object]:
    """Cells of a job; accounting has its times in `time`, the controller beside it."""
    times = job.get("time")
    if isinstance(times, dict):
        states = job.get("state")
        names = {"submit_time": "submission", "start_time": "start", "end_time": "end", "time_limit": "limit"}
        job = {**job, **{name: times.get(old) for name, old in names.items()}}
        job["job_state"] = states.get("current") if isinstance(states, dict) else states
        job["node_count"], job["tres_alloc_str"] = job.get("allocation_nodes"), _join_resources(job.get("tres"))
    else:
        times = {}
    state = words(job.get("job_state"))
    submit, start, end = (_time(job.get(name)) for name in ("submit_time", "start_time", "end_time"))
    elapsed, suspended = (_number(times.get(name)) for name in ("elapsed", "suspended"))
    limit, count = (_number(job.get(name)) for name in ("time_limit", "node_count"))
    if state.startswith(_GOES_ON):
        # A job that runs has the end that its limit allows, after what it was suspended: it may run so long.
        lasts = end - start if isinstance(start, int) and isinstance(end, int) else 0
        elapsed, end = (lasts if lasts > (elapsed or 0) else elapsed), _UNSET
    cells = (
        *(job.get("job_id"), _job_name(job), job.get("cluster"), job.get("partition"), state, submit, start, end),
        *("" if elapsed is None else str(elapsed), str(suspended or 0), f"{limit}:00" if limit else "", count),
        *(job.get("tres_alloc_str"), job.get("nodes")),
    )
    return [cell or "" for cell in cells]


def _job_name(job: Mapping[str, Any]) -> str:
    """Number of a job as `sacct` writes it, with its place in an array or a heterogeneous job."""
    for kind, item, mark in (("array", "task_id", "_"), ("het", "job_offset", "+")):
        inner = job.get(kind)
        fields = {**job, **inner} if isinstance(inner, dict) else job
        number, place = (_number(fields.get(f"{kind}_{name}", fields.get(name))) for name in ("job_id", item))
        if number and place is not None:
            return f"{number}{mark}{place}"
    return str(job.get("job_id", ""))


def _join_resources(resources: Any) -> str:
    """Resources that accounting lists as `{type, name, count}`, as `sacct` writes them."""
    allocated = resources.get("allocated") if isinstance(resources, dict) else None
    return ",".join(
        f"{one.get('type')}{'/' if one.get('name') else ''}{one.get('name') or ''}={_number(one.get('count')) or 0}"
        for one in allocated or ()
        if isinstance(one, dict)
    )
