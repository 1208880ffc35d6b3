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
    from bftrainer.harvest.slurm_engine import SlurmEngine

SLURM = ("partition", "poll_every_s", "address", "knows")
slurm_options = with_options(
    click.option("--partition", metavar="NAME", help="Partition of the carriers, whose jobs make room for others."),
    click.option("--poll-every", "poll_every_s", type=DURATION, default="30s", show_default=True, metavar="TIME"),
    click.option("--address", metavar="HOST", help="Where nodes reach this machine.  [default: its name]"),
    click.option("--i-know", "knows", is_flag=True, help="Take a partition without preemption, or run as root."),
)


def slurm_engine(directory: Path, options: dict[str, Any]) -> SlurmEngine:
    """Check the partition, and make the engine.

    Raises
    ------
    SettingsError
        If the partition is not to be used.
    CarrierError, PollError
        If Slurm or carriers of an earlier controller are in the way.
    """
    from bftrainer.harvest.slurm_engine import SlurmEngine
    from bftrainer.harvest.slurm_jobs import carrier_partition

    if options["partition"] is None:
        raise click.UsageError("Expected --partition with --engine slurm.")
    partition = carrier_partition(options["partition"], options["max_hold_s"], knows=options["knows"])
    if partition.objection:
        tell(f"Note: partition {partition.name}: {partition.objection}.")
    address = options["address"] or socket.gethostname()
    listen = options["address"] or ""
    return SlurmEngine(directory, partition, options["max_hold_s"], options["poll_every_s"], address, listen, tell)
