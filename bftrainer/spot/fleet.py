"""Which node prepares, stands by, or is active: nodes are active in whole pipelines only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["Fleet"]


class Fleet:
    """Nodes of a pipeline-parallel run; each is in one state, in the order in which it came to it.

    Parameters
    ----------
    depth : int
        Nodes of a pipeline.
    most : int
        Active nodes at most.
    """

    __slots__ = ("active", "depth", "most", "preparing", "standby")

    def __init__(self, depth: int, most: int) -> None:
        self.depth = depth
        self.most = most
        # Dictionaries for their order: a set's would depend on how it was filled.
        self.preparing: dict[int, int] = {}
        self.standby: dict[int, None] = {}
        self.active: dict[int, None] = {}

    @property
    def can_grow(self) -> bool:
        """Whether a whole pipeline stands by, and may become active."""
        return len(self.standby) >= self.depth and len(self.active) + self.depth <= self.most

    @property
    def ready_ns(self) -> int | None:
        """When the next node has prepared."""
        return next(iter(self.preparing.values()), None)

    def join(self, ready_ns: Mapping[int, int]) -> None:
        """Nodes come; each prepares until its time, which never falls from node to node and call to call."""
        self.preparing.update(ready_ns)

    def prepare(self, now_ns: int) -> None:
        """Nodes that have prepared by now stand by."""
        ready = []
        for node, ready_ns in self.preparing.items():
            if ready_ns > now_ns:
                break
            ready.append(node)
        for node in ready:
            del self.preparing[node]
            self.standby[node] = None

    def leave(self, nodes: Iterable[int]) -> tuple[int, int]:
        """Nodes go; how many of them were active, and how many stood by."""
        active = standby = 0
        for node in nodes:
            if node in self.active:
                del self.active[node]
                active += 1
            elif node in self.standby:
                del self.standby[node]
                standby += 1
            else:
                del self.preparing[node]
        return active, standby

    def dissolve(self) -> None:
        """Active nodes stand by, before those that did."""
        self.standby = self.active | self.standby
        self.active = {}

    def form(self) -> int:
        """As many pipelines of the nodes that stand by as there can be; the number of active nodes."""
        room = min(len(self.standby), self.most - len(self.active))
        for node in list(self.standby)[: room - room % self.depth]:
            del self.standby[node]
            self.active[node] = None
        return len(self.active)
