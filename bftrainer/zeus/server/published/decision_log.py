"""Lines of the log about choices and beliefs, worded as the published server words them."""

from __future__ import annotations

import logging

from bftrainer.zeus.policies.bandit import GaussianTS, RewardLog
from bftrainer.zeus.server.tuned_job import EndedTrial, Stage, TrialType, TunedJob

# The published server logs decisions at this level, each time.
LEVEL = logging.INFO
# Rewards that a line lists; the published server lists all of them.
_REWARDS = 16


def choice_lines(tuned: TunedJob, size: int, kind: TrialType, stage: Stage) -> list[str]:
    """Say how the bandit has chosen a batch size; nothing is said of explorations.

    Parameters
    ----------
    tuned : TunedJob
        The job after the choice.
    size, kind : int and TrialType
        What was chosen.
    stage : Stage
        The job's stage before the choice.
    """
    bandit = tuned.pruned.bandit
    if bandit is None or kind is not TrialType.MAB:
        return []
    job_id = tuned.spec.job_id
    lines = [f"Construct MAB for {job_id} with arms {bandit.arms}"] if stage is Stage.PRUNING else []
    if not bandit.drawn:
        return [*lines, f"[{bandit.name}] Explore arm {size}."]
    arms = [_arm_line(bandit, arm) for arm in bandit.arms]
    chosen = f"{job_id} in Thompson Sampling stage -> BS = {size}"
    return [*lines, f"[{bandit.name}] Sampled mean rewards:", *arms, chosen]


def _arm_line(bandit: GaussianTS, arm: int) -> str:
    """The belief about an arm, as mean and variance, and what was drawn from it."""
    belief = bandit.beliefs[arm]
    variance = 1.0 / belief.precision if belief.precision else float("inf")
    return f"[{bandit.name}] Arm {arm}: mu ~ N({belief.mean:.2f}, {variance:.2f}) -> {bandit.drawn[arm]:.2f}"


def result_lines(tuned: TunedJob, trial: EndedTrial, stage: Stage) -> list[str]:
    """Say what was learned from a trial.

    Parameters
    ----------
    tuned : TunedJob
        The job after it has learned.
    trial : EndedTrial
        The trial and its result.
    stage : Stage
        The job's stage before it learned.
    """
    job_id, size, bandit = tuned.spec.job_id, trial.batch_size, tuned.pruned.bandit
    if stage is Stage.PRUNING and trial.kind is TrialType.EXPLORATION:
        return [f"{job_id} in pruning stage, Current BS {size} that did {'' if trial.converged else 'not'} converge."]
    if bandit is None or size not in bandit.beliefs:
        return []
    rewards = _rewards_text(tuned.pruned.rewards[size], tuned.pruned.settings.window_size)
    return [f"{job_id} @ {size}: arm_rewards = {rewards}, reward_prec = {bandit.beliefs[size].reward_precision:.2f}"]


def _rewards_text(rewards: RewardLog, window_size: int) -> str:
    """The rewards that a belief rests on, in the published order: those before the newest, latest first, then it."""
    number = min(len(rewards), window_size or len(rewards))
    *before, newest = rewards.tolist(min(number, _REWARDS))
    listed = ", ".join(f"{reward:.2f}" for reward in (*before[::-1], newest))
    return f"[{listed}]" if number <= _REWARDS else f"[{listed}] (the latest of {number:,})"
