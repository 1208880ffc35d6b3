"""From busy spans by kind to idle ones, and the node-seconds of both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bftrainer.nodelogs.intervals import Spans, Window
from bftrainer.schedulers.busy_book import Kind

__all__ = ["Swept", "sweep"]


@dataclass(frozen=True, slots=True, eq=False)
class Swept:
    """What a sweep finds.

    Parameters
    ----------
    idle : Spans
        Merged, within the window, sorted by node and start.
    busy_node_s : mapping of str to float
        Node-seconds of the union by kind, in the window.
    job_node_s : float
        Node-seconds of all jobs in the window, counted once a job.
    """

    idle: Spans
    busy_node_s: Mapping[str, float]
    job_node_s: float

    @property
    def overlap_factor(self) -> float | None:
        """Node-seconds of jobs over those of their union; None without jobs."""
        union = self.busy_node_s.get(Kind.JOB.name.lower(), 0.0)
        return self.job_node_s / union if union else None


def sweep(
    blocks: Iterable[Mapping[Kind, Spans]], nodes: int, window: Window, min_gap_ns: int = 0, min_hole_ns: int = 0
) -> Swept:
    """Sweep blocks of busy spans.

    Parameters
    ----------
    blocks : iterable of mapping of Kind to Spans
        The nodes of a block come after those of the one before it.
    nodes : int
        Nodes of the machine; spans index them.
    window : Window
    min_gap_ns : int
        Gaps between two busy spans that are shorter than this are closed.
    min_hole_ns : int
        Idle spans that are shorter than this are left out.
    """
    busy_node_s: defaultdict[str, float] = defaultdict(float)
    job_node_s = 0.0
    unions = []
    for block in blocks:
        by_kind = []
        for kind, spans in block.items():
            # Beyond the window's ends lies what makes a gap at them clean-up.
            near = spans.within(window.start_ns - min_gap_ns - 1, window.end_ns + min_gap_ns + 1)
            if kind is Kind.JOB:
                job_node_s += near.node_s_within(window)
            by_kind.append(near.merged())
            busy_node_s[kind.name.lower()] += by_kind[-1].node_s_within(window)
        union = by_kind[0].closed(min_gap_ns) if len(by_kind) == 1 else Spans.joined(by_kind).merged(min_gap_ns)
        unions.append(union.within(window.start_ns, window.end_ns))
    idle = Spans.joined(unions).gaps(nodes, window).lasting(min_hole_ns)
    return Swept(idle, dict(busy_node_s), job_node_s)
