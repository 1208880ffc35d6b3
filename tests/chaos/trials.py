"""A command meets a trouble drawn from a seed; what it leaves is looked at, and the command is called again."""

from __future__ import annotations

import math
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from bftrainer.errors import RunDirectoryError
from bftrainer.files.directories import LOCK
from tests.chaos.commands import COMMANDS, VARIANTS, Command, make_world
from tests.chaos.processes import Ended, Running, Trouble, run
from tests.chaos.results import facts
from tests.checksums import changed_files
from tests.waiting import until

KILLS, FAULTS = ("main", "group", "self"), ("full", "read-only", "broken")
KINDS = ("kill", "kill", "moment", "clock", "fault", "size", "disk", "place", "two")
IS_ROOT = os.geteuid() == 0
MOST = 1 << 30


@dataclass(frozen=True)
class Reference:
    """What a command gives that meets no trouble, its number of events, and how long it took."""

    facts: dict[str, Any]
    out: str
    events: int
    run_s: float
    bytes: int


@cache
def template(has_runs: bool) -> Path:
    """A world that is copied for each trial, perhaps with runs to report on."""
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    make_world(folder)
    for variant in VARIANTS if has_runs else ():
        run(COMMANDS["replay"].given(variant), folder, Trouble(at=0))
        (folder / "out").rename(folder / f"run-{variant}")
    return folder


@contextmanager
def world(name: str) -> Iterator[Path]:
    """A copy of the template, on a disk of its own if that may be; with keys of its own."""
    before = {name: os.environ.get(name) for name in ("XDG_STATE_HOME",)}
    with tempfile.TemporaryDirectory(prefix="chaos-") as place:
        here = Path(place, "here")
        here.mkdir()
        if IS_ROOT:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={MOST}", "chaos", here], check=True)
        try:
            shutil.copytree(template(name == "report"), here, dirs_exist_ok=True)
            os.environ.update({name: str(Path(place, name)) for name in before})
            yield here
        finally:
            os.environ.update({name: value for name, value in before.items() if value is not None})
            if IS_ROOT:
                subprocess.run(["umount", "--lazy", here], check=True)


@cache
def reference(name: str, variant: str) -> Reference:
    """What a command gives that meets no trouble."""
    command = COMMANDS[name]
    with world(name) as here:
        before, begun = space(here), time.monotonic()
        done = run(command.given(variant), here / command.folder)
        assert done.status == 0, done
        return Reference(facts(here), done.out, done.events, time.monotonic() - begun, space(here) - before)


def space(here: Path) -> int:
    """Bytes of disk that files take."""
    return sum(path.stat().st_blocks * 512 for path in here.rglob("*"))


def trial(name: str, seed: int) -> str:
    """Make one trial; tell what happened in it."""
    rng = random.Random(f"{name} {seed}")
    command, kind = COMMANDS[name], rng.choice(KINDS)
    old, new = rng.sample(VARIANTS, 2)
    env = {"BFTRAINER_CORE": rng.choice("01")}
    with world(name) as here:
        allowed = [results(command, reference(name, new).facts)]
        if rng.random() < 0.5 and command.results:
            assert run(command.given(old), here / command.folder, env=env).status == 0
            allowed.append(results(command, reference(name, old).facts))
        ended, told = met(here, command, rng, reference(name, new), kind, new, env)
        before = "results" if allowed[1:] else "nothing"
        told = f"{name}, seed {seed}, core {env['BFTRAINER_CORE']}, {before} before: {told}"
        try:
            check_end(ended, kind)
            check_results(here, command, allowed)
            told += " -> " + gone_on(here, command, rng, name, new, env, is_back=kind == "clock")
        except AssertionError as error:
            raise AssertionError(f"{told}: {error}; {ended}") from error
        return told


def met(
    here: Path, command: Command, rng: random.Random, usual: Reference, kind: str, variant: str, env: dict[str, str]
) -> tuple[Ended, str]:
    """Run the command into trouble; tell what that was."""
    at, words, place = rng.randint(1, max(usual.events, 1)), command.given(variant), here / command.folder
    if kind in ("disk", "place") and not IS_ROOT:
        kind = {"disk": "size", "place": "fault"}[kind]
    if kind == "two":
        return met_another(place, words, at, env)
    if kind in ("disk", "place"):
        room = rng.randrange(2 * usual.bytes + 8192)
        with mounted(here, f"size={space(here) + room}" if kind == "disk" else "ro"):
            return run(words, place, Trouble(at=0), env), f"{kind}, {room} bytes of room"
    trouble = {
        "kill": Trouble(rng.choice(KILLS), at),
        "moment": Trouble(rng.choice(KILLS[:2]), 0, after_s=usual.run_s * rng.random()),
        "clock": Trouble("main", at, clock=True),
        "fault": Trouble(rng.choice(FAULTS), at),
        "size": Trouble(at=0, file_bytes=int(math.exp(rng.uniform(0, math.log(usual.bytes + 1000))))),
    }[kind]
    return run(words, place, trouble, env), f"{kind}, {trouble.told} of {usual.events} events"


def met_another(place: Path, words: list[str], at: int, env: dict[str, str]) -> tuple[Ended, str]:
    """Run a command while another process is stopped in the middle of the same; that one goes on afterwards."""
    first = Running(words, place, Trouble("stop", at), env)
    until(first.is_stopped)
    second = run(words, place, Trouble(at=0), env)
    with suppress(ProcessLookupError):
        first.go_on()
    ended = first.ended()
    refusal = rf"(Process {first.pid} on .*|Another process) is writing"
    assert second.status == 0 or re.search(refusal, second.err), second
    assert second.status in (0, 1, 2), second
    return ended, f"two writers, the first stopped at {at}, the second ended with {second.status} {second.err!r}"


@contextmanager
def mounted(here: Path, option: str) -> Iterator[None]:
    """Have the disk as an option says, for a while."""
    subprocess.run(["mount", "-o", f"remount,{option}", here], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", f"remount,rw,size={MOST}", here], check=True)


def is_result(command: Command, name: str) -> bool:
    """Whether a path is that of results of a command; what it is writing to is not."""
    roots = [os.path.normpath(os.path.join(command.folder, each)) for each in command.results]
    unfinished = {LOCK, ".new", f".new{LOCK}"} & {*name.split("/")}
    return any(f"{name}/".startswith(f"{root}/") for root in roots) and not unfinished


def results(command: Command, found: dict[str, Any]) -> dict[str, Any]:
    """What a command has written as results, among all that was found."""
    return {name: each for name, each in found.items() if is_result(command, name)}


def check_end(ended: Ended, kind: str) -> None:
    """No traceback ever; what fails for want of a place fails in one line."""
    assert "Traceback" not in ended.err + ended.out
    if ended.status > 0 and kind not in ("kill", "moment", "clock"):
        assert ended.status in (1, 2)
        assert sum(line.startswith("Error: ") for line in ended.err.splitlines()) == 1 or "failed: " in ended.err


def check_results(here: Path, command: Command, allowed: list[dict[str, Any]]) -> None:
    """What is there is whole, or readers are told that it is not."""
    if not command.results or not (here / command.folder / command.results[0]).exists():
        return
    place = here / command.folder / command.results[0]
    if place.is_dir():
        try:
            if changed_files(place):
                assert "sweep" in command.words or command.folder != "."
                return
        except RunDirectoryError:
            assert not (place / "summary.json").exists()
            return
    assert facts(here, partial(is_result, command)) in allowed, "half-written, and taken for whole"


def gone_on(
    here: Path, command: Command, rng: random.Random, name: str, variant: str, env: dict[str, str], *, is_back: bool
) -> str:
    """Call the command again, or resume it: it gives what it gives without trouble, and nothing else is left."""
    wanted, place, trouble = reference(name, variant), here / command.folder, Trouble(at=0, clock=is_back)
    if is_back:
        for path in here.parent.rglob("*"):
            os.utime(path, (2**32, 2**32))
    done, told = None, []
    others = {each.name for each in (here / "out").glob("sweep.parquet")}  # of another sweep, whose runs would stay
    # What has no place of its own, and was begun, would get another one.
    if command.resume and not others and (rng.random() < 0.6 or not command.results):
        logs = next((here / "logs").iterdir(), None) if (here / "logs").exists() else None
        done = run(["bftrainer", *command.resume.format(v=variant, logs=logs).split()], place, trouble, env)
        told.append("resumed")
    if done is None or done.status == 2:
        done = run(command.given(variant), place, trouble, env)
        told.append("begun anew")
    assert done.status == 0, done
    assert command.results or command.resume or done.out == wanted.out, done.out
    found = facts(here)
    differ = {each for each in {*found, *wanted.facts} if found.get(each) != wanted.facts.get(each)}
    assert not differ, f"{told}: {sorted(differ)}"
    return ", ".join(told)
