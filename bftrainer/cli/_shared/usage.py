"""Checks before a command starts: output files, options without effect, unusually large sizes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from bftrainer.cli._shared.stdio import tell
from bftrainer.errors import unused_options

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
"""Settings of commands that have many options."""

_OPENS = f"{__name__}.opens"


class Sectioned(click.Command):
    """A command whose help shows its options in sections.

    Parameters
    ----------
    sections : mapping of str to iterable of str
        Heading, and names of options, in the order of the help; the others follow. Of several, the first counts.
    """

    def __init__(self, *args: Any, sections: Mapping[str, Iterable[str]], **more: Any) -> None:
        super().__init__(*args, **more)
        self._sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections that hold options."""
        told = {str(param.name): param.get_help_record(ctx) for param in self.get_params(ctx)}
        sections = {**self._sections, "Other options": list(told)}
        for heading, names in sections.items():
            if records := [record for name in names if (record := told.pop(name, None)) is not None]:
                with formatter.section(heading.removesuffix("?")):
                    formatter.write_dl(records)


open_option = click.option(
    "--open",
    is_flag=True,
    expose_value=False,
    callback=lambda ctx, _, value: ctx.meta.update({_OPENS: value}),
    help="Open the page in a browser, where there is one.",
)
"""For commands that end with `show_page`."""


def show_page(path: Path | None, *, quiet: bool = False) -> None:
    """Say where a page is, unless quiet, and with `--open` show it in a browser; None: there is none."""
    if path is None:
        return
    if not quiet:
        click.echo(f"Page: {path}")
    if click.get_current_context().meta.get(_OPENS):
        import webbrowser

        if not webbrowser.open(path.resolve().as_uri()):
            tell(f"Note: No browser is here to open {path}.")


def refuse_inputs(*outputs: Path | None) -> None:
    """Refuse to overwrite an input, or to write two outputs to one file, even with `--force`.

    Inputs are all files that other parameters name, companion files beside them, and the results in a named directory.

    Parameters
    ----------
    *outputs : Path or None
        Output files, as given, and what is written beside them.

    Raises
    ------
    OutputError
        Naming the file.
    """
    from bftrainer.files.writing import refuse_clash

    ctx = click.get_current_context()
    written = [path for path in outputs if path is not None]
    inputs: dict[Path, str] = {}
    for param in ctx.command.params:
        for path in _files(param, ctx.params.get(str(param.name))):
            if not any(path is output for output in written):
                inputs |= dict.fromkeys(_with_what_is_beside(path), f"{param.human_readable_name} {path}")
    refuse_clash(written, inputs)


def _files(param: click.Parameter, value: Any) -> Iterator[Path]:
    """Files that a value names: paths, and text if the parameter takes a file or something else."""
    for each in value if isinstance(value, tuple) else (value,):
        if isinstance(each, Path):
            yield each
        elif isinstance(each, str) and "FILE" in (getattr(param, "metavar", None) or ""):
            yield Path(each)


def _with_what_is_beside(path: Path) -> Iterator[Path]:
    from bftrainer.files.directories import written_files
    from bftrainer.nodelogs.native_logs import metadata_path
    from bftrainer.tasksets.task_files import scalability_path

    yield path
    if path.is_dir():
        yield from (path / name for name in written_files(path))
        return
    beside = (metadata_path(path) if ".csv" in path.suffixes else None, scalability_path(path))
    yield from (other for other in beside if other is not None and other.is_file())


def chosen_output(argument: Path | None, option: Path | None) -> Path:
    """Where output goes, which an argument or `-o` names."""
    if (argument is None) == (option is None):
        raise click.UsageError("Expected one place for the output, as an argument or after -o.")
    return argument or option  # type: ignore[return-value]


def refuse_figure(path: Path | None, *, force: bool) -> None:
    """Refuse a figure that could not be drawn or written, before any work is done.

    Raises
    ------
    InputError
        If it exists and not `force`, its suffix is unknown, or matplotlib is missing.
    """
    from bftrainer.files.writing import refuse_existing
    from bftrainer.report.drawing import check_drawable

    if path is not None:
        check_drawable(path.name)
        refuse_existing(path, force=force)


def write_figure(path: Path, figure: Axes | Figure) -> None:
    """Write a figure, or that of axes, in the form of its suffix.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    from bftrainer.files.writing import replacing
    from bftrainer.report.drawing import check_drawable, rendered

    with replacing(path) as stream:
        stream.write(rendered(figure, check_drawable(path.name)))


def refuse_unused(reasons: Mapping[str, str | bool | None]) -> None:
    """Refuse given options that have no effect in this call.

    Parameters
    ----------
    reasons : mapping of str to str, bool or None
        By parameter names, why they have no effect, in a few words; empty, None or False if they have one.

    Raises
    ------
    SettingsError
        Naming all of them.
    """
    ctx = click.get_current_context()
    vain: dict[str, str] = {}
    for option in ctx.command.params:
        reason = reasons.get(str(option.name))
        typed = ctx.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
        if reason and typed:
            vain[max(option.opts, key=len)] = str(reason)
    if vain:
        raise unused_options(vain)


LARGE_SIZE = 200_000
"""Recurrences, tasks, trials, nodes and the like; the largest machines have 160,000 nodes."""
LARGE_PROCESSES = 1_000
"""Processes and threads of one machine."""
LARGE_RUNS = 10_000
"""Runs of a real script, each of which takes seconds at least."""
LARGE_TOTAL = 20_000_000
"""What sizes amount to together where each of them is usual."""
LARGE_DAYS = 2_000
"""Days of a generated trace."""

_ALLOWED = "BFTRAINER_LARGE"
"""Environment variable that allows unusual sizes."""

F = TypeVar("F", bound=Callable[..., Any])

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # generic since click 8.2 only


class Parsed(_ParamType):
    """Type of options whose text a function parses; what is no text is taken as it is.

    Parameters
    ----------
    name : str
        Stands for the value in help.
    parse : callable
        Raises a `ValueError` for a text that is not what was `expected`.
    expected : str
    """

    def __init__(self, name: str, parse: Callable[[str], Any], expected: str) -> None:
        self.name, self._parse, self._expected = name, parse, expected

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """What the text says."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError:
            self.fail(f"Expected {self._expected}, got {value!r}.", param, ctx)


def _figure_key(name: str) -> str:
    """The key of a figure; whether there is such a figure is found where it is used."""
    from bftrainer.report.glossary import key_of

    return key_of(name)


FIGURE = Parsed("NAME", _figure_key, "a figure")
"""A figure by its key in summaries, or by the words that pages have for it."""


class _Size(_ParamType):
    """A number that is refused if it is larger than `usual`, unless the environment allows it."""

    def __init__(self, kind: click.ParamType[Any], usual: int) -> None:
        self._kind, self._usual = kind, usual
        self.name = kind.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, if it is a usual or an allowed one."""
        number: float = self._kind.convert(value, param, ctx)
        if ctx is not None and param is not None:
            check_size(max(param.opts, key=len), number, self._usual)
        return number


def check_size(what: str, number: float, usual: int = LARGE_SIZE) -> None:
    """Refuse an unusually large size, which often is a slip, unless the environment allows it.

    Raises
    ------
    click.UsageError
        Naming it and the bound.
    """
    if usual < number < math.inf and not os.environ.get(_ALLOWED):
        raise click.UsageError(f"Expected {what} <= {usual:,}, got {number:,}; set {_ALLOWED}=1 if you mean it.")


def size_option(
    *names: str, usual: int = LARGE_SIZE, kind: click.ParamType[Any] = click.INT, **options: Any
) -> Callable[[F], F]:
    """An option for a size.

    Parameters
    ----------
    *names : str
    usual : int
        Larger numbers are refused, see `check_size`.
    kind : click.ParamType
        Further checks of the number.
    **options
        As those of `click.option`.
    """
    return click.option(*names, type=_Size(kind, usual), **options)
