"""Where a harvest stands, for people: as text and as rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bftrainer.harvest.controller import Controller
from bftrainer.harvest.task_life import TaskLife

_HEADINGS = ("task", "status", "nodes", "work", "done", "work/s", "generation", "failures")
_SCALES = 1.01
"""A curve that rises by less is flat, to say why nodes are not used."""


def describe_status(controller: Controller) -> dict[str, Any]:
    """Where a harvest stands, as plain values."""
    pool, lives = controller.pool, controller.tasks.values()
    return {
        "start_ns": controller.start_ns,
        "time_s": controller.time_s,
        "idle": len(pool.idle),
        "held": sum(not carrier.leaving for carrier in pool.carriers.values()),
        "leaving": sum(carrier.leaving for carrier in pool.carriers.values()),
        "requested": len(pool.requested),
        "closed": pool.closed,
        "unused": min(len(pool.offered(controller.time_s)), pool.limits.max_nodes - len(pool.carriers)),
        "tasks": [
            {
                "task": life.name,
                "status": str(life.status),
                "nodes": len(life.nodes),
                "work": life.work,
                "total": life.task.spec.work,
                "saved": life.saved,
                "rate": life.rate if life.current is not None else 0.0,
                "generation": life.generations,
                "failures": life.failures,
                "why": life.why,
                "is_measured": life.is_measured,
                "is_flat": _is_flat(controller, life),
            }
            for life in lives
        ],
    }


def _is_flat(controller: Controller, life: TaskLife) -> bool:
    """Whether a task whose curve is learnt could have more nodes, and is believed to gain nothing by them."""
    count, spec = len(life.nodes), controller.allocator.task(life.name).believed if life.nodes else None
    return spec is not None and bool(count < spec.max_nodes and spec.rates[count:].max() <= _SCALES * spec.rates[count])


def unused_text(status: Mapping[str, Any]) -> str:
    """Why nodes are not used that are idle, as far as beliefs of curves tell; empty if they don't."""
    flat = [
        f"`{each['task']}` is believed not to scale beyond {each['nodes']}"
        for each in status["tasks"]
        if each["is_flat"]
    ]
    if status["over"] or status["unused"] <= 0 or not flat:
        return ""
    return f"{status['unused']} node{'s' * (status['unused'] > 1)} not used: {', '.join(flat)}"


def status_text(status: Mapping[str, Any], *, runs: bool) -> str:
    """One line: whether it runs, and how many nodes it has."""
    state = f"over ({status['over']})" if status["over"] else "running" if runs else "not running; to be started again"
    nodes = f"{status['held']} nodes held, {status['leaving']} leaving, {status['requested']} asked for"
    nodes = f"{nodes}, of {status['idle']} idle"
    nodes += ", and no more are taken" if status["closed"] and not status["over"] else ""
    if not runs and not status["over"]:
        nodes = f"the {status['held'] + status['leaving']} nodes that it held are given back without it"
    return f"{state}, {status['time_s']:,.0f} s after it was begun; {nodes}"


def status_rows(status: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and rows: a task each."""
    rows: list[tuple[str, ...]] = []
    for each in status["tasks"]:
        done = f"{100 * min(1.0, each['work'] / each['total']):.1f} %"
        rate = f"{each['rate']:,.0f}" if each["rate"] >= 1000 else f"{each['rate']:.4g}"
        figures = str(each["nodes"]), f"{each['work']:,.0f}", done, rate
        rows.append((each["task"], each["status"], *figures, str(each["generation"]), str(each["failures"])))
    return _HEADINGS, rows
