"""Runs that no record ends although their nodes went on to run other jobs: runaways, as Slurm calls them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS, NodeSpans, stretches
from bftrainer.schedulers.busy_records import BusyRecords

_MOST_SHARED = 0.01
"""Share of a node's busy time that finished jobs may share, for it to be one that runs one job at a time."""
_SURE = 20
"""Finished jobs of a node that tell this of it, whatever the others do; fewer of all nodes together tell nothing."""


def end_runaways(records: BusyRecords, is_job: NDArray[np.bool_]) -> tuple[BusyRecords, NDArray[np.bool_]]:
    """End runs without an end where another job starts on one of their nodes, if those run one job at a time.

    `is_job` marks records that are jobs, each once. Returns the records, and which runs were ended.
    """
    open_runs = np.flatnonzero(is_job & (records["is_open"] > 0))
    if open_runs.size:
        # Suspects are those of whose nodes one ran a job that started later.
        latest = records.where(is_job).extreme_of_nodes(np.maximum, "start_ns", OPEN_START_NS)
        sizes, of_list = np.diff(records.set_ends), np.full(records.set_ends.size - 1, OPEN_START_NS)
        of_list[sizes > 0] = np.maximum.reduceat(latest[records.set_nodes], records.set_ends[:-1][sizes > 0])
        open_runs = open_runs[of_list[records["nodes"][open_runs]] > records["start_ns"][open_runs]]
    if not open_runs.size:
        return records, np.zeros(len(records), dtype=np.bool_)
    node, row = _pair_nodes_and_jobs(records, np.flatnonzero(is_job), open_runs)
    start, is_suspect = records["start_ns"][row], np.isin(row, open_runs)
    alone = _run_one_job_at_a_time(records, node, row)[node]
    # Nodes and ranks of starts in one number: the next start on a node is the next number that is larger.
    starts, rank = np.unique(start, return_inverse=True)
    key = node.astype(np.int64) * (starts.size + 1) + rank
    order = np.argsort(key, kind="stable")
    asked = np.flatnonzero(is_suspect & alone)
    at = np.searchsorted(key[order], key[asked], side="right")
    has_next = at < order.size
    asked, after = asked[has_next], order[at[has_next]]
    is_same = node[after] == node[asked]
    ends = np.full(len(records), OPEN_END_NS)
    np.minimum.at(ends, row[asked[is_same]], start[after[is_same]])
    is_runaway = ends < records["end_ns"]
    ended = replace(records, rows=records.rows.assign(end_ns=np.minimum(records["end_ns"], ends)))
    return ended, is_runaway & (records["is_open"] > 0)


def _pair_nodes_and_jobs(
    records: BusyRecords, jobs: NDArray[np.int64], suspects: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Each node of the suspects with each job that ran on it."""
    sizes, is_asked = np.diff(records.set_ends), np.zeros(len(records.names), dtype=np.bool_)
    sets = np.unique(records["nodes"][suspects])
    is_asked[records.set_nodes[stretches(records.set_ends[:-1][sets], sizes[sets])]] = True
    members = np.flatnonzero(is_asked[records.set_nodes])
    of_set = np.repeat(np.arange(sizes.size), sizes)[members]
    by_set = jobs[np.argsort(records["nodes"][jobs], kind="stable")]
    counts = np.bincount(records["nodes"][jobs], minlength=sizes.size)
    row = by_set[stretches((np.cumsum(counts) - counts)[of_set], counts[of_set])]
    return np.repeat(records.set_nodes[members], counts[of_set]), row


def _run_one_job_at_a_time(records: BusyRecords, node: NDArray[np.int32], row: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which nodes ran jobs that ended, and next to never two of them together."""
    is_over = records["is_open"][row] == 0
    row, node, nodes = row[is_over], node[is_over], len(records.names)
    spans = NodeSpans(node, records["start_ns"][row], records["end_ns"][row])
    total, union = spans.seconds_by_node(nodes), spans.merged().seconds_by_node(nodes)
    is_whole = (total > 0) & (total - union <= _MOST_SHARED * total)
    # What few jobs did on a node says little of it where others are shared.
    is_sure = np.bincount(node, minlength=nodes) >= _SURE
    are_alike = row.size >= _SURE and bool((total - union).sum() <= _MOST_SHARED * total.sum())
    return np.asarray(is_whole & (is_sure | are_alike))
