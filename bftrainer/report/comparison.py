"""Comparison of runs: settings that differ, metrics with their changes against the first run, groups of alike runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from bftrainer.errors import escape_text
from bftrainer.model.instants import instant_ns, local_iso
from bftrainer.report.glossary import (
    MARK,
    Summary,
    format_value,
    is_assumed,
    join_names,
    scaling_note,
)
from bftrainer.terms import GLOSSARY, term_of

TIES = (
    "Runs of different solvers end at different times: each decides optimally, but they choose differently between "
    "equally good decisions (ties)."
)
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


def figures_of(summary: Summary) -> dict[str, float | None]:
    """All numeric outcomes of a run: those of the glossary first, in its order, then all other ones.

    Parts of the ledger are called ``ledger.useful`` and so on, metrics of the time while few nodes are idle
    ``below_large_idle.occupancy``.
    """
    values = {key: value for key, value in summary.items() if key not in _NOT_OUTCOMES}
    for group in ("ledger", "below_large_idle"):
        values |= {f"{group}.{key}": value for key, value in (summary.get(group) or {}).items()}
    numbers = {key: value for key, value in values.items() if value is None or type(value) in (int, float)}
    return {key: numbers[key] for key in GLOSSARY if key in numbers} | numbers


def relative(value: float | None, base: float | None) -> float | None:
    """Difference to `base` as a share of it; None if a value is missing, or `base` is 0 and the value is not."""
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
    """Why metrics of a run and of the first one are not comparable, none if they are.

    If only tasks were done earlier (`is_finished`), metrics of tasks are comparable all the same.
    """

    reasons: tuple[str, ...] = ()
    is_finished: bool = False

    def allows(self, key: str) -> bool:
        """Whether a metric of the run can be compared with the first one's."""
        return not self.reasons or (self.is_finished and key in _OF_TASKS)


def find_unlike(base: Summary, other: Summary) -> Unlike:
    """Compare machine, unit and window of a run with those of the first."""
    reasons = []
    if base["nodes_total"] != other["nodes_total"]:
        reasons.append(f"another machine ({other['nodes_total']:,} nodes, not {base['nodes_total']:,})")
    if unit_of(base) != unit_of(other):
        reasons.append(f"another unit ({unit_of(other)}, not {unit_of(base)})")
    starts, ends = (
        [local_iso(instant_ns(one[f"window_{end}"]), one.get("node_log_zone")) for one in (other, base)]
        for end in ("start", "end")
    )
    is_same_start = base["window_start"] == other["window_start"]
    is_same_end = abs(base["window_s"] - other["window_s"]) <= _SAME_WINDOW * base["window_s"]
    # The replay of a harvest ends when its tasks do.
    if is_same_start and (is_same_end or base.get("engine") == "live"):
        return Unlike(tuple(reasons))
    shorter = min(base, other, key=lambda summary: float(summary["window_s"]))
    contents = [[_digests(one).get(name) for name in ("node_log", "tasks")] for one in (base, other)]
    if not reasons and is_same_start and contents[0] == contents[1] and shorter.get("end_reason") == "finished":
        return Unlike((f"a window ends when all tasks are done ({ends[0]}, not {ends[1]})",), True)
    ours, theirs = (f"{start} to {end}" for start, end in zip(starts, ends, strict=True))
    return Unlike((*reasons, f"another window ({ours}, not {theirs})"))


@dataclass(frozen=True, slots=True, eq=False)
class RunComparison:
    """Metrics of several runs, relative to those of the first; a value a run, None where a run has none.

    `settings` are those in which they differ, and inputs.
    """

    names: tuple[str, ...]
    summaries: Sequence[Summary]
    settings: dict[str, tuple[Any, ...]]
    figures: dict[str, tuple[float | None, ...]]

    @property
    def differences(self) -> dict[str, tuple[float | None, ...]]:
        """Differences to the first run, as shares of its value."""
        return {key: tuple(relative(value, values[0]) for value in values) for key, values in self.figures.items()}

    @property
    def assumptions(self) -> list[str | None]:
        """What each run assumes of how tasks scale."""
        return list(map(scaling_note, self.summaries))

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

        Changes of shares are in points, as a relative one would read like one of the whole. Those of times of the
        clock, and of predictions of a harvest, are neither better nor worse.
        """
        term, base, cells = term_of(key), self.figures[key][0], []
        is_judged = term.unit != "wall_s" and self.summaries[0].get("engine") != "live"
        for value, summary in zip(self.figures[key], self.summaries, strict=True):
            text, below, tone = format_value(value, term.unit), "", ""
            if value is not None:
                text += f" of {summary[term.over]:,.0f} tasks" if summary.get(term.over) is not None else ""
                text = f"{MARK} {text}" if is_assumed(summary, key) else text
            if value is not None and base is not None and find_unlike(self.summaries[0], summary).allows(key):
                change, share = value - base, relative(value, base)
                if change and term.unit == "share":
                    below = f"{100 * change:+.2f} points"
                elif change and share is not None:
                    below = f"{100 * share:+.2f} %"
                gain = change * term.better if is_judged and below[1:5] != "0.00" else 0.0
                tone = ("better" if gain > 0 else "worse") if below and gain else ""
            cells.append(Cell(text, below, tone))
        return cells

    def notes(self) -> Iterator[str]:
        """Why runs end at different times, and why some are not comparable with the first, or by few metrics alone."""
        if self.note_of_ties is not None:
            yield self.note_of_ties
        names: dict[Unlike, list[str]] = {}
        for name, summary in zip(self.names, self.summaries, strict=True):
            names.setdefault(find_unlike(self.summaries[0], summary), []).append(name)
        for unlike, some in names.items():
            can, by = "cannot be compared with", ""
            if unlike.is_finished:
                can, by = "can be compared with", f" by {join_names([GLOSSARY[key].label for key in _OF_TASKS])} alone"
            if unlike.reasons:
                yield f"{join_names(some)} {can} {self.names[0]}{by}: {', '.join(unlike.reasons)}."

    def to_dict(self) -> dict[str, Any]:
        """The comparison, ready for JSON."""
        differences = self.differences
        return {
            "runs": [
                {"name": name, "partial": bool(one["partial"])} | ({"assumed_scaling": assumed} if assumed else {})
                for name, one, assumed in zip(self.names, self.summaries, self.assumptions, strict=True)
            ],
            "settings": {key: list(values) for key, values in self.settings.items()},
            "figures": {
                key: {"values": list(values), "relative": list(differences[key])}
                for key, values in self.figures.items()
            },
        }


def compare_runs(names: Sequence[str], summaries: Sequence[Summary]) -> RunComparison:
    """Compare runs, by their summaries, with the first; metrics that none of them has are left out."""
    outcomes = list(map(figures_of, summaries))
    keys = {key: None for one in outcomes for key in one}
    figures = {key: tuple(one.get(key) for one in outcomes) for key in (*GLOSSARY, *keys) if key in keys}
    figures = {key: values for key, values in figures.items() if any(value is not None for value in values)}
    return RunComparison(tuple(names), summaries, _differing(list(map(_settings_of, summaries))), figures)


def group_seeds(
    names: Sequence[str], summaries: Sequence[Summary], apart: str = ""
) -> dict[tuple[str, Any], list[int]]:
    """Places of runs that differ in their seeds alone, by what sets them apart and their value of the setting `apart`.

    These are the settings in which runs differ; or names where no two are alike and it is no sweep, whose names are no
    words, or where a run is there twice, which says nothing about spread.
    """
    settings = [{**_settings_of(one), "partial": (one["partial"], one["partial"])} for one in summaries]
    left_out = (apart, "seed", *_FOLLOWING)
    different = {key: values for key, values in _differing(settings).items() if key not in left_out}
    groups: dict[tuple[str, Any], dict[Any, int]] = {}
    for place, summary in enumerate(summaries):
        parts = [(*_split_unit(key), values[place]) for key, values in different.items()]
        text = ", ".join(f"{name} {'-' if value is None else value} {unit}".rstrip() for name, unit, value in parts)
        own = summary["settings"]
        groups.setdefault((text, own.get(apart)), {})[own.get("seed")] = place
    is_single = len(groups) == len(names) and not all(map(_KEY.fullmatch, names))
    if not apart and (is_single or sum(map(len, groups.values())) < len(names)):
        return {(name, None): [place] for place, name in enumerate(names)}
    return {key: list(places.values()) for key, places in groups.items()}


def unit_of(summary: Summary) -> str:
    """Unit of the log of a run: as its notes say, parts of shared nodes, or else nodes."""
    match = re.search(r"lowest-numbered free (\w+)s of each node", " ".join(summary.get("node_log_notes") or ()))
    return f"{match[1]}s" if match else "nodes"


def setting_label(key: str) -> str:
    """A setting's name as text, with its unit if it ends in one: forward time (s)."""
    name, unit = _split_unit(key)
    return f"{name} ({unit})" if unit else name


def _split_unit(key: str) -> tuple[str, str]:
    unit = {"_s": "s", "_w": "W"}.get(key[-2:], "")
    return (key[:-2] if unit else key).replace("_", " "), unit


def input_files(summary: Summary) -> dict[str, tuple[Mapping[str, str], ...]]:
    """Files of each input of a run: path and SHA-256; none for inputs that are not files."""
    inputs = (summary.get("inputs") or {}).items()
    return {name: tuple(filter(None, entry if isinstance(entry, list | tuple) else [entry])) for name, entry in inputs}


def _digests(summary: Summary) -> dict[str, tuple[str, ...]]:
    """Checksums of the files of each input."""
    return {name: tuple(file["sha256"] for file in files) for name, files in input_files(summary).items()}


def _settings_of(summary: Summary) -> dict[str, tuple[Any, Any]]:
    """Settings by name: the value for comparison, and the value to show; of files their digests, and their names."""
    plain = {**summary["settings"], "bftrainer": (summary.get("versions") or {}).get("bftrainer")}
    settings: dict[str, tuple[Any, Any]] = {key: (value, value) for key, value in plain.items()}
    digests = _digests(summary)
    for name, files in input_files(summary).items():
        shown = ", ".join(f"{PurePath(file['path']).name} ({file['sha256'][:8]})" for file in files)
        settings[name] = (digests[name] or None, shown or None)
    return settings


def _differing(settings: Sequence[Mapping[str, tuple[Any, Any]]]) -> dict[str, tuple[Any, ...]]:
    """Values to show of the settings that are not the same in all runs; NaN is the same as NaN."""
    different = {}
    for key in dict.fromkeys(key for one in settings for key in one):
        compared, shown = zip(*(one.get(key, (None, None)) for one in settings), strict=True)
        if not all(value == compared[0] or (value != value and compared[0] != compared[0]) for value in compared):
            different[key] = shown
    return different


def run_names(paths: Sequence[Path]) -> tuple[str, ...]:
    """Names that distinguish runs: their directories' names, with as many parents as needed, or numbered if equal."""
    absolute = [path.resolve() for path in paths]

    def tail(path: PurePath) -> str:
        """Shortest end of a path that no other path has."""
        ends = (path.parts[-length:] for length in range(1, len(path.parts)))
        own = (end for end in ends if all(other == path or other.parts[-len(end) :] != end for other in absolute))
        return str(PurePath(*next(own, path.parts)))

    tails = list(map(tail, absolute))
    bare = [name.removesuffix("-itrOut") for name in tails]
    # Directory names need not be valid text, and names of runs are written into pages and figures.
    names = [escape_text(name) for name in (bare if len(set(bare)) == len(set(absolute)) else tails)]
    return tuple(
        name if absolute.count(path) == 1 else f"{name} ({absolute[: place + 1].count(path)})"
        for place, (path, name) in enumerate(zip(absolute, names, strict=True))
    )
