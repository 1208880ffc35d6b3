"""Kill a replay at random instants and resume it: `python -m tests.chaos.kill_trials --help`.

Prints a row of a table: how the trials ended, and what a journal costs, as the ratio of processor times with and
without them in runs that take turns.
"""

from __future__ import annotations

import math
import random
import resource
import shutil
import statistics
import tempfile
import time
from collections import Counter
from itertools import count
from pathlib import Path

import click

from tests.chaos.processes import Ended, Trouble, run
from tests.chaos.results import facts

RESUME = ["bftrainer-replay", "--resume", "out"]
OVER = "over before"
COUNTED = (OVER, "from its journal", "anew")
HEADINGS = ("case", "trials", *COUNTED, "the same", "run s", "processor time with / without a journal")


@click.command()
@click.option("--name", required=True, help="What the row is called.")
@click.option("--trials", default=40, show_default=True, help="Kills.")
@click.option("--seed", default=1, show_default=True)
@click.option("--repeats", default=5, show_default=True, help="Pairs of runs with and without a journal.")
@click.option("--every", default="1s", show_default=True, help="--checkpoint-every")
@click.argument("words", nargs=-1, required=True)
def main(name: str, trials: int, seed: int, repeats: int, every: str, words: tuple[str, ...]) -> None:
    """Kill `bftrainer-replay WORDS` at random instants, and resume it; paths in WORDS are absolute."""
    command = ["bftrainer-replay", *words, "--output-dir", "out", "--checkpoint-every"]
    with tempfile.TemporaryDirectory() as place:
        wanted, run_s, ratios = measured(Path(place), command, every, repeats)
        rng = random.Random(seed)
        kinds, same = Counter[str](), 0
        for number in count():
            if kinds.total() - kinds[OVER] == trials:
                break
            here = Path(place, f"trial-{number}")
            here.mkdir()
            trouble = Trouble(("main", "group")[number % 2], at=0, after_s=rng.uniform(0.0, run_s))
            kinds[killed(here, [*command, every], trouble)] += 1
            same += facts(here) == wanted
            told = f"{name} {number}: {trouble.after_s:.2f} s, {dict(kinds)}, {same} of {number + 1} the same"
            click.echo(told, err=True)
            shutil.rmtree(here)
    click.echo("| " + " | ".join(HEADINGS) + " |\n|" + "---|" * len(HEADINGS))
    overhead = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})" if ratios else "-"
    row = (name, trials, *(kinds[kind] for kind in COUNTED), same, f"{run_s:.1f}", overhead)
    click.echo("| " + " | ".join(map(str, row)) + " |")


def timed(words: list[str], here: Path) -> tuple[float, float]:
    """Wall-clock and processor time of a command, in seconds."""
    here.mkdir()
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run(words, here, Trouble(at=0))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.status == 0, done
    used = [each.ru_utime + each.ru_stime for each in (before, after)]
    return time.monotonic() - begun, used[1] - used[0]


def measured(place: Path, command: list[str], every: str, repeats: int) -> tuple[dict[str, object], float, list[float]]:
    """What an uninterrupted run finds, how long it takes, and what a journal costs of processor time."""
    timed([*command, "0"], place / "first")  # which fills the cache of parsed logs
    wanted, ratios, run_s = facts(place / "first"), [], math.inf
    for number in range(max(repeats, 1)):
        order = (every, "0") if number % 2 else ("0", every)
        found = {each: timed([*command, each], place / f"{number}-{each}") for each in order}
        ratios += [found[every][1] / found["0"][1]] if repeats else []
        run_s = min(run_s, found[every][0])
        for each in order:
            assert comparable(facts(place / f"{number}-{each}")) == comparable(wanted), "not the same without a kill"
        wanted = facts(place / f"{number}-{every}")
    return wanted, run_s, ratios


def comparable(found: dict[str, object]) -> dict[str, object]:
    """Without the summary, which repeats the command."""
    return {name: each for name, each in found.items() if not name.endswith("summary.json")}


def killed(here: Path, command: list[str], trouble: Trouble) -> str:
    """Kill a run and have it go on; tells from where it did."""
    ended = run(command, here, trouble)
    if ended.status == 0:
        return OVER
    resumed: Ended = run(RESUME, here, Trouble(at=0))
    if resumed.status == 0:
        return "from its journal"
    assert resumed.status == 2, resumed
    again = run(command, here, Trouble(at=0)) if not (here / "out").exists() else ended
    assert again.status == 0 or (here / "out").exists(), again
    return "anew"


if __name__ == "__main__":
    main()
