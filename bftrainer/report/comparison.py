"""Comparison of runs: settings that differ, metrics with their changes against the first run, groups of alike runs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from bftrainer.errors import escaped
from bftrainer.report.glossary import GLOSSARY, MARK, OVER_TASKS, Assumption, assumption, format_value, term_of
from bftrainer.report.words import join_names

Summary = Mapping[str, Any]

TIES = (
    "Runs of different solvers end at different times: each decides optimally, but they choose differently between "
    "equally good decisions (ties)."
)
_WINDOWS = ("since", "until_s", "skip_events", "max_events", "node_log", "large_idle")
# Numbers or null in a summary that are no outcome.
_NOT_OUTCOMES = {"schema", "seed", "forward_time_s", "max_tasks", "partial", "node_log_zone", "assumed_scaling"}
# Settings that follow from others, or change no replay.
_FOLLOWING = ("large_idle", "baseline")
_SAME_WINDOW = 0.01
"""Share by which windows of one start may differ in length: runs of so many events end when tasks do."""
_OF_TASKS = ("efficiency", "makespan_s", "turnaround_mean_s", "wait_mean_s")
"""Metrics that do not depend on how long a window goes on after all tasks are done."""
_KEY = re.compile(r"(?:.*/)?[0-9a-f]{16}")
"""Names of a sweep's runs."""
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)")


def figures_of(summary: Summary) -> dict[str, float | None]:
    """All numeric outcomes of a run: those of the glossary first, in its order, then all other ones.

    Parts of the ledger are called ``ledger.useful`` and so on, metrics of the time while few nodes are idle
    ``below_large_idle.occupancy``.
    """
    numbers = {key: value for key, value in summary.items() if key not in _NOT_OUTCOMES and _is_number(value)}
    for group in ("ledger", "below_large_idle"):
        values = summary.get(group) or {}
        numbers |= {f"{group}.{key}": value for key, value in values.items() if _is_number(value)}
    return {key: numbers[key] for key in GLOSSARY if key in numbers} | numbers


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def relative(value: float | None, base: float | None) -> float | None:
    """Difference to `base` as a share of it; None if a value is missing, or `base` is 0 and the value is not.

    Examples
    --------
    >>> relative(110.0, 100.0), relative(0.0, 0.0), relative(1.0, 0.0), relative(None, 1.0)
    (0.1, 0.0, None, None)
    """
    if value is None or base is None:
        return None
    if value == base:
        return 0.0
    return (value - base) / abs(base) if base else None


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table with a second line below its value, which may be ``better`` or ``worse``."""

    value: str
    below: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Unlike:
    """Why metrics of a run and of the first one are not comparable.

    Parameters
    ----------
    reasons : tuple of str
        Empty if the runs can be compared.
    is_finished : bool
        Whether the only reason is that tasks were done earlier: metrics of tasks are comparable all the same.
    """

    reasons: tuple[str, ...] = ()
    is_finished: bool = False

    @classmethod
    def of(cls, base: Summary, other: Summary) -> Unlike:
        """Compare machine, unit and window of a run with those of the first."""
        reasons = []
        if base["nodes_total"] != other["nodes_total"]:
            reasons.append(f"another machine ({other['nodes_total']:,} nodes, not {base['nodes_total']:,})")
        if unit_of(base) != unit_of(other):
            reasons.append(f"another unit ({unit_of(other)}, not {unit_of(base)})")
        is_long = abs(base["window_s"] - other["window_s"]) <= _SAME_WINDOW * base["window_s"]
        is_long = is_long or base.get("engine") == "live"  # a harvest, whose replay ends when its tasks do
        is_same_start = base["window_start"] == other["window_start"]
        if is_same_start and is_long:
            return cls(tuple(reasons))
        if not reasons and is_same_start and _ends_with_tasks(base, other):
            ours, theirs = (summary["window_end"][:19] for summary in (other, base))
            return cls((f"a window ends when all tasks are done ({ours}, not {theirs})",), True)
        ours, theirs = (f"{one['window_start'][:19]} to {one['window_end'][:19]}" for one in (other, base))
        return cls((*reasons, f"another window ({ours}, not {theirs})"))

    def allows(self, key: str) -> bool:
        """Whether a metric of the run can be compared with the first one's."""
        return not self.reasons or (self.is_finished and key in _OF_TASKS)


def _ends_with_tasks(base: Summary, other: Summary) -> bool:
    """Whether runs of the same tasks and log differ in length as all tasks of the shorter one were done."""
    contents = [
        [[file["sha256"] for file in input_files(summary).get(name, ())] for name in ("node_log", "tasks")]
        for summary in (base, other)
    ]
    shorter = min(base, other, key=lambda summary: float(summary["window_s"]))
    return contents[0] == contents[1] and shorter.get("end_reason") == "finished"


@dataclass(frozen=True, slots=True, eq=False)
class RunComparison:
    """Metrics of several runs, relative to those of the first.

    Parameters
    ----------
    names : tuple of str
    partial : tuple of bool
        Whether a run was interrupted.
    settings : dict
        Settings and inputs in which they differ, one value per run.
    figures : dict
        One value per run, None where a run has none.
    differences : dict
        Differences to the first run, as shares of its value.
    assumptions : tuple of (Assumption or None)
        Assumptions of each run.
    unlike : tuple of Unlike
        Why runs are not comparable with the first.
    is_judged : bool
        Whether changes are better or worse; those of replays that predict a harvest, the first run, are neither.
    """

    names: tuple[str, ...]
    partial: tuple[bool, ...]
    settings: dict[str, tuple[Any, ...]]
    figures: dict[str, tuple[float | None, ...]]
    differences: dict[str, tuple[float | None, ...]]
    assumptions: tuple[Assumption | None, ...]
    unlike: tuple[Unlike, ...] = ()
    is_judged: bool = True

    @property
    def note_of_ties(self) -> str | None:
        """Why runs end at different times that differ in their solver alone; None if they don't."""
        windows = self.figures.get("window_s", ())
        return TIES if set(self.settings) == {"solver"} and len(set(windows)) > 1 else None

    def setting_rows(self) -> list[list[str]]:
        """Settings that differ: a row each, with its name in words and the value of each run."""
        return [
            [setting_label(key), *("-" if value is None else str(value) for value in values)]
            for key, values in self.settings.items()
        ]

    def cells(self, key: str) -> list[Cell]:
        """A metric of each run, and below it the change against the first run where the two are comparable.

        Changes of shares are in points, as a relative one would read like one of the whole.
        """
        term, base, cells = term_of(key), self.figures[key][0], []
        for place, value in enumerate(self.figures[key]):
            text = format_value(value, term.unit)
            if value is not None:
                count = self.figures[OVER_TASKS[key]][place] if key in OVER_TASKS else None
                text += "" if count is None else f" of {count:,.0f} tasks"
                assumed = self.assumptions[place]
                text = f"{MARK} {text}" if assumed is not None and assumed.bears(key) else text
            below = tone = ""
            share = self.differences[key][place]
            change = None if value is None or base is None else value - base
            if place and change and self.unlike[place].allows(key) and (share is not None or term.unit == "share"):
                below = f"{100 * change:+.2f} points" if term.unit == "share" else f"{100 * (share or 0.0):+.2f} %"
                # Times of the clock differ between equal runs.
                is_judged = self.is_judged and below[1:5] != "0.00" and term.unit != "wall_s"
                gain = change * term.better if is_judged else 0.0
                tone = "better" if gain > 0 else "worse" if gain < 0 else ""
            cells.append(Cell(text, below, tone))
        return cells

    def notes(self) -> Iterator[str]:
        """Why runs end at different times, and why some are not comparable with the first, or by few metrics alone."""
        if self.note_of_ties is not None:
            yield self.note_of_ties
        names: dict[Unlike, list[str]] = {}
        for name, unlike in zip(self.names, self.unlike, strict=True):
            if unlike.reasons:
                names.setdefault(unlike, []).append(name)
        for unlike, some in names.items():
            can, by = "cannot be compared with", ""
            if unlike.is_finished:
                can, by = "can be compared with", f" by {join_names([GLOSSARY[key].label for key in _OF_TASKS])} alone"
            yield f"{join_names(some)} {can} {self.names[0]}{by}: {', '.join(unlike.reasons)}."

    def to_dict(self) -> dict[str, Any]:
        """The comparison, ready for JSON."""
        return {
            "runs": [
                {"name": name, "partial": partial} | ({"assumed_scaling": assumed.note} if assumed else {})
                for name, partial, assumed in zip(self.names, self.partial, self.assumptions, strict=True)
            ],
            "settings": {key: list(values) for key, values in self.settings.items()},
            "figures": {
                key: {"values": list(values), "relative": list(self.differences[key])}
                for key, values in self.figures.items()
            },
        }


def compare_runs(names: Sequence[str], summaries: Sequence[Summary]) -> RunComparison:
    """Compare runs by their summaries."""
    outcomes = [figures_of(summary) for summary in summaries]
    keys = dict.fromkeys(key for figures in outcomes for key in figures)
    figures = {key: tuple(one.get(key) for one in outcomes) for key in keys}
    figures = {key: values for key, values in figures.items() if any(value is not None for value in values)}
    return RunComparison(
        names=tuple(names),
        partial=tuple(bool(summary["partial"]) for summary in summaries),
        settings=_differing([_settings_of(summary) for summary in summaries]),
        figures=figures,
        differences={key: tuple(relative(value, values[0]) for value in values) for key, values in figures.items()},
        assumptions=tuple(map(assumption, summaries)),
        unlike=tuple(Unlike.of(summaries[0], summary) for summary in summaries),
        is_judged=summaries[0].get("engine") != "live",
    )


@dataclass(frozen=True, slots=True)
class Alike:
    """Runs that differ in their seeds, or also their windows, alone, by their places in a comparison.

    Parameters
    ----------
    label : str
        The name of a single run; of several the settings in which they differ from others, and their number. Runs
        of a sweep, whose names are no words, are called by their settings too.
    places : tuple of int
    setting : str
        The settings alone; empty if all runs have the same.
    """

    label: str
    places: tuple[int, ...]
    setting: str


def alike(
    names: Sequence[str], summaries: Sequence[Summary], apart: str | None = None, *, over_windows: bool = False
) -> list[Alike]:
    """Group runs that differ in their seeds alone.

    The same run twice makes two groups, as it says nothing about spread.

    Parameters
    ----------
    names : sequence of str
    summaries : sequence of mapping
    apart : str, optional
        A setting that labels leave out.
    over_windows : bool
        Whether runs of one machine may also differ in what part of which node log they replay.
    """
    groups: dict[str, list[int]] = {}
    firsts: list[dict[str, tuple[Any, Any]]] = []
    copies: dict[str, int] = {}
    for place, summary in enumerate(summaries):
        settings = {**_settings_of(summary), "partial": (summary["partial"], summary["partial"])}
        seeds: list[Any] = [settings.pop("seed", None)] if apart != "seed" else []
        if over_windows:
            settings["machine"] = ((summary["nodes_total"], unit_of(summary)), None)
            seeds += [settings.pop(name, None) for name in _WINDOWS]
        key = json.dumps({name: value for name, (value, _) in settings.items()}, default=str)
        run = json.dumps([key, seeds], default=str)
        copies[run] = copies.get(run, 0) + 1
        key = f"{copies[run]} {key}"
        if key not in groups:
            firsts.append(settings)
        groups.setdefault(key, []).append(place)
    repeated = [place for place, places in enumerate(groups.values()) if len(places) > 1]
    own = dict(zip(repeated, _settings_in_words([firsts[place] for place in repeated], apart), strict=True))
    result = []
    for place, (places, setting) in enumerate(zip(groups.values(), _settings_in_words(firsts, apart), strict=True)):
        label = ", ".join(filter(None, (own.get(place), f"{len(places)} seeds")))
        name = setting if setting and _KEY.fullmatch(names[places[0]]) else names[places[0]]
        result.append(Alike(label if place in own else name, tuple(places), setting))
    # Runs of a sweep have no order of their own: the settings say the sequence.
    is_sweep = repeated or all(map(_KEY.fullmatch, names))
    return sorted(result, key=lambda group: _natural_key(group.setting)) if is_sweep else result


def order_by_settings(names: Sequence[str], summaries: Sequence[Summary]) -> dict[int, str]:
    """Places of runs in order, with their names: runs of a sweep are called, and sorted, by settings that differ."""
    words = _settings_in_words([_settings_of(summary) for summary in summaries], None)
    if len(set(words)) < len(words) or not all(words) or not all(map(_KEY.fullmatch, names)):
        return dict(enumerate(names))
    return dict(sorted(enumerate(words), key=lambda entry: _natural_key(entry[1])))


def _natural_key(text: str) -> list[tuple[float, str]]:
    """Key by which texts with numbers in them sort as people would."""
    return [(float(word), "") if number % 2 else (0.0, word) for number, word in enumerate(_NUMBER.split(text))]


def unit_of(summary: Summary) -> str:
    """Unit of the log of a run: as its notes say, parts of shared nodes, or else nodes."""
    match = re.search(r"lowest-numbered free (\w+)s of each node", " ".join(summary.get("node_log_notes") or ()))
    return f"{match[1]}s" if match else "nodes"


def _settings_in_words(settings: Sequence[Mapping[str, tuple[Any, Any]]], apart: str | None) -> list[str]:
    """For each of several runs, the settings in which they differ."""
    different = {key: values for key, values in _differing(settings).items() if key not in (apart, *_FOLLOWING)}
    names = [_split_unit(key) for key in different]
    return [
        ", ".join(
            f"{name} -" if value is None else f"{name} {value} {unit}".rstrip()
            for (name, unit), value in zip(names, row, strict=True)
        )
        for row in zip(*different.values(), strict=True)
    ] or [""] * len(settings)


def setting_label(key: str) -> str:
    """A setting's name as text, with its unit if it ends in one.

    Examples
    --------
    >>> setting_label("forward_time_s"), setting_label("max_tasks")
    ('forward time (s)', 'max tasks')
    """
    name, unit = _split_unit(key)
    return f"{name} ({unit})" if unit else name


def _split_unit(key: str) -> tuple[str, str]:
    ending = key[-2:]
    unit = {"_s": "s", "_w": "W"}.get(ending, "")
    return (key.removesuffix(ending) if unit else key).replace("_", " "), unit


def input_files(summary: Summary) -> dict[str, tuple[Mapping[str, str], ...]]:
    """Files of each input of a run: path and SHA-256; none for inputs that are not files."""
    files = {}
    for name, entry in (summary.get("inputs") or {}).items():
        entries = entry if isinstance(entry, list | tuple) else [entry]
        files[name] = tuple(filter(None, entries))
    return files


def _settings_of(summary: Summary) -> dict[str, tuple[Any, Any]]:
    """Settings by name: the value for comparison, and the value to show; of files their digests, and their names."""
    plain = {**summary["settings"], "bftrainer": (summary.get("versions") or {}).get("bftrainer")}
    settings: dict[str, tuple[Any, Any]] = {key: (value, value) for key, value in plain.items()}
    for name, files in input_files(summary).items():
        shown = ", ".join(f"{PurePath(file['path']).name} ({file['sha256'][:8]})" for file in files)
        settings[name] = (tuple(file["sha256"] for file in files) or None, shown or None)
    return settings


def _differing(settings: Sequence[Mapping[str, tuple[Any, Any]]]) -> dict[str, tuple[Any, ...]]:
    different = {}
    for key in dict.fromkeys(key for one in settings for key in one):
        compared, shown = zip(*(one.get(key, (None, None)) for one in settings), strict=True)
        if any(not _is_same(value, compared[0]) for value in compared):
            different[key] = shown
    return different


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


def run_names(paths: Sequence[Path]) -> tuple[str, ...]:
    """Names that distinguish runs: their directories' names, with as many parents as needed, or numbered if equal.

    Examples
    --------
    >>> run_names([Path("/tmp/may/x-itrOut"), Path("/tmp/june/x-itrOut"), Path("y-itrOut")])
    ('may/x', 'june/x', 'y')
    """
    absolute = [path.resolve() for path in paths]

    def tail(path: PurePath) -> str:
        """Shortest end of a path that no other path has."""
        for length in range(1, len(path.parts)):
            last = path.parts[-length:]
            if all(other == path or other.parts[-length:] != last for other in absolute):
                return str(PurePath(*last))
        return str(path)

    tails = list(map(tail, absolute))
    bare = [name.removesuffix("-itrOut") for name in tails]
    # Directory names need not be valid text, and names of runs are written into pages and figures.
    names = [escaped(name) for name in (bare if len(set(bare)) == len(set(absolute)) else tails)]
    return tuple(
        name if absolute.count(path) == 1 else f"{name} ({absolute[: place + 1].count(path)})"
        for place, (path, name) in enumerate(zip(absolute, names, strict=True))
    )
