"""Pages of finished runs: of one, which begins with its brief, and of several, compared with the first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path

import numpy as np

from bftrainer.files.writing import refuse_existing, replacing
from bftrainer.plugins import absent, require_extra
from bftrainer.report import glossary
from bftrainer.report.comparison import Cell, RunComparison, compare_runs, figures_of, input_files
from bftrainer.report.finished_run import FinishedRun, machine_in_words
from bftrainer.report.glossary import (
    MARK,
    Summary,
    assumption_notes,
    format_value,
    mark_assumed,
    scaling_note,
)
from bftrainer.report.page import MOST_CARDS, Card, Page, PageTable, Picture, page_bytes, print_pages
from bftrainer.report.run_figures import HOUR_S, draw_window, ledger_picture, losses_picture, timeline_of
from bftrainer.terms import COMPARED, GLOSSARY, WORK_SHARES

MOST_ROWS = 1_000
"""Tasks that all tables of a page together list."""
_FIRST = ("energy_j", "eq_nodes", "occupancy", "tasks_completed", "turnaround_mean_s", "makespan_s", "preemptions")


def write_page(runs: Sequence[FinishedRun], output: Path, *, force: bool = False, brief: bool = False) -> None:
    """Write a page about runs, or their briefs alone; a name that ends in ``.pdf`` gets these, an A4 side for each run.

    `OutputError` if the page exists and not `force`, or cannot be written, `SettingsError` without libraries for it.
    """
    require_extra("Pages need", "report", "jinja2", "matplotlib")
    refuse_existing(output, force=force)
    is_pdf = output.suffix.lower() == ".pdf"
    pages = list(map(first_side, runs)) if brief or is_pdf else [run_page(runs)]
    content = print_pages(pages) if is_pdf else page_bytes(*pages)
    with replacing(output) as stream:
        stream.write(content)


def notebook_view(run: FinishedRun) -> str | None:
    """The brief of a run as a frame, which keeps its style from a notebook's; None where libraries are missing."""
    if absent("jinja2", "matplotlib"):
        return None
    content, title = (escape(text) for text in (first_side(run).html(), run.name))
    return f'<iframe srcdoc="{content}" title="{title}" width="100%" height="900" frameborder="0"></iframe>'


def run_page(runs: Sequence[FinishedRun]) -> Page:
    """Make the page of one run, or of several, compared with the first."""
    timeline = timeline_of(runs)
    compared = compare_runs([run.name for run in runs], [run.summary for run in runs])
    lead = first_side(runs[0]) if len(runs) == 1 else _first_side_of_several(runs, compared)
    sections = list(_figure_tables(compared))
    for run in runs:
        of = "" if len(runs) == 1 else f" of {run.name}"
        sections.append(PageTable(f"What happened{of}", texts=list(_describe_run(run.summary))))
        sections.append(_task_table(run, MOST_ROWS // len(runs), of))
        rows = [
            (name, f"{file['path']} (SHA-256 {file['sha256']})")
            for name, files in input_files(run.summary).items()
            for file in files
        ]
        rows += ((f"version of {name}", version) for name, version in (run.summary.get("versions") or {}).items())
        rows += ((name, "-" if value is None else str(value)) for name, value in run.summary["settings"].items())
        sections.append(PageTable(f"Inputs and settings{of}", ("what", "value"), rows))
    return replace(lead, tables=tuple(sections), notes=(*lead.notes, *timeline.notes), timeline=timeline)


def first_side(run: FinishedRun) -> Page:
    """Make the brief of a run."""
    summary, figures = run.summary, figures_of(run.summary)
    cards = []
    if (hours := glossary.useful_hours(summary)) is not None:
        text = "Idle node-hours that became lasting work, at the tasks' best rate."
        mark = mark_assumed(summary, "ledger.useful")
        cards.append(Card("useful node-hours", glossary.format_amount(hours), text, mark))
    for key in _FIRST:
        if (value := figures.get(key)) is not None:
            text = format_value(value, GLOSSARY[key].unit)
            text += f" of {summary['tasks_total']:,}" if key == "tasks_completed" else ""
            cards.append(Card(GLOSSARY[key].label, text, GLOSSARY[key].meaning, mark_assumed(summary, key)))
    reading = "The light area is what the machine left idle, the dark one how many of those nodes tasks held."
    window = Picture("window", "Idle nodes, and those that tasks held", reading, partial(draw_window, run), 2.6)
    return Page(
        title=f"{run.name}: training on idle nodes",
        subtitle=machine_in_words(run),
        verdict=glossary.headline(summary),
        cards=tuple(cards[:MOST_CARDS]),
        figures=(window, ledger_picture(summary.get("ledger") or {})),
        notes=tuple(_notes(summary)),
        command=summary.get("command", ""),
    )


def _first_side_of_several(runs: Sequence[FinishedRun], compared: RunComparison) -> Page:
    """What stands at the top of a page of several runs; a harvest comes first, and its replays beside it."""
    machines = set(map(machine_in_words, runs))
    verdict = "Settings that differ, and what came of them."
    if runs[0].summary.get("engine") == "live":
        beside = glossary.join_names(compared.names[1:])
        verdict = f"{runs[0].name}: {glossary.headline(runs[0].summary)} Beside it: {beside}."
    return Page(
        title=f"{glossary.join_names(compared.names)}: training on idle nodes",
        subtitle=machines.pop() if len(machines) == 1 else "Machines, units or windows differ.",
        verdict=verdict,
        figures=(losses_picture(runs),),
        notes=(*compared.notes(), *(f"{run.name}: {note}" for run in runs for note in _notes(run.summary))),
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
    yield PageTable("Headlines", headings, [rows[key] for key in COMPARED if key in rows], note)
    yield PageTable("Settings that differ", ("setting", *compared.names), compared.setting_rows())
    yield PageTable("All other figures", headings, [rows[key] for key in rows if key not in COMPARED], note)


def _notes(summary: Summary) -> Iterator[str]:
    """Caveats of the figures of a run."""
    yield from assumption_notes(scaling_note(summary))
    if summary["partial"]:
        ended = "failed" if summary["end_reason"] == "failed" else "was interrupted"
        yield f"Partial: the run {ended}; its figures are those until then."
    yield from (f"Node log: {note[0].upper()}{note[1:]}" for note in summary.get("node_log_notes") or () if note)
    if unproven := summary["decisions"] - summary["decisions_optimal"]:
        yield f"{unproven:,} of {summary['decisions']:,} decisions are not proven optimal."


def _describe_run(summary: Summary) -> Iterator[str]:
    """Sentences about limits, what was learned, and decisions."""
    texts = {
        "Limited by: ": glossary.limit_in_words(summary),
        "Tasks at once: ": glossary.more_tasks_in_words(summary),
        "Learned ": glossary.learning_in_words(summary),
        "": glossary.optimality_in_words(summary),
        "To decide, ": glossary.solver_use_in_words(summary),
        "Fallback: ": glossary.fallback_in_words(summary),
        "Decisions took ": glossary.decision_times_in_words(summary),
    }
    yield from (f"{lead}{text}." for lead, text in texts.items() if text is not None)
    if summary.get("efficiency") is not None and glossary.is_short_of_tasks(summary):
        yield "Dedicated nodes would have been as short of tasks: efficiency U, which compares with them, says little."


def _task_table(run: FinishedRun, most: int, suffix: str) -> PageTable:
    """Table of tasks in file order; if there are many, of those with the most node-time."""
    tasks, total = run.tasks, len(run.tasks["name"])
    rows, note = np.arange(total), f"Times are {run.zone}."
    if total > most:
        rows = np.sort(np.argsort(-tasks["node_s"], kind="stable")[:most])
        note += f" {total - most:,} of {total:,} tasks are left out here; tasks.parquet in the run's directory has all."
        note += " Listed are those with the most node-time."
    is_completed, has_started = (~np.isnan(tasks[f"{name}_s"][rows]) for name in ("completed", "started"))
    states = np.where(is_completed, "completed", np.where(has_started, "unfinished", "never started"))
    total_work, work_done = tasks["work_total"][rows], tasks["work_done"][rows]
    progress = np.clip(np.divide(work_done, total_work, out=np.zeros(rows.size), where=total_work > 0), 0.0, 1.0)
    columns: dict[str, Sequence[str]] = {
        "task": tasks["name"][rows].tolist(),
        "state": states.tolist(),
        "progress": [f"{100 * share:.0f} %" for share in progress],
    }
    if any(tasks["group"]):
        columns["group"] = [group or "-" for group in tasks["group"][rows]]
    for name in ("submitted", "started", "completed"):
        columns[name] = ["-" if np.isnan(time_s) else run.at(time_s) for time_s in tasks[f"{name}_s"][rows]]
    waits_s = np.where(has_started, tasks["started_s"][rows], run.window_s) - tasks["submitted_s"][rows]
    columns["wait"] = [
        "-" if wait_s < 0 else f"{'' if is_over else '> '}{format_value(wait_s, 's')}"
        for wait_s, is_over in zip(waits_s, has_started, strict=True)
    ]
    columns["node-hours"] = [f"{node_s / HOUR_S:,.1f}" for node_s in tasks["node_s"][rows]]
    for name in ("preemptions", "rescales"):
        columns[name] = [f"{number:,}" for number in tasks[name][rows]]
    if np.isfinite(tasks["energy_j"]).any():
        columns["energy"] = [format_value(None if np.isnan(j) else float(j), "J") for j in tasks["energy_j"][rows]]
    notes = assumption_notes(scaling_note(run.summary))
    return PageTable(f"Tasks{suffix}", tuple(columns), list(zip(*columns.values(), strict=True)), note, notes)
