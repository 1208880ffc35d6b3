"""Harvest: watch a scheduler's idle nodes, and train on them. A script needs `training` alone, which is light."""

from bftrainer.harvest.malleable import MalleableTraining, training

__all__ = ["MalleableTraining", "training"]
