"""What results have used by batch size, and what tuning has saved against running all with the default."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from bftrainer.report.intervals import Estimate, student_quantile
from bftrainer.zeus.server.messages import TrialRow

QUANTITIES = ("cost", "energy", "time")
# Quantiles of more degrees of freedom take longer to compute, and are at most 1.3 % lower.
_FREEDOM = 100
_quantile = lru_cache(maxsize=_FREEDOM)(partial(student_quantile, confidence=0.95))
# Runs with the default that its mean takes, and its spread, which two that are equal by chance would not have.
FEWEST, FEWEST_FOR_SPREAD = 2, 3


@dataclass(frozen=True, slots=True)
class SizeFigures:
    """Results with one batch size.

    Parameters
    ----------
    batch_size : int
        The batch size.
    results, converged : int
        How many there are, and how many of them reached the target.
    used : dict of str to float
        Energy (J) and time (s) of all results together.
    means : dict of str to Estimate
        Cost (J), energy (J) and time (s) of those that reached the target; empty if there are none.
    """

    batch_size: int
    results: int
    converged: int
    used: dict[str, float]
    means: dict[str, Estimate]


@dataclass(frozen=True, slots=True)
class Saved:
    """What tuning has saved of a quantity, in its unit.

    Parameters
    ----------
    amount : float
        What was saved, negative if more was used.
    half_width : float or None
        Half of its 95 % interval; None where there are too few runs with the default to know their spread.
    instead : float
        What all would have used with the default.
    """

    amount: float
    half_width: float | None
    instead: float


@dataclass(frozen=True, slots=True)
class Savings:
    """What tuning a job has saved against its default batch size.

    Parameters
    ----------
    recurrences, with_default : int
        Runs that reached the target, and those of them with the default batch size.
    missed : int
        Runs that missed it; what they used was used in vain.
    energy, time : Saved or None
        In joules and seconds; None with fewer than `FEWEST` runs to take the default's mean from.
    """

    recurrences: int
    with_default: int
    missed: int
    energy: Saved | None
    time: Saved | None


def figures_by_size(trials: Iterable[TrialRow]) -> dict[int, SizeFigures]:
    """Gather the results that count, by batch size in ascending order."""
    grouped: dict[int, list[TrialRow]] = {}
    for trial in trials:
        if trial.counts:
            grouped.setdefault(trial.batch_size, []).append(trial)
    figures = {}
    for size, own in sorted(grouped.items()):
        reached = [trial for trial in own if trial.converged]
        used = {name: math.fsum(getattr(trial, name) for trial in own) for name in QUANTITIES}
        means = {name: estimate_mean([getattr(trial, name) for trial in reached]) for name in QUANTITIES if reached}
        figures[size] = SizeFigures(size, len(own), len(reached), used, means)
    return figures


def estimate_mean(sample: Sequence[float]) -> Estimate:
    """Mean of a sample of at least one, and its 95 % confidence interval."""
    number = len(sample)
    mean = math.fsum(sample) / number
    if number == 1:
        return Estimate(mean, None, 1)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in sample) / (number - 1))
    return Estimate(mean, _quantile(min(number - 1, _FREEDOM)) * deviation / math.sqrt(number), number)


def savings(figures: dict[int, SizeFigures], default: int) -> Savings:
    """Compare what all results have used with what they would have, had each recurrence used the default.

    Runs with the default are what they are. Each of the m others that reached the target is replaced by a run that is
    drawn as the n with the default were; what these would use together is m times their mean, give or take
    ``t s sqrt(m + m^2 / n)``.

    References
    ----------
    Hahn and Meeker, "Statistical Intervals" (1991), chapter 4: intervals for means of future values.
    """
    reached = sum(each.converged for each in figures.values())
    missed = sum(each.results for each in figures.values()) - reached
    number = figures[default].converged if default in figures else 0
    if number < FEWEST:
        return Savings(reached, number, missed, None, None)

    def compare(name: str) -> Saved:
        """Compare one quantity."""
        mean, others, half_width = figures[default].means[name], reached - number, None
        if number >= FEWEST_FOR_SPREAD and mean.half_width is not None:  # which is t s / sqrt(n)
            half_width = mean.half_width * math.sqrt(number * others + others * others)
        instead = reached * mean.mean
        return Saved(instead - sum(each.used[name] for each in figures.values()), half_width, instead)

    return Savings(reached, number, missed, compare("energy"), compare("time"))


def saved_texts(saved: Savings) -> dict[str, str]:
    """Energy and time that were saved, with intervals, shares, and what is to be said against them, by their names."""
    texts = {}
    for name, one, unit, factor in (
        ("energy saved", saved.energy, "J", 1.0),
        ("time saved", saved.time, "h", 1.0 / 3600.0),
    ):
        if one is None:
            texts[name] = f"not known: {saved.with_default} of the {FEWEST} runs with the default that this takes"
            continue
        half_width = None if one.half_width is None else one.half_width * factor
        share = one.amount / one.instead if one.instead else 0.0
        doubt = "" if one.half_width is None or abs(one.amount) > one.half_width else "; it may be none"
        if half_width is None:
            doubt = f"; too few runs with the default for an interval, which takes {FEWEST_FOR_SPREAD}"
        texts[name] = f"{si(one.amount * factor, half_width)}{unit} ({share:.1%}{doubt})"
    return texts


def si(number: float | None, half_width: float | None = None) -> str:
    """Format a number with four digits and an SI prefix, and how far its interval reaches to both sides with two."""
    if number is None:
        return "–"
    factors = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
    factor, prefix = next((each for each in factors if abs(number) >= each[0]), factors[-1])
    half = ""
    if half_width is not None:
        half_width /= factor
        half = f" ± {half_width:,.0f}" if abs(half_width) >= 99.5 else f" ± {half_width:.2g}"
    return f"{number / factor:.4g}{half} {prefix}"
