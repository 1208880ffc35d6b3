"""Options of `bftrainer harvest run --engine slurm`."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.stdio import tell
from bftrainer.cli.replay.options import DURATION
from bftrainer.cli.zeus.zeus_options import with_options

if TYPE_CHECKING:
    from bftrainer.harvest.shadow_engine import ShadowEngine
    from bftrainer.harvest.slurm_engine import SlurmEngine

SLURM = ("partition", "poll_every_s", "address", "knows")
slurm_options = with_options(
    click.option("--partition", metavar="NAME", help="Partition of the carriers, whose jobs make room for others."),
    click.option("--poll-every", "poll_every_s", type=DURATION, default="30s", show_default=True, metavar="TIME"),
    click.option("--address", metavar="HOST", help="Where nodes reach this machine.  [default: its name]"),
    click.option("--i-know", "knows", is_flag=True, help="Take a partition without preemption, or run as root."),
)


def slurm_engine(directory: Path, options: dict[str, Any], *, dry_run: bool) -> SlurmEngine | ShadowEngine:
    """Check the partition, and make the engine.

    Raises
    ------
    SettingsError
        If the partition is not to be used.
    CarrierError, PollError
        If Slurm or carriers of an earlier controller are in the way.
    """
    from bftrainer.harvest.scheduler_polls import SlurmPoll
    from bftrainer.harvest.shadow_engine import PolledPool, ShadowEngine
    from bftrainer.harvest.slurm_engine import SlurmEngine
    from bftrainer.harvest.slurm_jobs import carrier_partition

    name, hold_s, every_s = (options[key] for key in ("partition", "max_hold_s", "poll_every_s"))
    if name is None:
        raise click.UsageError("Expected --partition with --engine slurm.")
    if dry_run:
        return ShadowEngine(PolledPool(SlurmPoll(name), every_s, tell), tell)
    partition = carrier_partition(name, hold_s, knows=options["knows"])
    if partition.objection:
        tell(f"Note: partition {name}: {partition.objection}.")
    address, listen = options["address"] or socket.gethostname(), options["address"] or ""
    return SlurmEngine(directory, partition, hold_s, every_s, address, listen, tell)
