"""Policies that a master can make by name, and go on with from what a journal keeps of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bftrainer.errors import JournalError, TuningInputError, suggestion
from bftrainer.zeus.policies.baselines import DefaultBatchSize, GridSearch
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer
from bftrainer.zeus.policies.policies import NUM_EXPLORATION, GTSBatchSizeOptimizer, PruningGTSBatchSizeOptimizer
from bftrainer.zeus.policies.ucb import UCB

__all__ = ["POLICIES", "kept_policy", "named_policy", "restored_policy"]

# Those that need no trace of measured runs, by the names that `bftrainer zeus` has for them.
POLICIES: Mapping[str, Any] = {
    "zeus": PruningGTSBatchSizeOptimizer,
    "gts": GTSBatchSizeOptimizer,
    "default": DefaultBatchSize,
    "grid": GridSearch,
    "ucb": UCB,
}
# What says each choice on standard output unless told not to.
_QUIET: Mapping[str, dict[str, bool]] = {name: {"verbose": False} for name in ("zeus", "gts")}
_MADE: Mapping[str, Callable[[int, int], BatchSizeOptimizer]] = {
    "zeus": lambda seed, window: PruningGTSBatchSizeOptimizer(window_size=window, seed=seed, verbose=False),
    "gts": lambda seed, window: GTSBatchSizeOptimizer(  # noqa: ARG005
        learn_reward_precision=True, num_exploration=NUM_EXPLORATION, seed=seed, verbose=False
    ),
    "default": lambda seed, window: DefaultBatchSize(),  # noqa: ARG005
    "grid": lambda seed, window: GridSearch(),  # noqa: ARG005
    "ucb": lambda seed, window: UCB(),  # noqa: ARG005
}


def named_policy(name: str, seed: int, window_size: int = 0) -> BatchSizeOptimizer:
    """A new policy.

    Parameters
    ----------
    name : str
        One of `POLICIES`.
    seed : int
        For those that draw.
    window_size : int
        Latest runs of a batch size that count, 0 for all; `zeus` alone heeds it.

    Raises
    ------
    TuningInputError
        If there is none of that name, or a number is not usable.
    """
    if name not in _MADE:
        raise TuningInputError(f"Unknown batch-size policy {name!r}.{suggestion(name, _MADE)}")
    return _MADE[name](seed, window_size)


def kept_policy(policy: BatchSizeOptimizer) -> dict[str, Any] | None:
    """A policy in plain values; None for one that is not of ours, which only its maker could restore."""
    names = {kind: name for name, kind in POLICIES.items()}
    if type(policy) not in names:
        return None
    return {"name": names[type(policy)], "state": policy.to_dict()}  # type: ignore[attr-defined]


def restored_policy(kept: Mapping[str, Any]) -> BatchSizeOptimizer:
    """The policy that `kept_policy` gave.

    Raises
    ------
    JournalError
        If it is damaged.
    """
    try:
        policy: BatchSizeOptimizer = POLICIES[kept["name"]].from_dict(kept["state"], **_QUIET.get(kept["name"], {}))
    except (LookupError, TypeError, ValueError, AttributeError) as fault:
        raise JournalError(f"Expected the state of a policy, got something else ({fault!r}).") from None
    return policy
