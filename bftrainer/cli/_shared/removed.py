"""Commands, options and values that earlier versions had, and what to use instead; kept for one release."""

from __future__ import annotations

import click

_LOGS = ("alcf", "counts", "flux", "lsf", "pbs", "slurm", "spot", "swf", "table", "watch")
COMMANDS: dict[str, str] = {
    "runs": "check results by `bftrainer audit`, or `sha256sum -c .bftrainer`; the next run there clears leftovers.",
    "solve": "use `bftrainer replay --fallback dp` where a solver fails.",
    "bso change": "register the job under a new job_id instead.",
    "bso clone": "register a job under a new job_id instead.",
    "bso dashboard": "use the PromQL lines of docs/server.md (Watching) instead.",
    "bso note": "keep notes with the script that registers the job instead.",
    "bso reset": "use `bftrainer bso jobs JOB --delete`, and register the job again.",
    "harvest remove": "stop the harvest (Ctrl-C), and run the other tasks in another directory (-o).",
    "import batsim": "use `bftrainer import --format table` with the columns that docs/import-formats.md names.",
    "import cobalt": "use a plug-in (docs/dev/extending.md, An importer).",
    "bso delete": "use `bftrainer bso jobs JOB --delete`.",
    "bso export": "use `bftrainer bso jobs JOB -o FILE`.",
    "bso import": "use `bftrainer bso jobs --import URL`.",
    "bso show": "use `bftrainer bso jobs JOB`.",
    "bso void": "use `bftrainer bso jobs JOB --void TRIAL --reason WHY`.",
    "completion": 'use `eval "$(_BFTRAINER_COMPLETE=bash_source bftrainer)"`.',
    "harvest drain": "use `bftrainer harvest stop --drain DIR`.",
    "master resume": "use `bftrainer master run --resume LOGDIR`.",
    "trace anonymise": "use `bftrainer trace edit LOG --anonymise KEY_FILE -o OUTPUT`.",
    "trace cut": "use `bftrainer trace edit LOG --start TIME --end TIME -o OUTPUT`.",
    "trace filter": "use `bftrainer trace edit` with the same options.",
    "trace merge": "use `bftrainer trace edit LOGS -o OUTPUT`.",
    "trace export": "use `bftrainer convert`, which writes the same forms.",
    "import sge": "make a table of it with awk (docs/import-formats.md), then `bftrainer import --format table`.",
    "import auto": "use `bftrainer import FILES`, which tells the format by itself.",
    **{f"import {name}": f"use `bftrainer import --format {name} FILES`." for name in _LOGS},
}
"""What replaces a command, by its words after `bftrainer`."""

_REPLAYS = ("replay", "bound", "forecast", "advise")
_FORESIGHT = "use `--planned-departures` for known ones; `bftrainer bound` says what knowing all would bring."
_LIMITS = ("body", "connections", "per-peer")
_QUEUE = "nothing reads a scheduler's queue any more."
_JOB_FILE = "set it in the job file (observer_mode, set_power_limits, measure, timeout_s)."
_CHANCES = tuple(f"{what}-{figure}" for what in ("preemption", "addition") for figure in ("chance", "mean", "std"))
_MINUTES = (*_CHANCES, "big-addition-share")
_HOLES = ("fragment-mean", "fragment-median", "daily-amplitude", "peak-hour")
_IMPORT_FIRST = "import the log with it first (bftrainer import), and assess the node log."
_OF_IMPORT = (
    *("by", "offer", "columns", "suspended", "reservations", "reserved-busy", "cores-per-node", "max-overcommit"),
    *("min-gap", "min-hole", "max-bad", "unseen", "map", "preset"),
)
OPTIONS: dict[tuple[str, str], str] = {
    **{(words, f"--foresight{rest}"): _FORESIGHT for words in _REPLAYS for rest in ("", "-use", "-horizon", "-least")},
    **{(words, "--queue"): _QUEUE for words in (*_REPLAYS, "import")},
    ("bound", "--horizons"): "use --notices: how long before nodes leave that is known.",
    ("replay", "--bounds"): "use `bftrainer bound` with the same options.",
    **{(words, "--no-cache"): "every run parses its node log; none is kept." for words in (*_REPLAYS, "sweep")},
    ("master run", "--allow-mixed"): "choose GPUs of one model by CUDA_VISIBLE_DEVICES, or --gpus.",
    ("master run", "--server"): "wrap the script's epochs in `server_run` (docs/integrations.md).",
    ("master run", "--token-file"): "no server is asked any more.",
    **{("master run", f"--{name}"): _JOB_FILE for name in ("observer", "set-power-limits", "measure", "timeout")},
    ("compare", "--figure"): "use --metric.",
    ("plot", "--figure"): "use --metric.",
    ("harvest run", "--report"): "use `bftrainer replay --from-harvest DIR --report PAGE.html` afterwards.",
    ("harvest run", "--measured"): "copy scaling, grow_cost_s and shrink_cost_s of measured.toml to the task file.",
    ("harvest run", "--open"): "the sample's page is page.html in its directory.",
    ("harvest run", "--force"): "nothing is replaced but what the harvest itself wrote.",
    ("compare", "--latex"): "print a table by --csv, and give it to DataFrame.to_latex of pandas.",
    ("bso serve", "--no-migrate"): "there is one schema; a database of another one is refused.",
    ("bso serve", "--background"): "use systemd (docs/server.md), or `nohup bftrainer bso serve &`.",
    ("bso serve", "--insecure"): "put nginx before the server, which adds a token (docs/server.md, Networks).",
    **{("bso serve", f"--max-{what}"): "set it in nginx (docs/server.md, Networks)." for what in _LIMITS},
    ("bso serve", "--price-kwh"): "multiply the energy saved, on a job's page, by your price.",
    ("bso serve", "--proxy"): "requests are logged with the proxy's address; nginx logs who asked it.",
    ("bso serve", "--socket"): "use the port, which takes your own token; clients of yours find both.",
    ("bso serve", "--workers"): "one process answers all.",
    ("bso token", "--local"): "give the user the token that is printed.",
    **{
        (words, "--exact-mean"): "lower the mean until the expected size is the one wanted."
        for words in ("spot sweep", "trace generate")
    },
    **{("trace generate", f"--{name}"): f"use --set {name}=X." for name in _HOLES},
    **{("trace generate", f"--hole-{what}"): "fit sizes of holes to a log (--like)." for what in ("mean", "median")},
    **{(f"spot {words}", "--on-demand-nodes"): "use --max-world-size." for words in ("simulate", "sweep")},
    **{(f"zeus {words}", "--figure-format"): "figures are SVG." for words in ("simulate", "compare")},
    **{("bso quickstart", f"--{name}"): "the sample is the same each time." for name in ("max-power", "seed")},
    ("zeus groups", "--server-costs"): "use --correct server-costs.",
    **{
        ("zeus groups", f"--group-{name}"): f"use --correct {name}."
        for name in ("never-ran-cost", "min-cost-accumulates")
    },
    **{(f"spot {words}", "--samples-per-iteration"): "set it in the profile." for words in ("simulate", "sweep")},
    **{(words, f"--{name}"): f"use --set {name}=X." for words in ("spot sweep", "trace generate") for name in _MINUTES},
    **{("assess", f"--{name}"): _IMPORT_FIRST for name in _OF_IMPORT},
    ("trace generate", "--drains"): "use a log with maintenance, such as the embedded sample, or `--like` one.",
}
"""What replaces an option, by the words of its command and its name."""

OF_ALL: dict[str, str] = {
    "--limits": "set BFTRAINER_MAX_GIB, such as BFTRAINER_MAX_GIB=16, for files that unpack to more than is usual.",
    "--large": "set BFTRAINER_LARGE=1 for sizes above their bounds.",
}
"""What replaces an option that all or many commands had."""

VALUES: dict[tuple[str, str, str], str] = {
    ("plot", "--style", name): "name a style of matplotlib, and the width by --width column, page or MM."
    for name in ("plain", "ieee", "acm", "nature")
}
"""What replaces a value of an option that is still there, by command, option and value."""


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
    if isinstance(whole := error.__context__, click.NoSuchOption):
        error = whole  # click goes on to read -word letter by letter, and then names -w alone
    words, typed = command_words(error.ctx) if error.ctx else "", error.option_name
    if instead := OPTIONS.get((words, typed)) or OF_ALL.get(typed):
        return f"{typed} was removed: {instead}"
    if advice := _advise(words, typed):
        return f"No such option {typed!r}: {advice}"
    return error.format_message()


def _advise(words: str, option: str) -> str | None:
    """What to do instead of giving a command an option that another one has."""
    from bftrainer.runs.config import OPTIONS as SETTINGS

    if words in _REPLAYS and option in ("--start", "--end"):
        return "cut the node log first, by bftrainer trace edit --start --end."
    names = [name for name, each in SETTINGS.items() if option in each.flags]
    return f"put {names[0]} into the sweep's file." if words == "sweep" and names else None


def refuse_removed_value(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Pass a value of an option on, unless the option took it once."""
    option = max(param.opts, key=len)
    if instead := VALUES.get((command_words(ctx), option, value)):
        ctx.fail(f"{option} {value} was removed: {instead}")
    return value
