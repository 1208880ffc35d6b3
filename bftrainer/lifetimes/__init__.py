"""Models of how long idle nodes stay idle, which decisions may foresee by."""

from bftrainer.lifetimes.models import Age, Oracle, Survival
from bftrainer.lifetimes.registry import get_lifetimes, lifetime_names

__all__ = ["Age", "Oracle", "Survival", "get_lifetimes", "lifetime_names"]
