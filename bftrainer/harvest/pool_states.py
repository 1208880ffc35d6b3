"""States of a scheduler's nodes: read what it prints, by node why it is not idle; and what changed between polls."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from bftrainer.errors import HostlistError, PollError
from bftrainer.files.opening import one_line
from bftrainer.nodelogs.hostlist import expanded
from bftrainer.nodelogs.inventory import is_out_of_service, state_words
from bftrainer.nodelogs.slurm_json import states_of, words
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.formats.watch_journal import CAUSES, Cause

Pool = dict[str, Cause]
"""By node why it is not idle; None if it is."""

SINFO_FIELDS = "NodeList:256,StateComplete:256,StateLong:64"
"""What `sinfo -O` has to print: the state with all its flags, and Slurm's word for it, whose sign tells of power.

It puts nothing between columns, and cuts what is longer than they are.
"""
SQUEUE_FIELDS = "%i|%P|%N"

# Of what is said of a node, by the words of sinfo(1), "NODE STATE CODES", the first counts.
_USED = re.compile(r"alloc|\bmix|\bcomp")
_OUT = (
    (re.compile(r"maint"), BusyKind.MAINTENANCE),
    (re.compile(r"pow"), BusyKind.POWERED_DOWN),
    (re.compile(r"drain|drng"), BusyKind.DRAIN),
    (re.compile(r"\bunk"), BusyKind.UNKNOWN),
    (re.compile(r"reboot"), BusyKind.DOWN),
)
_KEPT = (
    (re.compile(r"\bres(erved|v)|block"), BusyKind.RESERVED),
    (re.compile(r"planned|plnd"), BusyKind.PLANNED),
    (_USED, None),
    (re.compile(r"\bidle"), None),
)


def slurm_cause(states: str, *, is_ours: bool = False) -> Cause:
    """Why a node in these states of Slurm is not idle.

    Parameters
    ----------
    states : str
        `IDLE+DRAIN`, `idle+planned+planned`, `down*` and the like.
    is_ours : bool
        Whether all that runs on it would make room: then only what else is the matter with it counts.

    Examples
    --------
    >>> slurm_cause("idle"), slurm_cause("IDLE+DRAIN"), slurm_cause("allocated+drain"), slurm_cause("idle+powered_down")
    (None, <BusyKind.DRAIN: 6>, <BusyKind.JOB: 0>, <BusyKind.POWERED_DOWN: 7>)
    >>> slurm_cause("allocated", is_ours=True), slurm_cause("allocated+drain", is_ours=True)
    (None, <BusyKind.DRAIN: 6>)
    """
    said = "+".join(state_words(states))
    if not is_ours and _USED.search(said):
        return BusyKind.JOB
    for sign, cause in _OUT:
        if sign.search(said):
            return cause
    if is_out_of_service(said):
        return BusyKind.DOWN
    return next((cause for sign, cause in _KEPT if sign.search(said)), BusyKind.UNKNOWN)


def slurm_pool(answer: str, ours: Collection[str] = ()) -> Pool:
    """Nodes as `sinfo -h -N -O` with `SINFO_FIELDS` prints them, or `sinfo --json`, or slurmrestd.

    Parameters
    ----------
    answer : str
    ours : collection of str
        Nodes all of whose jobs would make room.

    Raises
    ------
    PollError
        If it is something else, or tells of no node.
    """
    if answer.lstrip().startswith("{"):
        rows = _json_rows(answer)
        pool = _pool((name, slurm_cause(states, is_ours=name in ours)) for names, states in rows for name in names)
    else:
        pool = _pool(_sinfo_causes(answer, ours))
    if set(pool.values()) == {BusyKind.UNKNOWN}:
        raise PollError(f"Expected nodes and states of Slurm, got {one_line(answer[:80])!r}.")
    return pool


def listed_pool(answer: str) -> Pool:
    """Nodes as any program may print them: lines of a node, or a hostlist, and its state; or Slurm's JSON.

    A state is `idle`, a cause of an import (`job`, `down`, `drain`, ...), or a word of Slurm's.

    Raises
    ------
    PollError
        If a line is something else, or there is none.
    """
    if answer.lstrip().startswith("{"):
        return slurm_pool(answer)
    found: list[tuple[str, Cause]] = []
    for names, state in _rows(answer, 2):
        own = state.lower().replace("-", "_")
        cause = CAUSES[own] if own in CAUSES else slurm_cause(state)
        if cause is BusyKind.UNKNOWN and own != "unknown":
            raise PollError(f"Expected a state such as idle, job or down, got {one_line(state)!r}.")
        found += [(name, cause) for name in names]
    return _pool(found)


def _sinfo_causes(answer: str, ours: Collection[str]) -> Iterator[tuple[str, Cause]]:
    """Why nodes are not idle, by rows of sinfo; a node whose row does not tell it is unknown, but most rows have to."""
    rows = list(filter(None, map(str.split, answer.splitlines())))
    odd = [cells for cells in rows if len(cells) not in (2, 3) or not cells[0].isprintable() or not cells[0].isascii()]
    if 2 * len(odd) > len(rows):
        raise PollError(f"Expected nodes and states of Slurm, got {one_line(' '.join(odd[0])[:80])!r}.")
    for cells in rows:
        cause = slurm_cause("+".join(cells[1:]), is_ours=cells[0] in ours)
        # A state that fills its column runs into the next one: what was cut off may be what is wrong with the node.
        is_whole = len(cells) == 3 or cause is not None
        try:
            names = expanded(cells[0])
        except HostlistError:
            names, is_whole = (cells[0],), False
        yield from ((name, cause if is_whole else BusyKind.UNKNOWN) for name in names)


def _rows(answer: str, fields: int) -> Iterator[tuple[tuple[str, ...], str]]:
    """Nodes of each line, and the rest of it."""
    for line in answer.splitlines():
        cells = line.split()
        if cells and len(cells) != fields:
            raise PollError(f"Expected a node and its state in each line, got {one_line(line[:80])!r}.")
        if cells:
            yield _names(cells[0]), "+".join(cells[1:])


def _names(text: str) -> tuple[str, ...]:
    try:
        return expanded(text)
    except HostlistError as fault:
        raise PollError(str(fault)) from None


def _json_rows(answer: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Nodes and states of a document that lists nodes, or groups of them that are in one state."""
    try:
        document = json.loads(answer)
    except (ValueError, RecursionError):
        document = None
    some = document.get("nodes") or document.get("sinfo") if isinstance(document, dict) else None
    for each in some if isinstance(some, list) else ():
        group, state = (each.get(key) if isinstance(each, dict) else None for key in ("nodes", "node"))
        if isinstance(group, dict) and isinstance(state, dict):
            yield _names(words(group.get("nodes"), ",")), words(state.get("state"))
        elif isinstance(each, dict) and each.get("name"):
            yield _names(str(each["name"])), states_of(each)
        else:
            raise PollError(f"Expected nodes of Slurm, got {one_line(str(each)[:80])!r} among them.")


def _pool(found: Iterable[tuple[str, Cause]]) -> Pool:
    """Causes by node; a node that is told several times is idle only if it is so each time."""
    pool: Pool = {}
    for name, cause in found:
        if pool.get(name) is None:
            pool[name] = cause
    if not pool:
        raise PollError("Expected nodes and their states, got none.")
    return pool


def nodes_of_carriers(answer: str, is_carrier: Callable[[str, str], bool]) -> frozenset[str]:
    """Nodes that only carriers hold: jobs that make room for others.

    Parameters
    ----------
    answer : str
        What `squeue -h -o` with `SQUEUE_FIELDS` prints.
    is_carrier : callable
        Takes the number and the partition of a job.

    Raises
    ------
    PollError
        If it is something else.
    """
    held: tuple[set[str], set[str]] = set(), set()
    for line in answer.splitlines():
        cells = line.strip().split("|")
        if cells != [""] and len(cells) != 3:
            raise PollError(f"Expected a job, its partition and its nodes in each line, got {one_line(line[:80])!r}.")
        if cells[-1] not in ("", "(null)"):
            held[is_carrier(cells[0], cells[1])].update(_names(cells[2]))
    return frozenset(held[True] - held[False])


def changes(before: Mapping[str, Cause], after: Mapping[str, Cause]) -> Pool:
    """Nodes whose state is another one; those that are gone are away.

    Examples
    --------
    >>> changes({"n1": None, "n2": None}, {"n2": None, "n3": None})
    {'n3': None, 'n1': <BusyKind.AWAY: 4>}
    """
    gone = dict.fromkeys(before.keys() - after.keys(), BusyKind.AWAY)
    return {name: cause for name, cause in {**after, **gone}.items() if before.get(name, BusyKind.AWAY) != cause}
