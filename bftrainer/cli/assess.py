"""`bftrainer assess`: from a log to a verdict, as one page and one JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli import usage
from bftrainer.cli.imports import log_option, share_value
from bftrainer.cli.terminal import counting, note, print_table, tell, write_rows
from bftrainer.cli.usage import DURATION, FILE
from bftrainer.errors import OutputError
from bftrainer.files.directories import JOURNAL, check_free, result_directory
from bftrainer.files.writing import LineJournal
from bftrainer.plugins import require_extra
from bftrainer.report.glossary import format_value, name_tasks
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.terms import GLOSSARY

if TYPE_CHECKING:
    from bftrainer.campaigns.assess import AssessPlan
    from bftrainer.files.directories import ResultDirectory
    from bftrainer.model import NodeLog
    from bftrainer.runs.config import ReplayConfig

NODE_LOG, AUTO = "node-log", "auto"
_READING = (
    *("start", "end", "window", "zone", "nodes", "partitions", "exclude_nodes", "downtimes", "unit", "procs_per_node"),
    *("cluster", "offer_after_s"),
)
"""Options of imports that logs are read with; where others are needed, the log is imported first."""


@usage.command(
    shown=(
        *("format_name", "nodes", "downtimes", "start", "end", "tasks", "price_node_hour", "gpus_per_node"),
        *("output_dir", "resume", "as_json", "open"),
    ),
    epilog="Example: bftrainer assess idle.parquet --price-node-hour 1.5 --open",
)
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="LOG...")
@click.option(
    "--format",
    "format_name",
    metavar="FORMAT",
    default=AUTO,
    help="What LOG is: a node-log, or a scheduler's log, as `bftrainer import` names it.",
)
@click.option("-bdfn", "--tasks", type=FILE, help="Your tasks, repeated to saturate the pool.  [default: three kinds]")
@click.option("-scfn", "--scalability", type=FILE, help="Their legacy scalability.")
@click.option("--planned-departures", type=FILE, help="CSV of node,time: departures known in advance.")
@click.option("--worth-share", type=share_value, default="1%", help="Least useful share of the machine.")
@click.option("--worth-value", default=0.0, help="Net value to exceed, if there is a price.")
@click.option("--least-window", "least_window_s", type=DURATION, default="7d", help="Less gets no verdict.")
@click.option("--price-node-hour", type=float, help="Worth of a useful node-hour.")
@click.option("--price-kwh", type=float, help="Price of a kWh, in the same currency.")
@click.option("--node-power", "node_w", type=float, metavar="WATTS", help="What a node draws that trains.")
@click.option("--idle-power", "idle_w", type=float, metavar="WATTS", help="What an idle node draws.")
@click.option("--pue", default=1.0, help="Watts at the meter for each watt of the nodes.")
@click.option("--carbon", "carbon_gco2_per_kwh", type=float, help="Grams of CO2 for a kWh.")
@click.option("--gpus-per-node", type=int, help="GPUs of a node.")
@click.option("-o", "--output-dir", type=FILE, default=Path("assessment"), help="Results' place.")
@usage.force_option
@click.option("--resume", is_flag=True, help="Go on with an unfinished assessment there.")
@usage.json_option
@usage.with_options(*map(log_option, _READING))
@usage.open_option
def assess(
    files: tuple[Path, ...], format_name: str, tasks: Path | None, scalability: Path | None, output_dir: Path,
    force: bool, resume: bool, **options: Any,
) -> None:  # fmt: skip
    """Say whether harvesting is worth it on the machine of LOG, for which models, with which settings, and why.

    LOG is a scheduler's log, read as `bftrainer import` does, or a node log, which `import` makes with more options.
    Only what the log covers is assessed. Tasks of small, medium and large models, or yours, are replayed over all of
    it, with settings chosen on its first part and proven on the rest. Results go to assessment/: page.html and
    summary.json.
    """
    from bftrainer.campaigns.assess import AssessPlan, MachinePrices, Thresholds, assessment_of
    from bftrainer.tasksets import read_task_set

    of_value = options["price_node_hour"] is None and "of the net value, which takes --price-node-hour"
    of_energy = options["node_w"] is None and "of energy, which takes --node-power"
    usage.refuse_unused(
        {
            "scalability": tasks is None and "of --tasks alone",
            **dict.fromkeys(("worth_value", "price_kwh"), of_value),
            **dict.fromkeys(("idle_w", "pue", "carbon_gco2_per_kwh"), of_energy),
        }
    )
    require_extra("Its page needs", "report", "jinja2", "matplotlib")
    usage.refuse_inputs(output_dir)
    if output_dir.suffix in (".html", ".json", ".pdf"):
        raise click.UsageError(f"Expected --output-dir to name a directory, which gets a page.html, got {output_dir}.")
    if not resume:
        check_free(output_dir, force=force)
    thresholds = Thresholds(**{field.name: options.pop(field.name) for field in fields(Thresholds)})
    prices = MachinePrices(**{field.name: options.pop(field.name) for field in fields(MachinePrices)})
    own = {name: options.pop(name) for name in ("offer_after_s", "planned_departures", "gpus_per_node")}
    roster = () if tasks is None else read_task_set(tasks, scalability, None).tasks
    log, quality = _read(files, format_name, options, own["gpus_per_node"])
    if quality is not None and quality["unit"] != "node":
        own["gpus_per_node"] = 1 if quality["unit"] == "gpu" else None
    plan = AssessPlan(log, roster, thresholds=thresholds, prices=prices, **own)
    with (
        result_directory(output_dir, force=force, resume=resume) as directory,
        counting("Assessing", plan.steps) as count,
    ):
        steps = _Steps(directory, plan, count)
        try:
            answer = assessment_of(plan, quality, steps) | {"command": usage.command_line()}
        except KeyboardInterrupt:
            tell(f"Finished steps are kept; the same command with --resume continues in {output_dir}.")
            raise
        directory.is_finished = True
        text = _write(directory.working, answer, None if quality is None else log)
    if usage.is_json_asked():
        click.echo(text, nl=False)
    else:
        _print(answer)
        click.echo(f"Results: {output_dir}")
    usage.show_page(output_dir / "page.html", quiet=True)


def _write(folder: Path, answer: dict[str, Any], log: NodeLog | None) -> str:
    """Write the answer, its page and its print, and the node log that was made for it; return the answer's JSON."""
    from bftrainer.nodelogs import write_node_log
    from bftrainer.report.assessment_page import assessment_page
    from bftrainer.report.page import page_bytes, print_pages

    text = json.dumps(answer, indent=1, allow_nan=False) + "\n"
    (folder / "summary.json").write_text(text, encoding="utf-8")
    if log is not None:
        write_node_log(folder / "idle.parquet", log)
    page = assessment_page(json.loads(text))
    (folder / "page.html").write_bytes(page_bytes(page))
    (folder / "brief.pdf").write_bytes(print_pages([page]))
    return text


class _Steps:
    """Keeps steps in a result directory, so that an assessment can be resumed."""

    def __init__(self, directory: ResultDirectory, plan: AssessPlan, count: Callable[[object], None]) -> None:
        self._count = count
        self._journal = LineJournal(directory.working / JOURNAL)
        try:
            lines = [json.loads(line) for line in self._journal.read()]
            identity, *steps = lines or [plan.identity]
            self._results: dict[str, Any] = dict(steps)
        except (ValueError, TypeError):
            raise OutputError(f"{self._journal.path}: Expected an assessment's journal.") from None
        if identity != plan.identity:
            raise OutputError(f"{directory.path}: Cannot be resumed: log, tasks or an option changed meanwhile.")
        if not lines:
            self._journal.append([json.dumps(plan.identity)])

    def __call__(
        self, configs: Mapping[str, ReplayConfig], work: Callable[[ReplayConfig], dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Results of steps, as JSON gives them back; those that are not known are computed on all processors."""
        from bftrainer.parallel import map_in_order, usable_processors

        unknown = [name for name in configs if name not in self._results]
        for name in configs.keys() - set(unknown):
            self._count(name)
        with closing(map_in_order(work, [configs[name] for name in unknown], usable_processors())) as results:
            for name, result in zip(unknown, results, strict=True):
                line = json.dumps([name, result])
                self._journal.append([line])
                self._results[name] = json.loads(line)[1]
                self._count(name)
        return [self._results[name] for name in configs]


def _read(
    files: tuple[Path, ...], name: str, options: dict[str, Any], gpus: int | None
) -> tuple[NodeLog, dict[str, Any] | None]:
    """The node log, and the account of its import; None for a file that is a node log."""
    from bftrainer.campaigns.assess import is_node_log

    if name == NODE_LOG or (name == AUTO and len(files) == 1 and is_node_log(files[0])):
        from bftrainer.nodelogs import read_node_log

        usage.refuse_unused(dict.fromkeys(options, "of a scheduler's log; trace edit cuts and filters node logs"))
        if len(files) > 1:
            raise click.UsageError(f"Expected one node log, got {len(files)} files.")
        return read_node_log(files[0], 0, note), None
    if name == "table":
        raise click.UsageError(
            "Expected a node log: import the table first (bftrainer import --format table --map ... -o idle.parquet)."
        )
    from bftrainer.schedulers.import_log import import_log

    imported = import_log(name, files, ImportSettings(**options, gpus_per_node=gpus), usage.command_line())
    if len(files) > 1:
        note(f"{len(files)} files were taken for the log of one machine; assess each machine by itself.")
    return imported.log, vars(imported.quality)


def _print(answer: dict[str, Any]) -> None:
    """Print the verdict and the figures that it rests on."""
    idle, log, best = answer["idle"], answer["log"], answer["recommended"]
    share = f"{format_value(idle['share'], 'share')} of {log['nodes']:,} nodes"
    rows = [
        ("idle", f"{share}, {idle['node_hours']:,.0f} node-hours"),
        ("window", f"{log['window'][0][:19]} to {log['window'][1][:19]} UTC"),
    ]
    if best:
        settings = f"-Tfwd {best['forward_time_s']:g} -maxJ {best['max_tasks']}"
        rows.append(("begin with", f"{name_tasks(best['kind'])}, {settings}"))
    if answer["mostly_empty"]:
        rows.append(("and besides", answer["mostly_empty"]))
    if answer["grants"]:
        rows.append(("to grant", answer["grants"]["sentence"]))
    for label, texts in (("caveat", answer["caveats"]), ("measure next", answer["next"])):
        rows += [("" if number else label, text) for number, text in enumerate(texts)]
    write_rows(answer["sentence"], rows)
    headings = ["tasks", "useful node-hours", "95 %", "of the machine", "-Tfwd", "-maxJ", "node starts/d", "losses"]
    cells = []
    for kind in answer["kinds"]:
        settings, ledger, (low, high) = kind["settings"], kind["ledger"], kind["useful_node_hours_ci95"]
        losses = [loss for loss, share in ledger.items() if share and loss not in ("idle_node_s", "useful")]
        largest = sorted(losses, key=lambda loss: -ledger[loss])[:3]
        cells.append(
            [
                kind["name"],
                f"{kind['useful_node_hours']:,.0f}",
                "-" if low is None else f"{low:,.0f} to {high:,.0f}",
                format_value(kind["useful_share"], "share"),
                *(f"{settings['forward_time_s']:g}", str(settings["max_tasks"])),
                f"{kind['node_starts_per_day']:,.0f}",
                ", ".join(
                    f"{GLOSSARY[f'ledger.{loss}'].label} {format_value(ledger[loss], 'share')}" for loss in largest
                ),
            ]
        )
    print_table(headings, cells)
