"""Commands on finished runs: `bftrainer compare`, `plot`, `report` and `audit`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli import usage
from bftrainer.cli.terminal import note, print_table, tell
from bftrainer.cli.usage import FILE
from bftrainer.errors import BftrainerError, SettingsError, escape_text
from bftrainer.files.writing import replacing_together
from bftrainer.report.glossary import ASSUMED, MARK, suggest_metrics
from bftrainer.runs.config import OPTIONS
from bftrainer.terms import COMPARED, GLOSSARY, JUDGED, WORK_SHARES, term_of

if TYPE_CHECKING:
    from bftrainer.report.finished_run import FinishedRun

_RUNS = click.argument("runs", metavar="RUN_DIR...", nargs=-1, required=True, type=FILE)


def refuse_other_results(paths: Sequence[Path]) -> None:
    """Refuse directories of sweeps and assessments, and say where their page is."""
    for path in paths:
        if (path / "sweep.toml").is_file():
            raise click.UsageError(
                f"{path}: Expected a replay's directory, got a sweep's: bftrainer sweep FILE --resume --report PAGE "
                f"makes its page, and {path / 'runs'}/* are its runs."
            )
        if (page := path / "page.html").is_file() and not (path / "decisions.parquet").exists():
            raise click.UsageError(f"{path}: Expected a replay's directory; the page of what is here is {page}.")


@usage.command(epilog="Example: bftrainer compare a-itrOut b-itrOut --metric efficiency")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=FILE)
@click.option(
    "--metric",
    "chosen",
    multiple=True,
    type=usage.FIGURE,
    help="A figure, as `plot --list` or a page names it; repeatable.",
)
@click.option("--all", "show_all", is_flag=True, help="Show all figures, not only those that say most.")
@usage.json_option
def compare(runs: tuple[Path, ...], chosen: tuple[str, ...], show_all: bool) -> None:
    """Compare finished runs: settings that differ, and figures with their differences to the first run."""
    from bftrainer.report.comparison import compare_runs, run_names
    from bftrainer.runs.run_files import read_summary

    refuse_other_results(runs)
    compared = compare_runs(run_names(runs), [read_summary(path) for path in runs])
    for name in chosen:
        if name not in compared.figures:
            hint = suggest_metrics(name, compared.figures)
            raise SettingsError(f"--metric: Expected a figure of these runs, got {name!r}.{hint}")
    if usage.print_json_if_asked(compared.to_dict):
        return
    usual: Sequence[str] = COMPARED
    if show_all:
        usual = [key for key in compared.figures if key.rpartition(".")[2] not in WORK_SHARES]
    keys = chosen or [key for key in usual if key in compared.figures]
    names = [
        f"{name} (partial)" if summary["partial"] else name
        for name, summary in zip(compared.names, compared.summaries, strict=True)
    ]
    if compared.settings:
        _print_across("setting", names, compared.setting_rows())
        click.echo()
    rows = [
        [term_of(key).label, *(f"{cell.value} ({cell.below})" if cell.below else cell.value for cell in cells)]
        for key, cells in ((key, compared.cells(key)) for key in keys)
    ]
    _print_across("figure", names, rows)
    notes: dict[str, list[str]] = {}
    for name, assumed in zip(compared.names, compared.assumptions, strict=True):
        if assumed is not None:
            notes.setdefault(assumed, []).append(name)
    for text in compared.notes():
        click.echo(text)
    for text, assuming in notes.items():
        where = "" if len(assuming) == len(names) else f" ({', '.join(assuming)})"
        click.echo(f"{MARK} {ASSUMED}{where}: {text}")


ACROSS = 4
"""Runs that stand side by side; of more, a terminal would have to break words."""


def _print_across(heading: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with a column for each run, in as many parts as it takes, each with the first run again."""
    for begin in range(1, max(2, len(names)), ACROSS - 1):
        shown = [0, *range(begin, min(begin + ACROSS - 1, len(names)))]
        click.echo("\n" * (begin > 1), nl=False)
        print_table([heading, *(names[at] for at in shown)], [[row[0], *(row[1 + at] for at in shown)] for row in rows])


@usage.value_type("column|page|MM", "column, page, or 50 to 500 millimetres")
def width_mm(text: str) -> float:
    """A width in millimetres, named or as a number."""
    from bftrainer.report.drawing import COLUMN_MM, PAGE_MM, WIDTHS_MM

    width = {"column": COLUMN_MM, "page": PAGE_MM}.get(text) or float(text)
    if not WIDTHS_MM[0] <= width <= WIDTHS_MM[1]:
        raise ValueError
    return width


KINDS = {
    "pool": "idle and used nodes over time, a panel a run",
    "gantt": "which task held nodes when; of one run",
    "setting": "a figure of summary.json, efficiency unless said, against a setting",
    "losses": "where the idle node-time went",
    "paired": "what values of an option gain on its first one, pair by pair; of a sweep's directory",
}
_LISTED = "\n".join(f"{kind:11}{text}" for kind, text in KINDS.items())
_PLOT = f"""Draw a figure of finished runs for print, with its data (.csv) and a caption (.txt) beside it.

\b
{_LISTED}

In settings and losses, runs that differ in their seeds alone are one, with the mean's 95 % confidence interval.
"""


def _list_kinds(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"{_LISTED}\n\nMetrics; of sweep and advise those with a sign: + more of it is better, - less.")
        for key, term in GLOSSARY.items():
            sign = "+" if term.better > 0 else "-"
            click.echo(f"{sign if key in JUDGED else ' '} {key:38}{term.label}")
        ctx.exit()


@usage.command(help=_PLOT, epilog="Example: bftrainer plot pool a-itrOut -o pool.svg")
@click.argument("kind", type=click.Choice([*KINDS]))
@_RUNS
@click.option("-o", "--output", type=FILE, required=True, help="The figure: .pdf, .svg or .png.")
@click.option("--against", metavar="SETTING", default="forward_time_s", help="Of kinds setting and paired.")
@click.option(
    "--metric",
    "figure",
    type=usage.FIGURE,
    help="Of kinds setting and paired.  [default: efficiency; of paired work_done]",
)
@click.option("--style", metavar="NAME", default="", help="A style of matplotlib, over ours.")
@click.option("--width", type=width_mm, default="page", help="90, 180 or so many millimetres.")
@usage.force_option
@click.option(
    "--list", is_flag=True, is_eager=True, expose_value=False, callback=_list_kinds, help="Name kinds and metrics."
)
def plot(
    kind: str, runs: tuple[Path, ...], output: Path, against: str, figure: str | None, style: str, width: float,
    force: bool,
) -> None:  # fmt: skip
    """Draw a figure of finished runs for print; its help is `_PLOT`."""
    from bftrainer.campaigns.sweep import plot_changes, read_sweep_table
    from bftrainer.report import run_figures as figures
    from bftrainer.report.drawing import Sheet, check_drawable, print_figure
    from bftrainer.runs.run_files import read_runs, read_summary

    if kind in ("gantt", "paired") and len(runs) > 1:
        what = {"gantt": "run for a Gantt chart", "paired": "sweep for gains over pairs"}[kind]
        raise click.UsageError(f"Expected one {what}, got {len(runs)}.")
    for run in runs if kind != "paired" else ():
        read_summary(run)  # report an invalid run before a problem with the figure's path
    form, sheet = check_drawable(output.name), Sheet(width, style)
    written = (output.with_suffix(".csv"), output.with_suffix(".txt"), output)
    usage.refuse_files(*written, force=force)
    results = read_runs(runs) if kind != "paired" else []
    match kind:
        case "paired":
            draw = partial(plot_changes, read_sweep_table(runs[0]), against, figure or "work_done")
        case "pool":
            draw = partial(figures.plot_pool, results)
        case "losses":
            draw = partial(figures.plot_losses, results)
        case "gantt":
            draw = partial(figures.plot_allocation, results[0])
        case _:
            draw = partial(figures.plot_setting, fill_settings(results), against, figure or "efficiency")
    contents = print_figure(draw, sheet, form)
    with replacing_together(*written) as streams:
        for stream, content in zip(streams, contents.values(), strict=True):
            stream.write(content)
    click.echo(f"Figure: {output}")


def fill_settings(runs: Sequence[FinishedRun]) -> list[FinishedRun]:
    """Runs whose summaries have the settings that they left out, as these are the defaults."""
    defaults = {name: option.default for name, option in OPTIONS.items() if option.is_setting}
    return [replace(run, summary={**run.summary, "settings": {**defaults, **run.summary["settings"]}}) for run in runs]


@usage.command(epilog="Example: bftrainer report a-itrOut b-itrOut -o page.html")
@_RUNS
@click.option("-o", "--output", type=FILE, default=Path("report.html"), help="The page; NAME.pdf: an A4 a run.")
@click.option("--brief", is_flag=True, help="Only the brief of each run: headline, figures, two pictures, caveats.")
@usage.open_option
@usage.force_option
def report(runs: tuple[Path, ...], output: Path, brief: bool, force: bool) -> None:
    """Make one page of finished runs, which needs no network; several are set side by side."""
    from bftrainer.report.run_page import write_page
    from bftrainer.runs.run_files import read_runs, read_summary

    refuse_other_results(runs)
    for run in runs:
        read_summary(run)  # report an invalid run before a problem with the page's path
    usage.refuse_inputs(output)
    if output.suffix != ".pdf":  # a brief for print
        usage.check_page_name("-o", output)
    write_page(read_runs(runs), output, force=force, brief=brief)
    usage.show_page(output)


SHOWN = 20
WRONG, UNUSABLE = 1, 2


@usage.command(epilog="Example: bftrainer audit a-itrOut")
@_RUNS
@click.option("--objective", metavar="MODULE:CALLABLE", help="Check runs of this objective of yours: runs its code.")
@usage.json_option
@click.pass_context
def audit(ctx: click.Context, runs: tuple[Path, ...], objective: str | None) -> None:
    """Check finished runs: replay them by their recorded decisions, solve each again, and recompute all figures.

    Reads each run's files and the inputs that its summary names (relative paths: from the current directory, else from
    the one that the run's directory stands in). What is wrong is told by file, row and column, and what could not be
    checked is named. Exit status: 0 nothing is wrong, 1 something is, 2 a run cannot be audited.
    """
    from bftrainer.objectives import get_objective
    from bftrainer.runs.audit import audit as check

    own = None
    if objective is not None:
        if ":" not in objective:
            raise click.UsageError(f"--objective: Expected MODULE:CALLABLE, got {objective!r}.")
        note(f"{objective} is code of yours, which this runs.")
        own = get_objective(objective)
    status, results = 0, list[dict[str, Any]]()
    for run in runs:
        try:
            findings = check(run, own)
        except (BftrainerError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as fault:
            status, text = UNUSABLE, " ".join(escape_text(f"{fault}").split()) or type(fault).__name__
            kind = "" if isinstance(fault, BftrainerError) else f"cannot be audited, {type(fault).__name__}: "
            results.append({"run": str(run), "error": f"{kind}{text}"})
            where = "" if text.startswith((f"{run}:", f"{run}/")) else f"{run}: "
            tell(f"Error: {where}{kind}{text}")
            continue
        status = max(status, WRONG if findings.wrong else 0)
        results.append({"run": str(run), **vars(findings)})
        if usage.is_json_asked():
            continue
        lines = [f"wrong: {line}" for line in findings.wrong[:SHOWN]]
        if len(findings.wrong) > SHOWN:
            lines.append(f"and {len(findings.wrong) - SHOWN:,} more")
        for what, times in findings.unchecked.items():
            lines.append(f"not checked: {what}" + (f" ({times:,} times)" if times > 1 else ""))
        lines.append(f"{findings.checked:,} checks, {len(findings.wrong):,} wrong")
        click.echo("\n".join(f"{run}: {line}" for line in lines))
    usage.print_json_if_asked(lambda: {"runs": results})
    ctx.exit(status)
