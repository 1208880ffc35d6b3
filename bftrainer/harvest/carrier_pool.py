"""Nodes of a harvest: those that are idle, those that carriers hold, and how many are wanted."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from bftrainer.harvest.harvest_events import CarrierLeaving, CarrierLost, CarrierUp, Effect, PoolChanged, Release, Request

_PATIENCE_S = 180.0
"""A carrier that did not come for so long is asked for again."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a harvest takes.

    Parameters
    ----------
    max_nodes : int
        At once.
    offer_after_s : float
        A node is taken once it has been idle for so long.
    first_port : int
        Ranks of a task meet at one from this on.
    stays : bool
        Whether it goes on when no task is left, waiting for more.
    """

    max_nodes: int = 1_000_000
    offer_after_s: float = 0.0
    first_port: int = 20_000
    stays: bool = False


@dataclass(slots=True)
class Carrier:
    """A carrier that holds a node; the allocator has the node until it is `leaving`."""

    name: str
    address: str
    leaving: bool = False


@dataclass(slots=True)
class CarrierPool:
    """What is known of the nodes; `joined` and `left` are what the allocator is to be told of the present instant.

    Attributes
    ----------
    carriers : dict of str to Carrier
    idle, requested : dict of str to float
        Nodes that the scheduler leaves idle, held or not, and those that a carrier was asked for, since when.
    later : list
        What has to wait for the next instant, as a node cannot leave and join at one.
    closed : bool
        Whether no more nodes are taken.
    """

    limits: Limits
    carriers: dict[str, Carrier] = field(default_factory=dict)
    idle: dict[str, float] = field(default_factory=dict)
    requested: dict[str, float] = field(default_factory=dict)
    joined: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    later: list[CarrierUp] = field(default_factory=list)
    closed: bool = False
    _asked: tuple[Any, ...] | None = None

    def change(self, event: PoolChanged, time_s: float) -> None:
        """Take in which nodes the scheduler leaves idle."""
        for node in event.busy:
            self.idle.pop(node, None)
        self.idle |= {node: time_s for node in event.idle if node not in self.idle}

    def came(self, event: CarrierUp) -> Release | None:
        """Take in a carrier; a second one on a node, or one that comes when nothing is taken any more, is sent away."""
        if event.node in self.left:
            self.later.append(event)
        elif event.node in self.carriers or self.closed:
            return Release(event.node, event.carrier)
        else:
            self.requested.pop(event.node, None)
            self.carriers[event.node] = Carrier(event.carrier, event.address)
            self.joined.append(event.node)
        return None

    def went(self, event: CarrierLeaving | CarrierLost) -> bool:
        """Take in that a carrier leaves, or is gone; whether it held its node until now."""
        carrier = self.carriers.get(event.node)
        self.idle.pop(event.node, None)
        if carrier is None or carrier.name != event.carrier:
            self.requested.pop(event.node, None)
            return False
        was, carrier.leaving = carrier.leaving, True
        if isinstance(event, CarrierLost):
            del self.carriers[event.node]
        if event.node in self.joined:
            self.joined.remove(event.node)
        elif not was:
            self.left.append(event.node)
        return not was

    def balance(self, time_s: float, used: Collection[str], wanted: Callable[[int], int]) -> list[Effect]:
        """Ask for carriers where more nodes are wanted, and give back those that nobody wants.

        Parameters
        ----------
        time_s : float
        used : collection of str
            Nodes that tasks have.
        wanted : callable
            Number of nodes that tasks would have if the pool had so many more.
        """
        self.requested = {node: since for node, since in self.requested.items() if time_s - since < _PATIENCE_S}
        held = [node for node, carrier in self.carriers.items() if not carrier.leaving]
        taken = self.carriers.keys() | self.requested.keys()
        due_s = time_s - self.limits.offer_after_s
        more = [] if self.closed else [n for n, since in self.idle.items() if since <= due_s and n not in taken]
        asked = (*held, "", *more, "", *self.requested, "", *sorted(used))
        if asked == self._asked:
            return []
        self._asked = asked
        coming = len(held) + len(self.requested)
        count = min(wanted(len(more) + len(self.requested)), self.limits.max_nodes)
        if count > coming:
            self.requested |= dict.fromkeys(more[: count - coming], time_s)
            return [Request(tuple(more[: count - coming]))] if more else []
        free = [node for node in held if node not in used]
        return [Release(node, self.carriers[node].name) for node in free[: max(0, len(held) - count)]]

    def forget_demand(self) -> None:
        """Have the next balance count anew: tasks have changed."""
        self._asked = None
