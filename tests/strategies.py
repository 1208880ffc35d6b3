"""Hypothesis strategies for the nouns, shared by all tests."""

import numpy as np
from hypothesis import strategies as st

from bftrainer.model import NodeLog, ScalingCurve, TaskSpec

EPOCH_NS = 1_612_915_200_000_000_000
"""2021-02-10 00:00 UTC."""

names = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=8)
positive = st.floats(1e-3, 1e12, allow_nan=False, allow_infinity=False)
not_negative = st.one_of(st.just(0.0), positive)
instants_ns = st.integers(EPOCH_NS, EPOCH_NS + 10**15)


@st.composite
def node_logs(draw, max_nodes: int = 5, max_rows: int = 8) -> NodeLog:
    """Logs of a few nodes; transitions may lie before the window, which may reach beyond them.

    Some rows within the window change nothing.
    """
    nodes = tuple(draw(st.lists(names, min_size=1, max_size=max_nodes, unique=True)))
    times = sorted(draw(st.sets(instants_ns, max_size=max_rows)))
    changes = []
    state = [False] * len(nodes)
    for time in times:
        for node in sorted(draw(st.sets(st.integers(0, len(nodes) - 1), min_size=1))):
            state[node] = not state[node]
            changes.append((time, node, state[node]))
    first, last = (times[0], times[-1]) if times else (EPOCH_NS, EPOCH_NS)
    end = draw(st.integers(last, last + 10**12))
    start = draw(st.integers(first - 10**12, end))
    unchanged = draw(st.sets(st.integers(start, end), max_size=3)) - {start, end, *times}
    return NodeLog(
        nodes,
        start,
        end,
        np.array([time for time, _, _ in changes], dtype=np.int64),
        np.array([node for _, node, _ in changes], dtype=np.int32),
        np.array([idle for _, _, idle in changes], dtype=np.bool_),
        draw(st.dictionaries(names, st.one_of(names, st.integers(0, 9)), max_size=2)),
        np.array(sorted(unchanged), dtype=np.int64),
    )


@st.composite
def tasks(draw, name: str | None = None, dated: bool | None = None) -> TaskSpec:
    """Tasks with each field drawn; `dated`: submitted by date, or by seconds, or either if None."""
    counts = sorted(draw(st.sets(st.integers(1, 32), min_size=1, max_size=5)))
    values = st.lists(not_negative, min_size=len(counts), max_size=len(counts))
    credit = draw(st.one_of(st.none(), values))
    curve = ScalingCurve((0, *counts), (0.0, *draw(values)), None if credit is None else (0.0, *credit))
    most = draw(st.integers(1, curve.max_nodes))
    by_date = draw(st.booleans()) if dated is None else dated
    deadline = draw(st.sampled_from(["none", "date", "seconds"]))
    return TaskSpec(
        name=name or draw(names),
        min_nodes=draw(st.integers(1, most)),
        max_nodes=most,
        work=draw(positive),
        scaling=curve,
        grow_cost_s=draw(not_negative),
        shrink_cost_s=draw(not_negative),
        submit_s=0.0 if by_date else draw(not_negative),
        submit_ns=draw(instants_ns) if by_date else None,
        weight=draw(positive),
        deadline_s=draw(not_negative) if deadline == "seconds" else None,
        deadline_ns=draw(instants_ns) if deadline == "date" else None,
        gpus_per_node=draw(st.integers(1, 8)),
        group=draw(st.one_of(st.none(), names)),
        user=draw(st.one_of(st.none(), names)),
    )


def task_sets(dated: bool | None = None) -> st.SearchStrategy[tuple[TaskSpec, ...]]:
    """One to four tasks of different names."""
    many = st.lists(names, min_size=1, max_size=4, unique=True)
    return many.flatmap(lambda some: st.tuples(*(tasks(name, dated) for name in some)))
