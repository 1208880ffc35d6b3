"""Commands of many settings: `bftrainer sweep` replays a grid or list of them, and `reproduce` those of a paper."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared import usage
from bftrainer.cli._shared.stdio import counting, note, print_json, print_table, tell
from bftrainer.cli._shared.usage import FILE
from bftrainer.report.glossary import ASSUMED, GLOSSARY, MARK, format_value

if TYPE_CHECKING:
    from bftrainer.campaigns.engines import Engine
    from bftrainer.campaigns.paired import PairedChange
    from bftrainer.campaigns.sweep import PointResult

SHOWN = ("efficiency", "occupancy", "work_done", "tasks_completed", "makespan_s")
MOST_ROWS = 50


@usage.command(epilog="Example: bftrainer sweep sweep.toml -o sweep")
@click.argument("file", metavar="SWEEP.toml", type=FILE)
@click.option("-o", "--output-dir", "directory", type=FILE, help="Place of runs and table.  [default: <file>-sweep]")
@click.option("--engine", type=click.Choice(["local", "dask"]), help="Where to compute.  [default: local]")
@usage.workers_option
@click.option("--scheduler", metavar="ADDRESS", help="Dask cluster that sees the same files, as tcp://host:8786.")
@click.option("--dask-jobqueue", "jobqueue", type=FILE, help="A TOML file: a Dask cluster of a batch system's jobs.")
@click.option("--resume", is_flag=True, help="Continue in an existing directory: finished points are not run again.")
@click.option("--force", is_flag=True, help="Compute an existing sweep anew: its runs are replaced one by one.")
@usage.report_option
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    type=usage.FIGURE,
    help="Figure by which page and --paired judge settings (see `plot --list`); a second one is weighed against it.",
)
@click.option("--paired", metavar="OPTION", help="Compare this option's values with its first one, pair by pair.")
@usage.json_option
@click.pass_context
def sweep(
    ctx: click.Context, /, file: Path, directory: Path | None, resume: bool, force: bool, report: Path | None,
    metrics: tuple[str, ...], paired: str | None, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Replay a grid or list of settings, and put the figures of all into one table.

    Each run is kept under runs/, and the table is sweep.parquet: a row a point. A point that fails is reported and does
    not end the others; the exit status is 1 then. Of a finished sweep, --resume makes the page of --report without
    running anything again.
    """
    from bftrainer.campaigns.paired import check_pairing, paired_changes
    from bftrainer.campaigns.sweep import run_sweep, write_sweep_page
    from bftrainer.campaigns.sweep_file import read_sweep
    from bftrainer.files.writing import refuse_clash
    from bftrainer.report.sweep_page import check_metrics
    from bftrainer.runs.run_inputs import SAMPLE_TASKS_USED

    usage.refuse_unused({"force": resume and "--resume keeps finished points"})
    spec = read_sweep(file)
    judged = metrics or ("work_done",)
    if paired is not None:
        check_pairing(spec.varied, paired, judged)
    place = Path(f"{file.stem}-sweep") if directory is None else directory
    chosen = _engine(place=place, **options)
    usage.check_report(report, force=resume or force)
    check_metrics(metrics)
    if report is not None:
        results = {path: f"the sweep in {place}" for path in place.glob("*") if path.is_file()}
        refuse_clash([report], spec.inputs | results)
    try:
        with counting("Replaying", len(spec.points)) as count:
            result = run_sweep(spec, place, chosen, count, resume=resume, force=force)
    except KeyboardInterrupt:
        if place.is_dir():
            tell(f"Finished points are kept; --resume continues in {place}.")
        raise
    given = [{*spec.base, *point} for point in spec.points]
    if any("node_log" in each and not {"tasks", "sample"} & each for each in given):
        note(SAMPLE_TASKS_USED)
    if report is not None:
        write_sweep_page(result, spec, report, metrics)
    changes = None if paired is None else paired_changes(result.points, paired, judged)
    if as_json:
        points = [_describe(point) for point in result.points]
        print_json(points if changes is None else {"points": points, "paired": [each.to_dict() for each in changes]})
    else:
        _print_points(result.points, metrics)
        _print_changes(paired, changes or [])
        click.echo(f"Table: {place / 'sweep.parquet'}")
    usage.show_page(report, quiet=as_json)
    for point in result.failed:
        tell(f"Point {point.point.number} failed: {point.error}")
    ctx.exit(1 if result.failed else 0)


def _engine(
    engine: str | None, workers: int | None, scheduler: str | None, jobqueue: Path | None, place: Path
) -> Engine:
    from bftrainer.campaigns.engines import DaskEngine, LocalEngine
    from bftrainer.campaigns.sweep_directory import JOB_LOGS

    if engine == "dask" or (engine is None and (scheduler is not None or jobqueue is not None)):
        return DaskEngine(scheduler, jobqueue, place / JOB_LOGS)
    usage.refuse_unused(dict.fromkeys(("scheduler", "jobqueue"), "of the engine dask alone"))
    return LocalEngine(workers)


def _describe(result: PointResult) -> dict[str, object]:
    """A point for JSON."""
    from bftrainer.campaigns.sweep_file import plain_value

    varied = {name: plain_value(value) for name, value in result.point.varied}
    entry = {"point": result.point.number, "options": varied, "error": result.error, "figures": dict(result.figures)}
    return entry if result.assumed is None else entry | {"assumed_scaling": result.assumed.note}


def _print_points(results: Sequence[PointResult], metrics: Sequence[str]) -> None:
    from bftrainer.campaigns.sweep_file import plain_value
    from bftrainer.report.comparison import TIES

    if not results:
        return
    known = {key for result in results for key, value in result.figures.items() if value is not None}
    keys = [key for key in dict.fromkeys((*SHOWN, *metrics)) if key in known]
    rows = []
    for result in results[:MOST_ROWS]:
        cells = ["-" if value is None else str(plain_value(value)) for _, value in result.point.varied]
        figures = [_format_figure(result, key) if result.error is None else "failed" for key in keys]
        rows.append([str(result.point.number), *cells, *figures])
    varied = (name for name, _ in results[0].point.varied)
    print_table(["point", *varied, *(GLOSSARY[key].label for key in keys)], rows)
    if len(results) > MOST_ROWS:
        click.echo(f"... and {len(results) - MOST_ROWS:,} more in the table.")
    if _differ_by_ties(results):
        click.echo(TIES)
    for text in dict.fromkeys(result.assumed.note for result in results if result.assumed):
        click.echo(f"{MARK} {ASSUMED}: {text}")


def _format_figure(result: PointResult, key: str) -> str:
    value = result.figures.get(key)
    mark = f"{MARK} " if result.assumed and value is not None and result.assumed.bears(key) else ""
    return mark + format_value(value, GLOSSARY[key].unit)


def _differ_by_ties(results: Sequence[PointResult]) -> bool:
    """Whether points that differ in their solver alone end at different times."""
    windows: dict[str, set[float]] = {}
    for result in results:
        others = str([option for option in result.point.varied if option[0] != "solver"])
        window_s = result.figures.get("window_s")
        if window_s is not None:
            windows.setdefault(others, set()).add(window_s)
    is_varied = any(name == "solver" for result in results for name, _ in result.point.varied)
    return is_varied and any(len(found) > 1 for found in windows.values())


def _print_changes(option: str | None, changes: Sequence[PairedChange]) -> None:
    rows = []
    for each in changes:
        change = each.change
        half = "" if change is None or change.half_width is None else f"+- {100 * change.half_width:.2f} %"
        mean = "-" if change is None else f"{100 * change.mean:+.2f} %"
        pairs = f"{each.points - each.unpaired}" + (f" ({each.unpaired} without)" if each.unpaired else "")
        label = GLOSSARY[each.metric].label
        rows.append([str(each.value), str(each.against), label, mean, half, each.verdict, pairs])
    if rows:
        print_table([str(option), "against", "figure", "change", "95 %", "", "pairs"], rows)
    for each in changes:
        if each.note:
            click.echo(f"{each.value}: {each.note}.")


@usage.command(epilog="Example: bftrainer reproduce bamboo --quick")
@click.argument("paper", type=click.Choice(["bftrainer", "zeus", "bamboo"]))
@click.option("--quick", is_flag=True, help="Few settings and windows, minutes on two processors.")
@click.option("--log", type=FILE, help="The published node log, folder of traces, or spot trace.")
@click.option("-o", "--output-dir", "directory", type=FILE, help="Where results go.  [default: reproduce-<paper>]")
@click.option("--resume", is_flag=True, help="bftrainer: finished replays are not computed again.")
@click.option("--force", is_flag=True, help="Replace the results that are there.")
@usage.workers_option
@usage.json_option
@usage.open_option
def reproduce(
    paper: str, quick: bool, log: Path | None, directory: Path | None, resume: bool, force: bool, workers: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Make the evaluation of PAPER again: one page, with what the paper reports beside it, and its data.

    bftrainer: efficiency against Tfwd, maxJ, Jmax and rescaling cost, objectives, task sets, solvers, event modes.
    zeus: energy and time over eta, regret of policies. bamboo: throughput and value over preemption.

    Without --quick the published log is needed; --quick takes data that ship with bftrainer unless --log names others.
    Results are page.html, data.csv and summary.json; of bftrainer also all runs, as `bftrainer sweep` keeps them.
    """
    from bftrainer.campaigns.reproduce import check_log, reproduced, steps
    from bftrainer.extras import require_extra

    alone = paper != "bftrainer" and "of bftrainer alone"
    usage.refuse_unused({"resume": alone or (force and "--force computes all anew")})
    check_log(paper, log, quick=quick)
    require_extra("Its page needs", "report", "jinja2", "matplotlib")
    usage.refuse_inputs(directory)
    place = Path(f"reproduce-{paper}") if directory is None else directory
    words = ["bftrainer", "reproduce", paper, *["--quick"] * quick, *(["--log", log.name] if log else [])]
    with counting("Simulating", steps(paper, quick=quick)) as count:
        found = reproduced(
            paper, log, place, shlex.join(words), count, workers, quick=quick, resume=resume, force=force
        )
    if as_json:
        print_json(found.to_dict())
    else:
        rows = [[claim.what, claim.paper, claim.here] for claim in found.reported]
        print_table(["figure", "the paper reports", "here"], rows)
        click.echo("\n".join(f"{claim.what}: {claim.comparable}" for claim in found.reported))
        click.echo(f"Results: {place}")
    usage.show_page(place / "page.html", quiet=True)
