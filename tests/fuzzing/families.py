"""Families of cases: each draws a command over damaged copies of small files, or a call."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random

import numpy as np

from bftrainer import ReplayConfig, run_replay
from solvers import AllocationProblem, Floor, Limits, LinearRow, TaskOptions, check, registry
from tests.fuzzing.cases import Case
from tests.fuzzing.commands import COMMANDS, changes_of, lines, option
from tests.fuzzing.mutations import damaged, hostile, leaf
from tests.fuzzing.seeds import Special, corpus, files_of, scheduler_logs, signed_anew, world
from tests.replay.test_misuse import CALLS, ODD

Family = Callable[[Random], Case]
Files = dict[str, bytes | Special]
_BESIDE = {"idle.csv": ("idle.json",), "evt2.csv": ("evt2.json",), "tuned.toml": ("train.csv", "power.csv")}
_SPECIALS = (Special("fifo"), Special("folder"), Special("link", "absent"), Special("link", "folder"), Special("hole"))
_NAMES = ("\udcff{}", "\u202e{}", "a\nb{}", "-{}", "~{}", " {}", "{}\x1b[2J", "%s{}", "{}{}" * 20, "é{}", "'{}", "--{}")


def logs(rng: Random) -> Case:
    """A scheduler's log is imported."""
    kind, files = scheduler_logs()[rng.choice(sorted(scheduler_logs()))]
    nodes = rng.choice(("n[1-4]", "n[1-4]", "seen", "4", hostile(rng)))
    words = ["import", "--format", rng.choice((kind, kind, kind, "auto")), *files, "--nodes", nodes]
    words += ["-o", rng.choice(("out.csv", "out.parquet", "out.pkl"))]
    if rng.random() < 0.7:
        words += ["--max-bad", "1"]
    if kind == "slurm":
        words += ["--tz", rng.choice(("UTC", "Europe/Berlin", hostile(rng)))]
    return Case("logs", tuple(words), damage(rng, dict(files)))


def chosen(rng: Random, line: str) -> tuple[list[str], Files]:
    """Words of a command, and the files that it names, or that stand behind a bar as its inputs name them."""
    pickles = [name for name in world() if name.endswith(".pkl")]
    points = sorted({name[: name.rindex("/")] for name in world() if name.startswith("swept/runs/")})
    forms = [
        "idle.csv",
        "idle.csv",
        "idle.parquet",
        "idle.parquet",
        "made.parquet",
        "evt.pkl",
        "evt.tar.gz",
        "sample-idle.parquet",
    ]
    files: Files = {}
    some = {
        "window": "--tz UTC --start 2026-09-01T00:01:40Z --end 2026-09-01T00:06:40Z --window asked",
        "point": rng.choice(points),
        "world": rng.choice(("idle.csv", "idle.parquet", "evt.pkl", "evt.tar.gz")),
        "log": rng.choice((*forms[:7] * 4, *forms, *(name for name in pickles if name.startswith("log")))),
        "bounds": rng.choice(("Jbnd.pkl", *(name for name in pickles if name.startswith("bounds")))),
        "scaling": rng.choice(("JNPs.pkl", *(name for name in pickles if name.startswith("scalab")))),
    }
    said, _, beside = line.format(**some).partition(" | ")
    words = said.split()
    for word in (*words, *beside.split()):
        for name in (word, *_BESIDE.get(word, ())):
            files |= {each: data for each, data in world().items() if each == name or each.startswith(f"{name}/")}
    return words, files


def damage(rng: Random, files: Files) -> Files:
    """The files, of which one or two are damaged; half of the time, manifests agree to it."""
    changed = dict(files)
    for name in rng.sample(sorted(files), min(rng.choice((1, 1, 1, 2)), len(files))):
        data = files[name]
        if isinstance(data, bytes):
            changed[name] = damaged(rng, name, data)
    return signed_anew(changed) if rng.random() < 0.8 else changed


def read(family: str, rng: Random) -> Case:
    """A command of a family reads damaged files."""
    words, files = chosen(rng, rng.choice(lines(family)))
    changed = damage(rng, files)
    text = changed.get("sweep.toml", b"idle.csv")
    if isinstance(text, bytes) and not (b"idle.csv" in text or b"max_events" in text):
        changed["sweep.toml"] = files["sweep.toml"]  # else all of the embedded sample is replayed, which takes minutes
    return Case(family, tuple(words), changed, changes_of(words))


def any_line(rng: Random) -> str:
    """A command of any family."""
    return rng.choice(lines(rng.choice(sorted(COMMANDS))))


def options(rng: Random) -> Case:
    """A command gets options that it may not like."""
    words, files = chosen(rng, any_line(rng))
    for _ in range(rng.choice((1, 1, 2, 3))):
        more = option(rng, words)
        if more[0] in words and len(more) > 1 and rng.random() < 0.8:
            words[words.index(more[0]) + 1 : words.index(more[0]) + 2] = more[1:]
        else:
            words += more
    if rng.random() < 0.05:
        del words[rng.randrange(len(words))]
    files |= {"fifo": Special("fifo"), "folder": Special("folder"), "link": Special("link", "absent")}
    return Case("options", tuple(words), files, ("link", *changes_of(words)))


def places(rng: Random) -> Case:
    """Something else stands in a file's place, or its name is odd."""
    words, files = chosen(rng, any_line(rng))
    named = [name for name in sorted(files) if name in words]
    name = rng.choice(named or sorted(files) or [""])
    if not name:
        return Case("places", tuple(words))
    if rng.random() < 0.5 or name not in words:
        return Case("places", tuple(words), files | {name: rng.choice(_SPECIALS)}, changes_of(words))
    other = rng.choice(_NAMES).replace("{}", name)[-200:]
    files[other] = files.pop(name)
    return Case("places", tuple(other if word == name else word for word in words), files, changes_of(words))


def calls(rng: Random) -> Case:
    """A public name is called with values of other types, or at the bounds of its own."""
    value = rng.choice(
        (*ODD, leaf(rng), leaf(rng), hostile(rng), *(float(text) for text in ("nan", "inf", "-1", "1e308")))
    )
    kind = rng.randrange(3)
    if kind == 0:
        name = rng.choice(sorted(CALLS))
        return Case("calls", (name, repr(value)[:99]), call=partial(CALLS[name], value))
    if kind == 1:
        files: Files = {name: world()[name] for name in ("idle.csv", "idle.json", "tasks.toml")}
        given = {"node_log": "idle.csv", "tasks": "tasks.toml", "solver": "dp", "max_events": 2, "baseline": False}
        given |= dict.fromkeys(rng.sample(sorted(ReplayConfig.__dataclass_fields__), rng.choice((1, 1, 2))), value)
        return Case("calls", ("run_replay", repr(given)[:300]), files, call=partial(run_replay, **given))
    bounds = (0, -1, 1, 3, 1000, 2**53), (0.0, -1.0, 1.0, 2.5, 1e-320, 1e308, math.inf, math.nan, -1e9)
    counts, values = ([rng.choice(some) for _ in range(3)] for some in (bounds[0][:-1], bounds[1]))
    numbers = rng.choice(bounds[0]), rng.choice(bounds[1]), rng.choice(bounds[1])
    given = [
        sorted({0, *counts}) if rng.random() < 0.8 else counts,
        values,
        numbers,
        rng.choice(SOLVERS),
        rng.randrange(8),
    ]
    return Case("calls", ("solve", repr(given)), call=partial(solve, *given), documented=(ValueError,))


SOLVERS = ("dp", "exhaustive", "equal-share", "highs")


def solve(counts: list[int], values: list[float], numbers: tuple[int, float, float], name: str, kind: int) -> None:
    """Solve a problem made of these numbers, and check the answer."""
    nodes, bound, weight = numbers
    values = [0.0, *values][: len(counts)] if kind & 1 else values[: len(counts)]
    tasks = tuple(TaskOptions(np.array(counts), np.array(values), held) for held in (0, 1))
    rows = (LinearRow(np.ones(2), -math.inf, bound),) if kind & 2 else ()
    floor = Floor(((0,), (0, 1)), (np.array(values),) * 2, weight) if kind & 4 else None
    problem = AllocationProblem(tasks, nodes, rows, (), floor)
    found = registry.solve(registry.get_solver(name), problem, Limits(time_s=2.0))
    if found.choices:
        check(problem, choices=found.choices)


def found_before(rng: Random) -> Case:
    """A command of the corpus reads its files, damaged anew."""
    entry = rng.choice(corpus())
    return Case("corpus", tuple(entry["command"].split()), damage(rng, files_of(entry)))


FAMILIES: dict[str, tuple[int, Family]] = {
    "logs": (6, logs),
    "options": (5, options),
    "places": (2, places),
    "calls": (3, calls),
    "corpus": (1, found_before),
    **{name: (weight, partial(read, name)) for name, weight in (("node logs", 5), ("task sets", 5), ("zeus", 3))},
    **{name: (weight, partial(read, name)) for name, weight in (("spot", 2), ("sweeps", 2), ("runs", 5))},
    **{name: (weight, partial(read, name)) for name, weight in (("inventories", 2), ("harvest", 2))},
}


WHOLE = "whole"


def prepare() -> None:
    """Make all that cases are drawn from."""
    scheduler_logs()
    world()


def undamaged() -> list[str]:
    """Commands that succeed on files that are whole: all but those that need a server."""
    return [line for family in COMMANDS if family != "servers" for line in lines(family)]


def drawn(seed: int, number: int, only: str | None = None) -> Case:
    """The case of this number: the same whenever it is asked for."""
    rng = Random(f"{seed}:{number}")
    if only == WHOLE:
        words, files = chosen(rng, undamaged()[number])
        return Case(WHOLE, tuple(words), files, changes_of(words))
    names = [only] if only else [name for name, (weight, _) in FAMILIES.items() for _ in range(weight)]
    case = FAMILIES[rng.choice(names)][1](rng)
    # The system hands over no NUL.
    return replace(case, words=tuple(word.replace("\0", "\1") for word in case.words))
