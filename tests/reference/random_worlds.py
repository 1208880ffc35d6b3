"""Small random worlds of each kind, drawn from a seed: a node log, tasks, settings, and what was measured of jobs."""

import csv
import math
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.model import NodeLog, NodePoints, ScalingCurve, TaskSpec, TuningSpec
from tests.reference.replayer import Measured
from tests.reference.rules import NS, Rules, offer_rows
from tests.reference.tuning import MeasuredJob, Point, Size

SIZES, LIMITS = (16, 32, 64, 128), (100, 150, 200, 250)
# By the number of a case: what its tasks are.
KINDS = ("plain", "saving", "tuned", "capped", "tuned saving", "capped saving")
OF_FILES = ("power_options", "pue", "power_cap", "planned")
TRAIN, POWER = "train.csv", "power.csv"


@dataclass(frozen=True)
class World:
    """All that one replay is played from."""

    log: NodeLog
    tasks: tuple[TaskSpec, ...]
    rules: Rules
    measured: Measured

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the world has, for counting."""
        rules = self.rules
        has = {
            "plain": not self.measured and not self.is_saving,
            "saving": self.is_saving,
            "tuned": bool(self.measured),
            "capped": bool(rules.power_cap),
            "offered late": rules.offer_after_s > 0.0,
            f"decides on {rules.decide_on}": True,
            "startup cost": rules.startup_cost == "full",
            f"initially {rules.initial}": rules.initial != "solve",
        }
        return tuple(kind for kind, applies in has.items() if applies)

    @property
    def is_saving(self) -> bool:
        """Whether any task saves."""
        return any(task.checkpoint_s is not None for task in self.tasks)

    def options(self, folder: Path) -> dict[str, Any]:
        """Options of the product's `run_replay`; files that they name are written to the folder."""
        rules, options = self.rules, {"solver": "dp", "baseline": False, "tasks": self.place_tasks(folder)}
        for name in (field.name for field in fields(rules) if field.name not in OF_FILES):
            options[name] = getattr(rules, name)
        if self.measured:
            options |= {name: getattr(rules, name) for name in ("power_options", "pue")}
            write_traces(folder, self.measured)
        if rules.power_cap:
            write_rows(folder / "cap.csv", [("time", "power_w"), *rules.power_cap])
            options["power_cap"] = folder / "cap.csv"
        if rules.planned:
            times = [np.datetime64(self.log.start_ns + round(time_s * NS), "ns") for time_s, _ in rules.planned]
            nodes = [self.log.nodes[node] for _, node in rules.planned]
            write_rows(folder / "planned.csv", [("node", "time"), *zip(nodes, times, strict=True)])
            options["planned_departures"] = folder / "planned.csv"
        return options

    def place_tasks(self, folder: Path) -> list[TaskSpec]:
        """The tasks, with traces in the folder."""
        files = {"train_trace": str(folder / TRAIN), "power_trace": str(folder / POWER)}
        return [
            task if task.tuning is None else replace(task, tuning=replace(task.tuning, **files)) for task in self.tasks
        ]


def write_rows(path: Path, rows: list[tuple[Any, ...]]) -> None:
    """Write a CSV file."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def write_traces(folder: Path, measured: Measured) -> None:
    """Write the two tables that the product reads."""
    job = ("dataset", "network", "optimizer", "batch_size")
    train: list[tuple[Any, ...]] = [(*job, "target_metric", "target_epoch")]
    power: list[tuple[Any, ...]] = [(*job, "power_limit", "time_per_epoch", "average_power")]
    for name, jobs in measured.items():
        for batch_size, size in jobs.sizes.items():
            train += [(*name, batch_size, 0.9, "" if math.isnan(each) else each) for each in size.epochs]
            power += [(*name, batch_size, point.limit_w, point.time_s, point.power_w) for point in size.points]
    write_rows(folder / TRAIN, train)
    write_rows(folder / POWER, power)


@dataclass(frozen=True)
class Manner:
    """How the parts of a world are drawn.

    `is_round`: times are half minutes, completions often too, so that much happens at one instant. `is_calm`: one
    group of many recurrences, one after the other, of which most reach their target, so that it learns.
    """

    window_s: int = 600
    is_tuned: bool = False
    is_capped: bool = False
    is_round: bool = False
    is_calm: bool = False


def draw_world(seed: int, case: int) -> World:
    """The world of a seed and a case, whose kind goes by the case."""
    rng, kind = np.random.default_rng([seed, case]), KINDS[case % len(KINDS)]
    is_tuned, is_capped = "tuned" in kind or "capped" in kind, "capped" in kind
    is_calm = is_tuned and rng.random() < 1 / 3
    window_s = 12_000 if is_calm else int(rng.choice([600, 4000])) if is_tuned else 600
    manner = Manner(window_s, is_tuned, is_capped, rng.random() < 1 / 3, is_calm)
    log, rules = draw_log(rng, manner), draw_rules(rng, manner)
    measured = draw_measurements(rng, manner)
    tasks = [draw_task(rng, f"J{number}", manner) for number in range(int(rng.integers(1, 6)))]
    if is_tuned:
        tasks = tune_tasks(rng, tasks, measured, manner)
    if "saving" in kind:
        tasks = [replace(task, **draw_saving(rng)) if rng.random() < 0.75 else task for task in tasks]
    if is_capped and rules.power_options != "chosen":
        # Credit from the task set is the same at each limit, which then would tie.
        tasks = [replace(task, scaling=replace(task.scaling, credit=None)) for task in tasks]
    # Some windows open later, and what was before tells since when nodes are idle.
    log = replace(log, start_ns=int(rng.choice([0, 0, 45])) * NS)
    log, rules = draw_giving(np.random.default_rng([seed, case, 1]), log, rules)
    rules = replace(rules, planned=draw_planned(np.random.default_rng([seed, case, 2]), log, rules))
    return World(log, tuple(tasks), rules, measured if is_tuned else {})


def draw_giving(rng: np.random.Generator, log: NodeLog, rules: Rules) -> tuple[NodeLog, Rules]:
    """Who gives way: chosen in half of the worlds, in a third of these among nodes of two partitions that overlap.

    In half of the worlds departures are known some time before.
    """
    rules = replace(rules, notice_s=float(rng.choice([0, 0, 0, 5, 30, 120, 1000])) if rng.random() < 0.8 else 30.0)
    if rng.random() < 1 / 2:
        return log, rules
    if rng.random() < 1 / 3:
        lists = {name: ",".join(node for node in log.nodes if rng.random() < 2 / 3) for name in ("batch", "debug")}
        log = replace(log, provenance={"partitions": {name: nodes for name, nodes in lists.items() if nodes}})
    return log, replace(rules, give_way="chosen")


def draw_planned(rng: np.random.Generator, log: NodeLog, rules: Rules) -> tuple[tuple[float, int], ...]:
    """In a quarter of the worlds some departures are planned, and some that never come."""
    if rng.random() < 3 / 4:
        return ()
    rows = offer_rows(log, rules.offer_after_s).items()
    planned = {(time_s, node) for time_s, row in rows for node in sorted(row.left) if rng.random() < 1 / 2}
    return tuple(sorted(planned | {(float(rng.integers(1, 600)), int(rng.integers(len(log.nodes))))}))


def tune_tasks(rng: np.random.Generator, tasks: list[TaskSpec], measured: Measured, manner: Manner) -> list[TaskSpec]:
    """Make all or most of the tasks recurrences, and add some."""
    sections = [draw_section(rng, name, job, manner) for name, job in measured.items()]
    more = 14 if manner.is_calm else int(rng.choice([0, 0, 3, 7]))
    recurring = [draw_task(rng, f"K{number}", manner) for number in range(more)]
    keeps_plain = not manner.is_capped and rng.random() < 0.3
    first, *others = [*tasks, *recurring]
    some = [task if keeps_plain and rng.random() < 0.3 else tune_task(rng, task, sections) for task in others]
    return [tune_task(rng, first, sections), *some]


def draw_rules(rng: np.random.Generator, manner: Manner) -> Rules:
    """Settings; half of the worlds decide on rows alone, a third offer nodes late."""
    few = [1, 1, 1, 2] if manner.is_calm else [1, 1, 2, 3, 4]
    rules = Rules(
        decide_on=str(rng.choice(["all", "nodes"])),
        forward_time_s=float(rng.choice([10.0, 60.0, 600.0])),
        max_tasks=int(rng.choice(few)) if manner.is_tuned else int(rng.integers(1, 5)),
        startup_cost=str(rng.choice(["none", "none", "none", "full"])),
        offer_after_s=float(rng.integers(1, 90)) if rng.random() < 1 / 3 else 0.0,
        idle_power_w=float(rng.choice([0.0, 25.0])),
        seed=int(rng.integers(2**32)),
        initial=str(rng.choice(["solve", "solve", "solve", "empty", *([] if manner.is_capped else ["random"])])),
    )
    if manner.is_tuned:
        options = str(rng.choice(["chosen", "pareto", "all"]))
        rules = replace(rules, power_options=options, pue=float(rng.choice([1.0, 1.25])))
    if manner.is_capped:  # one to four caps, of which eight idle nodes draw up to 250 W
        steps = int(rng.integers(1, 5))
        length_s = -(-manner.window_s // steps)
        caps = tuple((step * float(length_s), float(rng.integers(250, 1500))) for step in range(steps))
        rules = replace(rules, power_cap=caps)
    return rules


def draw_log(rng: np.random.Generator, manner: Manner) -> NodeLog:
    """Up to 8 nodes that flip up to 8 times, often together."""
    size, grid = int(rng.integers(1, 9)), 30 if manner.is_round else int(rng.choice([1, 10]))
    changes = []
    for node in range(size):
        times = rng.choice(manner.window_s // grid + 1, size=int(rng.integers(0, 9)), replace=False) * grid
        changes += [(int(time), node, place % 2 == 0) for place, time in enumerate(sorted(times))]
    time, node, idle = np.array(sorted(changes), dtype=np.int64).reshape(-1, 3).T
    names = tuple(f"n{number}" for number in range(size))
    return NodeLog(names, 0, manner.window_s * NS, time * NS, node.astype(np.int32), idle.astype(np.bool_))


def draw_curve(rng: np.random.Generator, most: int, manner: Manner) -> ScalingCurve:
    """A measured-looking, not always concave curve; some have few points, some a credit of their own."""
    if manner.is_capped:
        # Slopes are distinct there, as which of several equal allocations is taken is not promised.
        steps = rng.uniform(1.0, 40.0, size=(2, most))
    elif manner.is_round:
        steps = rng.choice([0.0, 10.0, 10.0, 20.0], size=(2, most))
    else:
        steps = rng.integers(0, 41, size=(2, most)).astype(float)
    steps[0, 0] = max(1.0, steps[0, 0])
    throughput, credit = ([0.0, *np.cumsum(some).tolist()] for some in steps)
    counts = [count for count in range(most + 1) if count in (0, 1, most) or rng.random() < 0.7]
    credits_there = tuple(credit[count] for count in counts) if rng.random() < 0.3 else None
    return ScalingCurve(tuple(counts), tuple(throughput[count] for count in counts), credits_there)


def draw_task(rng: np.random.Generator, name: str, manner: Manner) -> TaskSpec:
    """A task on up to 6 nodes."""
    most, unit = int(rng.integers(1, 7)), 30 if manner.is_round else 1
    latest_s = manner.window_s * 5 // 6
    return TaskSpec(
        name=name,
        min_nodes=int(rng.integers(1, most + 1)) if rng.random() < 0.5 else 1,
        max_nodes=most,
        work=float(rng.integers(1, 30) * 300 if manner.is_round else rng.integers(1, 20_000)),
        scaling=draw_curve(rng, most, manner),
        grow_cost_s=float(rng.integers(0, 31 + unit) // unit * unit),
        shrink_cost_s=float(rng.integers(0, 21 + unit) // unit * unit),
        submit_s=float(rng.integers(-50, latest_s) // unit * unit)
        if rng.random() < 0.6 and not manner.is_calm
        else 0.0,
    )


def draw_saving(rng: np.random.Generator) -> dict[str, Any]:
    """What saving takes, in whole seconds at any or at some node counts: saves often end just as nodes come and go."""

    def seconds(least: int, most: int) -> float | NodePoints:
        one, other = (float(each) for each in rng.integers(least, most + 1, size=2))
        return one if rng.random() < 0.5 else NodePoints((1, 4), (one, other))

    return {
        "checkpoint_s": seconds(0, 20),
        "restart_s": seconds(0, 30) if rng.random() < 0.7 else None,
        "checkpoint_interval_s": seconds(1, 60) if rng.random() < 0.6 else None,
    }


def draw_measurements(rng: np.random.Generator, manner: Manner) -> Measured:
    """Measurements of one job or two."""
    number = 1 if manner.is_calm else int(rng.integers(1, 3))
    jobs = {("data", f"net{place}", "sgd"): draw_sizes(rng, manner) for place in range(number)}
    highest = max(point.limit_w for sizes in jobs.values() for size in sizes.values() for point in size.points)
    return {name: MeasuredJob(sizes, highest) for name, sizes in jobs.items()}


def draw_sizes(rng: np.random.Generator, manner: Manner) -> dict[int, Size]:
    """One to four batch sizes at one to three limits; the largest size often misses the target."""
    sizes, number = {}, int(rng.integers(2, 4)) if manner.is_calm else int(rng.integers(1, 5))
    for batch_size in sorted(rng.choice(SIZES, size=number, replace=False).tolist()):
        limits = rng.choice(LIMITS, size=int(rng.integers(1, 4)), replace=False).tolist()
        points = tuple(
            Point(limit, round(30.0 - limit / 15.0 + rng.uniform(0.0, 6.0), 3), round(limit * rng.uniform(0.7, 1.0), 2))
            for limit in limits
        )
        missing = 0.5 if batch_size == SIZES[-1] else 0.0 if manner.is_calm else 0.1
        epochs = [math.nan if rng.random() < missing else float(rng.integers(2, 11)) for _ in range(rng.integers(1, 5))]
        sizes[batch_size] = Size(points, tuple(epochs))
    return sizes


def draw_section(rng: np.random.Generator, name: tuple[str, str, str], job: MeasuredJob, manner: Manner) -> TuningSpec:
    """How a job is tuned."""
    return TuningSpec(
        TRAIN,
        POWER,
        *name,
        target_metric=0.9,
        max_epochs=int(rng.integers(10 if manner.is_calm else 6, 12)),
        default_batch_size=int(rng.choice(list(job.sizes))),
        eta=float(rng.choice([0.0, 0.3, 0.5, 1.0])),
        # With 1.0 rounding alone decides whether a run that is like the cheapest one is stopped.
        beta=float(rng.choice([2.0, math.inf] if manner.is_calm else [1.01, 1.2, 2.0, math.inf])),
        seed=int(rng.integers(1000)) if rng.random() < 0.3 else None,
        idle_power_w=float(rng.integers(0, 40)) if rng.random() < 0.5 else None,
    )


def tune_task(rng: np.random.Generator, task: TaskSpec, sections: list[TuningSpec]) -> TaskSpec:
    """A recurrence of one of the jobs."""
    which = int(rng.integers(len(sections)))
    gpus = int(rng.integers(1, 3))
    return replace(task, work=1.0, tuning=sections[which], group=f"g{which}", gpus_per_node=gpus)
