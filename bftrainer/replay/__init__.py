"""Replay: a pure state machine, the allocator that decides, the loop that drives both, and its observers."""

from bftrainer.replay.allocator import Allocator
from bftrainer.replay.effects import Effects, Moves, Rules
from bftrainer.replay.engine import DecideOn, EndReason, Row, log_rows, replay
from bftrainer.replay.observers import Observer, Recorder
from bftrainer.replay.power import PowerMeter
from bftrainer.replay.settings import Settings
from bftrainer.replay.state import ReplayState

__all__ = [
    "Allocator",
    "DecideOn",
    "Effects",
    "EndReason",
    "Moves",
    "Observer",
    "PowerMeter",
    "Recorder",
    "ReplayState",
    "Row",
    "Rules",
    "Settings",
    "log_rows",
    "replay",
]
