"""Replay: a pure state machine, the allocator that decides, the loop that drives both, and its observers."""

from bftrainer.replay.allocator import Allocator
from bftrainer.replay.allocator_settings import Effects, Settings
from bftrainer.replay.engine import Row, replay
from bftrainer.replay.moves import Moves
from bftrainer.replay.observers import Observer, PowerMeter, Recorder
from bftrainer.replay.state import ReplayState

__all__ = [
    "Allocator",
    "Effects",
    "Moves",
    "Observer",
    "PowerMeter",
    "Recorder",
    "ReplayState",
    "Row",
    "Settings",
    "replay",
]
