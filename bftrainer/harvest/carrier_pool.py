"""Nodes of a harvest: those that are idle, those that carriers hold, and how many are wanted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from bftrainer.harvest.harvest_events import (
    CarrierLeaving,
    CarrierLost,
    CarrierUp,
    Effect,
    PoolChanged,
    Release,
    Request,
)

_PATIENCE_S = 180.0
"""A carrier that did not come for so long is asked for again."""
PORTS = 4_000
"""Number of ports that generations take in turn: as many may still be in use by those that ended."""


@dataclass(frozen=True, slots=True)
class HarvestLimits:
    """How much a harvest takes.

    Parameters
    ----------
    max_nodes : int
        At once.
    offer_after_s : float
        A node is taken once it has been idle for so long.
    settle_s : float
        For how long a carrier that came waits at most for others that were asked for, as each change of a task's nodes
        costs it time.
    first_port : int
        Ranks of a task meet at one of the `PORTS` from this on.
    stays : bool
        Whether it goes on when no task is left, waiting for more.
    """

    max_nodes: int = 1_000_000
    offer_after_s: float = 0.0
    settle_s: float = 1.0
    first_port: int = 20_000
    stays: bool = False


@dataclass(slots=True)
class Carrier:
    """A carrier that holds a node; the allocator has the node from when it is `told` until it is `leaving`."""

    name: str
    address: str
    since_s: float
    told: bool = False
    leaving: bool = False


@dataclass(slots=True)
class CarrierPool:
    """What is known of the nodes; `left` is what the allocator is to be told of the present instant.

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

    limits: HarvestLimits
    carriers: dict[str, Carrier] = field(default_factory=dict)
    idle: dict[str, float] = field(default_factory=dict)
    requested: dict[str, float] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    later: list[CarrierUp] = field(default_factory=list)
    closed: bool = False
    _situation: tuple[Any, ...] | None = None

    def change(self, event: PoolChanged, time_s: float) -> None:
        """Take in which nodes the scheduler leaves idle."""
        for node in event.busy:
            self.idle.pop(node, None)
        self.idle |= {node: time_s for node in event.idle if node not in self.idle}

    def add_carrier(self, event: CarrierUp, time_s: float) -> Release | None:
        """Take in a carrier; a second one on a node, or one that comes when nothing is taken any more, is sent away."""
        if event.node in self.left:
            self.later.append(event)
        elif event.node in self.carriers or self.closed:
            return Release(event.node, event.carrier)
        else:
            self.requested.pop(event.node, None)
            self.carriers[event.node] = Carrier(event.carrier, event.address, time_s)
        return None

    def join_nodes(self, time_s: float) -> list[str]:
        """Nodes that the allocator is to have from now on: those of new carriers, when no other is to be waited for."""
        self.requested = {node: since for node, since in self.requested.items() if time_s - since < _PATIENCE_S}
        new = [node for node, carrier in self.carriers.items() if not (carrier.told or carrier.leaving)]
        oldest_s = min((self.carriers[node].since_s for node in new), default=time_s)
        if self.requested and time_s - oldest_s < self.limits.settle_s:
            return []
        for node in new:
            self.carriers[node].told = True
        return new

    def remove_carrier(self, event: CarrierLeaving | CarrierLost) -> bool:
        """Take in that a carrier leaves, or is gone; whether the allocator had its node until now."""
        carrier = self.carriers.get(event.node)
        self.idle.pop(event.node, None)
        if carrier is None or carrier.name != event.carrier:
            self.requested.pop(event.node, None)
            self.forget_demand()  # all may look as it did when it was asked for
            return False
        had, carrier.leaving = carrier.told and not carrier.leaving, True
        if isinstance(event, CarrierLost):
            del self.carriers[event.node]
        self.left += [event.node] if had else []
        return had

    def offered(self, time_s: float) -> list[str]:
        """Nodes that could be asked for: idle for long enough, and not held yet."""
        due_s, taken = time_s - self.limits.offer_after_s, self.carriers.keys() | self.requested.keys()
        return [] if self.closed else [n for n, since in self.idle.items() if since <= due_s and n not in taken]

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
        held = [node for node, carrier in self.carriers.items() if not carrier.leaving]
        more = self.offered(time_s)
        leaving = len(self.carriers) - len(held)
        situation = (leaving, *held, "", *more, "", *self.requested, "", *sorted(used))
        if situation == self._situation:
            return []
        self._situation = situation
        coming = len(held) + len(self.requested)
        new = sum(not self.carriers[node].told for node in held)
        count = min(wanted(len(more) + len(self.requested) + new), self.limits.max_nodes - leaving)
        if count > coming:
            asked = tuple(more[: count - coming])
            self.expect(asked, time_s)
            return [Request(asked)] if asked else []
        free = [node for node in held if node not in used]
        return [Release(node, self.carriers[node].name) for node in free[: max(0, len(held) - count)]]

    def expect(self, nodes: Iterable[str], time_s: float) -> None:
        """Note that carriers were asked for."""
        self.requested |= dict.fromkeys(nodes, time_s)

    def forget_demand(self) -> None:
        """Have the next balance count anew: tasks have changed."""
        self._situation = None
