"""Trials of all commands from a seed on: `python -m tests.chaos --seed S --minutes N`."""

from __future__ import annotations

import itertools
import time

import click

from tests.chaos.commands import COMMANDS
from tests.chaos.trials import trial


@click.command()
@click.option("--seed", default=1, show_default=True, help="The first one.")
@click.option("--minutes", default=5.0, show_default=True, help="No trial begins later.")
@click.option("--command", "names", type=click.Choice(list(COMMANDS)), multiple=True, help="These alone; repeatable.")
def main(seed: int, minutes: float, names: tuple[str, ...]) -> None:
    """Kill commands, take their disk away, and so on; and look at what is left."""
    end, trials, failed = time.monotonic() + 60.0 * minutes, 0, 0
    for number, name in ((number, name) for number in itertools.count(seed) for name in names or COMMANDS):
        if time.monotonic() >= end:
            break
        trials += 1
        try:
            click.echo(trial(name, number))
        except AssertionError as error:
            failed += 1
            click.echo(f"FAILED: {error}")
    click.echo(f"{trials} trials from seed {seed} on, {failed} failed")
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
