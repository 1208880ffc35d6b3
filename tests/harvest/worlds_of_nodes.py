"""Worlds for a controller: tasks that train as they say, on nodes that come and go."""

from __future__ import annotations

import sys

from bftrainer.harvest.controller import Controller, HarvestLimits
from bftrainer.harvest.harvest_events import (
    CarrierUp,
    HarvestEnded,
    Note,
    PoolChanged,
    Progressed,
    RankExited,
    Release,
    Request,
    StartRank,
    StopRank,
    Submitted,
)
from bftrainer.objectives import throughput
from bftrainer.replay import Settings

START_NS = 1_700_000_000 * 10**9
__all__ = ["START_NS", "carried", "controller", "kinds", "progress", "run_on", "table"]


def table(name="a", **changes):
    """A task of 100 work/s and node on up to 4 nodes, which runs nothing that matters."""
    fields = {"name": name, "min_nodes": 1, "max_nodes": 4, "work": 1e6, "command": [sys.executable, "-c", "pass"]}
    fields["scaling"] = {"model": "linear", "rate_1": 100.0}
    return fields | changes


def controller(*tables, **limits):
    """A controller that these tasks were just submitted to."""
    made = Controller(
        Settings(objective=throughput, solver="dp", startup_cost="full"), START_NS, HarvestLimits(**limits)
    )
    made.step(0.0, [Submitted("tasks.toml", each) for each in tables or (table(),)])
    return made


def carried(made, time_s, *nodes):
    """Have nodes be idle and carriers come to them; the effects."""
    asked = made.step(time_s, [PoolChanged(nodes)])
    wanted = [node for effect in asked if isinstance(effect, Request) for node in effect.nodes]
    return made.step(time_s, [CarrierUp(node, f"c-{node}") for node in wanted])


def run_on(effects):
    """Which tasks are started where: node, task, generation, rank, size."""
    started = [each for each in effects if isinstance(each, StartRank)]
    return [(each.node, each.task.name, each.generation, each.rank, each.world_size) for each in started]


def kinds(effects):
    """Effects in short."""
    short = {
        Request: "ask",
        Release: "release",
        StopRank: "stop",
        StartRank: "start",
        HarvestEnded: "ended",
        Note: "note",
    }
    return [(short[type(each)], getattr(each, "node", None) or getattr(each, "nodes", None)) for each in effects]


def progress(task, generation, work, saved, time_s, began=-1.0):
    """A report at a time of the world."""
    return Progressed(task, generation, work, saved, START_NS / 1e9 + time_s, began)


def exits(made, time_s, task, generation, *nodes, status=0, tail=""):
    """Have ranks end; the effects."""
    return made.step(time_s, [RankExited(task, generation, node, status, tail) for node in nodes])
