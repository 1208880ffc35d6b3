"""Commands and options that earlier versions had, and what to use instead; kept for one release."""

from __future__ import annotations

import click

COMMANDS: dict[str, str] = {
    "runs": "check results by `bftrainer audit`, or `sha256sum -c .bftrainer`; the next run there clears leftovers.",
    "solve": "use `bftrainer replay --fallback dp` where a solver fails.",
    "bso change": "register the job under a new job_id instead.",
    "bso clone": "register a job under a new job_id instead.",
    "bso dashboard": "use the PromQL lines of docs/server.md (Watching) instead.",
    "bso delete": "use `bftrainer bso jobs JOB --delete`.",
    "bso export": "use `bftrainer bso jobs JOB -o FILE`.",
    "bso import": "use `bftrainer bso jobs --import URL`.",
    "bso note": "keep notes with the script that registers the job instead.",
    "bso reset": "use `bftrainer bso jobs JOB --delete`, and register the job again.",
    "bso show": "use `bftrainer bso jobs JOB`.",
    "bso void": "use `bftrainer bso jobs JOB --void TRIAL --reason WHY`.",
    "completion": 'use `eval "$(_BFTRAINER_COMPLETE=bash_source bftrainer)"`.',
    "harvest drain": "use `bftrainer harvest stop --drain DIR`.",
    "harvest remove": "stop the harvest (Ctrl-C), and run the other tasks in another directory (-o).",
    "master resume": "use `bftrainer master run --resume LOGDIR`.",
    "trace anonymise": "use `bftrainer trace edit LOG --anonymise KEY_FILE -o OUTPUT`.",
    "trace cut": "use `bftrainer trace edit LOG --start TIME --end TIME -o OUTPUT`.",
    "trace export": "use `bftrainer convert`, which writes the same forms.",
    "trace filter": "use `bftrainer trace edit` with the same options.",
    "trace merge": "use `bftrainer trace edit LOGS -o OUTPUT`.",
}
"""What replaces a command, by its words after `bftrainer`."""

_FORESIGHT = "use `--planned-departures` for known ones; `bftrainer bound` says what knowing all would bring."
_JOB_FILE = "set it in the job file (observer_mode, set_power_limits, measure, timeout_s)."
_IN_NGINX = "set it in nginx (docs/server.md, Networks)."
_SET = "use --set NAME=X (of the minutes: with --model minutes)."
_DRAWN = "write the runs by -o FILE, which pandas reads, and draw them."
_FIGURES = [f"{event}-{figure}" for event in ("preemption", "addition") for figure in ("chance", "mean", "std")]
_IMPORT_FIRST = "import the log with it first (bftrainer import), and assess the node log."
_OF_IMPORT = (
    *("by", "offer", "columns", "suspended", "reservations", "reserved-busy", "cores-per-node", "max-overcommit"),
    *("min-gap", "min-hole", "max-bad", "unseen", "map", "preset"),
)
_HOLES = ("fragment-mean", "fragment-median", "daily-amplitude", "peak-hour")
OPTIONS: dict[tuple[str, str], str] = {
    **{(words, "--foresight"): _FORESIGHT for words in ("replay", "bound", "forecast", "advise")},
    ("compare", "--figure"): "use --metric.",
    ("forecast", "--generated"): "generate a log by `bftrainer trace generate --like LOG`, and forecast from it.",
    ("plot", "--figure"): "use --metric.",
    ("report", "--gpus-per-node"): "multiply the useful node-hours by it; `bftrainer assess` has GPU-hours of a log.",
    ("report", "--price-node-hour"): "multiply the useful node-hours by it; `bftrainer assess` has their worth.",
    ("spot sweep", "--figure"): "draw sweep.csv of -o DIR, which has means and intervals.",
    **{(f"zeus {words}", "--figures"): _DRAWN for words in ("simulate", "compare")},
    ("trace edit", "--shift"): "times stay; leave them out by --start and --end if they must not be known.",
    **{("assess", f"--{name}"): _IMPORT_FIRST for name in _OF_IMPORT},
    ("harvest run", "--report"): "use `bftrainer replay --from-harvest DIR --report PAGE.html` afterwards.",
    ("harvest run", "--measured"): "copy scaling, grow_cost_s and shrink_cost_s of measured.toml to the task file.",
    ("bound", "--horizons"): "use --notices: how long before nodes leave that is known.",
    ("replay", "--bounds"): "use `bftrainer bound` with the same options.",
    ("compare", "--latex"): "print a table by --csv, and give it to DataFrame.to_latex of pandas.",
    ("bso serve", "--socket"): "use the port, which takes your own token; clients of yours find both.",
    ("bso serve", "--workers"): "one process answers all.",
    ("bso serve", "--price-kwh"): "multiply the energy saved, on a job's page, by your price.",
    ("zeus groups", "--server-costs"): "use --correct server-costs.",
    ("master run", "--server"): "wrap the script's epochs in `server_run` (docs/integrations.md).",
    **{("master run", f"--{name}"): _JOB_FILE for name in ("observer", "set-power-limits", "measure", "timeout")},
    ("bso serve", "--background"): "use systemd (docs/server.md), or `nohup bftrainer bso serve &`.",
    ("bso serve", "--insecure"): "put nginx before the server, which adds a token (docs/server.md, Networks).",
    **{("bso serve", f"--max-{what}"): _IN_NGINX for what in ("body", "connections", "per-peer")},
    **{(words, f"--{name}"): _SET for words in ("spot sweep", "trace generate") for name in _FIGURES},
    **{(words, "--big-addition-share"): _SET for words in ("spot sweep", "trace generate")},
    **{("trace generate", f"--{name}"): _SET for name in _HOLES},
    ("trace generate", "--spot"): "use `bftrainer convert LOG TRACE.csv --to spot`.",
    ("trace generate", "--counts"): "use `bftrainer trace stats LOG --additions FILE --terminations FILE`.",
}
"""What replaces an option, by the words of its command and its name."""


def command_words(ctx: click.Context, *more: str) -> str:
    """Words of a command after the program's name, such as `trace stats`; `bftrainer-replay` is `replay`."""
    program, *words = ctx.command_path.split()
    return " ".join(["replay"] * (program == "bftrainer-replay") + words + list(more))


def refuse_removed_command(ctx: click.Context, name: str) -> None:
    """Fail in one line if `name` is a command that this group had once."""
    words = command_words(ctx, name)
    if words in COMMANDS:
        ctx.fail(f"'bftrainer {words}' was removed: {COMMANDS[words]}")


def describe_unknown_option(error: click.NoSuchOption) -> str:
    """The error's message, or what replaces the option if the command had it once."""
    if isinstance(full := error.__context__, click.NoSuchOption):
        error = full  # click goes on to read -word letter by letter, and then names -w alone
    words = command_words(error.ctx) if error.ctx else ""
    instead = OPTIONS.get((words, error.option_name))
    return f"{error.option_name} was removed: {instead}" if instead else error.format_message()
