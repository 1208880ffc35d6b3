"""Paired comparison of a sweep's settings: the same windows, seeds and other settings behind both sides; its figure."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bftrainer.campaigns.sweep import TABLE, PointResult
from bftrainer.campaigns.sweep_file import SweepPoint, plain_value
from bftrainer.errors import SettingsError, suggestion
from bftrainer.files.arrow import parquet_file
from bftrainer.files.opening import translated
from bftrainer.report.comparison import setting_label
from bftrainer.report.drawing import PrintFigure, Sheet, palette, wrap_label
from bftrainer.report.glossary import ASSUMED, ON_SCALING, Assumption, check_metrics, term_of
from bftrainer.report.metrics import Estimate, estimate

_ON_SCALING = frozenset(key.rpartition(".")[2] for key in ON_SCALING)
# Beyond it a ratio says no more than that the other figure is 0 but for rounding.
_MOST_RATIO = 1e12


@dataclass(frozen=True, slots=True)
class PairedChange:
    """How a figure changes from one value of an option to another, the first one in the sweep."""

    value: Any
    against: Any
    metric: str
    change: Estimate | None
    """Mean over pairs of the figure's ratio, less 1, with its 95 % interval; None without a pair."""
    points: int
    """Points with the value."""
    unequal: int = 0
    """Pairs whose figures are of different numbers of tasks, as completed ones, and so not comparable."""

    @property
    def lone_points(self) -> int:
        """Points without a partner, or whose ratio is undefined."""
        return self.points - (0 if self.change is None else self.change.number)

    @property
    def verdict(self) -> str:
        """Whether the change is for the better or the worse; "unclear" where its interval holds 0, or there is none."""
        change = self.change
        if change is None or change.half_width is None or abs(change.mean) <= change.half_width:
            return "unclear"
        return "better" if change.mean * term_of(self.metric).better > 0 else "worse"

    @property
    def note(self) -> str:
        """Why the figures are not comparable, if they are not."""
        if not self.unequal:
            return ""
        label, counted = term_of(self.metric).label, term_of(term_of(self.metric).over).label
        pairs = self.points - self.lone_points
        return f"{label}: not comparable, as {self.unequal} of {pairs} pairs differ in {counted}"

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self) | {"unpaired": self.lone_points, "verdict": self.verdict}


def check_pairing(varied: Sequence[str], option: str, metrics: Sequence[str]) -> None:
    """Refuse an option that a sweep does not vary, and figures that cannot be better or worse: `SettingsError`."""
    check_metrics(metrics)
    if option not in varied:
        raise SettingsError(f"Expected an option that the sweep varies, got {option!r}.{suggestion(option, varied)}")


def paired_changes(
    results: Sequence[PointResult] | str | Path, option: str, metrics: Sequence[str] = ("work_done",)
) -> list[PairedChange]:
    """Compare each value of an option with its first one, point by point.

    Two points are a pair if all else that varies is the same: window, seed and other options. How windows and seeds
    differ is no part of a pair's ratio, so that intervals are those of the change alone.

    Parameters
    ----------
    results : sequence of PointResult, or path
        Of a sweep, in its order; or its directory.
    option : str
        A varied option, as the sweep's file calls it.
    metrics : sequence of str
        Figures.

    Raises
    ------
    SettingsError
        As `check_pairing` and `read_points`.
    """
    if isinstance(results, str | Path):
        results = read_points(Path(results))
    check_pairing([name for name, _ in results[0].point.varied] if results else [], option, metrics)
    sides: dict[Any, dict[Hashable, PointResult]] = {}
    for result in results:
        settings = {name: plain_value(value) for name, value in result.point.varied}
        value = settings.pop(option)
        sides.setdefault(value, {})[tuple(settings.items())] = result
    (against, base), *others = sides.items()
    changes = []
    for metric in metrics:
        for value, side in others:
            pairs = [(result, base[key]) for key, result in side.items() if key in base]
            ratios = {
                at: ratio for at, pair in enumerate(pairs) if (ratio := ratio_less_one(*pair, metric)) is not None
            }
            counted = term_of(metric).over
            unequal = sum(len({result.figures.get(counted) for result in pairs[at]}) > 1 for at in ratios)
            change = estimate(list(ratios.values())) if ratios else None
            changes.append(PairedChange(value, against, metric, change, len(side), unequal))
    return changes


def ratio_less_one(one: PointResult, two: PointResult, metric: str) -> float | None:
    """Ratio less 1 of a figure that both have, and that is not 0 in the second one."""
    figure, base = one.figures.get(metric), two.figures.get(metric)
    ratio = math.nan if figure is None or not base else figure / base - 1.0
    return ratio if abs(ratio) < _MOST_RATIO else None


def read_points(directory: Path) -> list[PointResult]:
    """The points of a sweep, from its table; a `SettingsError` if there is none."""
    path = directory / TABLE
    with translated(path, SettingsError):
        if not path.is_file():
            raise SettingsError(f"{directory}: Expected a sweep's directory with a {TABLE}, found none in it.")
    with parquet_file(path, SettingsError) as file:
        table = file.read()
        table.validate(full=True)
    names = table.column_names
    if names[:2] != ["point", "run"] or names.count("error") != 1:
        raise SettingsError(f"{path}: Expected columns point, run, options, error and figures.")
    numeric = {name for name, kind in zip(names, table.schema.types, strict=True) if str(kind) in ("int64", "double")}
    options, figures = names[2 : names.index("error")], [*numeric - {*names[: names.index("error")]}]
    results: list[PointResult] = []
    for row in table.to_pylist():
        varied = tuple((name, row[name] if name in numeric else _as_text(row[name])) for name in options)
        note = row.get("assumed_scaling")
        assumed = None if note is None else Assumption(note, _ON_SCALING)
        point = SweepPoint(len(results), (), varied, "")
        results.append(PointResult(point, {name: row[name] for name in figures}, assumed, row["error"]))
    return results


def _as_text(value: Any) -> str | None:
    return None if value is None else str(value)


def plot_changes(results: Sequence[PointResult], option: str, metric: str, sheet: Sheet) -> PrintFigure:
    """Draw how each value of an option changes a figure against its first one, with whiskers for 95 % intervals."""
    drawn = [
        (change, change.change) for change in paired_changes(results, option, [metric]) if change.change is not None
    ]
    if not drawn:
        raise SettingsError(f"Expected two points that differ in {option} alone and have {metric}, found none.")
    ink, label, name, against = palette(), term_of(metric).label, setting_label(option), str(drawn[0][0].against)
    way = "more" if term_of(metric).better > 0 else "less"
    rows = [
        (
            str(change.value),
            against,
            100 * of.mean,
            of.half_width and 100 * of.half_width,
            of.number,
            change.lone_points,
        )
        for change, of in drawn
    ]
    figure = sheet.figure(max(42.0, 0.5 * sheet.width_mm))
    ax = figure.add_subplot()
    ax.axhline(0.0, color=ink["gray"], linewidth=0.8)
    ax.plot(0, 0.0, "o", color=ink["gray"], markerfacecolor="white")  # what is compared with
    look = {"fmt": "o", "color": ink["blue"], "capsize": 3, "linewidth": 1.0}
    ax.errorbar(range(1, len(rows) + 1), [row[2] for row in rows], [row[3] or 0.0 for row in rows], **look)
    ax.set_xticks(range(len(rows) + 1), [wrap_label(text, 20) for text in (against, *(row[0] for row in rows))])
    ax.set(xlabel=name, ylabel=f"change of {label} (%),\n{way} is better", xlim=(-0.5, len(rows) + 0.5))
    few, most = min(row[4] for row in rows), max(row[4] for row in rows)
    caption = (
        f"How values of {name} change {label}, of which {way} is better, against {against}: the mean of the ratios of "
        "points that are otherwise the same, less 1. Whiskers are 95 % confidence intervals (Student's t) over "
        f"{few if few == most else f'{few} to {most}'} pairs."
    )
    caption += "".join(f" {change.value}: {change.note}." for change, _ in drawn if change.note)
    assumptions = [result.assumed for result in results if result.assumed is not None and result.assumed.bears(metric)]
    if assumptions:
        figure.supxlabel(ASSUMED, x=0.01, ha="left")
        notes = dict.fromkeys(assumption.note for assumption in assumptions)
        caption += "".join(f" Rests on {ASSUMED}: {note}." for note in notes)
    return PrintFigure(figure, (option, "against", "change_percent", "half_width", "pairs", "unpaired"), rows, caption)
