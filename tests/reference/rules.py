"""Settings of a replay, and the rows of the log that it offers."""

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from bftrainer.model import NodeLog

NS = 1_000_000_000


@dataclass(frozen=True)
class Rules:
    """Settings of a replay, named like the product's options; a cap as times, the first 0, and watts at the meter."""

    decide_on: str = "all"
    forward_time_s: float = 60.0
    max_tasks: int = 10
    startup_cost: str = "none"
    offer_after_s: float = 0.0
    power_cap: tuple[tuple[float, float], ...] = ()
    power_options: str = "chosen"
    idle_power_w: float = 0.0
    pue: float = 1.0
    seed: int = 0
    initial: str = "solve"
    give_way: str = "named"
    notice_s: float = 0.0
    planned: tuple[tuple[float, int], ...] = ()  # departures known in advance: time and node

    @property
    def expected_s(self) -> float:
        """G2: for how long a loss is known before, as tasks expect it."""
        return math.inf if self.planned else self.notice_s

    def known_before_s(self, nodes: set[int], time_s: float) -> float:
        """G2: for how long it is known that nodes leave at a time: from the start on if that is planned."""
        return math.inf if self.planned and {(time_s, node) for node in nodes} <= {*self.planned} else self.notice_s


class Row(NamedTuple):
    """A row of the node log: nodes that join and leave the pool, by number."""

    joined: set[int] = set()  # noqa: RUF012 - never changed
    left: set[int] = set()  # noqa: RUF012


def offer_rows(log: NodeLog, after_s: float) -> dict[float, Row]:
    """R1.1: rows, by time, of what is offered of a log: each node once the log tells that it has been idle so long."""
    changes: dict[int, Row] = defaultdict(lambda: Row(set(), set()))
    delay_ns = round(after_s * NS)
    for node in range(len(log.nodes)):
        steps = [(int(t), bool(idle)) for t, n, idle in zip(log.time_ns, log.node, log.idle, strict=True) if n == node]
        for (begin, is_idle), (end, _) in pairwise([*steps, (log.end_ns + 1, False)]):
            offered = max(begin + delay_ns, log.start_ns)
            # With a delay, what would be offered at the window's very end is not.
            if is_idle and offered < (min(end, log.end_ns) if delay_ns else end):
                changes[offered].joined.add(node)
                if end <= log.end_ns:
                    changes[end].left.add(node)
    return {(time - log.start_ns) / NS: row for time, row in changes.items()}
