"""Pages of finished runs: of one, which begins with its brief, and of several, compared with the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.extras import absent
from bftrainer.files.writing import refuse_existing, replacing
from bftrainer.report.comparison import figures_of, input_files
from bftrainer.report.finished_run import FinishedRun
from bftrainer.report.glossary import ASSUMED, GLOSSARY, assumption, format_value
from bftrainer.report.intervals import estimate
from bftrainer.report.ledger import is_short_of_tasks, learned_in_words, limit_in_words, more_tasks_in_words
from bftrainer.report.metrics import fallen_back, settled_before
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
    render_pages,
)
from bftrainer.report.pictures import (
    OUTCOMES,
    decisions_picture,
    draw_window,
    local_time,
    losses_picture,
    machine_in_words,
    waterfall,
    zone_of,
)
from bftrainer.report.side_by_side import names_of, side_by_side
from bftrainer.report.timeline import task_states, timeline_of

MOST_ROWS = 1_000
"""Tasks that all tables of a page together list; of decisions a fifth."""
_HOUR_S, _DAY_S = 3600.0, 86_400.0
_FIRST = ("energy_j", "eq_nodes", "occupancy", "tasks_completed", "turnaround_mean_s", "makespan_s", "preemptions")
_MORE = (
    *("efficiency", "ledger.useful", "eq_nodes", "occupancy", "tasks_completed", "makespan_s", "turnaround_mean_s"),
    *("wait_mean_s", "return_on_investment", "preemptions", "rescales"),
    *("energy_j", "idle_energy_j", "average_power_w", "emissions_gco2", "tasks_reached", "attempts"),
    *("decisions_optimal", "solve_s_median", "wall_s"),
)


@dataclass(frozen=True, slots=True)
class Worth:
    """What a useful node-hour stands for; None where unknown.

    Parameters
    ----------
    gpus_per_node : int, optional
    node_hour : float, optional
        Price of a node-hour, in the site's currency.
    """

    gpus_per_node: int | None = None
    node_hour: float | None = None


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
        content = print_pages([first_side(run, worth) for run in runs])
    elif brief:
        content = render_pages([first_side(run, worth) for run in runs]).encode(errors="backslashreplace")
    else:
        content = page_bytes(run_page(runs, worth))
    with replacing(output) as stream:
        stream.write(content)


def notebook_view(run: FinishedRun) -> str | None:
    """The brief of a run for notebooks; None where libraries for it are missing."""
    return None if absent("jinja2", "matplotlib") else notebook_frame(first_side(run))


def run_page(runs: Sequence[FinishedRun], worth: Worth | None = None) -> Page:
    """Make the page of one run, or of several, compared with the first."""
    timeline = timeline_of(runs)
    if len(runs) == 1:
        lead, notes = first_side(runs[0], worth), timeline.notes
        sections = [_figures(runs[0], {card.label for card in lead.cards})]
    else:
        found = side_by_side(runs)
        lead, sections = _several(runs), list(found.tables)
        notes = [*timeline.notes, *found.apart, *(note for run in runs for note in _notes(run, run.name))]
        sections.append(_texts("When few nodes were idle", [_large_idle(run) for run in runs]))
        sections.append(_texts("What limited them", _limits(runs)))
    sections += [_task_table(run, MOST_ROWS // len(runs), len(runs)) for run in runs]
    sections.append(PageTable("Decisions", figure=decisions_picture(runs), texts=list(map(_optimality, runs))))
    sections += [_decision_table(run, MOST_ROWS // 5 // len(runs), len(runs)) for run in runs]
    sections += [_provenance(run, len(runs)) for run in runs]
    return Page(
        title=lead.title,
        subtitle=lead.subtitle,
        verdict=lead.verdict,
        cards=lead.cards,
        figures=lead.figures,
        tables=tuple(sections),
        notes=(*lead.notes, *notes),
        command=lead.command,
        timeline=timeline,
    )


def _several(runs: Sequence[FinishedRun]) -> Page:
    """What stands at the top of a page of several runs."""
    machines = list(dict.fromkeys(machine_in_words(run.summary) for run in runs))
    subtitle = machines[0] if len(machines) == 1 else "Machines, units or windows differ."
    title = f"{names_of(runs)}: training on idle nodes"
    commands = "\n".join(filter(None, (run.summary.get("command") for run in runs)))
    return Page(
        title=title,
        subtitle=subtitle,
        verdict=_lead(runs),
        figures=(losses_picture(runs),),
        command=commands,
    )


def _lead(runs: Sequence[FinishedRun]) -> str:
    """What several runs are about: how a harvest went that others replay, else that they are compared."""
    if runs[0].summary.get("engine") != "live":
        return "Settings that differ, and what came of them."
    return f"{runs[0].name}: {headline(runs[0].summary)} Beside it: {names_of(runs[1:])}."


def _texts(title: str, texts: Sequence[str]) -> PageTable:
    return PageTable(title, texts=list(filter(None, texts)))


def first_side(run: FinishedRun, worth: Worth | None = None) -> Page:
    """Make the brief of a run."""
    summary = run.summary
    reading = "The light area is what the machine left idle, the dark one how many of those nodes tasks held."
    return Page(
        title=f"{run.name}: training on idle nodes",
        subtitle=machine_in_words(summary),
        verdict=headline(summary),
        cards=tuple(_first_cards(run, worth or Worth())),
        figures=(
            Picture("window", "What was idle, and what tasks held", reading, partial(draw_window, run), 2.6),
            waterfall(summary.get("ledger") or {}),
        ),
        notes=tuple(_notes(run)),
        command=summary.get("command", ""),
    )


def headline(summary: Mapping[str, Any]) -> str:
    """What became of the idle node-time, and what limited it, in a sentence."""
    hours, limit = _node_hours(summary), limit_in_words(summary)
    tasks = f"{summary['tasks_completed']:,} of {summary['tasks_total']:,} tasks completed"
    if hours is None or limit is None:
        return f"{tasks}{_mark(summary, 'tasks_completed')}."
    useful_h, idle_h = hours
    share = format_value(summary["ledger"]["useful"], "share")
    return (
        f"{useful_h:,.0f} of {idle_h:,.0f} idle node-hours ({share}) became lasting work"
        f"{_mark(summary, 'ledger.useful')}, and {tasks}. What limited it: {limit}."
    )


def _node_hours(summary: Mapping[str, Any]) -> tuple[float, float] | None:
    """Useful and idle node-hours; None without idle nodes, or a ledger of them."""
    ledger = summary.get("ledger") or {}
    useful, idle_s = ledger.get("useful"), ledger.get("idle_node_s")
    return None if useful is None or idle_s is None else (useful * idle_s / _HOUR_S, idle_s / _HOUR_S)


def _mark(summary: Mapping[str, Any], key: str) -> str:
    """Mark after a figure that rests on an assumption."""
    found = assumption(summary)
    return f" ({ASSUMED})" if found is not None and found.bears(key) else ""


def _card(summary: Mapping[str, Any], key: str, value: float) -> Card:
    term = GLOSSARY[key]
    text = format_value(value, term.unit)
    text += f" of {summary['tasks_total']:,}" if key == "tasks_completed" else ""
    return Card(term.label, text, term.meaning, _mark(summary, key))


def _first_cards(run: FinishedRun, worth: Worth) -> list[Card]:
    summary = run.summary
    figures = figures_of(summary)
    known, mark = _node_hours(summary), _mark(summary, "ledger.useful")
    cards = []
    if known is not None:
        hours = known[0]
        cards.append(Card("useful node-hours", f"{hours:,.0f}", _spread(run, hours), mark))
        if worth.gpus_per_node is not None:
            text = f"Useful node-hours times {worth.gpus_per_node} GPUs of a node."
            cards.append(Card("GPU-hours", f"{hours * worth.gpus_per_node:,.0f}", text, mark))
        if worth.node_hour is not None:
            text = f"Useful node-hours at {worth.node_hour:g} each, energy not deducted."
            cards.append(Card("worth", f"{hours * worth.node_hour:,.0f}", text, mark))
    cards += [_card(summary, key, value) for key in _FIRST if (value := figures.get(key)) is not None]
    return cards[:MOST_CARDS]


def _spread(run: FinishedRun, useful_h: float) -> str:
    """How sure the useful node-hours are, by how much days or weeks differ in the node-time that tasks held."""
    text = "Idle node-hours that became lasting work, at the tasks' best rate."
    length_s = _DAY_S if run.window_s < 28 * _DAY_S else 7 * _DAY_S
    number = int(run.window_s // length_s)
    held_s = _split_node_s(run, number) if number >= 3 else np.zeros(0)
    if not held_s.sum() > 0:
        return f"{text} Too short a window to say how much that varies."
    found = estimate((held_s / held_s.sum() * useful_h).tolist())
    half = (found.half_width or 0.0) * number
    unit = "days" if length_s == _DAY_S else "weeks"
    return f"{text} {useful_h - half:,.0f} to {useful_h + half:,.0f} (95 %) as {number} {unit} differ."


def _split_node_s(run: FinishedRun, number: int) -> Any:
    """Node-seconds that tasks held in each of so many equal parts of the window."""
    time_s, used = run.steps["time_s"], run.steps["used"].astype(np.float64)
    edges = np.linspace(0.0, run.window_s, number + 1)
    sums = np.append(0.0, np.cumsum(used * np.diff(np.append(time_s, run.window_s))))
    return np.diff(np.interp(edges, np.append(time_s, run.window_s), sums))


def _notes(run: FinishedRun, name: str = "") -> list[str]:
    """What figures of a run rest on, under its name where there are several."""
    summary, found = run.summary, assumption(run.summary)
    texts = [] if found is None else [f"Rests on {ASSUMED}: {found.note}."]
    if summary["partial"]:
        ended = "failed" if summary["end_reason"] == "failed" else "was interrupted"
        texts.append(f"Partial: the run {ended}; its figures are those until then.")
    texts += [f"Node log: {note[0].upper()}{note[1:]}" for note in summary.get("node_log_notes") or () if note]
    unproven = summary["decisions"] - summary["decisions_optimal"]
    if unproven:
        texts.append(f"{unproven:,} of {summary['decisions']:,} decisions are not proven optimal.")
    return [f"{name}: {text}" for text in texts] if name else texts


def _figures(run: FinishedRun, known: set[str]) -> PageTable:
    """Figures that are not on the first side, and what they say in sentences."""
    summary, keys, figures = run.summary, list(_MORE), figures_of(run.summary)
    if is_short_of_tasks(summary):
        keys = [*keys[1:], keys[0]]  # dedicated nodes would have been starved as much
    cards = []
    for key in keys:
        if (value := figures.get(key)) is not None:
            cards.append(_card(summary, key, value))
        elif key == "makespan_s":
            cards.append(Card(GLOSSARY[key].label, "-", "No task was completed."))
    shown = [card for card in cards if card.label not in known]
    more, learned = more_tasks_in_words(summary), learned_in_words(summary)
    texts = [_answer(summary), _large_idle(run), more and f"Tasks at once: {more}.", learned and f"Learned {learned}."]
    return PageTable("More figures", cards=shown, texts=list(filter(None, texts)))


def _answer(summary: Mapping[str, Any]) -> str:
    """How much was idle and used, and what U says, in a sentence or two."""
    nodes, hours = summary.get("eq_nodes") or 0.0, summary["window_s"] / _HOUR_S
    text = f"On average {nodes:,.1f} of {summary['nodes_total']:,} nodes were idle over {hours:,.1f} hours"
    if summary.get("occupancy") is not None:
        used = f"{format_value(summary['occupancy'], 'share')} of that time{_mark(summary, 'occupancy')}"
        text += f", and training used {used}"
    text += "."
    nodes = summary.get("efficiency_eq_nodes")
    if summary.get("efficiency") is not None and nodes is not None:
        held = format_value(summary["efficiency"], "share")
        horizon = format_value(summary.get("efficiency_horizon_s"), "s")
        text += (
            f" In the first {horizon} training did {held} of the work that {nodes:,.1f} "
            f"dedicated nodes would have done (decisions on {summary['settings'].get('decide_on', 'unknown')} events)"
            f"{_mark(summary, 'efficiency')}."
        )
        if is_short_of_tasks(summary):
            text += " Those would have been as short of tasks, so this says little."
        else:
            text += " Those would run the same tasks, so what they too would leave unused is no loss in U."
    return text


def _large_idle(run: FinishedRun) -> str:
    """What the times say in which few nodes were idle; empty where the run has no such figures."""
    small = run.summary.get("below_large_idle")
    if not small:
        return ""
    lead = f"{run.name}: " if run.name else ""
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
        f"{occupancy}{_mark(run.summary, 'occupancy')}."
    )


def _limits(runs: Sequence[FinishedRun]) -> list[str]:
    """What limited runs, those together that were limited by the same; and what decisions learned."""
    found: dict[str, list[FinishedRun]] = {}
    for run in runs:
        if (text := limit_in_words(run.summary)) is not None:
            found.setdefault(text, []).append(run)
    notes = [f"{names_of(some)}: limited by: {text}." for text, some in found.items()]
    for run in runs:
        more, learned = more_tasks_in_words(run.summary), learned_in_words(run.summary)
        notes += [f"{run.name}: tasks at once: {more}."] if more is not None else []
        notes += [f"{run.name}: learned {learned}."] if learned is not None else []
    return notes


def _optimality(run: FinishedRun) -> str:
    """How many decisions are optimal, what found them, and how long they took."""
    s, lead = run.summary, f"{run.name}: "
    if not s["decisions"]:
        return f"{lead}No decision was made."
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
    return f"{lead}{text}.{before} {times}; solver {', '.join(s['solvers'])}{failed}."


def _waits(run: FinishedRun) -> Any:
    """How long tasks waited in the window; those that never started until its end, those submitted later NaN."""
    submitted_s, started_s = run.tasks["submitted_s"], run.tasks["started_s"]
    waits_s = np.where(np.isnan(started_s), run.window_s, started_s) - submitted_s
    return np.where(waits_s < 0, np.nan, waits_s)


def _longest_wait(run: FinishedRun) -> str:
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
    return text.strip()


def _task_table(run: FinishedRun, most: int, runs: int) -> PageTable:
    """Table of tasks in file order; if there are many, of those with the most node-time."""
    tasks, zone = run.tasks, zone_of(run.summary)
    total, waits_s, states = len(tasks["name"]), _waits(run), task_states(run)
    shown_rows = np.arange(total)
    note = f"Times are {zone}."
    if total > most:
        shown_rows = np.sort(np.argsort(-tasks["node_s"], kind="stable")[:most])
        note += f" {_describe_omission('tasks', most, total)} Listed are those with the most node-time."
    is_tuned, has_groups = bool(np.isfinite(tasks["energy_j"]).any()), any(tasks["group"])
    rows = []
    for row in shown_rows.tolist():
        task = {key: column[row] for key, column in tasks.items()}
        share = min(1.0, max(0.0, task["work_done"] / task["work_total"])) if task["work_total"] > 0 else 0.0
        times = (task["submitted_s"], task["started_s"], task["completed_s"])
        cells = [task["name"], states[row], f"{100 * share:.0f} %", *([task["group"] or "-"] if has_groups else [])]
        cells += ["-" if np.isnan(each) else local_time(run.summary["window_start"], each, zone) for each in times]
        wait = "-" if np.isnan(waits_s[row]) else format_value(waits_s[row], "s")
        cells.append(f"> {wait}" if np.isnan(times[1]) and wait != "-" else wait)
        cells += [f"{task['node_s'] / _HOUR_S:,.1f}", f"{task['preemptions']:,}", f"{task['rescales']:,}"]
        if is_tuned:
            energy = float(task["energy_j"])
            cells.append(format_value(energy if np.isfinite(energy) else None, "J"))
        rows.append(cells)
    headings = ["task", "state", "progress", *(["group"] if has_groups else []), "submitted", "started", "completed"]
    headings += ["wait", "node-hours", "preemptions", "rescales", *(["energy"] if is_tuned else [])]
    texts = [text for text in (_longest_wait(run), *_scaling_note(run)) if text]
    return PageTable(_section_title("Tasks", run, runs), tuple(headings), rows, note, texts)


def _scaling_note(run: FinishedRun) -> list[str]:
    found = assumption(run.summary)
    return [] if found is None else [f"Rests on {ASSUMED}: {found.note}."]


def _section_title(title: str, run: FinishedRun, runs: int) -> str:
    return title if runs == 1 else f"{title} of {run.name}"


def _decision_table(run: FinishedRun, most: int, runs: int) -> PageTable:
    """Table of decisions in order of time; if there are many, of those that took longest."""
    columns, zone = run.decisions, zone_of(run.summary)
    total = columns["time_s"].size
    shown_rows = np.sort(np.argsort(-columns["solve_s"], kind="stable")[:most])
    note = f"Times are {zone}."
    if total > most:
        note += f" {_describe_omission('decisions', most, total)} Listed are those that took longest."
    rows = [
        (
            local_time(run.summary["window_start"], columns["time_s"][row], zone),
            OUTCOMES[columns["held"][row]],
            format_value(float(columns["solve_s"][row]), "wall_s"),
            format_value(None if np.isnan(columns["gap"][row]) else float(columns["gap"][row]), "share"),
        )
        for row in shown_rows.tolist()
    ]
    title = "The longest decisions" if total > most else "Each decision"
    return PageTable(_section_title(title, run, runs), ("time", "outcome", "decision time", "gap"), rows, note)


def _describe_omission(what: str, most: int, total: int) -> str:
    """How many rows a table leaves out, and where they are."""
    return f"{total - most:,} of {total:,} {what} are left out here; {what}.parquet in the run's directory has all."


def _provenance(run: FinishedRun, runs: int) -> PageTable:
    """Inputs, versions and settings."""
    summary = run.summary
    facts = [
        (name, f"{file['path']} (SHA-256 {file['sha256']})")
        for name, files in input_files(summary).items()
        for file in files
    ]
    facts += [(f"version of {name}", version) for name, version in (summary.get("versions") or {}).items()]
    facts += [(name, "-" if value is None else str(value)) for name, value in summary["settings"].items()]
    return PageTable(_section_title("Inputs and settings", run, runs), ("what", "value"), facts)
