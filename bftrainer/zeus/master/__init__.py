"""Tuning of real recurring training jobs: a master that runs them, and the reporting API for their scripts."""

from bftrainer.zeus.master.journal import Booked, Launch, MasterObserver
from bftrainer.zeus.master.script import TrainingRun, training_run
from bftrainer.zeus.master.zeus_master import Driver, ZeusMaster

__all__ = ["Booked", "Driver", "Launch", "MasterObserver", "TrainingRun", "ZeusMaster", "training_run"]
