"""Why the next batch size of a job is what it is, in words: nothing is started, nothing drawn of its generator."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from bftrainer.errors import NothingConvergedError
from bftrainer.zeus.server.messages import few
from bftrainer.zeus.server.pages.savings import si
from bftrainer.zeus.server.tuned_job import Stage, TrialType, TunedJob


@dataclass(frozen=True, slots=True)
class DrawnBelief:
    """What is believed of the mean cost of an arm.

    Parameters
    ----------
    batch_size : int
        The arm.
    mean_j, half_width_j : float or None
        Expected mean cost and half of its 95 % interval, in joules; None where nothing is known.
    drawn_j : float or None
        Mean cost that the next choice draws from this belief; None if it draws none.
    observations : int
        Results that the belief rests on.
    """

    batch_size: int
    mean_j: float | None
    half_width_j: float | None
    drawn_j: float | None
    observations: int


@dataclass(frozen=True, slots=True)
class NextChoice:
    """The batch size that a trial would get now, why, and the beliefs that this rests on.

    Parameters
    ----------
    batch_size : int or None
        None if there is none left.
    reasons : tuple of str
        Sentences.
    beliefs : tuple of DrawnBelief
        The bandit's; empty while batch sizes are pruned.
    """

    batch_size: int | None
    reasons: tuple[str, ...]
    beliefs: tuple[DrawnBelief, ...] = ()


def next_choice(tuned: TunedJob, number: int, runs: Callable[[int], bool]) -> NextChoice:
    """Say which batch size a trial would get now.

    Parameters
    ----------
    tuned : TunedJob
        A copy of the job's state, which is used up.
    number : int
        Number of the trial.
    runs : callable
        Whether a trial of some number is running.
    """
    manager = tuned.pruned.manager
    pruning, rounds, left = tuned.stage is Stage.PRUNING, manager.num_pruning_rounds, list(manager.batch_sizes)
    exploring = {size: trial for size, trial in tuned.exploring.items() if runs(trial)} if pruning else {}
    try:
        size, kind = tuned.choose(number, runs)
    except NothingConvergedError:
        return NextChoice(None, ("No batch size reached the target in a round of the pruning, so none is left.",))
    if kind is TrialType.MAB:
        return _played(tuned, size, f"The pruning is over: {few(left)} are left. " if pruning and rounds else "")
    if kind is TrialType.CONCURRENT:
        what = " and ".join(f"trial {trial} explores {each}" for each, trial in exploring.items())
        cheapest = "the default, as no run has converged yet" if tuned.min_cost is None else "the cheapest so far"
        now = f"{what[:1].upper()}{what[1:]} now; what starts beside that gets {size}, {cheapest}."
    else:
        now = f"{size} is the next to try."
    which = rounds - manager.rounds_left + 1
    what = "the default" if which == 1 else "the cheapest of the round before"
    rule = (
        f"Round {which} of {rounds} of the pruning: from {manager.default}, {what}, it tries smaller batch sizes until "
        f"one misses the target, then larger ones. Beyond one that missed, none is tried again."
    )
    reached = ", ".join(f"{each} at {si(cost)}J" for each, cost in manager.reached.items())
    ahead = [each for each in manager.ahead if each not in (exploring or (size,))]
    later = (
        f"Reached the target in this round: {reached or 'none yet'}. Still to try in it: {few(ahead) or 'no other'}."
    )
    return NextChoice(size, (now, rule, later))


def _played(tuned: TunedJob, size: int, begins: str) -> NextChoice:
    bandit = tuned.pruned.bandit
    assert bandit is not None
    beliefs = []
    for arm in bandit.arms:
        belief, drawn = bandit.beliefs[arm], bandit.drawn.get(arm)
        known = belief.precision > 0 and not math.isnan(belief.mean)
        beliefs.append(
            DrawnBelief(
                arm,
                -belief.mean if known else None,
                1.959964 * math.sqrt(1.0 / belief.precision) if known else None,
                -drawn if known and drawn is not None else None,
                belief.observations,
            )
        )
    if not bandit.drawn:
        why = (
            f"{begins}Each batch size has to have {bandit.num_exploration} results before draws decide; {size} has "
            f"{bandit.beliefs[size].observations}. Of those that lack results, the order is random."
        )
    else:
        why = (
            f"{begins}Of what is believed about the mean cost of each batch size, one value is drawn, and the lowest "
            f"wins: that of {size}. A batch size is so played as often as it is likely to be the cheapest."
        )
    until = "The draws are those of the next trial, unless a result comes before it." if bandit.drawn else ""
    return NextChoice(size, tuple(filter(None, (why, until))), tuple(beliefs))
