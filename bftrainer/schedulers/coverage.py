"""Judge which part of a log can be believed: near its edges an export misses jobs, and what is missing looks idle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS, NodeSpans, Window, stretches

Edge = Literal["started", "ended"]
_Times = NDArray[np.float64]
_Instants = NDArray[np.int64]

ADVICE = "Export all jobs that ran in a longer time, also those that began before it or still run"
"""What to export instead of a log that cannot be trusted."""
_LEAST_JOBS = 30.0
"""Effective number of jobs below which their lengths are no sample."""
_LEAST_SHARE: dict[tuple[Edge, Edge], float] = {("ended", "started"): 0.0, ("started", "ended"): 2 / 3}
_MANY, _PLACE, _FEW = 150, 3, 0.02
_TAIL, _MEDIAN, _NEARLY_ALL = 0.01, 0.5, 0.99
_HOUR_S, _SPELL_S = 3600.0, 6 * 3600.0
_POINTS = 1000
_DAY_NS = 86_400 * NS_PER_S
_USUAL = 10
_AMID, _LEAST_IDS, _LONGEST_GAP, _MOST_SPARSE = 0.05, 500, 100, 0.5
_HOUR_NS, _QUIET_HOURS, _SETTLED_HOURS = 3600 * NS_PER_S, 20, 6


class _Ages:
    """Share of running node-time that is older than x, which is also the share that has longer than x to run."""

    def __init__(self, length_s: _Times, weight: _Times) -> None:
        order = np.argsort(length_s, kind="stable")
        length, weight = length_s[order], weight[order]
        older = np.cumsum((weight * length)[::-1])[::-1] - length * np.cumsum(weight[::-1])[::-1]
        total = float((weight * length).sum()) or 1.0  # nodes may all be unknown
        self._age_s, self._share = np.append(0.0, length), np.append(1.0, np.maximum(older, 0.0) / total)

    def share_older(self, age_s: _Times) -> _Times:
        """Share that is older; all where an age is below 0."""
        return np.asarray(np.interp(age_s, self._age_s, self._share, right=0.0))

    def quantile_s(self, share: float) -> float:
        """Age in seconds that this share exceeds."""
        return float(np.interp(share, self._share[::-1], self._age_s[::-1]))


@dataclass(frozen=True, slots=True, eq=False)
class Coverage:
    """Which part of a log can be believed, and the reason if none can.

    `edges` are the times by which jobs seem to have been selected near the log's first and last edge, a hint;
    `edges_s` the first and last time of that selection; `tail_s` the age in seconds that one percent of the running
    node-time exceeds, which is how far an edge reaches; `effective_jobs` equal ones would tell as much of lengths.
    """

    trusted: Window | None
    reason: str
    edges: tuple[Edge, Edge]
    edges_s: tuple[float, float]
    tail_s: float
    jobs: int
    effective_jobs: float
    _ages: _Ages

    def missing_share(self, window: Window) -> float | None:
        """Estimated share of a window's busy node-time that the log misses; None if its jobs are no sample."""
        if self.effective_jobs < _LEAST_JOBS:
            return None
        low, high = window.start_ns / NS_PER_S, window.end_ns / NS_PER_S
        at = low + (np.arange(_POINTS) + 0.5) * (high - low) / _POINTS
        # What started before the first edge is missing after it, or what ended before it is missing earlier on.
        missing, distances = np.zeros(_POINTS), (at - self.edges_s[0], self.edges_s[1] - at)
        for since, edge, cuts in zip(distances, self.edges, ("started", "ended"), strict=True):
            older = self._ages.share_older(since if edge == cuts else -since)
            missing += older if edge == cuts else (since < 0) * (1 - older)
        return float(np.minimum(missing, 1.0).mean())


def judge_coverage(
    start_ns: _Instants, end_ns: _Instants, nodes: _Instants, submit_ns: _Instants, *, tells_changes: bool = False
) -> Coverage:
    """Judge the coverage of a log by its jobs, at least one.

    A log `tells_changes` if it tells of starts and ends alone, so that jobs which neither began nor ended within are
    missing. The rule was fitted to made machines of 50 to 500 nodes. A huge unfinished job unlike any seen cannot be
    found.
    """
    start, end = start_ns / NS_PER_S, np.where(end_ns >= OPEN_END_NS, np.inf, end_ns / NS_PER_S)
    width = nodes.astype(np.float64)
    is_over, has_submit = np.isfinite(end), submit_ns > OPEN_START_NS
    if not is_over.any():
        edges_s, ages = (float(start.min()), float(start.max())), _Ages(np.zeros(0), np.zeros(0))
        return Coverage(None, "no job has ended", ("started", "started"), edges_s, 0.0, len(nodes), 0.0, ages)
    length, weight = (end - start)[is_over], width[is_over]
    has_submits = bool(has_submit.mean() > _NEARLY_ALL)
    submit = np.where(has_submits & has_submit, np.minimum(submit_ns / NS_PER_S, start), start)
    wait = start - submit
    ages = _Ages(length, weight)
    half_s, (first_start, last_start), (first_end, last_end) = ages.quantile_s(_MEDIAN), *map(_outermost, (start, end))
    # Old jobs at the first end and long ones at the last start tell what the log selects, if they are on a tenth of the
    # nodes that are busy on average in the middle half of the log.
    span_s = min(last_end, last_start + half_s) - first_start
    low, high = first_start + span_s / 4, first_start + span_s * 3 / 4
    inside = np.maximum(np.minimum(end, high) - np.maximum(start, low), 0.0)
    least = 0.1 * float((width * inside).sum() / max(high - low, 1.0))
    older = width[(start <= first_end - half_s) & (end > first_end)].sum()
    longer = width[(start <= last_start) & (end > last_start + half_s)].sum()
    # So do some without an end, if most are young enough to run still: others were forgotten by the scheduler.
    young = start[np.isinf(end)] >= last_start - ages.quantile_s(_TAIL)
    runs_still = longer >= least or (np.isinf(last_end) and young.mean() > _MEDIAN)
    edges: tuple[Edge, Edge] = "ended" if older >= least else "started", "started" if runs_still else "ended"
    first_end, last_end = _outermost(end if runs_still else end[is_over])
    spell_s, by_submission = max(half_s, _SPELL_S), False
    if edges[0] == "started" and has_submits:
        # Selected by submission if fewer of the first jobs had waited since before the log than all waits let expect.
        early = (start >= first_start) & (start < first_start + spell_s)
        expected = (width * np.minimum(wait, spell_s)).sum() / spell_s / width.sum()
        before = width[early & (submit < first_start)].sum() / max(width[early].sum(), 1e-9)
        by_submission = bool(expected > 0.02 and before < expected / 2)
    # The sample of lengths: of jobs that lie within, longer ones are rarer; others are cut off at the edges.
    if edges == ("started", "ended"):
        within_s = length + wait[is_over] * by_submission
        weight = weight / np.maximum(0.1, 1 - within_s / (last_end - first_start))
    elif edges == ("ended", "started"):
        weight = weight * ((end[is_over] >= first_end) & (end[is_over] <= last_start))
    ages = _Ages(length, weight) if weight.any() else ages
    tail_s = ages.quantile_s(_TAIL)
    # What is nearer to an edge than the oldest jobs may be missing jobs.
    low, high = max(first_end, first_start + tail_s), min(last_start, last_end - tail_s)
    if has_submits:
        # Jobs submitted after the last submission may be missing: later by as much as nearly all jobs waited that had
        # started just before it.
        last = _outermost(submit)[1]
        near = np.flatnonzero((start <= last) & (start > last - spell_s))
        order = near[np.argsort(wait[near], kind="stable")]
        few = int(np.searchsorted(np.cumsum(width[order]), _TAIL * width[order].sum()))
        high = min(high, last + (float(wait[order[few]]) if near.size else 0.0))
    if by_submission:
        # Time since submission that one percent of the running node-time of jobs that are over exceeds.
        waited, total = wait[is_over], (weight * length).sum()
        age_s, oldest_s = 0.0, float((length + waited).max())
        while oldest_s - age_s > 1.0:
            middle = (age_s + oldest_s) / 2
            share = (weight * np.clip(length + waited - middle, 0.0, length)).sum() / total
            age_s, oldest_s = (middle, oldest_s) if share > _TAIL else (age_s, middle)
        low = max(low, float(submit.min()) + oldest_s)
    node_s = weight * length
    effective = float(node_s.sum() ** 2 / max((node_s**2).sum(), 1e-9))
    edges_s = (first_start if edges[0] == "started" else first_end, last_start if edges[1] == "started" else last_end)
    span_s, trusted_s = edges_s[1] - edges_s[0], high - low
    # Edges of a few jobs say nothing.
    least = _LEAST_SHARE.get(edges, 1 / 2) if len(nodes) >= _LEAST_JOBS else 1 / 2
    reason = ""
    if tells_changes and span_s <= tail_s:
        reason = f"it is shorter than the {tail_s / _HOUR_S:,.0f} h that jobs run which neither begin nor end in it"
    elif effective < _LEAST_JOBS and least:
        reason = (
            f"it has too few jobs to tell how long jobs run here: they tell as much as {effective:.0f} of equal "
            f"length, and {_LEAST_JOBS:.0f} are needed"
        )
    elif trusted_s < max(least * span_s, 2.0):
        left = f"{max(trusted_s, 0) / _HOUR_S:,.0f} of {max(span_s, 0) / _HOUR_S:,.0f} h"
        reason = f"jobs are missing up to {tail_s / _HOUR_S:,.0f} h from its edges, which leaves {left}"
    trusted = None if reason else Window(round(low) * NS_PER_S, round(high) * NS_PER_S)
    return Coverage(trusted, reason, edges, edges_s, tail_s, len(nodes), effective, ages)


def _outermost(times: _Times) -> list[float]:
    """First and last of some times, but for a few."""
    few = _PLACE if times.size >= _MANY else int(_FEW * times.size)
    places = [few, times.size - 1 - few]
    return list(map(float, np.partition(times, places)[places]))


def find_empty_days(jobs_ns: Sequence[NDArray[np.int64]], window: Window) -> NodeSpans:
    """Stretches of a window of a day or more without a start or without an end, which these times are.

    They count where many a day are usual, of the days that have any: one long gap does not hide itself.
    """
    spans = [NodeSpans.none()]
    for times_ns in jobs_ns:
        inside = np.sort(times_ns[(times_ns >= window.start_ns) & (times_ns < window.end_ns)])
        counts = np.bincount((inside - window.start_ns) // _DAY_NS, minlength=window.length_ns // _DAY_NS)
        edges = np.concatenate(([window.start_ns], inside, [window.end_ns]))
        usual = np.median(counts[counts > 0]) if inside.size else 0.0
        is_empty = (np.diff(edges) >= _DAY_NS) & (usual >= _USUAL)
        spans.append(NodeSpans(np.zeros_like(is_empty, dtype=np.int32), edges[:-1], edges[1:]).where(is_empty))
    return NodeSpans.concatenate(spans).union()


def find_lost_days(start_ns: NDArray[np.int64], end_ns: NDArray[np.int64], window: Window) -> NodeSpans:
    """Stretches of a window in which jobs began and none ended, as if what ended then were missing from the log.

    An outage looks otherwise, as jobs begin after it, and soon the first one ends; so do jobs that fill a machine for
    days, which begin together. None are lost where few ends are usual.
    """
    ends = np.sort(end_ns[(end_ns > window.start_ns) & (end_ns < window.end_ns)])
    if ends.size < max(2, _USUAL * window.length_ns / _DAY_NS):
        return NodeSpans.none()
    low, high = ends[:-1], ends[1:]
    hours = np.unique(start_ns // _HOUR_NS) * _HOUR_NS
    starts = np.diff(np.searchsorted(hours, np.stack((low, high - _SETTLED_HOURS * _HOUR_NS))), axis=0)[0]
    is_lost = (high - low >= _QUIET_HOURS * _HOUR_NS) & (starts >= _SETTLED_HOURS)
    return NodeSpans(np.zeros_like(is_lost, dtype=np.int32), low, high).where(is_lost)


def list_dates(spans: NodeSpans) -> list[str]:
    """Dates in UTC that the spans take up for the most part, at least one of each."""
    low, high = (np.rint(times_ns / _DAY_NS).astype(np.int64) for times_ns in (spans.start_ns, spans.end_ns))
    days = stretches(low, np.maximum(high - low, 1))
    return list(map(str, np.unique(days).astype("M8[D]").tolist()))


def missing_ids(ids: NDArray[np.int64]) -> float:
    """Share of the job ids amid a log that no row has, if ids are dense: 0 if they are not, or too few.

    A scheduler numbers jobs one by one, and rows of jobs that never ran count too. Longer gaps are ids that nobody had.
    """
    ids = np.sort(ids)  # np.unique takes ten times as long
    ids = ids[np.diff(ids, prepend=-1) > 0]
    amid = ids[int(_AMID * ids.size) : ids.size - int(_AMID * ids.size)]
    if amid.size < _LEAST_IDS:
        return 0.0
    steps = np.diff(amid)
    missing = int((steps[steps <= _LONGEST_GAP] - 1).sum())
    share = missing / (amid.size + missing)
    return share if share <= _MOST_SPARSE and (steps > _LONGEST_GAP).mean() <= _FEW else 0.0
