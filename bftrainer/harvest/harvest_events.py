"""What happens to a harvest, and what its controller has done about it: plain values, which a journal can hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bftrainer.errors import OutputError
from bftrainer.harvest.live_tasks import LiveTask


@dataclass(frozen=True, slots=True)
class PoolChanged:
    """Nodes that the scheduler leaves idle from now on, and such that it has use for."""

    idle: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CarrierUp:
    """A carrier holds a node, and can be reached at an address by ranks on others."""

    node: str
    carrier: str
    address: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class CarrierLeaving:
    """A carrier has to give its node back, perhaps as its time `is_over`; its ranks have been asked to end."""

    node: str
    carrier: str
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class CarrierLost:
    """A carrier is gone, with all its ranks, or never came; the pool tells anew if its node is idle."""

    node: str
    carrier: str


@dataclass(frozen=True, slots=True)
class NodesWanted:
    """Jobs of others wait for so many of the nodes that carriers hold, whichever these are."""

    count: int


@dataclass(frozen=True, slots=True)
class RankExited:
    """A rank has ended, and all that it started; `tail` has the last lines of its log if it failed."""

    task: str
    generation: int
    node: str
    status: int
    tail: str = ""


@dataclass(frozen=True, slots=True)
class Progressed:
    """Work of a task at a time since the Unix epoch: done, in its checkpoint, and at its begin; -1 if unknown."""

    task: str
    generation: int
    work: float
    saved: float
    time_s: float
    began: float = -1.0


@dataclass(frozen=True, slots=True)
class Submitted:
    """A task is added: its table, and the file that it is from."""

    file: str
    table: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """Somebody asks to ``drain`` (end when the nodes held are gone) or ``stop``; or its ``time`` or ``log`` is over."""

    what: str


@dataclass(frozen=True, slots=True)
class Restarted:
    """The controller was gone, and all carriers with it; the new one may stay when all tasks are over."""

    stays: bool = False


HarvestEvent = (
    PoolChanged
    | CarrierUp
    | CarrierLeaving
    | CarrierLost
    | NodesWanted
    | RankExited
    | Progressed
    | Submitted
    | Asked
    | Restarted
)
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in HarvestEvent.__args__}


def event_row(event: HarvestEvent) -> list[Any]:
    """An event as plain values for JSON: its kind, and its fields."""
    return [type(event).__name__, *(getattr(event, name) for name in type(event).__slots__)]


def read_event(row: Sequence[Any]) -> HarvestEvent:
    """An event from its plain values; an `OutputError` if it is of a kind that this version does not know."""
    kind, *values = row
    if kind not in _KINDS:
        raise OutputError(f"Expected an event of this version in the journal, got {kind!r}.")
    event: HarvestEvent = _KINDS[kind](*(tuple(value) if isinstance(value, list) else value for value in values))
    return event


@dataclass(frozen=True, slots=True)
class Request:
    """Start a carrier on each of these nodes."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """Give a node back, perhaps to a job that waits: its carrier asks its ranks to end, and ends."""

    node: str
    carrier: str
    for_others: bool = False


@dataclass(frozen=True, slots=True)
class StartRank:
    """Start a rank of a task on a node; `address` and `port` are those at which its ranks meet."""

    node: str
    carrier: str
    task: LiveTask
    generation: int
    rank: int
    world_size: int
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class StopRank:
    """Ask a rank to save and end, and kill it after its task's `grace_s`."""

    node: str
    carrier: str
    task: str
    generation: int


@dataclass(frozen=True, slots=True)
class Note:
    """Something to tell people."""

    text: str


@dataclass(frozen=True, slots=True)
class HarvestEnded:
    """The harvest is over: all nodes are given back."""

    reason: str


Effect = Request | Release | StartRank | StopRank | Note | HarvestEnded
