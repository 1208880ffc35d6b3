"""What options share: types of values, options that many commands have, and checks before a command starts."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from bftrainer.cli.group import Command
from bftrainer.cli.terminal import note, print_json
from bftrainer.errors import OutputError, ineffective_options
from bftrainer.files.opening import file_stamp
from bftrainer.files.writing import refuse_existing, replacing
from bftrainer.plugins import require_extra
from bftrainer.report.glossary import key_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # generic since click 8.2 only

Decorator = Callable[[Any], Any]
_JSON, _OPENS = f"{__name__}.json", f"{__name__}.opens"


def command_line() -> str:
    """Return the command as it was typed, which results keep."""
    return shlex.join(["bftrainer", *sys.argv[1:]])


def command(name: str | None = None, **more: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Declare a command."""
    return click.command(name, cls=Command, **more)


def with_options(*options: Decorator) -> Decorator:
    """Make a decorator that adds all these options to a command, in this order."""

    def add_options(command: Any) -> Any:
        """Add the options to a command."""
        return reduce(lambda inner, option: option(inner), reversed(options), command)

    return add_options


# --- Types of values


FILE = click.Path(path_type=Path)


class Parsed(_ParamType):
    """Type of options whose text a function parses, which raises a `ValueError` for what is not `expected`."""

    def __init__(self, name: str, parse: Callable[[str], Any], expected: str) -> None:
        self.name, self._parse, self._expected = name, parse, expected

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """What the text says."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except (ValueError, LookupError):
            self.fail(f"Expected {self._expected}, got {value!r}.", param, ctx)
        except OverflowError:
            self.fail(f"Expected a time between the years 1678 and 2262, got {value!r}.", param, ctx)


def value_type(name: str, expected: str) -> Callable[[Callable[[str], Any]], Parsed]:
    """Make a function that parses the values of a type that type."""
    return lambda parse: Parsed(name, parse, expected)


FIGURE = Parsed("NAME", key_of, "a figure")
"""A figure by its key in summaries, or by the words that pages have for it."""

SIZE = click.IntRange(1, 1_000_000)
"""Type of a count of tasks, nodes, trials or recurrences: more would be a slip."""
PROCESSES = click.IntRange(1, 1_000)
POSITIVE = click.FloatRange(0, min_open=True)


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


def _date(text: str) -> datetime:
    """An ISO time that nanoseconds can tell."""
    from bftrainer.model import instant_ns

    date = datetime.fromisoformat(text)
    instant_ns(date)
    return date


def _moment(text: str) -> datetime | float:
    """Seconds if it is a number, else an ISO time (naive: UTC)."""
    try:
        return float(text)
    except ValueError:
        return _date(text)


def moment_or_length(text: str) -> datetime | float:
    """A moment, or how long after another one that is: seconds, or with a unit."""
    return _duration(text) if _LENGTH.fullmatch(text) else _moment(text)


DURATION = Parsed("TIME", _duration, "a length of time such as 90s, 10min or 2h")
LENGTH = Parsed("TIME", _positive, "a length of time above 0 such as 90s, 10min or 2h")
INSTANT = Parsed("TIME", _moment, "an ISO time or seconds")
DATE = Parsed("TIME", _date, "an ISO time")
MOMENT = Parsed("TIME", moment_or_length, "an ISO time, seconds, or a length such as 36h or 5d")


# --- Options of many commands


def _flag(key: str, *names: str, text: str) -> Decorator:
    """A flag that the context keeps, so that no command has to pass it on."""
    keep: dict[str, Any] = {"expose_value": False, "callback": lambda ctx, _, value: ctx.meta.update({key: value})}
    return click.option(*names, is_flag=True, help=text, **keep)


json_option = _flag(_JSON, "--json", "as_json", text="Print JSON.")
"""For commands that print by `print_json_if_asked`."""
open_option = _flag(_OPENS, "--open", text="Open the page in a browser, where there is one.")
"""For commands that end with `show_page`."""
force_option = click.option("--force", is_flag=True, help="Replace what is there.")
workers_option = click.option("--workers", type=PROCESSES, help="Processes.  [default: one per processor]")
report_option = with_options(
    click.option("--report", type=FILE, help="Also make one page of it: a file that any browser shows."), open_option
)


def output_option(text: str) -> Decorator:
    """Make the option that names the file to write."""
    return click.option("-o", "--output", type=FILE, required=True, help=text)


NODE_LOG_OUTPUT = output_option("Node log to write: .parquet, .csv or .csv.gz.")


# --- Checks and pages


def check_report(report: Path | None, *, force: bool) -> None:
    """Refuse a page that could not be made or written, or opened without being made, before anything is replayed."""
    refuse_unused({"open": report is None and "there is no --report"})
    if report is not None:
        require_extra("Pages need", "report", "jinja2", "matplotlib")
        refuse_inputs(report)
        check_page_name("--report", report)
        refuse_existing(report, force=force)


def check_page_name(option: str, page: Path) -> None:
    """Refuse a page whose name's ending tells of something else."""
    if page.suffix not in ("", ".html", ".htm"):
        raise click.UsageError(f"Expected {option} to name a page, such as {page.stem}.html, got {page.name}.")


def is_json_asked() -> bool:
    """Whether `--json` was given."""
    return bool(click.get_current_context().meta.get(_JSON))


def print_json_if_asked(make: Callable[[], Any]) -> bool:
    """Print a document for programs, if `--json` was given; whether it was."""
    if is_json_asked():
        print_json(make())
    return is_json_asked()


def show_page(path: Path | None, *, quiet: bool = False) -> None:
    """Say where a page is, unless quiet, and with `--open` show it in a browser; None: there is none."""
    if path is None:
        return
    if not (quiet or is_json_asked()):
        click.echo(f"Page: {path}")
    if click.get_current_context().meta.get(_OPENS):
        import webbrowser

        if not webbrowser.open(path.resolve().as_uri()):
            note(f"No browser is here to open {path}.")


def refuse_inputs(*outputs: Path | None) -> None:
    """Refuse to overwrite a file that another parameter names, or to write two outputs to one file."""
    ctx = click.get_current_context()
    written = [path for path in outputs if path is not None]
    inputs: dict[Path, str] = {}
    for param in ctx.command.params:
        values = ctx.params.get(str(param.name))
        kinds = (Path, str) if "FILE" in (getattr(param, "metavar", None) or "") else Path
        for value in values if isinstance(values, tuple) else (values,):
            if isinstance(value, kinds) and not any(value is output for output in written):
                name = max(param.opts, key=len) if isinstance(param, click.Option) else param.human_readable_name
                inputs[Path(value)] = f"{name} {value}"
    refuse_clash(written, inputs)


def refuse_clash(outputs: Sequence[Path], inputs: Mapping[Path, str]) -> None:
    """Refuse an output that is an input, by its name in messages, or another output, also through links."""
    uses = {_identify(path): f"{called}, which is read" for path, called in inputs.items()}
    for output in outputs:
        file = _identify(output)
        if file in uses:
            raise OutputError(f"{output}: Would overwrite {uses[file]}.")
        uses[file] = f"{output}, which is written too"


def _identify(path: Path) -> object:
    """What all names of a file share, also before it is there."""
    return file_stamp(path) or os.path.realpath(path)


def refuse_files(*paths: Path | None, force: bool) -> None:
    """Refuse outputs that are inputs, or exist and must not be replaced; None: not written."""
    refuse_inputs(*paths)
    for path in filter(None, paths):
        refuse_existing(path, force=force)


def refuse_figure(path: Path | None, *, force: bool) -> None:
    """Refuse a figure that could not be drawn or written, before any work is done."""
    from bftrainer.report.drawing import check_drawable

    if path is not None:
        check_drawable(path.name)
        refuse_files(path, force=force)


def write_figure(path: Path, figure: Axes | Figure) -> None:
    """Write a figure, or that of axes, in the form of its suffix."""
    from bftrainer.report.drawing import check_drawable, render_figure

    with replacing(path) as stream:
        stream.write(render_figure(figure, check_drawable(path.name)))


def refuse_unused(reasons: Mapping[str, str | bool | None]) -> None:
    """Refuse typed options that have no effect in this call: by parameter names, why, or something empty."""
    ctx = click.get_current_context()
    unused: dict[str, str] = {}
    for option in ctx.command.params:
        name = str(option.name)
        if reasons.get(name) and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            unused[max(option.opts, key=len)] = str(reasons[name])
    if unused:
        raise ineffective_options(unused)
