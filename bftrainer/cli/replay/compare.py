"""`bftrainer compare`."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.usage import refuse_unused

if TYPE_CHECKING:
    from bftrainer.report.comparison import Comparison

__all__ = ["compare"]

# Of more runs than this only the headline figures are shown.
FEW = 4


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--figure",
    "chosen",
    metavar="NAME",
    multiple=True,
    help="A figure to show, as summary.json names it; repeatable. All of up to 4 runs, the headlines of more.",
)
@click.option("--json", "as_json", is_flag=True, help="All figures as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="All figures as CSV, a row for each run and figure.")
def compare(runs: tuple[Path, ...], chosen: tuple[str, ...], as_json: bool, as_csv: bool) -> None:
    """Compare finished runs: settings that differ, and all figures with their differences to the first run."""
    from bftrainer.errors import SettingsError, suggestion
    from bftrainer.report.comparison import compared, with_short_names
    from bftrainer.runs.finished import read_summary, run_names

    if as_json and as_csv:
        raise click.UsageError("Expected --json or --csv, got both.")
    refuse_unused({"chosen": as_json and "--json has all figures"})
    summaries = [read_summary(path) for path in runs]
    found = compared(run_names(runs), summaries if as_json or as_csv else with_short_names(summaries))
    for name in chosen:
        if name not in found.figures:
            raise SettingsError(
                f"--figure: Expected a figure of these runs, got {name!r}.{suggestion(name, found.figures)}"
            )
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2, allow_nan=False))
    elif as_csv:
        _write_csv(found, chosen or tuple(found.figures))
    else:
        _print(found, chosen)


def _write_csv(found: Comparison, keys: Sequence[str]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("run", "figure", "value", "relative"))
    for place, name in enumerate(found.names):
        for key in keys:
            values = (found.figures[key][place], found.differences[key][place])
            writer.writerow((name, key, *("" if value is None else value for value in values)))


def _print(found: Comparison, chosen: Sequence[str]) -> None:
    from bftrainer.cli._shared.stdio import Section, line_width, print_side_by_side
    from bftrainer.report.glossary import ASSUMED, HEADLINES, MARK

    names = [f"{name} (partial)" if cut else name for name, cut in zip(found.names, found.partial, strict=True)]
    few = len(names) <= FEW
    keys = chosen or tuple(found.figures if few else (key for key in HEADLINES if key in found.figures))
    settings = [[key, *map(_setting, values)] for key, values in found.settings.items()]
    figures = Section("figure", [[_label(key), *_cells(found, key)] for key in keys])
    print_side_by_side(names, [Section("setting", settings, is_text=True), figures] if settings else [figures])
    for note, of in _assumptions(found).items():
        where = "" if len(of) == len(names) else f" ({', '.join(of)})"
        text = f"{MARK} {ASSUMED}{where}: {note}"
        click.echo("\n".join(wrap(text, line_width() or len(text), subsequent_indent="  ", break_on_hyphens=False)))


def _assumptions(found: Comparison) -> dict[str, list[str]]:
    """What was assumed, and in which runs."""
    notes: dict[str, list[str]] = {}
    for name, assumed in zip(found.names, found.assumptions, strict=True):
        if assumed is not None:
            notes.setdefault(assumed.note, []).append(name)
    return notes


def _label(key: str) -> str:
    from bftrainer.report.glossary import GLOSSARY

    group, _, name = key.rpartition(".")
    label = GLOSSARY[name].label if name in GLOSSARY else name
    return f"{label} ({group})" if group else label


def _cells(found: Comparison, key: str) -> list[str]:
    from bftrainer.report.glossary import GLOSSARY, MARK, shown

    term = GLOSSARY.get(key.rpartition(".")[2])
    cells = []
    for place, (value, change) in enumerate(zip(found.figures[key], found.differences[key], strict=True)):
        text = shown(value, term.unit if term else "rate")
        if value is not None and found.is_assumed(key, place):
            text = f"{MARK} {text}"
        cells.append(f"{text}\n({100 * change:+.2f} %)" if place and change else text)
    return cells


def _setting(value: Any) -> str:
    return "-" if value is None else str(value)
