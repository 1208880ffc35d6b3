"""Make one self-contained page about finished runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from bftrainer._version import __version__
from bftrainer.errors import escaped
from bftrainer.extras import absent, require_extra
from bftrainer.files.writing import refuse_existing, replacing
from bftrainer.report.brief import Brief, Worth, brief_of, brief_pdf, marked
from bftrainer.report.chart import time_charts
from bftrainer.report.comparison import figures_of, input_files
from bftrainer.report.explorer import explorer_data, explorer_script
from bftrainer.report.finished_run import FinishedRun
from bftrainer.report.glossary import ASSUMED, GLOSSARY, assumption, format_value
from bftrainer.report.ledger import is_short_of_tasks, learned_in_words, limit_in_words
from bftrainer.report.metrics import fallen_back, settled_before
from bftrainer.report.pictures import OUTCOMES, local_time, machine_in_words, page_drawings, zone_of
from bftrainer.report.side_by_side import names_of, side_by_side

MOST_ROWS = 1_000
"""Tasks, and decisions, that all tables of a page together list without a script."""


def check_pages() -> None:
    """Refuse to make pages without the libraries for them: `SettingsError`."""
    require_extra("Pages need", "report", "jinja2", "matplotlib")


def write_page(
    runs: Sequence[FinishedRun], output: Path, *, force: bool = False, brief: bool = False, worth: Worth | None = None
) -> None:
    """Write a page about runs.

    Parameters
    ----------
    runs : sequence of FinishedRun
    output : Path
        A name that ends in ``.pdf`` gets the briefs, an A4 side for each run.
    force : bool
        Whether to replace a page.
    brief : bool
        Whether the page has the brief of each run alone.
    worth : Worth, optional
        What a useful node-hour stands for.

    Raises
    ------
    OutputError
        If the page exists and not `force`, or cannot be written.
    SettingsError
        If matplotlib or Jinja is not installed.
    """
    check_pages()
    refuse_existing(output, force=force)
    if output.suffix.lower() == ".pdf":
        content = brief_pdf([brief_of(run, worth) for run in runs])
    else:
        text = brief_page([brief_of(run, worth) for run in runs]) if brief else page(runs, worth)
        content = text.encode(errors="backslashreplace")  # it names files, whose names need not be valid text
    with replacing(output) as stream:
        stream.write(content)


def notebook_view(run: FinishedRun) -> str | None:
    """The brief of a run as a part of a page, for notebooks; None where libraries for it are missing."""
    if absent("jinja2", "matplotlib"):
        return None
    brief = brief_of(run)
    # Ids in pictures must differ from those of other results in the notebook.
    prefix = crc32(f"{run.name}{run.summary['command']}{brief.subtitle}{brief.headline}".encode(errors="replace"))
    return rendered_page("brief_notebook.html", brief=brief, prefix=prefix)


def brief_page(briefs: Sequence[Brief]) -> str:
    """Make a page of briefs, which needs no script."""
    return rendered_page("brief.html", briefs=briefs, version=__version__)


def page(runs: Sequence[FinishedRun], worth: Worth | None = None) -> str:
    """Make the page of one run, which begins with its brief, or of several, compared with the first."""
    charts = {chart.key: chart for chart in time_charts(runs)}
    data, columns, left_out = explorer_data(runs, list(charts.values()))
    several = side_by_side(runs) if len(runs) > 1 else None
    first = runs[0].summary
    return rendered_page(
        "page.html",
        version=__version__,
        title=f"{names_of(runs)}: training on idle nodes",
        subtitle="Machines, units or windows differ." if several and several.apart else machine_in_words(first),
        runs=[{"name": run.name, "partial": bool(run.summary["partial"])} for run in runs],
        notes=[*_notes(runs), *left_out, *(several.apart if several else ())],
        assumed=_assumed(runs),
        brief=brief_of(runs[0], worth) if len(runs) == 1 else None,
        answer=_answer(first) if len(runs) == 1 else "Settings that differ, and what came of them.",
        cards=_cards(first),
        several=several,
        large_idle=[_large_idle(run, len(runs) > 1) for run in runs if run.summary.get("below_large_idle")],
        charts=charts,
        drawings=page_drawings(runs),
        facts={
            "losses": _limits(runs),
            "tasks": list(filter(None, map(_longest_wait, runs))),
            "decisions": [*_optimality(runs), *_learned(runs)],
        },
        task_tables=[_task_table(run, MOST_ROWS // len(runs)) for run in runs],
        decision_tables=[_decision_table(run, MOST_ROWS // 5 // len(runs)) for run in runs],
        made=[_provenance(run) for run in runs],
        data=data,
        columns=columns,
        script=explorer_script(),
    )


def rendered_page(name: str, **values: Any) -> str:
    """A page of one of this room's templates, with the style that all have."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    folder = resources.files("bftrainer.report")
    template = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        finalize=_escape,
        loader=FunctionLoader(lambda part: folder.joinpath(part).read_text(encoding="utf-8")),
    ).get_template(name)
    return template.render(style="\n" + folder.joinpath("style.css").read_text(encoding="utf-8"), **values)


def _escape(value: Any) -> Any:
    """Escape control characters, which may change the text's direction, in paths and commands; markup is kept."""
    return escaped(value) if type(value) is str else value


def _notes(runs: Sequence[FinishedRun]) -> list[str]:
    notes = []
    for run in runs:
        said = " ".join(f"{note[0].upper()}{note[1:]}" for note in run.summary.get("node_log_notes") or () if note)
        notes += [f"{run.name}: idle time rests on the node log. {said}"] if said else []
    return notes


def _assumed(runs: Sequence[FinishedRun]) -> list[str]:
    """Assumptions of the runs."""
    named = [(run.name, found) for run in runs if (found := assumption(run.summary)) is not None]
    lead = "Rests on" if len(runs) == 1 else "{}: rests on"
    return [f"{lead.format(name)} {ASSUMED}: {found.note}." for name, found in named]


def _answer(summary: Mapping[str, Any]) -> str:
    """Main result of a run, in a sentence or two."""
    nodes, hours = summary.get("eq_nodes") or 0.0, summary["window_s"] / 3600
    text = f"On average {nodes:,.1f} of {summary['nodes_total']:,} nodes were idle over {hours:,.1f} hours"
    if summary.get("occupancy") is not None:
        used = f"{format_value(summary['occupancy'], 'share')} of that time{marked(summary, 'occupancy')}"
        text += f", and training used {used}"
    completed = f"{summary['tasks_completed']:,} of {summary['tasks_total']:,} tasks completed"
    text += f". {completed}{marked(summary, 'tasks_completed')}."
    nodes = summary.get("efficiency_eq_nodes")
    if summary.get("efficiency") is not None and nodes is not None:
        held = format_value(summary["efficiency"], "share")
        horizon = format_value(summary.get("efficiency_horizon_s"), "s")
        text += (
            f" In the first {horizon} training did {held} of the work that {nodes:,.1f} "
            f"dedicated nodes would have done (decisions on {summary['settings'].get('decide_on', 'unknown')} events)"
            f"{marked(summary, 'efficiency')}."
        )
        if is_short_of_tasks(summary):
            text += " Those would have been as short of tasks, so this says little."
        else:
            text += " Those would run the same tasks, so what they too would leave unused is no loss in U."
    return text


def _cards(summary: Mapping[str, Any]) -> list[dict[str, str]]:
    keys: tuple[str, ...] = (
        *(
            "efficiency",
            "ledger.useful",
            "eq_nodes",
            "occupancy",
            "tasks_completed",
            "makespan_s",
            "turnaround_mean_s",
            "wait_mean_s",
        ),
        *("return_on_investment", "preemptions", "rescales"),
        *("energy_j", "idle_energy_j", "average_power_w", "emissions_gco2", "tasks_reached", "attempts"),
        *("decisions_optimal", "solve_s_median", "wall_s"),
    )
    if is_short_of_tasks(summary):
        keys = (*keys[1:], keys[0])  # dedicated nodes would have been starved as much
    found, figures = [], figures_of(summary)
    for key in keys:
        if figures.get(key) is not None:
            term = GLOSSARY[key]
            card = {"label": term.label, "value": format_value(figures[key], term.unit), "meaning": term.meaning}
            found.append(card | {"mark": marked(summary, key)})
        elif key == "makespan_s":
            found.append({"label": GLOSSARY[key].label, "value": "-", "meaning": "No task was completed.", "mark": ""})
    return found


def _large_idle(run: FinishedRun, named: bool) -> str:
    small = run.summary["below_large_idle"]
    lead = f"{run.name}: " if named else ""
    if small.get("occupancy") is None:
        return f"{lead}There was no time in which fewer than {small['large_idle']:,} nodes, but some, were idle."
    share, occupancy = (format_value(small.get(key), "share") for key in ("idle_node_s_share", "occupancy"))
    edges_s = np.append(run.steps["time_s"], run.window_s)
    large_s: dict[str, float] = {}
    for row in np.flatnonzero(run.steps["idle"] >= small["large_idle"]).tolist():
        day = local_time(run.summary["window_start"], edges_s[row], zone := zone_of(run.summary))[:10]
        large_s[f"{day} {zone}"] = large_s.get(f"{day} {zone}", 0.0) + edges_s[row + 1] - edges_s[row]
    longest = max(large_s, key=lambda each: large_s[each], default="")
    when = f" (longest on {longest}: {format_value(large_s[longest], 's')})" if longest else ""
    return (
        f"{lead}Times at which {small['large_idle']:,} nodes or more were idle (drained for maintenance, say){when} "
        f"weigh much: the other times hold {share} of the idle node-time. Counting those alone, occupancy is "
        f"{occupancy}{marked(run.summary, 'occupancy')}."
    )


def _limits(runs: Sequence[FinishedRun]) -> list[str]:
    """What limited runs, those together that were limited by the same."""
    found: dict[str, list[FinishedRun]] = {}
    for run in runs:
        if (text := limit_in_words(run.summary)) is not None:
            found.setdefault(text, []).append(run)
    return [f"{names_of(some)}: limited by: {text}." for text, some in found.items()]


def _learned(runs: Sequence[FinishedRun]) -> list[str]:
    """What decisions learned of how tasks scale, in the runs where they did."""
    texts = [(run.name, learned_in_words(run.summary)) for run in runs]
    return [f"{name}: learned {text}." for name, text in texts if text is not None]


def _optimality(runs: Sequence[FinishedRun]) -> list[str]:
    found = []
    for run in runs:
        s = run.summary
        lead = f"{run.name}: " if len(runs) > 1 else ""
        if not s["decisions"]:
            found.append(f"{lead}No decision was made.")
            continue
        text = f"{s['decisions_optimal']:,} of {s['decisions']:,} decisions are proven optimal"
        if s.get("decisions_claimed"):
            text += f", {s['decisions_claimed']:,} only claimed to be by the solver"
        if s["decisions_incumbent"]:
            gap = "" if s.get("gap_max") is None else f" (worst gap {format_value(s['gap_max'], 'share')})"
            text += f", {s['decisions_incumbent']:,} are the best found within the limits{gap}"
        if s["decisions_kept"]:
            text += f", {s['decisions_kept']:,} kept what there was"
        times = ", ".join(
            f"{format_value(s.get(f'solve_s_{key}'), 'wall_s')} {name}"
            for key, name in (("median", "median"), ("p95", "p95"), ("max", "at most"))
        )
        settled = settled_before(s)
        before = f" {settled[0].upper()}{settled[1:]}." if settled else ""
        failed = f" ({failures})" if (failures := fallen_back(s)) else ""
        found.append(f"{lead}{text}.{before} {times}; solver {', '.join(s['solvers'])}{failed}.")
    return found


def _waits(run: FinishedRun) -> Any:
    """How long tasks waited in the window; those that never started until its end, those submitted later NaN."""
    submitted_s, started_s = run.tasks["submitted_s"], run.tasks["started_s"]
    waits_s = np.where(np.isnan(started_s), run.window_s, started_s) - submitted_s
    return np.where(waits_s < 0, np.nan, waits_s)


def _longest_wait(run: FinishedRun) -> str | None:
    """Which task waited longest, and how many never started, in a sentence or two."""
    waits_s, has_started = _waits(run), ~np.isnan(run.tasks["started_s"])
    known_s, text, zone = np.where(has_started, waits_s, 0.0), "", zone_of(run.summary)
    if known_s.any():
        row = int(np.argmax(known_s))
        name, wait = run.tasks["name"][row], format_value(known_s[row], "s")
        began = local_time(run.summary["window_start"], run.tasks["started_s"][row], zone)
        text = f"Of the tasks that started, {name} waited longest: {wait}, until {began} {zone}. "
    if waiting := int((~has_started & ~np.isnan(waits_s)).sum()):
        text += f"{waiting:,} waited until the end and never started."
    return f"{run.name}: {text}" if text else None


def _task_table(run: FinishedRun, most: int) -> dict[str, Any]:
    """Table of tasks in file order; if there are many, of those with the most node-time."""
    tasks, zone = run.tasks, zone_of(run.summary)
    total, waits_s = len(tasks["name"]), _waits(run)
    shown_rows = np.arange(total)
    notes = [*_assumed([run]), f"Times are {zone}."]
    if total > most:
        shown_rows = np.sort(np.argsort(-tasks["node_s"], kind="stable")[:most])
        notes.append(f"{_left_out('tasks', most, total)} Listed are those with the most node-time.")
    tuned, grouped = bool(np.isfinite(tasks["energy_j"]).any()), any(tasks["group"])
    headings = ["task", "progress", *(["group"] if grouped else []), "submitted", "started", "completed", "wait"]
    headings += ["node-hours", "preemptions", "rescales"]
    rows = []
    for row in shown_rows.tolist():
        task = {key: column[row] for key, column in tasks.items()}
        share = min(1.0, max(0.0, task["work_done"] / task["work_total"])) if task["work_total"] > 0 else 0.0
        times = (task["submitted_s"], task["started_s"], task["completed_s"])
        cells = [task["group"] or "-"] if grouped else []
        cells += ["-" if np.isnan(each) else local_time(run.summary["window_start"], each, zone) for each in times]
        wait = "-" if np.isnan(waits_s[row]) else format_value(waits_s[row], "s")
        cells.append(f"> {wait}" if np.isnan(times[1]) and wait != "-" else wait)
        cells += [f"{task['node_s'] / 3600:,.1f}", f"{task['preemptions']:,}", f"{task['rescales']:,}"]
        if tuned:
            energy = float(task["energy_j"])
            cells.append(format_value(energy if np.isfinite(energy) else None, "J"))
        rows.append({"name": task["name"], "share": round(share, 4), "percent": f"{100 * share:.0f} %", "cells": cells})
    return {
        "name": run.name,
        "note": " ".join(notes),
        "headings": headings + (["energy"] if tuned else []),
        "rows": rows,
    }


def _decision_table(run: FinishedRun, most: int) -> dict[str, Any]:
    """Table of decisions in order of time; if there are many, of those that took longest."""
    columns = run.decisions
    total = columns["time_s"].size
    rows = np.sort(np.argsort(-columns["solve_s"], kind="stable")[:most])
    note = f"Times are {(zone := zone_of(run.summary))}."
    if total > most:
        note += f" {_left_out('decisions', most, total)} Listed are those that took longest."
    cells = [
        (
            local_time(run.summary["window_start"], columns["time_s"][row], zone),
            OUTCOMES[columns["held"][row]],
            format_value(float(columns["solve_s"][row]), "wall_s"),
            format_value(None if np.isnan(columns["gap"][row]) else float(columns["gap"][row]), "share"),
        )
        for row in rows.tolist()
    ]
    return {"name": run.name, "note": note, "rows": cells}


def _left_out(what: str, most: int, total: int) -> str:
    """How many rows a table without a script leaves out, and where they are."""
    return f"{total - most:,} of {total:,} {what} are left out here; {what}.parquet in the run's directory has all."


def _provenance(run: FinishedRun) -> dict[str, Any]:
    summary = run.summary
    facts = []
    for name, files in input_files(summary).items():
        facts += [(name, f"{file['path']} (SHA-256 {file['sha256']})") for file in files]
    facts += [(f"version of {name}", version) for name, version in (summary.get("versions") or {}).items()]
    facts += [(name, "-" if value is None else str(value)) for name, value in summary["settings"].items()]
    return {"name": run.name, "command": summary.get("command", ""), "facts": facts}
