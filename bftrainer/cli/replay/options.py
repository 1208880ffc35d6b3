"""The options of a replay on the command line, as `ReplayConfig` declares them; defaults as published."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
from click.core import ParameterSource

from bftrainer.cli._shared import usage
from bftrainer.cli._shared.usage import FILE
from bftrainer.runs.config import OPTIONS, SECTIONS, Option, ReplayConfig

_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d|w)", re.ASCII)
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def _duration(text: str) -> float:
    length = _LENGTH.fullmatch(f"{text}s" if text.replace(".", "", 1).isdecimal() else text)
    if length is None:
        raise ValueError(text)
    return float(length[1]) * _SECONDS[length[2]]


def _positive(text: str) -> float:
    length_s = _duration(text)
    if not length_s:
        raise ValueError(text)
    return length_s


def _moment(text: str) -> datetime | float:
    """Seconds if it is a number, else an ISO time (naive: UTC)."""
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text)


def _quantity(units: Mapping[str, float], text: str) -> float | Path:
    """The number in the base unit, or the file that the text names."""
    parts = re.fullmatch(r"\s*([0-9.][0-9.eE+-]*)\s*([a-zA-Z]*)\s*", text)
    if parts and parts[2] in units:
        try:
            return float(parts[1]) * units[parts[2]]
        except ValueError:
            pass  # such as 1.2.3, which may still be a file's name
    if not Path(text).is_file():
        raise ValueError(text)
    return Path(text)


DURATION = usage.Parsed("TIME", _duration, "a length of time such as 90s, 10min or 2h")
LENGTH = usage.Parsed("TIME", _positive, "a length of time above 0 such as 90s, 10min or 2h")
_MOMENT = usage.Parsed("TIME", _moment, "an ISO time or seconds")
DATE = usage.Parsed("TIME", datetime.fromisoformat, "an ISO time")
MOMENT = usage.Parsed(
    "TIME",
    lambda text: (_duration if _LENGTH.fullmatch(text) else _moment)(text),
    "an ISO time, seconds, or a length such as 36h or 5d",
)
"""An ISO time, or how long after another one that is: seconds, or with a unit."""


_RANGES: dict[str, click.ParamType[Any]] = {
    "forward_time_s": usage.POSITIVE,
    "time_limit_s": usage.POSITIVE,
    "mip_gap": click.FloatRange(0, 1, max_open=True),
}
"""Ranges of numbers that may not be what bounds them."""


def _type_of(name: str, option: Option) -> Any:
    """Type of an option's values on the command line."""
    if option.units:
        return usage.Parsed("VALUE|FILE", partial(_quantity, option.units), f"{option.expected}, or a CSV file")
    if get_origin(option.kind) is Literal:
        return click.Choice(get_args(option.kind))
    if option.least is not None:
        return (click.IntRange if option.kind is int else click.FloatRange)(min=option.least)
    return _RANGES.get(name) or {Path: FILE, datetime: _MOMENT}.get(option.kind, option.kind)


def declared_option(name: str, option: Option, defaults: Mapping[str, Any] | None = None) -> usage.Decorator:
    """The option of a field, for a command that may have other `defaults`."""
    text = option.text + (f"  [default: {option.unset}]" if option.unset else "")
    if option.kind is bool:
        turns = (lambda _, __, value: not value) if option.default else None
        return click.option(*option.flags, name, is_flag=True, callback=turns, help=text)
    default = (defaults or {}).get(name, option.default)
    metavar = option.metavar or ("NAME" if option.kind is str else None)
    return click.option(*option.flags, name, type=_type_of(name, option), default=default, metavar=metavar, help=text)


# What stands for others, after which of these it stands in help.
_SHORTCUTS: dict[str, usage.Decorator] = {
    "tasks": click.option(
        "--sample", type=click.Choice(["plain", "tuned"]), default="plain", help="Embedded tasks without -bdfn."
    ),
    "max_tasks": click.option(
        "-mip", "mip", type=bool, default=None, help="false: --solver equal-share, as published."
    ),
}


def _options_of(*sections: str) -> Iterator[usage.Decorator]:
    for section in sections:
        for name, option in OPTIONS.items():
            if option.section == section:
                yield declared_option(name, option)
                if name in _SHORTCUTS:
                    yield _SHORTCUTS[name]


replay_options = usage.with_options(
    *_options_of(*(section for section in SECTIONS if section != "figures")),
    click.option("-name", "--name", "name", default="debug", help="Results go to NAME-itrOut."),
    click.option("-o", "--output-dir", type=FILE, help="Where results go.  [default: NAME-itrOut, or one beside it]"),
    usage.report_option,
    click.option("--force", is_flag=True, help="Replace an existing result directory, and an existing page."),
    click.option("-print", "--print", "print_", type=bool, default=True, help="false: print to iter-prints.log there."),
    click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON instead of a table."),
    *_options_of("figures"),
    click.option("--checkpoint-every", type=DURATION, default="60s", help="Keep decisions so often; 0: none."),
    click.option("--resume", type=FILE, metavar="DIR", help="Go on with the unfinished run in DIR, as it was begun."),
    click.option(
        "--from-harvest", type=FILE, metavar="DIR", help="Replay the harvest in DIR, and say how far apart both are."
    ),
    click.option("--dry-run", is_flag=True, help="Validate the inputs, print what is in them, and stop."),
)

COMMON = ("node_log", "tasks", "forward_time_s", "max_tasks", "solver", "objective", "since", "until")
LIKE = ("node_log", "tasks", "scalability", *COMMON[2:])
"""Options of a replay that commands with `like_options` have themselves."""
like_options = usage.with_options(
    click.option(
        "--like", type=FILE, metavar="RUN|TOML", help="Take what is not given here from a run, or a sweep's [base]."
    ),
    *(declared_option(name, OPTIONS[name]) for name in LIKE),
)
"""The most common options of a replay; the others are those of a run or a file."""


def config_of(ctx: click.Context, options: dict[str, Any]) -> ReplayConfig:
    """The configuration that options of `replay_options` ask for."""
    from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path

    mip, sample, harvest = options.pop("mip"), options.pop("sample"), options.pop("from_harvest", None)
    if harvest is not None:
        from bftrainer.harvest.fidelity import harvest_inputs

        options |= harvest_inputs(harvest) | _pick_given(ctx, options, options)
    if ctx.get_parameter_source("solver") is ParameterSource.DEFAULT and harvest is None:
        if mip is False or options["strict_published"]:
            options["solver"] = "equal-share"
    elif mip is not None:
        raise click.UsageError("Give either -mip or --solver, not both.", ctx)
    if options["strict_published"] and options["solver"] != "equal-share":
        raise click.UsageError(f"Expected --strict-published with --solver equal-share, got {options['solver']}.", ctx)
    names_tasks = options["tasks"] is not None and "-bdfn names the tasks"
    if sample == "tuned" and not names_tasks:
        options["tasks"] = sample_path(SAMPLE_TUNED_TASKS)
    config = ReplayConfig(**options)
    usage.refuse_unused({"sample": names_tasks})
    return config


def _pick_given(ctx: click.Context, options: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Options of these names that are not left at their defaults."""
    return {name: options[name] for name in names if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT}


def config_like(ctx: click.Context, options: dict[str, Any]) -> ReplayConfig:
    """The configuration that `like_options` ask for: that of a run or a file, and the options given beside it."""
    from bftrainer.campaigns.sweep_file import merge_options, read_sweep
    from bftrainer.objectives.modifiers import names_code
    from bftrainer.runs.run_files import read_summary, recorded_options
    from bftrainer.runs.run_inputs import LEARNED

    like, typed = options["like"], _pick_given(ctx, options, LIKE)
    if like is None:
        return ReplayConfig(**typed)
    if like.is_dir():
        base = recorded_options(like, read_summary(like))
        for name in ("objective", "solver", "fallback", "policy", "power_policy"):
            if name not in typed and names_code(base.get(name)):  # a run may be somebody else's
                raise click.UsageError(f"{like}: its {name} is code, {base[name]}, which is not run unasked.", ctx)
    else:
        spec = read_sweep(like)
        if spec.axes:
            raise click.UsageError(
                f"{like}: Expected settings of one run in [base], got a sweep over {spec.axes[0]}.", ctx
            )
        base = dict(spec.resolve_points()[0].options)
    if "tasks" in typed:  # which have curves of their own
        base |= {"scalability": None, "scaling": LEARNED if base.get("scaling") == LEARNED else None}
    return ReplayConfig(**merge_options(base, typed))
