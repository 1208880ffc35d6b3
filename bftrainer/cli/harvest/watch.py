"""`bftrainer watch`: write down when nodes are idle, by asking a running scheduler."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bftrainer.cli._shared import usage
from bftrainer.cli._shared.stdio import duration, print_json, print_table, tell
from bftrainer.cli.replay.options import DURATION, LENGTH
from bftrainer.report.glossary import format_value

if TYPE_CHECKING:
    from bftrainer.harvest.scheduler_polls import CommandPoll, SlurmPoll


@usage.command(epilog="Example: bftrainer watch slurm --once --partition batch")
@click.argument("source", type=click.Choice(["slurm", "command"]))
@click.argument("command", nargs=-1)
@click.option("--partition", metavar="NAME", help="Only nodes of this partition, or of several between commas.")
@click.option(
    "--carriers", metavar="NAME", help="Partition whose jobs make room for others: nodes that only they hold are idle."
)
@click.option(
    "-o", "--output", type=usage.FILE, help="Node log to write, or to go on with; its journal stands beside it."
)
@click.option("--every", "every_s", type=DURATION, default="30s", help="Interval between polls.")
@click.option("--for", "for_s", type=LENGTH, help="How long to watch.  [default: until a signal comes]")
@click.option("--once", is_flag=True, help="Print how the nodes are now, and stop.")
@click.option("--json", "as_json", is_flag=True, help="With --once: print JSON instead of a table.")
def watch(
    source: str, command: tuple[str, ...], partition: str | None, carriers: str | None, output: Path | None,
    every_s: float, for_s: float | None, once: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write down which nodes are idle, for `bftrainer assess` and replays. Nothing is started on them.

    Slurm is asked by sinfo, as any of its users may. COMMAND, such as `watch command -o idle.parquet -- ./nodes.sh
    --all`, prints a line for each node, its name and its state, or Slurm's JSON. A node that it names several times is
    idle if it is so each time; else what first says otherwise counts. A state is idle, job, down, drain, maintenance,
    reserved, planned, powered-down, away, unknown, or one of Slurm's.
    """
    from bftrainer.harvest.scheduler_polls import CommandPoll, SlurmPoll

    if (source == "command") != bool(command):
        raise click.UsageError("Expected a command of yours after `watch command`, and nothing after `watch slurm`.")
    usage.refuse_unused(
        {
            **dict.fromkeys(("partition", "carriers"), source == "command" and "of slurm"),
            **dict.fromkeys(("output", "every_s", "for_s"), once and "--once only looks"),
            "as_json": not once and "of --once",
        }
    )
    is_carrier = (lambda _, name: name == carriers) if carriers else None
    poll = CommandPoll(command) if command else SlurmPoll(partition, is_carrier, carriers or "")
    if once:
        _print_now(poll, as_json)
    elif output is None:
        raise click.UsageError("Missing option '-o' / '--output', or --once.")
    else:
        _watch(poll, output, every_s, math.inf if for_s is None else for_s)


def _watch(poll: SlurmPoll | CommandPoll, output: Path, every_s: float, for_s: float) -> None:
    """Watch until the time is over, or a signal comes."""
    from bftrainer.harvest.watch import Watch, journal_path

    with Watch(poll, output, every_s, tell, usage.command_line()) as watching:
        tell(f"{journal_path(output)}: {poll.source}, every {every_s:g} s; Ctrl-C ends the watch.")
        with suppress(KeyboardInterrupt):  # as a server, it ends when it is told to
            watching.run(for_s)
        done = watching.write()
    if done is None:
        tell(f"{output}: Not written, as nothing is known yet: two polls have a time in between.")
        return
    quality = done.quality
    window = f"{duration(quality.window_s)}, {format_value(quality.idle_share, 'share')} idle"
    polls = f"{watching.polls:,} polls, {watching.missed:,} missed"
    click.echo(f"{output}: node log of {quality.nodes:,} nodes, {window}; {polls}")


def _print_now(poll: SlurmPoll | CommandPoll, as_json: bool) -> None:
    """Print how many nodes are idle, and why the others are not."""
    from bftrainer.model import iso
    from bftrainer.nodelogs.hostlist import folded
    from bftrainer.schedulers.formats.watch_journal import CAUSES

    now, found = time.time_ns(), defaultdict(list)
    names = {cause: name for name, cause in CAUSES.items()}
    for node, cause in poll().items():
        found[names[cause]].append(node)
    states = {name: {"nodes": len(found[name]), "names": folded(found[name])} for name in CAUSES if name in found}
    if as_json:
        total = sum(map(len, found.values()))
        known = {"time": iso(now), "source": poll.source, "nodes": total, "idle": len(found.get("idle", ()))}
        print_json(known | {"states": states})
        return
    rows = [[name.replace("_", " "), str(state["names"]), f"{state['nodes']:,}"] for name, state in states.items()]
    print_table(["state", "names", "nodes"], rows, left=2)
