"""Read the inventory of a machine's nodes: from a hostlist, a file of names, or output of `sinfo` or `scontrol`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bftrainer.errors import LogError, SettingsError, at_place, suggestion
from bftrainer.files.log_files import head, whole_text
from bftrainer.files.opening import one_line
from bftrainer.nodelogs.hostlist import expanded
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
    | {"invalid_reg", "maint", "maintenance", "not_responding", "power_drain"}
    | {"no_respond", "npc", "perfctrs", "pow_dn", "pow_up", "power_down", "power_up", "powered_down", "powering_down"}
    | {"powering_up", "reboot_issued", "reboot_requested", "unk", "unknown"}
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
    """The nodes of a machine.

    Parameters
    ----------
    names : tuple of str
        Names in order, each once.
    out_of_service : frozenset of str
        Nodes that could not run jobs when the inventory was taken.
    partitions : mapping of str to tuple of str
        Nodes by partition, if the source gives them.
    gpus, cores : mapping of str to int
        Number of them by node, if the source gives it.

    Raises
    ------
    LogError
        If there are no nodes.
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
    """Sort names in natural order, with numbers by their value.

    Examples
    --------
    >>> natural_order(["n10", "n9", "login"])
    ('login', 'n9', 'n10')
    """

    def _key(name: str) -> tuple[list[str | int], str]:
        parts = _NUMBERS.split(name)
        return [int(part) if at % 2 else part for at, part in enumerate(parts)], name

    return tuple(sorted(names, key=_key))


def inventory_paths(source: str | None) -> tuple[Path, ...]:
    """Path of the file that `--nodes` names; empty if it does not name a file."""
    return (Path(source),) if source and os.path.isfile(source) else ()  # which also a long hostlist is not


def read_inventory(source: str) -> Inventory:
    """Read the inventory from a file or a hostlist.

    Parameters
    ----------
    source : str
        Name of a file: one node or hostlist a line, `sinfo -N`, lines of node and state with any separator,
        `scontrol show node`, or its JSON. Anything else is a hostlist.

    Raises
    ------
    LogError
        If the file or the hostlist is malformed or empty.
    """
    path = Path(source)
    if not inventory_paths(source):
        if "/" in source or path.suffix in (".txt", ".csv", ".log"):
            raise LogError(f"{source}: No such file.")
        with at_place("--nodes", LogError):
            return Inventory(expanded(source))
    text = SlurmDocument(path, ("nodes",)).shown() if is_slurm_json(head(path)) else whole_text(path)
    with at_place(path, LogError):
        return _parse_show_node(text) if _SHOW_NODE.search(text) else _parse_list(path, text)


def _parse_show_node(text: str) -> Inventory:
    """Parse the output of `scontrol show node`: a paragraph or a line per node."""
    names: dict[str, None] = {}
    out: set[str] = set()
    partitions: dict[str, dict[str, None]] = {}
    gpus: dict[str, int] = {}
    cores: dict[str, int] = {}
    starts = [found.start() for found in _SHOW_NODE.finditer(text)]
    for begin, end in zip(starts, [*starts[1:], len(text)], strict=True):
        values = dict(re.findall(r"(\w+)=(\S*)", text[begin:end]))
        name = values["NodeName"]
        names[name] = None
        counted, generic = values.get("CfgTRES", ""), _GRES.findall(values.get("Gres", ""))
        gpus[name] = tres_count(counted, "gpu") or sum(map(int, generic))
        cores[name] = tres_count(counted, "core") or tres_count(f"cpu={values.get('CPUTot', '')}", "core")
        if is_out_of_service(values.get("State", "")):
            out.add(name)
        for partition in filter(None, values.get("Partitions", "").split(",")):
            partitions.setdefault(partition, {})[name] = None
    within = {name: tuple(some) for name, some in partitions.items()}
    return Inventory(tuple(names), frozenset(out), within, gpus, {} if not any(cores.values()) else cores)


def tres_count(text: str, unit: str) -> int:
    """Number of GPUs or cores among the resources that Slurm counts.

    Examples
    --------
    >>> tres_count("cpu=8,gres/gpu=2,gres/gpu:a100=2", "gpu"), tres_count("cpu=8,gres/gpu:a100=2", "core")
    (2, 8)
    """
    if unit == "core":
        return int((_CPUS.findall(text) or [0])[0])
    return int((_GPUS.findall(text) or [0])[0]) or sum(map(int, _TYPED_GPUS.findall(text)))


def _parse_list(path: Path, text: str) -> Inventory:
    """Parse lines of names or hostlists, perhaps followed by a partition and a state."""
    names: dict[str, None] = {}
    out: set[str] = set()
    partitions: dict[str, dict[str, None]] = {}
    lines = list(enumerate(text.split("\n"), start=1))
    heading = next(
        (line for line in lines[:2] if line[1].split()[:1] and line[1].split()[0].lower() in _NODE_HEADINGS), None
    )
    columns = [] if heading is None else [word.lower() for word in _FIELDS.split(heading[1].strip())]
    for number, line in lines[0 if heading is None else heading[0] :]:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        with at_place(f"{path}:{number}", LogError):
            nodes, partition, state = _split_line(line.strip(), columns)
            some = expanded(nodes)
        names.update(dict.fromkeys(some))
        if is_out_of_service(state):
            out.update(some)
        if partition:
            partitions.setdefault(partition.removesuffix("*"), {}).update(dict.fromkeys(some))
    return Inventory(tuple(names), frozenset(out), {name: tuple(some) for name, some in partitions.items()})


def _split_line(line: str, columns: list[str]) -> tuple[str, str, str]:
    """Nodes, partition and state of a line; empty texts for missing parts."""
    fields = [part for part in _FIELDS.split(line) if part]
    if len(columns) > 1 and fields:
        cells = dict(zip(columns, fields, strict=False))
        return fields[0], cells.get("partition", ""), cells.get("state", "")
    if len(fields) == 1:
        # A node and its state, or nodes: a comma within brackets separates neither.
        nodes, comma, state = line.rpartition(",")
        return (nodes, "", state) if comma and _is_state(state) else (line, "", "")
    at = next((at for at, part in enumerate(fields) if at and _is_state(part)), None)
    if at is None:
        raise LogError(f"Expected nodes, or a node and its state, got {one_line(line[:80])!r}.")
    partition = fields[at - 1] if at > 1 and not fields[at - 1].isdigit() else ""
    return fields[0], partition, fields[at]


def _is_state(word: str) -> bool:
    return bool((_OUT_OF_SERVICE | _IN_SERVICE).intersection(state_words(word)[:1]))


def is_out_of_service(state: str) -> bool:
    """Whether a node in this state, such as `IDLE+DRAIN` or `down*`, takes no jobs."""
    return bool(_OUT_OF_SERVICE.intersection(state_words(state)))


def state_words(state: str) -> tuple[str, ...]:
    """Words of a node's state, small; of the signs behind them, too, those that mean the same.

    Examples
    --------
    >>> state_words("IDLE+DRAIN"), state_words("alloc$"), state_words("down*")
    (('idle', 'drain'), ('alloc', 'maintenance'), ('down', 'not_responding'))
    """
    words: list[str] = []
    for part in state.lower().split("+"):
        word = part.rstrip("".join(_SIGNS))
        words += [word, *(_SIGNS[sign] for sign in part[len(word) :])]
    return tuple(dict.fromkeys(filter(None, words)))


def partition_names(wanted: Sequence[str], partitions: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Nodes of the given partitions.

    Raises
    ------
    SettingsError
        If a partition is unknown.
    """
    for name in wanted:
        if name not in partitions:
            hint = suggestion(name, partitions) if partitions else " No partitions are known."
            raise SettingsError(f"Unknown partition {name!r}.{hint}")
    return frozenset(node for name in wanted for node in partitions[name])


def listed(names: Sequence[str]) -> str:
    """The first ten names for a message, and the number of the others."""
    more = f" and {len(names) - _EXAMPLES:,} more" if len(names) > _EXAMPLES else ""
    return ", ".join(names[:_EXAMPLES]) + more
