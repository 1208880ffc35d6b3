"""The evaluations of papers made again, with a page and data of each; that of BFTrainer is one sweep of replays."""

from __future__ import annotations

import io
import json
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bftrainer.campaigns.sweep import SWEEP, PointResult, local_engine, open_sweep, ratio_less_one, run_sweep
from bftrainer.campaigns.sweep_file import read_sweep
from bftrainer.errors import BftrainerError, SettingsError
from bftrainer.files.directories import result_directory
from bftrainer.files.opening import SAMPLE_NODE_LOG, sample_path
from bftrainer.files.text_files import SCHEMA, write_csv
from bftrainer.files.writing import replacing
from bftrainer.model import TaskSpec
from bftrainer.nodelogs.availability import read_availability
from bftrainer.parallel import map_in_order
from bftrainer.report.metrics import Estimate, estimate, idle_node_s, ratio
from bftrainer.report.page import Card, Page, PageTable, page_bytes
from bftrainer.runs.run_inputs import read_log
from bftrainer.spot.checkpointing import CheckpointedTraining
from bftrainer.spot.generation import fit_minutes
from bftrainer.spot.run import TIME_ACCOUNTS, Prices, load_profile
from bftrainer.spot.sweep import SpotSweep
from bftrainer.tasksets import write_task_set
from bftrainer.tasksets.task_files import toml_text
from bftrainer.tasksets.task_generator import DEFAULT_WORK, generate_tasks
from bftrainer.zeus.simulation.campaign import PUBLISHED_JOBS, SAMPLE_JOBS, load_traces, simulate_all
from bftrainer.zeus.simulation.optimum import BASELINE, PolicyPair, compare_policies, simulations_of

_FILES = ("page.html", "data.csv", "summary.json")
_TASK_SETS: tuple[Literal["hpo", "nas"], ...] = ("hpo", "nas")
_WINDOWS = {True: 4, False: 8}  # of a quick evaluation, and of a whole one
_IMAGES_PER_NODE_S = 2500.0  # of the published models, about
_ETAS, _USUAL_ETA = (0.0, 0.25, 0.5, 0.75, 1.0), 0.5
_TUNED, _GRID = PolicyPair("zeus", "jit"), PolicyPair("grid", "jit")
Levels = dict[Any, Estimate]
Figures = Mapping[str, Any]


def read_papers() -> dict[str, dict[str, Any]]:
    """Read what papers publish, and what each figure shows, by their names."""
    return tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))


def mean_of(sample: Iterable[float | None]) -> Estimate:
    """Mean and interval of the values that there are; not a number, of none, if there are none."""
    values = [value for value in sample if value is not None]
    return estimate(values) if values else Estimate(math.nan, None, 0)


def describe_estimate(value: Estimate | None, about: Mapping[str, Any]) -> str:
    """An estimate of a figure in words, with its interval, which ends where values can."""
    if value is None or not value.number:
        return "-"
    size, form, unit = (100.0, ".2f", " %") if about.get("unit", "share") == "share" else (1.0, ".3f", "")
    mean = f"{size * value.mean:{form}}{unit}"
    if value.half_width is None:
        return mean
    least, most = about.get("within", (-math.inf, math.inf))
    low, high = max(value.mean - value.half_width, least), min(value.mean + value.half_width, most)
    return f"{mean} ({size * low:{form}} to {size * high:{form}})"


def figure_table(lines: Mapping[str, Levels], about: Mapping[str, Any]) -> PageTable:
    """The numbers of a figure: a row for each level, a column for each line."""
    levels = dict.fromkeys(level for line in lines.values() for level in line)
    rows = [
        [
            level if isinstance(level, str) else f"{level:g}",
            *(describe_estimate(line.get(level), about) for line in lines.values()),
        ]
        for level in levels
    ]
    sizes = sorted({value.number for line in lines.values() for value in line.values()})
    ends = ", which end where values can" if "within" in about else ""
    note = f"Means and, in brackets, 95 % intervals{ends}; n = {', '.join(map(str, sizes))}."
    title = f"{about['label'][0].upper()}{about['label'][1:]}, by {about['axis']}"
    return PageTable(title, (about["axis"], *lines), rows, note, [about["reading"]])


@dataclass(frozen=True, slots=True)
class Reproduction:
    """An evaluation made again: estimates by figure, line and level, what came out for each claim, words of texts."""

    figures: Mapping[str, Mapping[str, Levels]]
    outcomes: Sequence[str]
    words: Mapping[str, object]
    notes: Sequence[str] = ()

    def summary(self, paper: str, log: Path | None) -> dict[str, Any]:
        """Texts, with what the paper reports beside what came out, and the data of all figures, ready for JSON."""
        about, which = read_papers()[paper], "sample" if log is None else "published"
        reported = [
            {"what": claim["what"], "paper": claim["paper"], "here": outcome}
            | {"comparable": claim.get(which, claim["published"])}
            for claim, outcome in zip(about["claim"], self.outcomes, strict=True)
        ]
        cells = [
            {"figure": key, "line": name, "axis": shown["axis"], "level": level, "what": shown["label"]}
            | {"mean": value.mean if value.number else None, "ci95": value.half_width, "n": value.number}
            for key, lines in self.figures.items()
            for shown in [about["figure"][key]]
            for name, line in lines.items()
            for level, value in line.items()
        ]
        return {
            "paper": about["name"],
            "source": about["source"],
            "settings": about["settings"].format(**self.words),
            "caveats": [*(text.format(**self.words) for text in about["caveats"]), *self.notes],
            "reported": reported,
            "cells": cells,
        }


def reproduction_page(summary: Mapping[str, Any], figures: Iterable[PageTable], command: str) -> bytes:
    """Make the page of an evaluation, with what the paper reports beside what came out."""
    claims = [list(claim.values()) for claim in summary["reported"]]
    headline = "; ".join(
        f"{what}: {here} here, {paper} in the paper ({why[:1].lower()}{why[1:].partition(':')[0]})"
        for what, paper, here, why in claims
    )
    headings = ("figure", "the paper reports", "here", "comparable?")
    page = Page(
        title=f"{summary['paper']}: its evaluation, made again",
        subtitle=summary["settings"],
        verdict=f"{headline}.",
        cards=tuple(Card(what, here, f"The paper: {paper}. {why}") for what, paper, here, why in claims),
        tables=(PageTable("Beside the paper", headings, claims, summary["source"]), *figures),
        notes=tuple(summary["caveats"]),
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


def count_steps(paper: str, *, quick: bool) -> int:
    """How often the progress of an evaluation is reported."""
    return len(_list_cells(quick=quick)) * _WINDOWS[quick] if paper == "bftrainer" else 1


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
) -> dict[str, Any]:
    """Make an evaluation again, and write it to a directory: page.html, data.csv, summary.json; return the summary.

    The directory of BFTrainer's is that of a sweep, with these files besides. By default the data are those that ship
    with bftrainer. `command` is for the page; `on_done` is called `count_steps` times.
    """
    check_log(paper, log, quick=quick)
    with ExitStack() as stack:
        if paper == "bftrainer":
            notes = _write_sweep(log, directory, quick=quick, has_leave=resume or force)
            spec, engine = read_sweep(directory / SWEEP), local_engine(workers)
            sweep = run_sweep(spec, directory, engine, on_done, resume=resume, force=force)
            for point in sweep.failures:
                raise BftrainerError(f"{directory}: Point {point.point.number} failed: {point.error}")
            result = evaluate_bftrainer(sweep.points, log, notes, quick=quick)
            stack.enter_context(open_sweep(directory, _FILES, has_leave=True))
            folder = directory
        else:
            folder = stack.enter_context(result_directory(directory, force=force)).working
            evaluate = evaluate_zeus if paper == "zeus" else evaluate_bamboo
            result = evaluate(log, workers, quick=quick)
            on_done(result)
        summary, table = result.summary(paper, log), io.BytesIO()
        write_csv(table, list(summary["cells"][0]), (cell.values() for cell in summary["cells"]))
        text = json.dumps({"made": command, **summary}, indent=1, allow_nan=False) + "\n"
        about = read_papers()[paper]["figure"]
        page = reproduction_page(summary, [figure_table(of, about[key]) for key, of in result.figures.items()], command)
        contents = (page, table.getvalue(), text.encode())
        for name, content in zip(_FILES, contents, strict=True):
            with replacing(folder / name) as stream:
                stream.write(content)
    return summary


@dataclass(frozen=True, slots=True)
class _Cell:
    """A setting that is replayed in all windows: a level of an axis, or a way to decide."""

    axis: str
    tasks: Literal["hpo", "nas"]
    level: Any
    options: Mapping[str, Any]


def _list_cells(*, quick: bool) -> list[_Cell]:
    """Cells of BFTrainer's figures; each has the windows as its points of the sweep, in turn."""
    about = read_papers()["bftrainer"]
    axes = about["levels"]["quick" if quick else "whole"]
    settings = [(axis, level, {axis: level}) for axis, levels in axes.items() for level in levels]
    settings += [("ways", way, options) for way, options in about["ways"].items()]
    return [_Cell(axis, tasks, level, options) for (axis, level, options), tasks in product(settings, _TASK_SETS)]


def _write_sweep(log: Path | None, directory: Path, *, quick: bool, has_leave: bool) -> list[str]:
    """Write sweep.toml, which describes all points, and its task sets to the directory; return notes about the log."""
    place, windows = sample_path(SAMPLE_NODE_LOG) if log is None else log.absolute(), _WINDOWS[quick]
    node_log, notes = read_log(place)
    length_s = node_log.window_s / windows
    # Enough tasks for a window with twice the mean idle node-time.
    work = 2 * idle_node_s(node_log, node_log.window_s) / windows * _IMAGES_PER_NODE_S
    count = max(50, math.ceil(work / DEFAULT_WORK))
    base = read_papers()["bftrainer"]["base"] | ({"node_log": str(place)} if log else {})
    points, task_sets = list[dict[str, Any]](), dict[str, list[TaskSpec]]()
    for cell in _list_cells(quick=quick):
        options = dict(cell.options)
        most, scale = options.pop("max_nodes", 64), options.pop("cost_scale", 1.0)
        name = f"tasks/{cell.tasks}-{count}-{most}-nodes-{scale:g}-costs.toml"
        task_sets[name] = [
            replace(task, grow_cost_s=task.grow_cost_s * scale, shrink_cost_s=task.shrink_cost_s * scale)
            for task in generate_tasks(cell.tasks, count, np.random.default_rng(0), max_nodes=most)
        ]
        windows_s = ([at * length_s, (at + 1) * length_s] for at in range(windows))
        points += [{"tasks": name, **options, "window": window_s} for window_s in windows_s]
    with open_sweep(directory, {SWEEP, *task_sets}, has_leave=has_leave):
        (directory / "tasks").mkdir(exist_ok=True)
        for name, tasks in task_sets.items():
            write_task_set(directory / name, tasks)
        with replacing(directory / SWEEP) as stream:
            stream.write(toml_text({"schema": SCHEMA, "base": base, "point": points}).encode())
    return notes


def evaluate_bftrainer(
    points: Sequence[PointResult], log: Path | None, notes: Sequence[str], *, quick: bool
) -> Reproduction:
    """Means of U over the windows at each level, and paired differences of the ways to decide."""
    about, windows = read_papers()["bftrainer"], _WINDOWS[quick]
    of_points = iter(point.figures for point in points)
    runs = [(cell, list(islice(of_points, windows))) for cell in _list_cells(quick=quick)]
    usual = ("max_tasks", about["base"]["max_tasks"])
    optima = {cell.tasks: of_cell for cell, of_cell in runs if (cell.axis, cell.level) == usual}

    def average(axis: str, value: Callable[[Figures, Figures], float | None]) -> dict[str, Levels]:
        """Means, by task set and level, of what a run and the optimum's in the same window give."""
        return {
            tasks: {
                cell.level: mean_of(map(value, of_cell, optimum))
                for cell, of_cell in runs
                if (cell.axis, cell.tasks) == (axis, tasks)
            }
            for tasks, optimum in optima.items()
        }

    axes = about["levels"]["quick" if quick else "whole"]
    figures = {axis: average(axis, lambda run, _: run["efficiency"]) for axis in axes}
    values = [value for lines in figures.values() for line in lines.values() for value in line.values()]
    best = max(values, key=lambda value: value.mean if value.number else -1.0)
    figures |= {metric: average("ways", partial(ratio_less_one, metric)) for metric in ("work_done", "efficiency")}
    finished = sum(point.figures["tasks_completed"] == point.figures["tasks_total"] for point in points)
    if finished:
        notes = [f"All tasks are done before the end of {finished} replays; their U is that until then.", *notes]
    words = {"log": "Embedded sample" if log is None else log.name, "windows": windows}
    return Reproduction(figures, [describe_estimate(best, about["figure"]["max_tasks"])], words, notes)


def evaluate_zeus(log: Path | None, workers: int | None, *, quick: bool) -> Reproduction:
    """Simulate recurring jobs of the published, or the embedded, traces over eta and policies against not tuning."""
    trace = load_traces(*(log and log / f"summary_{name}.csv" for name in ("train", "power_v100"))).trace
    jobs, seeds = SAMPLE_JOBS if log is None else PUBLISHED_JOBS, 5 if quick else 20
    rows = {}
    for eta in _ETAS:
        pairs = (_TUNED, _GRID) if eta == _USUAL_ETA else (_TUNED,)
        results = simulate_all(trace, simulations_of(jobs, pairs, seeds, eta_knob=eta), workers)
        rows[eta] = {(row.policies, row.job): row for row in compare_policies(trace, results)}
    figures: dict[str, dict[str, Levels]] = {}
    for what in ("energy", "time"):
        lines = figures.setdefault(f"eta-{what}", {job.dataset: {} for job in jobs})
        for job, (eta, of_eta) in product(jobs, rows.items()):
            share = of_eta[_TUNED, job].relative[what] or mean_of([])
            lines[job.dataset][eta] = replace(share, mean=share.mean - 1.0)
    regrets = figures.setdefault("regret", {str(pair): {} for pair in (_TUNED, _GRID)})
    for (pair, job), row in rows[_USUAL_ETA].items():
        base, regret = rows[_USUAL_ETA][BASELINE, job].regret_j, row.regret_j or mean_of([])
        if job is not None and pair != BASELINE and base is not None and base.mean:
            factor = 1.0 / base.mean
            half = regret.half_width and regret.half_width * factor
            regrets[str(pair)][job.dataset] = Estimate(regret.mean * factor, half, regret.number)
    saved = [-line[_USUAL_ETA].mean for line in figures["eta-energy"].values()]
    words = {"jobs": len(jobs), "log": "the embedded synthetic" if log is None else "the published V100"}
    outcome = f"{100 * min(saved):.1f} to {100 * max(saved):.1f} % by job"
    return Reproduction(figures, [outcome], words | {"seeds": seeds})


def evaluate_bamboo(log: Path | None, workers: int | None, *, quick: bool) -> Reproduction:
    """Simulate checkpointed training over levels of preemption, as a trace of spot instances has them."""
    notes: list[str] = []
    model = fit_minutes(None if log is None else read_availability(log, notes.append), log)
    settings, repeats = CheckpointedTraining(load_profile(None)), 10 if quick else 100
    levels = (0.0, 0.25, 0.5, 1.0, 2.0) if quick else (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
    sweep = SpotSweep(model, settings, levels, repeats=repeats, prices=Prices(0.3, 1.0))
    with closing(map_in_order(sweep.run, list(product(sweep.levels, range(repeats))), workers, 8)) as results:
        runs = {level: list(islice(results, repeats)) for level in levels}

    def average(value: Callable[[Figures, Figures], float | None]) -> Levels:
        """Mean at each level of a figure of a run and of that of the same seed without preemption."""
        return {level: mean_of(map(value, of_level, runs[0.0])) for level, of_level in runs.items()}

    def measure_share(name: str) -> Levels:
        """Share of an account in the time."""
        return average(lambda run, _: float(run[name] / run["span_s"]))

    throughput = average(lambda run, undisturbed: ratio(run["iterations_done"], undisturbed["iterations_done"]))
    worth = average(lambda run, _: run["value_against_on_demand"])
    times = {name.removesuffix("_s"): measure_share(name) for name in TIME_ACCOUNTS}
    spot = "checkpointing on spot instances"
    figures = {"throughput": {spot: throughput}, "value": {spot: worth}, "time": times}
    share = throughput[1.0].mean
    room = f"x {1 / share:.1f} at most" if share > 0 else "all, as checkpointing gets nothing done"
    value = f"x {worth[1.0].mean:.2f}" if worth[1.0].number else "-"
    words = {"repeats": repeats, "log": "a trace of 64 instances" if log is None else log.name, "depth": settings.depth}
    words |= {"nodes": model.initial_nodes, "most": model.max_nodes}
    return Reproduction(figures, [room, value], words, notes)
