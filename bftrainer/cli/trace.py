"""`bftrainer trace`, `convert` and `tasks`: measure, generate, edit and share traces of nodes and task sets."""

from __future__ import annotations

import secrets
from contextlib import ExitStack, suppress
from dataclasses import asdict, astuple, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli import usage
from bftrainer.cli.group import CommandGroup
from bftrainer.cli.imports import log_option
from bftrainer.cli.spot import MINUTES, model_options
from bftrainer.cli.terminal import note, print_figures, print_table
from bftrainer.cli.usage import FILE
from bftrainer.errors import InputError, LogError, OutputError, SettingsError, add_place
from bftrainer.files.opening import whole_bytes
from bftrainer.files.writing import replacing

if TYPE_CHECKING:
    from bftrainer.model import NodeLog
    from bftrainer.nodelogs.availability import TraceForm

_KEY_BYTES = 32


@click.group(cls=CommandGroup, epilog="Example: bftrainer trace stats idle.csv")
def trace() -> None:
    """Measure, generate, edit and share traces of nodes."""


@trace.command(epilog="Example: bftrainer trace edit idle.csv --min-hole 10 -o long.csv")
@click.argument("node_logs", type=FILE, nargs=-1, required=True)
@click.option("--start", metavar="TIME", help="Begin: ISO time or epoch seconds.  [default: the log's start]")
@click.option("--end", metavar="TIME", help="End, likewise.  [default: the log's end]")
@click.option("--tz", "zone", metavar="ZONE", help="Zone of these times.  [default: UTC]")
@click.option("--nodes", metavar="FILE|HOSTLIST", help="Only these nodes.")
@usage.with_options(*map(log_option, ("exclude_nodes", "partitions", "min_hole_s", "offer_after_s")))
@click.option(
    "--anonymise", "key_file", metavar="KEY_FILE", type=FILE, help="Pseudonyms by this secret key, made if not there."
)
@usage.NODE_LOG_OUTPUT
@usage.force_option
def edit(
    node_logs: tuple[Path, ...], start: str | None, end: str | None, zone: str | None, output: Path, force: bool,
    key_file: Path | None, nodes: str | None, exclude_nodes: str | None, partitions: tuple[str, ...],
    min_hole_s: float, offer_after_s: float,
) -> None:  # fmt: skip
    """Merge node logs, cut a window out, leave nodes out, rename them.

    What was idle when the window begins opens it. An anonymous log has no metadata about the site.
    """
    from bftrainer.nodelogs.edit import anonymous_log, filter_log, select_window
    from bftrainer.nodelogs.inventory import read_inventory
    from bftrainer.nodelogs.node_log_files import node_log_files, write_node_log
    from bftrainer.nodelogs.node_spans import nanoseconds
    from bftrainer.schedulers.clock import Clock, is_instant
    from bftrainer.schedulers.selected_nodes import expand_excluded

    bounds = [moment for moment in (start, end) if moment is not None]
    usage.refuse_unused(
        {"zone": all(map(is_instant, bounds)) and "the times say theirs" if bounds else "there is no --start or --end"}
    )
    usage.refuse_files(*node_log_files(output), force=force)
    log = _read(node_logs)
    if bounds:
        clock = Clock(zone)
        window: list[int | None] = []
        for option, moment in (("--start", start), ("--end", end)):
            with add_place(option, InputError):
                window.append(None if moment is None else clock.instant_ns(moment))
        log = select_window(log, *window)
    names = None if nodes is None else read_inventory(nodes).names
    lengths_ns = map(nanoseconds, (min_hole_s, offer_after_s))
    log = filter_log(log, names, sorted(expand_excluded(exclude_nodes)), partitions, *lengths_ns)
    if key_file is None:
        before = log.provenance.get("edits")
        edits = [*(before if isinstance(before, list) else ()), usage.command_line()]
        write_node_log(output, replace(log, provenance={**log.provenance, "edits": edits}))
    else:
        is_new = not (key_file.exists() or key_file.is_symlink())
        key = secrets.token_bytes(_KEY_BYTES) if is_new else _read_key(key_file)
        log = anonymous_log(log, key)
        with ExitStack() as stack:
            if is_new:  # kept if the log is written
                stack.enter_context(replacing(key_file, private=True)).write(f"{key.hex()}\n".encode())
            write_node_log(output, log)
        if is_new:
            note(f"{key_file}: a new key; keep it to yourself, and for the next log.")
    click.echo(f"{output}: node log of {len(log.nodes):,} nodes, {log.window_s / 3600:,.2f} h")


def _read_key(path: Path) -> bytes:
    """Read the key in a file of hexadecimal digits: `LogError` if it does not hold one."""
    with suppress(ValueError):
        key = bytes.fromhex(whole_bytes(path, LogError).decode("ascii").strip())
        if len(key) == _KEY_BYTES:
            return key
    raise LogError(f"{path}: Expected a key of {2 * _KEY_BYTES} hexadecimal digits, got something else.")


def _read(paths: tuple[Path, ...]) -> NodeLog:
    """The log, or the one that several make together."""
    from bftrainer.nodelogs.edit import merge_logs
    from bftrainer.nodelogs.node_log_files import read_node_log

    places = [path.resolve() for path in paths]
    for number, path in enumerate(paths):
        if (first := places.index(path.resolve())) < number:
            raise SettingsError(f"Expected each log once, got {paths[first]} again as {path}.")
    logs = [read_node_log(path, warn=note) for path in paths]
    if len(logs) == 1:
        return logs[0]
    merged = merge_logs(logs)
    for node_s, reason in ((merged.disputed_node_s, "disputed between logs"), (merged.untold_node_s, "told by no log")):
        if node_s:
            note(f"{node_s / 3600:,.2f} node-hours are {reason}, and count as busy.")
    return merged.log


@usage.command(epilog="Example: bftrainer convert idle.csv converted.parquet")
@click.argument("source", type=FILE)
@click.argument("target", type=FILE, required=False)
@click.option("-o", "--output", type=FILE, help="TARGET, as other commands take it.")
@click.option("-scfn", "--scalability", type=FILE, help="Legacy scalability of a legacy task set.")
@click.option("--scaling", metavar="linear|amdahl:F", help="Scaling of legacy tasks that come without.")
@click.option(
    "--to", type=click.Choice(["spot", "counts", "terminations"]), help="Write a trace of preemptible nodes (.csv)."
)
@usage.force_option
def convert(
    source: Path, target: Path | None, output: Path | None, scalability: Path | None, scaling: str | None,
    to: TraceForm | None, force: bool,
) -> None:  # fmt: skip
    """Convert a node log or task set from its legacy form, or between native ones.

    TARGET's name says what it becomes: a node log (.parquet, .csv or .csv.gz), be SOURCE one, a spot event trace or a
    count trace; or a task set (.toml or .pkl with Jbnd in its name; scalability goes to the sibling with JNPs).
    """
    from bftrainer.files.opening import Form, suffix_form
    from bftrainer.nodelogs.availability import TRACES, read_availability, write_trace
    from bftrainer.nodelogs.node_log_files import node_log_files, write_node_log
    from bftrainer.tasksets.task_files import read_task_set, scalability_path, write_task_set

    place = target or output
    if place is None or (target and output):
        raise click.UsageError("Expected one place for the output, as an argument or after -o.")
    form = None if to else suffix_form(place)
    is_task_set = form in (Form.TOML, Form.PICKLE)
    # What may be written beside it is as precious.
    files = [place, scalability_path(place)] if is_task_set else [place] if to else node_log_files(place)
    usage.refuse_files(*files, force=force)
    if form is Form.PICKLE and scalability_path(place) is None:
        raise OutputError(f"{place}: Expected Jbnd in a task set's name; node logs become .parquet, .csv or .csv.gz.")
    if is_task_set:
        task_set = read_task_set(source, scalability, scaling)
        for warning in (*task_set.warnings, *write_task_set(place, task_set.tasks)):
            note(warning)
        click.echo(f"{place}: task set of {len(task_set.tasks):,} tasks")
        return
    usage.refuse_unused(dict.fromkeys(("scalability", "scaling"), "a node log has no scaling"))
    log = read_availability(source, note).log
    if log is None:
        raise LogError(f"{source}: Terminations alone do not say which nodes stay.")
    if to is None:
        write_node_log(place, log)
    else:
        for loss in write_trace(place, log, to):
            note(f"{place}: this form {loss}.")
    click.echo(f"{place}: {'node log' if to is None else TRACES[to]} of {len(log.nodes):,} nodes")


@trace.command(epilog="Example: bftrainer trace stats idle.csv --figure nodes.svg")
@click.argument("file", type=FILE)
@click.option("--recorded-terminations", "recorded", type=FILE, help="Those of a count trace.  [default: its falls]")
@click.option("--additions", type=FILE, help="Write the additions that were measured: CSV, dt,additions.")
@click.option("--terminations", type=FILE, help="Write the terminations that were measured: CSV, dt,preemptions.")
@usage.json_option
@click.option("--figure", type=FILE, help="Draw nodes over time and the survival curve: .png, .svg or .pdf.")
@usage.force_option
def stats(
    file: Path, recorded: Path | None, additions: Path | None, terminations: Path | None,
    figure: Path | None, force: bool,
) -> None:  # fmt: skip
    """Print the figures of a trace. FILE is a node log, a spot event trace, a count trace or a termination trace."""
    from bftrainer.nodelogs.availability import CHANGE_COLUMNS, read_availability, write_changes
    from bftrainer.spot.statistics import trace_statistics

    usage.refuse_figure(figure, force=force)
    usage.refuse_files(additions, terminations, force=force)
    trace = read_availability(file, note, recorded)
    statistics = trace_statistics(trace)
    if additions is not None:
        if trace.counts is None:
            raise LogError(f"{additions}: Expected a trace that tells additions, got terminations alone.")
        # A rise of the count is written at the time of the row before it.
        write_changes(additions, trace.counts.additions(), CHANGE_COLUMNS["additions"][1])
    if terminations is not None:
        write_changes(terminations, trace.terminations, CHANGE_COLUMNS["terminations"][1])
    if additions or terminations:
        at_start = "unknown" if trace.counts is None else f"{trace.counts.count[0]:,}"
        note(f"nodes at the start, for spot simulate --initial-nodes: {at_start}")
    if figure is not None:
        from bftrainer.spot.run import trace_figure

        usage.write_figure(figure, trace_figure(trace.counts, statistics.survival))
    if not usage.print_json_if_asked(statistics.as_json):
        print_figures(None, statistics.figures)


@trace.command(epilog="Example: bftrainer trace generate --nodes 200 --days 1 -o made.parquet")
@click.option("--like", type=FILE, help="Fit the model to this trace of any kind.")
@click.option(
    "--model",
    type=click.Choice(["minutes", "supercomputer"]),
    help="Spot nodes, or holes of a batch scheduler.  [default: minutes if LIKE is no node log, else supercomputer]",
)
@click.option("--days", type=usage.POSITIVE, default=14.0, help="Length of the trace.")
@click.option("--seed", type=int, default=0, help="The same one gives the same bytes.")
@click.option("--start", type=usage.DATE, metavar="DATE", default="2021-01-01", help="UTC.")
@click.option("--preemption-scale", type=float, help="minutes: factor of the chance of a preemption.  [default: 1]")
@click.option("--addition-scale", type=float, help="minutes: factor of the chance of an addition.  [default: 1]")
@model_options(f"minutes: {MINUTES}; else fragment-mean, fragment-median, daily-amplitude, peak-hour", "minutes: ")
@click.option("--nodes", type=usage.SIZE, help="supercomputer: nodes of the machine.  [default: 4734]")
@click.option("--idle-share", type=float, help="supercomputer: mean share of idle nodes.  [default: 0.0827]")
@usage.NODE_LOG_OUTPUT
@usage.force_option
@usage.json_option
def generate(
    output: Path, force: bool, start: datetime, model_figures: tuple[tuple[str, float], ...],
    **options: Any,
) -> None:  # fmt: skip
    """Generate a trace by a model. `bftrainer replay` and `bftrainer spot simulate` take it as it is."""
    from bftrainer.model import instant_ns
    from bftrainer.nodelogs.node_log_files import node_log_files, write_node_log
    from bftrainer.spot.generation import generate_trace

    usage.refuse_files(*node_log_files(output), force=force)
    chosen = {name: value for name, value in options.items() if value is not None} | dict(model_figures)
    generated = generate_trace(start_ns=instant_ns(start), warn=note, **chosen)
    write_node_log(output, generated.log)
    document = {"files": [str(output)], "figures": [asdict(figure) for figure in generated.figures]}
    if usage.print_json_if_asked(lambda: document):
        return
    click.echo(f"{output}: node log of {len(generated.log.nodes):,} nodes, {generated.log.node.size:,} transitions")
    figures = map(astuple, generated.figures)
    rows = [[name, *("" if value is None else f"{value:.5g}" for value in values)] for name, *values in figures]
    print_table(["", "asked", "realised"], rows)


# --- Task sets


@click.group(cls=CommandGroup, epilog="Example: bftrainer tasks fit measured.csv")
def tasks() -> None:
    """Make task sets and scalability curves."""


@tasks.command("generate", epilog="Example: bftrainer tasks generate --scenario hpo --count 20 -o trials.toml")
@click.option(
    "--scenario", type=click.Choice(["hpo", "nas"]), required=True, help="Equal trials of one model, or a mix."
)
@click.option("--count", type=usage.SIZE, required=True, help="Number of tasks.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="For rescale costs and the mix of models.")
@click.option("--model", default="shufflenet", help="Model of the trials (hpo).")
@click.option("--work", type=float, help="Images to train on, each task.  [default: 1.3e8, 100 epochs of ImageNet]")
@click.option("--min-nodes", type=usage.SIZE, default=1, help="Fewest nodes a task runs on.")
@click.option("--max-nodes", type=usage.SIZE, default=64, help="Most nodes a task runs on.")
@click.option("--interval", "interval_s", type=float, default=36.0, help="Seconds between submissions.")
@click.option("--start", type=usage.DATE, metavar="DATE", help="First submission, UTC.  [default: the window's start]")
@click.option("--user", help="Owner of the tasks.")
@click.option("--checkpoint-s", type=float, help="Seconds that saving takes a task; its changes then cost as much.")
@click.option("--restart-s", type=float, help="Seconds that loading and warming up take it, with --checkpoint-s.")
@usage.output_option("Task set to write: .toml or .pkl.")
@usage.force_option
def generate_tasks(
    scenario: Any, count: int, seed: int, work: float | None, start: datetime | None, output: Path, force: bool,
    checkpoint_s: float | None, restart_s: float | None, **options: Any,
) -> None:  # fmt: skip
    """Make a task set. Its trials are of hyper-parameter optimisation (hpo) or architecture search (nas)."""
    import numpy as np

    from bftrainer.model import instant_ns
    from bftrainer.tasksets import write_task_set
    from bftrainer.tasksets.task_generator import DEFAULT_WORK
    from bftrainer.tasksets.task_generator import generate_tasks as make_tasks

    options["start_ns"] = None if start is None else instant_ns(start)
    options["work"] = DEFAULT_WORK if work is None else work
    usage.refuse_unused({"model": scenario == "nas" and "nas is a mix of all models"})
    usage.refuse_files(output, force=force)
    generated = make_tasks(scenario, count, np.random.default_rng(seed), **options)
    tasks = tuple(replace(task, checkpoint_s=checkpoint_s, restart_s=restart_s) for task in generated)
    for warning in write_task_set(output, tasks):
        note(warning)
    click.echo(f"{output}: {count:,} tasks")


@tasks.command(epilog="Example: bftrainer tasks fit measured.csv")
@click.argument("throughput", type=usage.FILE)
@usage.json_option
def fit(throughput: Path) -> None:
    """Turn measured throughput into a scaling section. THROUGHPUT is CSV with columns nodes and throughput."""
    from bftrainer.tasksets.measurements import read_throughput_csv
    from bftrainer.tasksets.task_files import scaling_table, toml_text

    curve = read_throughput_csv(throughput)
    if not usage.print_json_if_asked(lambda: {"nodes": curve.nodes, "throughput": curve.throughput}):
        text = toml_text({"task": {"scaling": scaling_table(curve)}})
        click.echo(text.removeprefix("[task]\n\n"), nl=False)
