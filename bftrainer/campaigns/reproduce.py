"""The evaluations of papers made again, with a page and data of each; that of BFTrainer is one sweep of replays."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from importlib import resources
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bftrainer.campaigns.engines import LocalEngine
from bftrainer.campaigns.paired import ratio_less_one
from bftrainer.campaigns.sweep import PointResult, run_sweep
from bftrainer.campaigns.sweep_file import SCHEMA, SweepSpec
from bftrainer.errors import BftrainerError, SettingsError
from bftrainer.files.directories import LOCK, list_written, result_directory, written_files
from bftrainer.files.documents import write_csv
from bftrainer.files.opening import SAMPLE_NODE_LOG, sample_path
from bftrainer.files.writing import lock_file, replacing
from bftrainer.model import TaskSpec
from bftrainer.nodelogs.availability import read_availability
from bftrainer.nodelogs.edit import idle_node_s
from bftrainer.parallel import in_order
from bftrainer.report.drawing import line_look, palette, plain, put_legend
from bftrainer.report.metrics import Estimate, estimate, ratio
from bftrainer.report.page import Card, Page, PageTable, Picture, page_bytes
from bftrainer.runs.run_inputs import read_log
from bftrainer.spot.checkpointing import CheckpointedTraining
from bftrainer.spot.generation import fit_minutes
from bftrainer.spot.run import TIME_ACCOUNTS, Prices, load_profile
from bftrainer.spot.sweep import SpotSweep
from bftrainer.tasksets.native_tasks import toml_text
from bftrainer.tasksets.task_generator import DEFAULT_WORK, generate_tasks
from bftrainer.zeus.simulation.campaign import simulate_all
from bftrainer.zeus.simulation.inputs import PUBLISHED_JOBS, SAMPLE_JOBS, load_traces
from bftrainer.zeus.simulation.optimum import BASELINE, PolicyPair, compare_policies, simulations_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FILES = ("page.html", "data.csv", "summary.json")
_TASK_SETS = ("hpo", "nas")
_OF_TASKS = ("max_nodes", "cost_scale")
_IMAGES_PER_NODE_S = 2500.0  # of the published models, about
_ETAS, _USUAL_ETA = (0.0, 0.25, 0.5, 0.75, 1.0), 0.5
_TUNED, _GRID = PolicyPair("zeus", "jit"), PolicyPair("grid", "jit")
Levels = Mapping[Any, Estimate]
COLUMNS = ("figure", "line", "axis", "level", "what", "mean", "ci95", "n")
"""Columns of a reproduction's data; `ci95` is half the width of the interval."""


def read_papers() -> dict[str, dict[str, Any]]:
    """Read what papers publish, by their names."""
    text = resources.files("bftrainer.campaigns").joinpath("published.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def mean_of(sample: Sequence[float | None]) -> Estimate:
    """Mean and interval of the values that there are; not a number, of none, if there are none."""
    values = [value for value in sample if value is not None]
    return estimate(values) if values else Estimate(math.nan, None, 0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure: means with 95 % intervals over the levels of an axis."""

    key: str
    lines: Mapping[str, Levels]
    """Name of a line -> level -> estimate."""
    reading: str
    """What the figure shows; `label` and `axis` say what values and levels are."""
    label: str
    axis: str
    unit: Literal["share", "number"] = "share"
    within: Sequence[float] = (-math.inf, math.inf)
    """Least and most that values can be; intervals end there."""
    even: float | None = None
    """The value of no gain and no loss, which is drawn."""

    @property
    def title(self) -> str:
        """Heading of the figure."""
        return f"{self.label[0].upper()}{self.label[1:]}, by {self.axis}"

    @property
    def levels(self) -> list[float | str]:
        """Levels of all lines, in their order."""
        return list(dict.fromkeys(level for line in self.lines.values() for level in line))

    def text(self, value: Estimate | None) -> str:
        """An estimate in words, with its interval."""
        if value is None or not value.number:
            return "-"
        size, form, end = (100.0, ".2f", " %") if self.unit == "share" else (1.0, ".3f", "")
        low, high = (format(size * bound, form) for bound in self._interval(value))
        return f"{size * value.mean:{form}}{end}" + ("" if value.half_width is None else f" ({low} to {high})")

    def _interval(self, value: Estimate) -> tuple[float, float]:
        """Ends of an interval, or twice the mean."""
        half = value.half_width or 0.0
        return max(value.mean - half, self.within[0]), min(value.mean + half, self.within[1])

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """A row for each cell, with values of `COLUMNS`."""
        for name, line in self.lines.items():
            for level, value in line.items():
                mean = value.mean if value.number else None
                yield self.key, name, self.axis, level, self.label, mean, value.half_width, value.number

    def table(self) -> PageTable:
        """The numbers: a row for each level, a column for each line."""
        rows = [[_label_level(at), *(self.text(line.get(at)) for line in self.lines.values())] for at in self.levels]
        sizes = sorted({value.number for line in self.lines.values() for value in line.values()})
        ends = "" if tuple(self.within) == (-math.inf, math.inf) else ", which end where values can"
        note = f"{self.label}: means and, in brackets, 95 % intervals{ends}; n = {', '.join(map(str, sizes))}."
        return PageTable(self.title, (self.axis, *self.lines), rows, note)

    def draw(self, ax: Axes) -> None:
        """Draw lines with error bars; levels stand at equal distances, and points of levels with names side by side."""
        levels, size = self.levels, 100.0 if self.unit == "share" else 1.0
        has_names = isinstance(levels[0], str)
        if self.even is not None:
            ax.axhline(size * self.even, color=palette()["gray"], linewidth=0.8)
        for number, (name, line) in enumerate(self.lines.items()):
            aside = 0.06 * (number - (len(self.lines) - 1) / 2) if has_names else 0.0
            places = [levels.index(level) + aside for level in line]
            means = np.array([size * value.mean for value in line.values()])
            ends = size * np.array([self._interval(value) for value in line.values()]).T
            look = {"marker": "os^Dvp"[number % 6], "ms": 4, "capsize": 3} | line_look(number)
            look |= {"linestyle": "none"} if has_names else {}
            ax.errorbar(places, means, np.abs(ends - means), label=plain(name, 40), **look)
        ax.set_xticks(range(len(levels)), [plain(_label_level(level), 32) for level in levels])
        label = plain(self.label, 32) + " (%)" * (size > 1)
        ax.set(xlabel=plain(self.axis, 60), ylabel=label, xlim=(-0.4, len(levels) - 0.6))
        put_legend(ax)


def _label_level(level: float | str) -> str:
    return level if isinstance(level, str) else f"{level:g}"


@dataclass(frozen=True, slots=True)
class Reported:
    """What a paper reports, what came out here, and why the two are comparable or not."""

    what: str
    paper: str
    here: str
    comparable: str


@dataclass(frozen=True, slots=True)
class Reproduction:
    """An evaluation made again: where it was published, what was simulated, claims beside figures, and caveats."""

    paper: str
    source: str
    settings: str
    reported: tuple[Reported, ...]
    comparisons: tuple[Comparison, ...]
    caveats: tuple[str, ...]

    def rows(self) -> list[tuple[Any, ...]]:
        """All cells of all figures."""
        return [row for comparison in self.comparisons for row in comparison.rows()]

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        cells = [dict(zip(COLUMNS, row, strict=True)) for row in self.rows()]
        about = {name: getattr(self, name) for name in ("paper", "source", "settings", "caveats")}
        return about | {"reported": [asdict(claim) for claim in self.reported], "cells": cells}

    def page(self, command: str) -> bytes:
        """Content of the page; `made` is the command."""
        claims = [[claim.what, claim.paper, claim.here, claim.comparable] for claim in self.reported]
        headings = ("figure", "the paper reports", "here", "comparable?")
        headline = "; ".join(
            f"{what}: {here} here, {paper} in the paper ({why[:1].lower()}{why[1:].partition(':')[0]})"
            for what, paper, here, why in claims
        )
        page = Page(
            title=f"{self.paper}: its evaluation, made again",
            subtitle=self.settings,
            verdict=f"{headline}.",
            cards=tuple(Card(what, here, f"The paper: {paper}. {why}") for what, paper, here, why in claims),
            figures=tuple(
                Picture(
                    comparison.key,
                    comparison.title,
                    f"{comparison.reading} Bars: 95 % intervals.",
                    comparison.draw,
                    2.6,
                )
                for comparison in self.comparisons
            ),
            tables=(
                PageTable("Beside the paper", headings, claims, self.source),
                *(comparison.table() for comparison in self.comparisons),
            ),
            notes=self.caveats,
            command=command,
        )
        return page_bytes(page)


def check_log(paper: str, log: Path | None, *, quick: bool) -> None:
    """Refuse a whole evaluation without its log, and a log whose path a sweep's file cannot hold."""
    if paper == "bftrainer" and log is not None and any("\ud800" <= sign <= "\udfff" for sign in str(log.absolute())):
        raise SettingsError(f"{log}: Expected a path in Unicode, as sweep.toml holds it.")
    if log is None and not quick:
        published = read_papers()[paper]["log"]
        raise SettingsError(f"Expected --log, {published}; or --quick, with data that ship with bftrainer.")


def steps(paper: str, *, quick: bool) -> int:
    """How often the progress of an evaluation is reported."""
    return len(_list_cells(quick=quick)) * _windows(quick=quick) if paper == "bftrainer" else 1


def reproduce_paper(
    paper: str,
    log: Path | None,
    directory: Path,
    command: str,
    on_done: Callable[[object], None],
    workers: int | None = None,
    *,
    quick: bool = False,
    resume: bool = False,
    force: bool = False,
) -> Reproduction:
    """Make an evaluation again, and write it to a directory: page.html, data.csv, summary.json.

    The directory of BFTrainer's is that of a sweep, with these files besides. By default the data are those that ship
    with bftrainer. `command` is for the page; `on_done` is called `steps` times.
    """
    check_log(paper, log, quick=quick)
    engine = LocalEngine(workers)
    if paper == "bftrainer":
        notes: list[str] = []
        spec = _describe_sweep(log, directory, notes, quick=quick)
        points = run_sweep(spec, directory, engine, on_done, resume=resume, force=force).points
        for point in points:
            if point.error is not None:
                raise BftrainerError(f"{directory}: Point {point.point.number} failed: {point.error}")
        result = _evaluate_bftrainer(points, log, notes, quick=quick)
        with lock_file(directory / LOCK, directory):
            list_written(directory, {*_FILES, *written_files(directory)})
            _write(result, directory, command)
            list_written(directory, written_files(directory), final=True)
        return result
    with result_directory(directory, force=force) as place:
        evaluate = evaluate_zeus if paper == "zeus" else evaluate_bamboo
        result = evaluate(log, engine.workers, quick=quick)
        _write(result, place.working, command)
        on_done(result)
    return result


def _write(result: Reproduction, directory: Path, command: str) -> None:
    summary = json.dumps({"made": command, **result.to_dict()}, indent=1, allow_nan=False) + "\n"
    for name, content in (("page.html", result.page(command)), ("summary.json", summary.encode())):
        with replacing(directory / name) as stream:
            stream.write(content)
    with replacing(directory / "data.csv") as stream:
        write_csv(stream, COLUMNS, result.rows())


def _assemble(
    paper: str,
    log: Path | None,
    comparisons: Sequence[Comparison],
    here: Sequence[str],
    named: Mapping[str, object],
    notes: Sequence[str] = (),
) -> Reproduction:
    """A reproduction of figures, what came out for each claim of the paper, and what its texts name."""
    about = read_papers()[paper]
    reported = []
    for claim, outcome in zip(about["claim"], here, strict=True):
        why = claim["published"] if log is not None else claim.get("sample", claim["published"])
        reported.append(Reported(claim["what"], claim["paper"], outcome, why))
    caveats = [text.format(**named) for text in about["caveats"]]
    settings = about["settings"].format(**named)
    parts = (tuple(reported), tuple(comparisons), (*caveats, *notes))
    return Reproduction(about["name"], about["source"], settings, *parts)


@dataclass(frozen=True, slots=True)
class _Cell:
    """A setting that is replayed in all windows: a level of an axis, or a way to decide."""

    axis: str
    tasks: str
    level: Any
    options: Mapping[str, Any]


def _windows(*, quick: bool) -> int:
    return 4 if quick else 8


def _list_cells(*, quick: bool) -> list[_Cell]:
    """Cells of BFTrainer's figures; each has the windows as its points of the sweep, in turn."""
    about = read_papers()["bftrainer"]
    levels = about["levels"]["quick" if quick else "whole"]
    settings = [(axis, level, {axis: level}) for axis, of_axis in levels.items() for level in of_axis]
    settings += [("ways", way, options) for way, options in about["ways"].items()]
    return [_Cell(axis, tasks, level, options) for (axis, level, options), tasks in product(settings, _TASK_SETS)]


def _describe_sweep(log: Path | None, directory: Path, notes: list[str], *, quick: bool) -> SweepSpec:
    """The sweep that `bftrainer sweep` would read from the directory's sweep.toml."""
    place, windows = sample_path(SAMPLE_NODE_LOG) if log is None else log.absolute(), _windows(quick=quick)
    node_log, log_notes = read_log(place)
    notes += log_notes
    length_s = node_log.window_s / windows
    # Enough tasks for a window with twice the mean idle node-time.
    work = 2 * idle_node_s(node_log, node_log.window_s) / windows * _IMAGES_PER_NODE_S
    count = max(50, math.ceil(work / DEFAULT_WORK))
    base = read_papers()["bftrainer"]["base"] | ({"node_log": str(place)} if log else {})
    points: list[dict[str, Any]] = []
    task_sets: dict[str, list[TaskSpec]] = {}
    for cell in _list_cells(quick=quick):
        is_of_tasks = cell.axis in _OF_TASKS
        tasks = f"tasks/{cell.tasks}-{count}{f'-{cell.axis}-{cell.level}' if is_of_tasks else ''}.toml"
        task_sets[tasks] = _generate_tasks(cell, count)
        options = {"tasks": tasks} | ({} if is_of_tasks else dict(cell.options))
        points += [options | {"window": [at * length_s, (at + 1) * length_s]} for at in range(windows)]
    text = toml_text({"schema": SCHEMA, "base": base, "point": points})
    return SweepSpec(directory / "sweep.toml", text.encode(), base, tuple(points), task_sets)


def _generate_tasks(cell: _Cell, count: int) -> list[TaskSpec]:
    """Tasks of a cell's set, with its largest number of nodes and factor of costs."""
    most, scale = cell.options.get("max_nodes", 64), cell.options.get("cost_scale", 1.0)
    tasks = generate_tasks(cell.tasks, count, np.random.default_rng(0), max_nodes=most)  # type: ignore[arg-type]
    return [
        replace(task, grow_cost_s=task.grow_cost_s * scale, shrink_cost_s=task.shrink_cost_s * scale) for task in tasks
    ]


def _evaluate_bftrainer(
    points: Sequence[PointResult], log: Path | None, notes: Sequence[str], *, quick: bool
) -> Reproduction:
    """Means of U over the windows at each level, and paired differences of the ways to decide."""
    about, windows = read_papers()["bftrainer"], _windows(quick=quick)
    runs: dict[str, dict[str, dict[Any, Sequence[PointResult]]]] = {}
    for number, cell in enumerate(_list_cells(quick=quick)):
        of_axis = runs.setdefault(cell.axis, {tasks: {} for tasks in _TASK_SETS})
        of_axis[cell.tasks][cell.level] = points[number * windows : (number + 1) * windows]
    comparisons = []
    for axis, label in about["axes"].items():
        lines = {
            tasks: {level: mean_of([run.figures["efficiency"] for run in cell]) for level, cell in levels.items()}
            for tasks, levels in runs[axis].items()
        }
        comparisons.append(Comparison(axis, lines, axis=label, **about["figure"]["axes"]))
    values = [value for one in comparisons for line in one.lines.values() for value in line.values()]
    best = comparisons[0].text(max(values, key=lambda value: value.mean if value.number else -1.0))
    for metric, label in (("work_done", "change in work done"), ("efficiency", "change in efficiency U")):
        lines = {}
        for tasks, ways in runs["ways"].items():
            optimum = runs["max_tasks"][tasks][about["base"]["max_tasks"]]
            lines[tasks] = {
                way: mean_of([ratio_less_one(*pair, metric) for pair in zip(cell, optimum, strict=True)])
                for way, cell in ways.items()
            }
        comparisons.append(Comparison(metric, lines, label=label, **about["figure"]["ways"]))
    finished_runs = sum(point.figures["tasks_completed"] == point.figures["tasks_total"] for point in points)
    finished = (
        [f"All tasks are done before the end of {finished_runs} replays; their U is that until then."]
        if finished_runs
        else []
    )
    named = {"log": "Embedded sample" if log is None else log.name, "windows": windows}
    return _assemble("bftrainer", log, comparisons, [best], named, [*finished, *notes])


def evaluate_zeus(log: Path | None, workers: int, *, quick: bool) -> Reproduction:
    """Simulate recurring jobs of the published, or the embedded, traces over eta and policies against not tuning."""
    about = read_papers()["zeus"]
    trace = load_traces(*(log and log / f"summary_{name}.csv" for name in ("train", "power_v100"))).trace
    jobs, seeds = SAMPLE_JOBS if log is None else PUBLISHED_JOBS, 5 if quick else 20
    rows = {}
    for eta in _ETAS:
        pairs = (_TUNED, *((_GRID,) if eta == _USUAL_ETA else ()))
        results = simulate_all(trace, simulations_of(jobs, pairs, seeds, eta_knob=eta), workers)
        rows[eta] = {(row.policies, row.job): row for row in compare_policies(trace, results)}
    comparisons = []
    for what in ("energy", "time"):
        lines: dict[str, dict[Any, Estimate]] = {
            job.dataset: {eta: _rescale(of_eta[_TUNED, job].relative[what], shift=-1.0) for eta, of_eta in rows.items()}
            for job in jobs
        }
        comparisons.append(Comparison(f"eta-{what}", lines, label=f"change in {what}", **about["figure"]["eta"]))
    regrets: dict[str, dict[Any, Estimate]] = {str(pair): {} for pair in (_TUNED, _GRID)}
    for (pair, job), row in rows[_USUAL_ETA].items():
        base = rows[_USUAL_ETA][BASELINE, job].regret_j
        if job is not None and pair != BASELINE and base is not None and base.mean:
            regrets[str(pair)][job.dataset] = _rescale(row.regret_j, factor=1.0 / base.mean)
    comparisons.append(Comparison("regret", regrets, **about["figure"]["regret"]))
    saved = [-line[_USUAL_ETA].mean for line in comparisons[0].lines.values()]
    here = f"{100 * min(saved):.1f} to {100 * max(saved):.1f} % by job"
    name = "the embedded synthetic" if log is None else "the published V100"
    return _assemble("zeus", log, comparisons, [here], {"jobs": len(jobs), "log": name, "seeds": seeds})


def _rescale(value: Estimate | None, factor: float = 1.0, shift: float = 0.0) -> Estimate:
    """An estimate in another unit; one of none if there is none."""
    if value is None:
        return mean_of([])
    half = None if value.half_width is None else value.half_width * factor
    return Estimate(value.mean * factor + shift, half, value.number)


def evaluate_bamboo(log: Path | None, workers: int, *, quick: bool) -> Reproduction:
    """Simulate checkpointed training over levels of preemption, as a trace of spot instances has them."""
    notes: list[str] = []
    model = fit_minutes(None if log is None else read_availability(log, notes.append), log)
    settings, repeats = CheckpointedTraining(load_profile(None)), 10 if quick else 100
    levels = (0.0, 0.25, 0.5, 1.0, 2.0) if quick else (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
    sweep = SpotSweep(model, settings, levels, repeats=repeats, prices=Prices(0.3, 1.0))
    points = list(product(sweep.levels, range(repeats)))
    with closing(in_order(sweep.run, points, workers, 8)) as results:
        figures = dict(zip(points, results, strict=True))
    runs = {level: [figures[(level, 1.0), seed] for seed in range(repeats)] for level in levels}

    def average(value: Callable[[Mapping[str, Any], Mapping[str, Any]], float | None]) -> dict[Any, Estimate]:
        """Mean at each level of a figure of a run and of that of the same seed without preemption."""
        return {level: mean_of(list(map(value, of_level, runs[0.0]))) for level, of_level in runs.items()}

    def measure_share(name: str) -> dict[Any, Estimate]:
        """Share of an account in the time."""
        return average(lambda run, _: float(run[name] / run["span_s"]))

    throughput = average(lambda run, undisturbed: ratio(run["iterations_done"], undisturbed["iterations_done"]))
    worth = average(lambda run, _: run["value_against_on_demand"])
    spot = "checkpointing on spot instances"
    lines = {"throughput": {spot: throughput}, "value": {spot: worth}}
    lines["time"] = {name.removesuffix("_s"): measure_share(name) for name in TIME_ACCOUNTS}
    about = read_papers()["bamboo"]["figure"]
    comparisons = [Comparison(key, of_figure, **about[key]) for key, of_figure in lines.items()]
    room = (
        f"x {1 / throughput[1.0].mean:.1f} at most"
        if throughput[1.0].mean > 0
        else "all, as checkpointing gets nothing done"
    )
    value = f"x {worth[1.0].mean:.2f}" if worth[1.0].number else "-"
    named: dict[str, object] = {"repeats": repeats, "log": "a trace of 64 instances" if log is None else log.name}
    named |= {"depth": settings.depth, "nodes": model.initial_nodes, "most": model.max_nodes}
    return _assemble("bamboo", log, comparisons, [room, value], named, notes)
