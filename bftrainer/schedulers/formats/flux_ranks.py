"""Which of Flux's ranks were up, event by event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bftrainer.nodelogs.hostlist import expanded, numbers
from bftrainer.nodelogs.intervals import OPEN_END_NS, OPEN_START_NS

__all__ = ["Ranks"]


class Ranks:
    """What a resource eventlog has told so far.

    A rank is up while it is online, neither drained nor excluded. Restarts of Flux take all ranks offline, and leave
    drained ones drained.

    Parameters
    ----------
    names : mapping of int to str
        Nodes of ranks, as far as they are known.

    References
    ----------
    flux-core, `src/modules/resource`: drained ranks are replayed from the eventlog when Flux restarts.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = dict(names)
        self._online: set[int] = set()
        self._drained: set[int] = set()
        self._excluded: set[int] = set()
        self._up: set[int] = set()
        self._down_since_ns: dict[int, int] = {}
        self._down: list[tuple[int, int, int]] = []
        self._first_ns, self._last_ns = OPEN_END_NS, OPEN_START_NS

    def apply(self, name: str, context: Mapping[str, Any], now_ns: int) -> bool:
        """Take an event; whether it is one of availability.

        Raises
        ------
        HostlistError
            If it names no set of ranks.
        """
        self._first_ns, self._last_ns = min(self._first_ns, now_ns), max(self._last_ns, now_ns)
        some = _ids(context.get("idset", ""))
        if name in ("resource-init", "restart"):
            self._online = set(_ids(context.get("online", "")))
            self._excluded = set(_ids(context.get("exclude", "")))
            drain = context.get("drain")
            drained = {rank for ranks in (drain if isinstance(drain, dict) else {}) for rank in _ids(ranks)}
            self._drained |= drained
            some = (*_ids(context.get("ranks", "")), *self._online, *self._excluded, *drained)
        elif name == "online":
            self._online.update(some)
        elif name == "offline":
            self._online.difference_update(some)
        elif name == "drain":
            self._drained.update(some)
        elif name == "undrain":
            self._drained.difference_update(some)
        else:
            return False
        if context.get("nodelist"):
            self.learn(_ids(context.get("ranks", "")) or some, expanded(str(context["nodelist"])))
        self._settle(some, now_ns)
        return True

    def _settle(self, some: Iterable[int], now_ns: int) -> None:
        """Note which ranks came up or went down; those told of for the first time were down before."""
        for rank in some:
            if rank not in self._up:
                self._down_since_ns.setdefault(rank, OPEN_START_NS)
        up = self._online - self._drained - self._excluded
        for rank in up - self._up:
            self._down.append((rank, self._down_since_ns.pop(rank), now_ns))
        for rank in self._up - up:
            self._down_since_ns[rank] = now_ns
        self._up = up

    def learn(self, ranks: Sequence[int], names: Sequence[str]) -> None:
        """Remember the names of ranks, if there are as many of both."""
        if len(ranks) == len(names):
            for rank, name in zip(ranks, names, strict=True):
                self._names.setdefault(rank, name)

    def name(self, rank: int) -> str:
        """Node of a rank, as far as it is known."""
        return self._names.get(rank, f"rank{rank}")

    def has_nameless(self) -> bool:
        """Whether events told of ranks whose nodes are not known."""
        return any(rank not in self._names for rank in self._up | self._down_since_ns.keys())

    def downtimes(self) -> Iterator[tuple[str, int, int]]:
        """Node, start and end of each stretch in which a rank was down."""
        still = ((rank, since_ns, OPEN_END_NS) for rank, since_ns in self._down_since_ns.items())
        for rank, start_ns, end_ns in (*self._down, *still):
            yield self.name(rank), start_ns, end_ns

    def window_ns(self) -> tuple[int, int]:
        """First and last event."""
        return self._first_ns, self._last_ns


def _ids(text: Any) -> tuple[int, ...]:
    return numbers(str(text).strip("[]"))
