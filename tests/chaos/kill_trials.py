"""Kill replays when their journals have some random size, and resume them: `python -m tests.chaos.kill_trials`."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bftrainer.files.directories import JOURNAL
from tests.chaos.results import facts
from tests.tiny import installed, spawn

CASES = {
    "dp": "--solver dp --max-events 1500",
    "cbc": "--solver cbc --max-events 150",
    "tuned": "--sample tuned --solver dp --max-events 400",
    "tuned, capped": "--sample tuned --solver dp --power-cap 15kW --power-options pareto --max-events 100",
}


@dataclass(frozen=True)
class Whole:
    """A run that nothing happened to: what it found, and how large its journal was."""

    found: dict[str, Any]
    bytes: int


def command(case: str) -> list[str]:
    """A replay that writes each decision to its journal at once."""
    return ["bftrainer-replay", *CASES[case].split(), "--output-dir", "out", "--checkpoint-every", "0.000001s"]


def run_until(words: list[str], here: Path, size: int) -> int:
    """Run a command, and kill it once its journal has so many bytes; the most that it was seen to have."""
    journal, most = here / ".out.new" / JOURNAL, 0
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    process = subprocess.Popen([installed(words[0]), *words[1:]], cwd=here, **streams)
    while process.poll() is None:
        with suppress(FileNotFoundError):  # not yet, or not any more
            most = max(most, journal.stat().st_size)
        if most >= size:
            process.kill()
        time.sleep(0.0005)  # which leaves the processor to the command
    return most


def run_whole(case: str, here: Path) -> Whole:
    """Run a case to its end."""
    here.mkdir()
    most = run_until(command(case), here, 1 << 60)
    assert (here / "out" / "summary.json").exists()
    return Whole(facts(here), most)


def try_kill(case: str, whole: Whole, here: Path, rng: random.Random) -> int | None:
    """Kill a run, perhaps again while it is resumed, perhaps in the middle of a line, and have it go on to its end.

    Returns
    -------
    int or None
        The number of decisions that it went on after; None if it was over before.

    Raises
    ------
    AssertionError
        If it ends otherwise than a run that nothing happened to.
    """
    here.mkdir()
    journal, words, resume = here / ".out.new" / JOURNAL, command(case), ["bftrainer-replay", "--resume", "out"]
    size = run_until(words, here, rng.randrange(2000, whole.bytes))
    while journal.exists() and rng.random() < 0.3:
        size = run_until(resume, here, int(rng.uniform(size, max(size, whole.bytes))) + 1)
    decided = None
    if journal.exists():
        content = journal.read_bytes()
        if rng.random() < 0.5:
            os.truncate(journal, max(content.index(b"\n") + 1, len(content) - rng.randrange(400)))
        decided = journal.read_bytes().count(b"\n") - 1
        done = spawn(*resume, cwd=here)
        assert done.status == 0, done
        assert not decided or f"Resumed after {decided:,} decisions." in done.err, done
    found = facts(here)
    differ = {name for name in {*found, *whole.found} if found.get(name) != whole.found.get(name)}
    assert not differ, f"{case}, after {decided} decisions: {sorted(differ)}"
    return decided


@click.command()
@click.option("--trials", default=10, show_default=True, help="Kills of each case.")
@click.option("--seed", default=1, show_default=True)
@click.option("--case", "cases", type=click.Choice(list(CASES)), multiple=True, help="These alone; repeatable.")
def main(trials: int, seed: int, cases: tuple[str, ...]) -> None:
    """Kill replays, resume them, and compare what they find with that of runs which nothing happened to."""
    rng, same, total = random.Random(seed), 0, 0
    for case in cases or CASES:
        with tempfile.TemporaryDirectory() as place:
            whole, after = run_whole(case, Path(place, "whole")), list[int]()
            while len(after) < trials:
                total += 1
                try:
                    decided = try_kill(case, whole, Path(place, f"trial-{total}"), rng)
                except AssertionError as error:
                    click.echo(f"FAILED: {error}")
                    decided = -1
                else:
                    same += 1
                after += [] if decided is None else [decided]
        click.echo(
            f"{case}: killed after {min(after)} to {max(after)} decisions, median {statistics.median(after):.0f}"
        )
    click.echo(f"{same} of {total} the same")
    raise SystemExit(same < total)


if __name__ == "__main__":
    main()
