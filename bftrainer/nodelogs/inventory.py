"""Read the inventory of a machine's nodes: from a hostlist, a file of names, or output of `sinfo` or `scontrol`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from bftrainer.errors import LogError, SettingsError, add_place, suggestion
from bftrainer.files.opening import one_line
from bftrainer.files.text_files import head, log_lines
from bftrainer.nodelogs.hostlist import expand_hostlist
from bftrainer.nodelogs.slurm_json import SlurmDocument, is_slurm_json

_EXAMPLES = 10
# Slurm's node states, long and short, and the signs behind them (sinfo(1), "NODE STATE CODES").
_SIGNS = {
    "*": "not_responding",
    "~": "powered_down",
    "#": "powering_up",
    "%": "powering_down",
    "!": "power_down",
    "$": "maintenance",
    "@": "reboot_requested",
    "^": "reboot_issued",
    "-": "planned",
    "+": "",
}
_OUT_OF_SERVICE = frozenset(
    {"down", "drain", "drained", "draining", "drng", "fail", "failg", "failing", "future", "futr", "inval"}
    | {"invalid_reg", "maint", "maintenance", "no_respond", "not_responding", "npc", "perfctrs", "pow_dn", "pow_up"}
    | {"power_down", "power_drain", "power_up", "powered_down", "powering_down", "powering_up", "reboot_issued"}
    | {"reboot_requested", "unk", "unknown"}
)
_IN_SERVICE = frozenset(
    {"alloc", "allocated", "block", "blocked", "boot", "comp", "completing", "idle", "mix", "mixed", "planned", "plnd"}
    | {"reserved", "resv"}
)
_NODE_HEADINGS = ("nodelist", "hostnames", "nodehost", "nodename", "node", "name", "host", "hostname")
_SHOW_NODE = re.compile(r"^\s*NodeName=(\S+)", re.MULTILINE)
_CPUS = re.compile(r"(?:^|,)cpu=(\d{1,9})\b", re.ASCII)
_GPUS = re.compile(r"gres/gpu=(\d{1,9})\b", re.ASCII)
_TYPED_GPUS = re.compile(r"gres/gpu:[^=,]+=(\d{1,9})\b", re.ASCII)
_GRES = re.compile(r"\bgpu(?::[\w-]+)?:(\d{1,6})", re.ASCII)
_FIELDS = re.compile(r"[\s|]+")
_NUMBERS = re.compile(r"(\d{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Inventory:
    """The nodes of a machine, each once, and those that could not run jobs when the inventory was taken.

    Where the source gives them: nodes by partition, and numbers of GPUs and cores by node.
    """

    names: tuple[str, ...]
    out_of_service: frozenset[str] = frozenset()
    partitions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gpus: Mapping[str, int] = field(default_factory=dict)
    cores: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.names:
            raise LogError("Expected an inventory of nodes, got an empty one.")


def natural_order(names: Sequence[str]) -> tuple[str, ...]:
    """Sort names, with the numbers in them by their value: login, n9, n10."""
    keys = {name: [int(piece) if at % 2 else piece for at, piece in enumerate(_NUMBERS.split(name))] for name in names}
    return tuple(sorted(names, key=lambda name: (keys[name], name)))


def inventory_paths(source: str | None) -> list[Path]:
    """Path of the file that `--nodes` names; empty if it does not name a file."""
    return [Path(source)] if source and os.path.isfile(source) else []  # which also a long hostlist is not


def read_inventory(source: str) -> Inventory:
    """Read the inventory from a file, or a hostlist, which is what names no file.

    A file has one node or hostlist a line, `sinfo -N`, lines of node and state with any separator, `scontrol show
    node`, or its JSON. What is malformed or empty is a `LogError`.
    """
    path = Path(source)
    if not inventory_paths(source):
        if "/" in source or path.suffix in (".txt", ".csv", ".log"):
            raise LogError(f"{source}: No such file.")
        with add_place("--nodes", LogError):
            return Inventory(expand_hostlist(source))
    with add_place(path, LogError):
        if is_slurm_json(head(path)):
            return _gather(SlurmDocument(path, ("nodes",)).shown_nodes())
        text = "\n".join(row.fields[0] for row in log_lines(path))
        starts = [match.start() for match in _SHOW_NODE.finditer(text)]
        if not starts:
            return _gather(_parse_list(path, text), is_shown=False)
        shown = (text[begin:end] for begin, end in pairwise([*starts, len(text)]))
        return _gather(dict(re.findall(r"(\w+)=(\S*)", node)) for node in shown)


def _gather(rows: Iterable[Mapping[str, str]], *, is_shown: bool = True) -> Inventory:
    """The nodes of all rows, keys and values as of `scontrol show node`; others do not say what a node has."""
    out: set[str] = set()
    partitions: dict[str, dict[str, None]] = {}
    gpus: dict[str, int] = {}
    cores: dict[str, int] = {}
    for row in rows:
        nodes = expand_hostlist(row["NodeName"])
        if is_out_of_service(row.get("State", "")):
            out.update(nodes)
        for partition in filter(None, row.get("Partitions", "").split(",")):
            partitions.setdefault(partition, {}).update(dict.fromkeys(nodes))
        resources, generic = row.get("CfgTRES", ""), _GRES.findall(row.get("Gres", ""))
        gpus |= dict.fromkeys(nodes, tres_count(resources, "gpu") or sum(map(int, generic)))
        cores |= dict.fromkeys(nodes, tres_count(f"{resources},cpu={row.get('CPUTot', '')}", "core"))
    by_name = {name: tuple(nodes) for name, nodes in partitions.items()}
    counts = {"gpus": gpus, "cores": cores if any(cores.values()) else {}} if is_shown else {}
    return Inventory(tuple(gpus), frozenset(out), by_name, **counts)


def tres_count(text: str, unit: str) -> int:
    """Number of GPUs (`unit` "gpu") or cores ("core") among resources such as `cpu=8,gres/gpu:a100=2`."""
    if unit == "core":
        return int((_CPUS.findall(text) or [0])[0])
    return int((_GPUS.findall(text) or [0])[0]) or sum(map(int, _TYPED_GPUS.findall(text)))


def _parse_list(path: Path, text: str) -> Iterator[dict[str, str]]:
    """Parse lines of names or hostlists, perhaps followed by a partition and a state, as `scontrol` calls them."""
    lines = [line.strip() for line in text.split("\n")]
    firsts = [_FIELDS.split(line)[0].lower() for line in lines[:2]]
    begin = next((number for number, word in enumerate(firsts, start=1) if word in _NODE_HEADINGS), 0)
    columns = _FIELDS.split(lines[begin - 1].lower()) if begin else []
    for number, line in enumerate(lines[begin:], start=begin + 1):
        if not line or line.startswith("#"):
            continue
        fields = [word for word in _FIELDS.split(line) if word]
        nodes, partition, state = "".join(fields[:1]), "", ""
        with add_place(f"{path}:{number}", LogError):
            if len(columns) > 1 and fields:
                cells = dict(zip(columns, fields, strict=False))
                partition, state = cells.get("partition", ""), cells.get("state", "")
            elif len(fields) == 1:
                # A node and its state, or nodes: a comma within brackets separates neither.
                first, comma, last = line.rpartition(",")
                nodes, state = (first, last) if comma and _is_state(last) else (line, "")
            elif states := [at for at, word in enumerate(fields) if at and _is_state(word)]:
                state, before = fields[states[0]], fields[states[0] - 1]
                partition = before if states[0] > 1 and not before.isdigit() else ""
            else:
                raise LogError(f"Expected nodes, or a node and its state, got {one_line(line[:80])!r}.")
            expand_hostlist(nodes)  # fails here, where the line can be named
        yield {"NodeName": nodes, "Partitions": partition.removesuffix("*"), "State": state}


def _is_state(word: str) -> bool:
    return bool((_OUT_OF_SERVICE | _IN_SERVICE).intersection(state_words(word)[:1]))


def is_out_of_service(state: str) -> bool:
    """Whether a node in this state, such as `IDLE+DRAIN` or `down*`, takes no jobs."""
    return bool(_OUT_OF_SERVICE.intersection(state_words(state)))


def state_words(state: str) -> list[str]:
    """Words of a node's state, small, and those that its signs stand for.

    >>> state_words("IDLE+DRAIN"), state_words("down*")
    (['idle', 'drain'], ['down', 'not_responding'])
    """
    words: list[str] = []
    for signed in state.lower().split("+"):
        word = signed.rstrip("".join(_SIGNS))
        words += [word, *(_SIGNS[sign] for sign in signed[len(word) :])]
    return list(dict.fromkeys(filter(None, words)))


def partition_names(chosen: Sequence[str], partitions: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Nodes of the given partitions: `SettingsError` if one is unknown."""
    for name in chosen:
        if name not in partitions:
            hint = suggestion(name, partitions) if partitions else " No partitions are known."
            raise SettingsError(f"Unknown partition {name!r}.{hint}")
    return frozenset(node for name in chosen for node in partitions[name])


def shorten_names(names: Sequence[str]) -> str:
    """The first ten names for a message, and the number of the others."""
    more = f" and {len(names) - _EXAMPLES:,} more" if len(names) > _EXAMPLES else ""
    return ", ".join(names[:_EXAMPLES]) + more
