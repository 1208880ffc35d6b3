"""Options of `bftrainer harvest run --engine slurm`."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.stdio import tell
from bftrainer.cli._shared.usage import refuse_unused
from bftrainer.cli.replay.options import LENGTH
from bftrainer.cli.zeus.zeus_options import with_options

if TYPE_CHECKING:
    from bftrainer.harvest.carrier_hub import CarrierEngine

SLURM = ("partition", "poll_every_s", "address", "knows")
slurm_options = with_options(
    click.option("--partition", metavar="NAME", help="Partition of the carriers, whose jobs make room for others."),
    click.option(
        "--poll-every", "poll_every_s", type=LENGTH, default="30s", show_default=True, help="Interval between polls."
    ),
    click.option("--address", metavar="HOST", help="Where nodes reach this machine.  [default: its name]"),
    click.option("--i-know", "knows", is_flag=True, help="Take a partition without preemption, or run as root."),
)


def check_slurm(options: dict[str, Any]) -> None:
    """Refuse options of another engine, and put in the place of the partition's name what there is to know of it.

    Raises
    ------
    UnusedOptionsError, SettingsError
        If an option has no effect, the partition is not to be used, or the address is none of this machine.
    PollError
        If Slurm does not answer.
    """
    from bftrainer.errors import SettingsError
    from bftrainer.harvest.slurm.slurm_jobs import carrier_partition

    if options["engine"] != "slurm":
        refuse_unused(dict.fromkeys(SLURM, "--engine is not slurm"))
        return
    refuse_unused(dict.fromkeys(("pool", "grace_s"), "--engine slurm takes nodes and grace time of the partition"))
    if options["partition"] is None:
        raise click.UsageError("Expected --partition with --engine slurm.")
    # A dry run is in nobody's way.
    knows = options["knows"] or options["dry_run"]
    options["partition"] = carrier_partition(options["partition"], options["max_hold_s"], knows=knows)
    address = options["address"] or ""
    try:
        socket.create_server((address, 0)).close()
    except OSError as fault:
        why = str(fault.strerror).partition(" (while")[0]
        raise SettingsError(f"Expected --address of this machine, got {address!r} ({why}).") from None
    if os.geteuid() == 0 and not options["knows"]:
        tell("Note: The run itself refuses to run as root without --i-know.")
    if options["partition"].objection:
        tell(f"Note: partition {options['partition'].name}: {options['partition'].objection}.")


def slurm_engine(directory: Path, options: dict[str, Any], *, dry_run: bool) -> CarrierEngine:
    """The engine, or one that only says what it would do.

    Raises
    ------
    CarrierError, PollError
        If Slurm or carriers of an earlier controller are in the way.
    """
    from bftrainer.harvest.local_engine import ShadowCarriers
    from bftrainer.harvest.scheduler_polls import SlurmPoll
    from bftrainer.harvest.slurm.slurm_engine import SlurmCarriers
    from bftrainer.harvest.slurm.slurm_jobs import PolledPool

    partition, every_s = options["partition"], options["poll_every_s"]
    if dry_run:
        return ShadowCarriers(PolledPool(SlurmPoll(partition.name), every_s, tell), tell)
    address, listen = options["address"] or socket.gethostname(), options["address"] or ""
    return SlurmCarriers(directory, partition, options["max_hold_s"], every_s, address, listen, tell)
