"""Worlds for a controller: scripts of what happens to tasks, on nodes that come and go."""

import sys
from itertools import groupby

from bftrainer.harvest import harvest_events as ev
from bftrainer.harvest.controller import Controller, HarvestLimits
from bftrainer.objectives import throughput
from bftrainer.replay import Settings

START_NS = 1_700_000_000 * 10**9


def table(name="a", **changes):
    """A task of 100 work/s and node on up to 4 nodes, which runs nothing that matters."""
    fields = {"name": name, "min_nodes": 1, "max_nodes": 4, "work": 1e6, "command": [sys.executable, "-c", "pass"]}
    fields["scaling"] = {"model": "linear", "rate_1": 100.0}
    return fields | changes


def controller(*tables, **limits):
    """A controller that these tasks were just submitted to."""
    settings = Settings(objective=throughput, solver="dp", startup_cost="full")
    made = Controller(settings, START_NS, HarvestLimits(**limits))
    made.step(0.0, [ev.Submitted("tasks.toml", each) for each in tables or (table(),)])
    return made


def progress(task, generation, work, saved, time_s, began=-1.0):
    """A report at a time of the world."""
    return ev.Progressed(task, generation, work, saved, START_NS / 1e9 + time_s, began)


def play(made, script, tables=()):
    """Have a controller live through lines of a time, what happens then, and ``->`` all that it does about that.

    Carriers are called `c-` and their node, ranks by task and generation, as ``a.1``; a report has work done, saved
    and its time. Tasks that are submitted are among the tables.
    """
    for line in filter(None, map(str.strip, script.splitlines())):
        said, arrow, done = line.partition("->")
        time_s, _, happens = said.strip().partition(" ")
        events = [event for some in happens.split(";") for event in _read(some.split(), tables)]
        effects = made.step(made.time_s if time_s == "now" else float(time_s), events)
        if arrow:
            told = "; ".join(_tell(effects))
            assert told == done.strip(), f"{line}: {told}"


def _read(words, tables):
    """Events of a few words."""
    kinds = {"up": ev.CarrierUp, "leaving": ev.CarrierLeaving, "lost": ev.CarrierLost}
    match words:
        case ["idle", *nodes]:
            return [ev.PoolChanged(tuple(nodes))]
        case ["up" | "leaving" | "lost" as what, *nodes]:
            return [kinds[what](node, f"c-{node}") for node in nodes]
        case ["exit" | "crash" as what, rank, *nodes]:
            task, generation = rank.split(".")
            fault = (1, "boom") if what == "crash" else (0, "")
            return [ev.RankExited(task, int(generation), node, *fault) for node in nodes]
        case ["report", rank, *numbers]:
            task, generation = rank.split(".")
            return [progress(task, int(generation), *map(float, numbers))]
        case ["submit", name]:
            return [ev.Submitted("more.toml", next(each for each in tables if each["name"] == name))]
        case ["want", count]:
            return [ev.NodesWanted(int(count))]
        case ["restart"]:
            return [ev.Restarted()]
        case ["drain" | "stop" as what]:
            return [ev.Asked(what)]
    assert not words, words
    return []


def _tell(effects):
    """Effects in words; ranks that start together are those of all nodes, in order."""
    for kind, some in groupby(effects, lambda effect: (type(effect), getattr(effect, "task", None))):
        group = list(some)
        assert all(each.carrier == f"c-{each.node}" for each in group if hasattr(each, "carrier"))
        match kind[0]:
            case ev.StartRank:
                assert [(each.rank, each.world_size) for each in group] == [(n, len(group)) for n in range(len(group))]
                yield f"start {group[0].task.name}.{group[0].generation} {' '.join(each.node for each in group)}"
            case ev.StopRank:
                yield f"stop {group[0].task}.{group[0].generation} {' '.join(each.node for each in group)}"
            case ev.Release:
                for is_lent, nodes in groupby(group, lambda each: each.for_others):
                    yield f"{'lend' if is_lent else 'release'} {' '.join(each.node for each in nodes)}"
            case ev.Request:
                yield f"ask {' '.join(node for each in group for node in each.nodes)}"
            case ev.Note:
                yield from (f"say {each.text}" for each in group)
            case ev.HarvestEnded:
                yield f"over {group[0].reason}"
