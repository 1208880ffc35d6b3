"""Pages of finished runs: of one, which begins with its brief, and of several, compared with the first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.extras import absent
from bftrainer.files.writing import refuse_existing, replacing
from bftrainer.report import words
from bftrainer.report.comparison import Cell, RunComparison, compare_runs, figures_of, input_files
from bftrainer.report.finished_run import FinishedRun, machine_in_words, zone_of
from bftrainer.report.glossary import (
    GLOSSARY,
    HEADLINES,
    MARK,
    WORK_SHARES,
    assumption,
    assumption_notes,
    format_value,
    mark_assumed,
)
from bftrainer.report.intervals import estimate
from bftrainer.report.page import (
    MOST_CARDS,
    Card,
    Page,
    PageTable,
    Picture,
    check_pages,
    notebook_frame,
    page_bytes,
    print_pages,
)
from bftrainer.report.run_figures import draw_window, ledger_picture, losses_picture
from bftrainer.report.timeline import task_states, timeline_of

MOST_ROWS = 1_000
"""Tasks that all tables of a page together list."""
_HOUR_S, _DAY_S = 3600.0, 86_400.0
_FIRST = ("energy_j", "eq_nodes", "occupancy", "tasks_completed", "turnaround_mean_s", "makespan_s", "preemptions")


def write_page(runs: Sequence[FinishedRun], output: Path, *, force: bool = False, brief: bool = False) -> None:
    """Write a page about runs, or their briefs alone; a name that ends in ``.pdf`` gets these, an A4 side for each run.

    `OutputError` if the page exists and not `force`, or cannot be written, `SettingsError` without libraries for it.
    """
    check_pages()
    refuse_existing(output, force=force)
    is_pdf = output.suffix.lower() == ".pdf"
    pages = list(map(first_side, runs)) if brief or is_pdf else [run_page(runs)]
    content = print_pages(pages) if is_pdf else page_bytes(*pages)
    with replacing(output) as stream:
        stream.write(content)


def notebook_view(run: FinishedRun) -> str | None:
    """The brief of a run for notebooks; None where libraries for it are missing."""
    return None if absent("jinja2", "matplotlib") else notebook_frame(first_side(run))


def run_page(runs: Sequence[FinishedRun]) -> Page:
    """Make the page of one run, or of several, compared with the first."""
    timeline = timeline_of(runs)
    compared = compare_runs([run.name for run in runs], [run.summary for run in runs])
    lead = first_side(runs[0]) if len(runs) == 1 else _first_side_of_several(runs, compared)
    sections = list(_figure_tables(compared))
    for run in runs:
        of = "" if len(runs) == 1 else f" of {run.name}"
        sections.append(PageTable(f"What happened{of}", texts=list(_describe_run(run))))
        sections.append(_task_table(run, MOST_ROWS // len(runs), of))
        sections.append(_provenance(run, of))
    return replace(lead, tables=tuple(sections), notes=(*lead.notes, *timeline.notes), timeline=timeline)


def first_side(run: FinishedRun) -> Page:
    """Make the brief of a run."""
    summary = run.summary
    reading = "The light area is what the machine left idle, the dark one how many of those nodes tasks held."
    window = Picture("window", "Idle nodes, and those that tasks held", reading, partial(draw_window, run), 2.6)
    return Page(
        title=f"{run.name}: training on idle nodes",
        subtitle=machine_in_words(run),
        verdict=words.headline(summary),
        cards=tuple(_first_cards(run)),
        figures=(window, ledger_picture(summary.get("ledger") or {})),
        notes=tuple(_notes(run)),
        command=summary.get("command", ""),
    )


def _first_side_of_several(runs: Sequence[FinishedRun], compared: RunComparison) -> Page:
    """What stands at the top of a page of several runs; a harvest comes first, and its replays beside it."""
    machines = set(map(machine_in_words, runs))
    verdict = "Settings that differ, and what came of them."
    if runs[0].summary.get("engine") == "live":
        verdict = (
            f"{runs[0].name}: {words.headline(runs[0].summary)} Beside it: {words.join_names(compared.names[1:])}."
        )
    return Page(
        title=f"{words.join_names(compared.names)}: training on idle nodes",
        subtitle=machines.pop() if len(machines) == 1 else "Machines, units or windows differ.",
        verdict=verdict,
        figures=(losses_picture(runs),),
        notes=(*compared.notes(), *(f"{run.name}: {note}" for run in runs for note in _notes(run))),
        command="\n".join(filter(None, (run.summary.get("command") for run in runs))),
    )


def _figure_tables(compared: RunComparison) -> Iterator[PageTable]:
    """Headlines, settings that differ, and all other metrics, a column for each run; of one run also their meaning."""
    is_one, note = len(compared.names) == 1, f"{MARK} rests on assumed scaling." if any(compared.assumptions) else ""
    if not is_one:
        changes = f"Below a value is its change against {compared.names[0]}; runs not comparable with it have none."
        note = f"{changes} {note}".rstrip()
    headings = ("figure", "value", "meaning") if is_one else ("figure", *compared.names)
    rows: dict[str, list[str | Cell]] = {}
    for key in compared.figures:
        if key in GLOSSARY and key not in WORK_SHARES:
            rows[key] = [GLOSSARY[key].label, *compared.cells(key), *([GLOSSARY[key].meaning] * is_one)]
    yield PageTable("Headlines", headings, [rows[key] for key in HEADLINES if key in rows], note)
    yield PageTable("Settings that differ", ("setting", *compared.names), compared.setting_rows())
    yield PageTable("All other figures", headings, [rows[key] for key in rows if key not in HEADLINES], note)


def _first_cards(run: FinishedRun) -> list[Card]:
    """Useful node-hours, and the first figures of `_FIRST` that the run has."""
    summary, cards, hours = run.summary, [], words.useful_hours(run.summary)
    if hours is not None:
        mark = mark_assumed(summary, "ledger.useful")
        cards.append(Card("useful node-hours", words.format_amount(hours), _describe_spread(run, hours), mark))
    figures = figures_of(summary)
    for key in _FIRST:
        if (value := figures.get(key)) is not None:
            text = format_value(value, GLOSSARY[key].unit)
            text += f" of {summary['tasks_total']:,}" if key == "tasks_completed" else ""
            cards.append(Card(GLOSSARY[key].label, text, GLOSSARY[key].meaning, mark_assumed(summary, key)))
    return cards[:MOST_CARDS]


def _describe_spread(run: FinishedRun, useful_h: float) -> str:
    """How sure the useful node-hours are, by how much days or weeks differ in the node-time that tasks held."""
    text = "Idle node-hours that became lasting work, at the tasks' best rate."
    length_s, unit = (_DAY_S, "days") if run.window_s < 28 * _DAY_S else (7 * _DAY_S, "weeks")
    number = int(run.window_s // length_s)
    used_s = run.node_s_between(np.linspace(0.0, run.window_s, number + 1)) if number >= 3 else np.zeros(1)
    if not used_s.sum() > 0:
        return f"{text} Too short a window to say how much that varies."
    half = (estimate((used_s / used_s.sum() * useful_h).tolist()).half_width or 0.0) * number
    low, high = words.format_amount(useful_h - half), words.format_amount(useful_h + half)
    return f"{text} {low} to {high} (95 %) as {number} {unit} differ."


def _notes(run: FinishedRun) -> list[str]:
    """Caveats of the figures of a run."""
    summary, assumed = run.summary, assumption(run.summary)
    texts = assumption_notes(assumed)
    if summary["partial"]:
        ended = "failed" if summary["end_reason"] == "failed" else "was interrupted"
        texts.append(f"Partial: the run {ended}; its figures are those until then.")
    texts += [f"Node log: {note[0].upper()}{note[1:]}" for note in summary.get("node_log_notes") or () if note]
    unproven = summary["decisions"] - summary["decisions_optimal"]
    if unproven:
        texts.append(f"{unproven:,} of {summary['decisions']:,} decisions are not proven optimal.")
    return texts


def _describe_run(run: FinishedRun) -> Iterator[str]:
    """Sentences about use, limits, what was learned, decisions and waits."""
    summary = run.summary
    yield _describe_use(summary)
    quiet = summary.get("below_large_idle") or {}
    if quiet.get("occupancy") is not None:
        share, occupancy = (format_value(quiet.get(key), "share") for key in ("idle_node_s_share", "occupancy"))
        yield (
            f"Times at which {quiet['large_idle']:,} nodes or more were idle (drained, say) weigh much: "
            f"the other times hold {share} of the idle node-time. Counting those alone, occupancy is {occupancy}"
            f"{mark_assumed(summary, 'occupancy')}."
        )
    texts = {
        "Limited by: ": words.limit_in_words(summary),
        "Tasks at once: ": words.more_tasks_in_words(summary),
        "Learned ": words.learning_in_words(summary),
        "": words.optimality_in_words(summary),
        "To decide, ": words.solver_use_in_words(summary),
        "Fallback: ": words.fallback_in_words(summary),
        "Decisions took ": words.decision_times_in_words(summary),
    }
    yield from (f"{lead}{text}." for lead, text in texts.items() if text is not None)
    yield from _describe_waits(run)


def _describe_use(summary: Mapping[str, Any]) -> str:
    """How much was idle and used, and what U says."""
    nodes, hours = summary.get("eq_nodes") or 0.0, summary["window_s"] / _HOUR_S
    text = f"On average {nodes:,.1f} of {summary['nodes_total']:,} nodes were idle over {hours:,.1f} hours"
    if summary.get("occupancy") is not None:
        share = format_value(summary["occupancy"], "share")
        text += f", and training used {share} of that time{mark_assumed(summary, 'occupancy')}"
    nodes = summary.get("efficiency_eq_nodes")
    if summary.get("efficiency") is None or nodes is None:
        return f"{text}."
    share, horizon = format_value(summary["efficiency"], "share"), format_value(summary["efficiency_horizon_s"], "s")
    text += f". In the first {horizon} training did {share} of the work that {nodes:,.1f} dedicated nodes would have "
    text += f"done (decisions on {summary['settings'].get('decide_on', 'unknown')} events)"
    text += f"{mark_assumed(summary, 'efficiency')}. "
    if words.is_short_of_tasks(summary):
        return f"{text}Those would have been as short of tasks, so this says little."
    return f"{text}Those would run the same tasks, so what they too would leave unused is no loss in U."


def _task_table(run: FinishedRun, most: int, suffix: str) -> PageTable:
    """Table of tasks in file order; if there are many, of those with the most node-time."""
    tasks, states, waits_s = run.tasks, task_states(run), _waits(run)
    total, has_started = len(states), ~np.isnan(tasks["started_s"])
    rows, note = np.arange(total), f"Times are {zone_of(run.summary)}."
    if total > most:
        rows = np.sort(np.argsort(-tasks["node_s"], kind="stable")[:most])
        note += f" {total - most:,} of {total:,} tasks are left out here; tasks.parquet in the run's directory has all."
        note += " Listed are those with the most node-time."
    total_work, work_done = tasks["work_total"], tasks["work_done"]
    progress = np.clip(np.divide(work_done, total_work, out=np.zeros(total), where=total_work > 0), 0.0, 1.0)
    columns: dict[str, Sequence[str]] = {
        "task": tasks["name"][rows].tolist(),
        "state": [states[row] for row in rows],
        "progress": [f"{100 * share:.0f} %" for share in progress[rows]],
    }
    if any(tasks["group"]):
        columns["group"] = [group or "-" for group in tasks["group"][rows]]
    for name in ("submitted", "started", "completed"):
        columns[name] = ["-" if np.isnan(time_s) else run.at(time_s) for time_s in tasks[f"{name}_s"][rows]]
    columns["wait"] = [
        "-" if np.isnan(waits_s[row]) else f"{'' if has_started[row] else '> '}{format_value(waits_s[row], 's')}"
        for row in rows
    ]
    columns["node-hours"] = [f"{node_s / _HOUR_S:,.1f}" for node_s in tasks["node_s"][rows]]
    for name in ("preemptions", "rescales"):
        columns[name] = [f"{number:,}" for number in tasks[name][rows]]
    if np.isfinite(tasks["energy_j"]).any():
        columns["energy"] = [format_value(None if np.isnan(j) else float(j), "J") for j in tasks["energy_j"][rows]]
    notes = assumption_notes(assumption(run.summary))
    return PageTable(f"Tasks{suffix}", tuple(columns), list(zip(*columns.values(), strict=True)), note, notes)


def _waits(run: FinishedRun) -> Any:
    """Waits of tasks in the window; of those that never started until its end, NaN for those submitted later."""
    submitted_s, started_s = run.tasks["submitted_s"], run.tasks["started_s"]
    waits_s = np.where(np.isnan(started_s), run.window_s, started_s) - submitted_s
    return np.where(waits_s < 0, np.nan, waits_s)


def _describe_waits(run: FinishedRun) -> Iterator[str]:
    """The task that waited longest, and how many never started."""
    waits_s, has_started = _waits(run), ~np.isnan(run.tasks["started_s"])
    started_s = np.where(has_started, waits_s, 0.0)
    if started_s.any():
        row = int(np.argmax(started_s))
        name, wait = run.tasks["name"][row], format_value(started_s[row], "s")
        start = f"{run.at(run.tasks['started_s'][row])} {zone_of(run.summary)}"
        yield f"Of the tasks that started, {name} waited longest: {wait}, until {start}."
    if waiting := int((~has_started & ~np.isnan(waits_s)).sum()):
        yield f"{waiting:,} waited until the end and never started."


def _provenance(run: FinishedRun, suffix: str) -> PageTable:
    """Inputs, versions and settings."""
    summary = run.summary
    facts = [
        (name, f"{file['path']} (SHA-256 {file['sha256']})")
        for name, files in input_files(summary).items()
        for file in files
    ]
    facts += [(f"version of {name}", version) for name, version in (summary.get("versions") or {}).items()]
    facts += [(name, "-" if value is None else str(value)) for name, value in summary["settings"].items()]
    return PageTable(f"Inputs and settings{suffix}", ("what", "value"), facts)
