"""Recurring jobs whose training script is a fake one, and what it left."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from bftrainer.zeus import Job, PruningGTSBatchSizeOptimizer
from bftrainer.zeus.master import ZeusMaster

DATA = Path(__file__).parent / "data"
FAKE = DATA / "fake_train.py"
BATCH_SIZES = [8, 16, 32, 64, 128]
# Less than starting Python with its site packages.
PYTHON = (sys.executable, "-I", "-S", "-u")


def fake_job(workdir: Path, mode: str = "ok", **changes: Any) -> Job:
    """A job that runs the fake script."""
    command = [*PYTHON, str(FAKE), "{batch_size}", "{lr}", "{seed}", "{epochs}", mode]
    return script_job(workdir, command, **changes)


def script_job(workdir: Path, command: list[str] | None, **changes: Any) -> Job:
    """A job that runs a command."""
    fields: dict[str, Any] = {"default_bs": 32, "default_lr": 0.1, "optimizer": "adam"} | changes
    return Job("d", "n", target_metric=0.5, max_epochs=7, workdir=str(workdir), command=command, **fields)


def master(log_base: Path, **options: Any) -> ZeusMaster:
    """A master with the published policy and one GPU of 250 W."""
    settings: dict[str, Any] = {"seed": 1, "max_power_w": 250, "grace_s": 0.3} | options
    policy = settings.pop("policy", None) or PruningGTSBatchSizeOptimizer(seed=1, verbose=False)
    return ZeusMaster(policy, str(log_base), "/opt/zeus_monitor", **settings)


def only(folder: Path) -> Path:
    """The one thing in a folder."""
    (found,) = folder.iterdir()
    return found


def told(log: Path) -> tuple[dict[str, str], list[str], str]:
    """Environment, arguments and directory that the fake script printed."""
    first, second, *_ = log.read_text().splitlines()
    arguments, _, workdir = second.removeprefix("ARGV ").partition(" CWD ")
    return json.loads(first.removeprefix("ENV ")), json.loads(arguments), workdir
