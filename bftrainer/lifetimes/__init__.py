"""Models of how long idle nodes stay idle, which decisions may foresee by."""

from bftrainer.lifetimes.models import (
    AgeLifetimes,
    BurstLifetimes,
    KnownLifetimes,
    get_lifetimes,
    reads_queue,
)

__all__ = ["AgeLifetimes", "BurstLifetimes", "KnownLifetimes", "get_lifetimes", "reads_queue"]
