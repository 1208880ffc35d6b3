"""The embedded training traces: where they lie, and the jobs that they were made for."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from bftrainer.files.opening import sample_path
from bftrainer.zeus import Job

__all__ = ["SAMPLE_JOBS", "ZeusSample", "zeus_sample"]

SAMPLE_JOBS = (
    Job("synth-images", "convnet", "adadelta", 0.65, max_epochs=100, default_bs=512, default_lr=0.1),
    Job("synth-speech", "recurrent", "adamw", 0.8, max_epochs=20, default_bs=128, default_lr=0.001),
    Job("synth-text", "transformer", "adamw", 0.84, max_epochs=10, default_bs=48, default_lr=0.00005),
    Job("synth-ratings", "factors", "adam", 0.41, max_epochs=60, default_bs=512, default_lr=0.001),
)
"""One job a dataset of the traces; each reaches its target with its default batch size in every measured run."""


class ZeusSample(NamedTuple):
    """Paths of the embedded traces.

    Parameters
    ----------
    train, power : Path
        Runs, and time and power by batch size and power limit, as `bftrainer.zeus.TrainingTrace` takes them.
    groups : Path
        Groups of recurring jobs, as `bftrainer.zeus.read_groups` takes them.
    """

    train: Path
    power: Path
    groups: Path


def zeus_sample() -> ZeusSample:
    """Where the embedded traces lie, in an installed wheel as well as in an editable checkout.

    Raises
    ------
    InputError
        If the installation lacks one.
    """
    return ZeusSample(*(sample_path(f"zeus-{name}.csv") for name in ZeusSample._fields))
