"""Paired comparison of a sweep's settings: the same windows, seeds and other settings behind both sides."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bftrainer.campaigns.sweep import PointResult
from bftrainer.campaigns.sweep_file import plain_value
from bftrainer.errors import SettingsError, suggestion
from bftrainer.report.intervals import Estimate, estimate
from bftrainer.report.sweep_page import check_metrics


@dataclass(frozen=True, slots=True)
class PairedGain:
    """What one value of an option gains on another.

    Parameters
    ----------
    value, against : object
        The value, and the option's first one in the sweep.
    metric : str
    gain : Estimate or None
        Mean over pairs of the figure's ratio, less 1, with its 95 % interval; None without a pair.
    points : int
        Points with the value.
    """

    value: Any
    against: Any
    metric: str
    gain: Estimate | None
    points: int

    @property
    def unpaired(self) -> int:
        """Points without a partner, or whose ratio is undefined."""
        return self.points - (0 if self.gain is None else self.gain.number)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self) | {"unpaired": self.unpaired}


def check_pairing(varied: Sequence[str], option: str, metrics: Sequence[str]) -> None:
    """Refuse an option that a sweep does not vary, and figures that cannot be better or worse.

    Raises
    ------
    SettingsError
        Naming it, and what is like it.
    """
    check_metrics(metrics)
    if option not in varied:
        raise SettingsError(f"Expected an option that the sweep varies, got {option!r}.{suggestion(option, varied)}")


def paired_gains(results: Sequence[PointResult], option: str, metrics: Sequence[str]) -> list[PairedGain]:
    """Compare each value of an option with its first one, point by point.

    Two points are a pair if all else that varies is the same: window, seed and other options. How windows and seeds
    differ is no part of a pair's ratio, so that intervals are those of the gain alone.

    Parameters
    ----------
    results : sequence of PointResult
        Of a sweep, in its order.
    option : str
        A varied option, as the sweep's file calls it.
    metrics : sequence of str
        Figures.

    Raises
    ------
    SettingsError
        As `check_pairing`.
    """
    check_pairing([name for name, _ in results[0].point.varied] if results else [], option, metrics)
    sides: dict[Any, dict[Hashable, PointResult]] = {}
    for result in results:
        settings = {name: plain_value(value) for name, value in result.point.varied}
        value = settings.pop(option)
        sides.setdefault(value, {})[tuple(settings.items())] = result
    (against, base), *others = sides.items()
    return [
        PairedGain(value, against, metric, estimate(ratios) if ratios else None, len(side))
        for metric in metrics
        for value, side in others
        for ratios in [ratios_less_one([(each, base[key]) for key, each in side.items() if key in base], metric)]
    ]


def ratios_less_one(pairs: Iterable[tuple[PointResult, PointResult]], metric: str) -> list[float]:
    """Ratio less 1 of each pair in which both have the figure, and the second one's is not 0."""
    figures = [(one.figures.get(metric), two.figures.get(metric)) for one, two in pairs]
    ratios = [one / two - 1.0 for one, two in figures if one is not None and two]
    return [ratio for ratio in ratios if math.isfinite(ratio)]
