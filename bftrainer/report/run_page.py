"""Pages of finished runs: of one, which begins with its brief, and of several, compared with the first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.extras import absent
from bftrainer.files.writing import refuse_existing, replacing
from bftrainer.report.comparison import Cell, RunComparison, alike, compare_runs, figures_of, input_files
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
    render_pages,
)
from bftrainer.report.run_figures import draw_window, ledger_picture, losses_picture
from bftrainer.report.timeline import task_states, timeline_of
from bftrainer.report.words import (
    decision_times_in_words,
    fallback_in_words,
    format_amount,
    headline,
    is_short_of_tasks,
    join_names,
    learning_in_words,
    limit_in_words,
    more_tasks_in_words,
    optimality_in_words,
    solver_use_in_words,
    useful_hours,
)

MOST_ROWS = 1_000
"""Tasks that all tables of a page together list; of decisions a fifth."""
OUTCOMES = {"optimal": "proven optimal", "claimed": "claimed optimal", "incumbent": "best found", "kept": "kept"}
"""Names of the outcomes of decisions."""
_HOUR_S, _DAY_S = 3600.0, 86_400.0
_FIRST = ("energy_j", "eq_nodes", "occupancy", "tasks_completed", "turnaround_mean_s", "makespan_s", "preemptions")


@dataclass(frozen=True, slots=True)
class Worth:
    """GPUs of a node, and the price of a node-hour in the site's currency; None where unknown."""

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
        Worth of a useful node-hour.

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
        lead = first_side(runs[0], worth)
        sections = [_all_figures(runs[0])]
    else:
        compared = compare_runs([run.name for run in runs], [run.summary for run in runs])
        lead = _first_side_of_several(runs, compared)
        sections = [*_comparison_tables(compared), *_groups(runs), *_limits(runs)]
    suffixes = ["" if len(runs) == 1 else f" of {run.name}" for run in runs]
    most = MOST_ROWS // len(runs)
    sections += [_task_table(run, most, suffix) for run, suffix in zip(runs, suffixes, strict=True)]
    sections.append(PageTable("Decisions", texts=list(map(_describe_decisions, runs))))
    sections += [_decision_table(run, most // 5, suffix) for run, suffix in zip(runs, suffixes, strict=True)]
    sections += [_provenance(run, suffix) for run, suffix in zip(runs, suffixes, strict=True)]
    return replace(lead, tables=tuple(sections), notes=(*lead.notes, *timeline.notes), timeline=timeline)


def first_side(run: FinishedRun, worth: Worth | None = None) -> Page:
    """Make the brief of a run."""
    summary = run.summary
    reading = "The light area is what the machine left idle, the dark one how many of those nodes tasks held."
    window = Picture("window", "Idle nodes, and those that tasks held", reading, partial(draw_window, run), 2.6)
    return Page(
        title=f"{run.name}: training on idle nodes",
        subtitle=machine_in_words(run),
        verdict=headline(summary),
        cards=tuple(_first_cards(run, worth or Worth())),
        figures=(window, ledger_picture(summary.get("ledger") or {})),
        notes=tuple(_notes(run)),
        command=summary.get("command", ""),
    )


def _first_side_of_several(runs: Sequence[FinishedRun], compared: RunComparison) -> Page:
    """What stands at the top of a page of several runs; a harvest comes first, and its replays beside it."""
    machines = set(map(machine_in_words, runs))
    verdict = "Settings that differ, and what came of them."
    if runs[0].summary.get("engine") == "live":
        verdict = f"{runs[0].name}: {headline(runs[0].summary)} Beside it: {join_names(compared.names[1:])}."
    return Page(
        title=f"{join_names(compared.names)}: training on idle nodes",
        subtitle=machines.pop() if len(machines) == 1 else "Machines, units or windows differ.",
        verdict=verdict,
        figures=(losses_picture(runs),),
        notes=(*compared.notes(), *(f"{run.name}: {note}" for run in runs for note in _notes(run))),
        command="\n".join(filter(None, (run.summary.get("command") for run in runs))),
    )


def _comparison_tables(compared: RunComparison) -> Iterator[PageTable]:
    """Headlines, settings that differ, and all other metrics, a column for each run."""
    keys = [key for key in compared.figures if key in GLOSSARY and key not in WORK_SHARES]
    rows: dict[str, list[str | Cell]] = {key: [GLOSSARY[key].label, *compared.cells(key)] for key in keys}
    note = f"Below a value is its change against {compared.names[0]}; runs that cannot be compared have none. "
    note += f"{MARK} rests on assumed scaling."
    figures, settings = ("figure", *compared.names), ("setting", *compared.names)
    yield PageTable("Headlines", figures, [rows[key] for key in HEADLINES if key in rows], note)
    yield PageTable("Settings that differ", settings, compared.setting_rows())
    yield PageTable("All other figures", figures, [rows[key] for key in keys if key not in HEADLINES], note)


def _groups(runs: Sequence[FinishedRun]) -> Iterator[PageTable]:
    """Means and 95 % intervals of the headlines of runs that differ by seed or window alone, two at least."""
    for group in alike([run.name for run in runs], [run.summary for run in runs], over_windows=True):
        if len(group.places) < 2:
            continue
        figures: list[Mapping[str, float | None]] = [figures_of(runs[place].summary) for place in group.places]
        rows = []
        for key in HEADLINES:
            sample = [value for one in figures if (value := one.get(key)) is not None]
            if len(sample) > 1:
                mean, unit = estimate(sample), GLOSSARY[key].unit
                spread = format_value(mean.half_width, unit).replace(" %", " points")
                rows.append((GLOSSARY[key].label, f"{format_value(mean.mean, unit)} ± {spread}", f"{len(sample)}"))
        names = join_names([runs[place].name for place in group.places])
        note = f"Mean and 95 % interval of {names}, which differ by seed or window alone."
        yield PageTable(f"{len(figures)} runs that are alike", ("figure", "mean", "runs"), rows, note)


def _limits(runs: Sequence[FinishedRun]) -> Iterator[PageTable]:
    """Limits of runs, together where they are equal, what decisions learned, and times when few nodes were idle."""
    yield PageTable("When few nodes were idle", texts=list(filter(None, map(_describe_few_idle, runs))))
    limits: dict[str, list[str]] = {}
    for run in runs:
        if (text := limit_in_words(run.summary)) is not None:
            limits.setdefault(text, []).append(run.name)
    texts = [f"{join_names(names)}: limited by: {text}." for text, names in limits.items()]
    for run in runs:
        more, learned = more_tasks_in_words(run.summary), learning_in_words(run.summary)
        texts += [f"{run.name}: tasks at once: {more}."] if more is not None else []
        texts += [f"{run.name}: learned {learned}."] if learned is not None else []
    yield PageTable("What limited them", texts=texts)


def _card(summary: Mapping[str, Any], key: str, value: float) -> Card:
    term = GLOSSARY[key]
    text = format_value(value, term.unit)
    text += f" of {summary['tasks_total']:,}" if key == "tasks_completed" else ""
    return Card(term.label, text, term.meaning, mark_assumed(summary, key))


def _first_cards(run: FinishedRun, worth: Worth) -> list[Card]:
    summary, cards = run.summary, []
    figures, mark = figures_of(summary), mark_assumed(summary, "ledger.useful")
    hours = useful_hours(summary)
    if hours is not None:
        cards.append(Card("useful node-hours", format_amount(hours), _describe_spread(run, hours), mark))
        if worth.gpus_per_node is not None:
            text = f"Useful node-hours times {worth.gpus_per_node} GPUs of a node."
            cards.append(Card("GPU-hours", format_amount(hours * worth.gpus_per_node), text, mark))
        if worth.node_hour is not None:
            text = f"Useful node-hours at {worth.node_hour:g} each, energy not deducted."
            cards.append(Card("worth", format_amount(hours * worth.node_hour), text, mark))
    cards += [_card(summary, key, value) for key in _FIRST if (value := figures.get(key)) is not None]
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
    low, high = format_amount(useful_h - half), format_amount(useful_h + half)
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


def _all_figures(run: FinishedRun) -> PageTable:
    """All metrics with their meaning, and sentences about the run."""
    summary, figures = run.summary, figures_of(run.summary)
    rows: list[tuple[str | Cell, ...]] = []
    for key, term in GLOSSARY.items():
        value = figures.get(key)
        if value is not None and key not in WORK_SHARES:
            cell = Cell(format_value(value, term.unit), mark_assumed(summary, key).strip())
            rows.append((term.label, cell, term.meaning))
        elif key == "makespan_s":
            rows.append((term.label, "-", "No task was completed."))
    more, learned = more_tasks_in_words(summary), learning_in_words(summary)
    texts = [_describe_use(summary), _describe_few_idle(run)]
    texts += [f"Tasks at once: {more}."] if more else []
    texts += [f"Learned {learned}."] if learned else []
    return PageTable("All figures", ("figure", "value", "meaning"), rows, texts=list(filter(None, texts)))


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
    if is_short_of_tasks(summary):
        return f"{text}Those would have been as short of tasks, so this says little."
    return f"{text}Those would run the same tasks, so what they too would leave unused is no loss in U."


def _describe_few_idle(run: FinishedRun) -> str:
    """Occupancy of the times in which few nodes were idle; empty where the run has no such figures."""
    few = run.summary.get("below_large_idle")
    if not few:
        return ""
    if few.get("occupancy") is None:
        return f"{run.name}: There was no time in which fewer than {few['large_idle']:,} nodes, but some, were idle."
    share, occupancy = (format_value(few.get(key), "share") for key in ("idle_node_s_share", "occupancy"))
    lengths_s = np.diff(np.append(run.steps["time_s"], run.window_s))
    large_s: dict[str, float] = {}
    for row in np.flatnonzero(run.steps["idle"] >= few["large_idle"]).tolist():
        day = run.at(run.steps["time_s"][row])[:10]
        large_s[day] = large_s.get(day, 0.0) + lengths_s[row]
    longest = max(large_s, key=lambda day: large_s[day], default="")
    when = f"longest on {longest} {zone_of(run.summary)}: {format_value(large_s[longest], 's')}" if longest else "never"
    return (
        f"{run.name}: Times at which {few['large_idle']:,} nodes or more were idle (drained for maintenance, say; "
        f"{when}) weigh much: the other times hold {share} of the idle node-time. Counting those alone, occupancy is "
        f"{occupancy}{mark_assumed(run.summary, 'occupancy')}."
    )


def _describe_decisions(run: FinishedRun) -> str:
    """How many decisions are optimal, what settled them, and how long they took."""
    summary = run.summary
    if not summary["decisions"]:
        return f"{run.name}: No decision was made."
    texts = [optimality_in_words(summary), solver_use_in_words(summary), fallback_in_words(summary)]
    text = ". ".join(filter(None, [*texts, f"Decisions took {decision_times_in_words(summary)}"]))
    return f"{run.name}: {text}."


def _task_table(run: FinishedRun, most: int, suffix: str) -> PageTable:
    """Table of tasks in file order; if there are many, of those with the most node-time."""
    tasks, states, waits_s = run.tasks, task_states(run), _waits(run)
    total, has_started = len(states), ~np.isnan(tasks["started_s"])
    rows, note = np.arange(total), f"Times are {zone_of(run.summary)}."
    if total > most:
        rows = np.sort(np.argsort(-tasks["node_s"], kind="stable")[:most])
        note += f" {_describe_omission('tasks', most, total)} Listed are those with the most node-time."
    work, done = tasks["work_total"], tasks["work_done"]
    progress = np.clip(np.divide(done, work, out=np.zeros(total), where=work > 0), 0.0, 1.0)
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
    assumed = assumption(run.summary)
    texts = [text for text in (_describe_longest_wait(run), *assumption_notes(assumed)) if text]
    return PageTable(f"Tasks{suffix}", tuple(columns), list(zip(*columns.values(), strict=True)), note, texts)


def _waits(run: FinishedRun) -> Any:
    """Waits of tasks in the window; of those that never started until its end, NaN for those submitted later."""
    submitted_s, started_s = run.tasks["submitted_s"], run.tasks["started_s"]
    waits_s = np.where(np.isnan(started_s), run.window_s, started_s) - submitted_s
    return np.where(waits_s < 0, np.nan, waits_s)


def _describe_longest_wait(run: FinishedRun) -> str:
    """The task that waited longest, and how many never started."""
    waits_s, has_started, text = _waits(run), ~np.isnan(run.tasks["started_s"]), ""
    started_s = np.where(has_started, waits_s, 0.0)
    if started_s.any():
        row = int(np.argmax(started_s))
        name, wait = run.tasks["name"][row], format_value(started_s[row], "s")
        start = f"{run.at(run.tasks['started_s'][row])} {zone_of(run.summary)}"
        text = f"Of the tasks that started, {name} waited longest: {wait}, until {start}. "
    if waiting := int((~has_started & ~np.isnan(waits_s)).sum()):
        text += f"{waiting:,} waited until the end and never started."
    return text.strip()


def _decision_table(run: FinishedRun, most: int, suffix: str) -> PageTable:
    """Table of decisions in order of time; if there are many, of those that took longest."""
    decisions, note = run.decisions, f"Times are {zone_of(run.summary)}."
    total = decisions["time_s"].size
    if total > most:
        note += f" {_describe_omission('decisions', most, total)} Listed are those that took longest."
    rows = [
        (
            run.at(decisions["time_s"][row]),
            OUTCOMES[decisions["held"][row]],
            format_value(float(decisions["solve_s"][row]), "wall_s"),
            format_value(None if np.isnan(decisions["gap"][row]) else float(decisions["gap"][row]), "share"),
        )
        for row in np.sort(np.argsort(-decisions["solve_s"], kind="stable")[:most]).tolist()
    ]
    title = "The longest decisions" if total > most else "Each decision"
    return PageTable(f"{title}{suffix}", ("time", "outcome", "decision time", "gap"), rows, note)


def _describe_omission(what: str, most: int, total: int) -> str:
    """How many rows a table leaves out, and where they are."""
    return f"{total - most:,} of {total:,} {what} are left out here; {what}.parquet in the run's directory has all."


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
