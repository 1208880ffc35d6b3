"""The `bftrainer` command and its groups: commands imported when called, and errors as a line and a status."""

from __future__ import annotations

import csv
import errno
import re
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from bftrainer._version import __version__
from bftrainer.cli.terminal import (
    KILLED_BY,
    SAID,
    endable,
    ignore_signals,
    number_of,
    ready_streams,
    settle_stdout,
    tell,
)
from bftrainer.errors import BftrainerError, InputError, suggestion

_ALL = f"{__name__}.all"


class Command(click.Command):
    """A command whose help shows all defaults, and of its options those that are `shown`, if any are named.

    `--help-all` shows all options then.
    """

    def __init__(self, *args: Any, shown: Iterable[str] = (), **more: Any) -> None:
        settings = {"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": True}
        super().__init__(*args, **more | {"context_settings": settings})
        self._shown = frozenset(shown)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, and the option for the whole help."""
        return [*super().get_params(ctx), *[_HELP_ALL] * bool(self._shown)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, and how all of them are shown."""
        if not self._shown or ctx.meta.get(_ALL):
            super().format_options(ctx, formatter)
            return
        params = [param for param in self.get_params(ctx) if param.name in self._shown]
        with formatter.section("Options"):
            formatter.write_dl([record for param in params if (record := param.get_help_record(ctx)) is not None])
        formatter.write_paragraph()
        formatter.write_text(f"`{ctx.command_path} --help-all` shows all options.")


def _print_whole_help(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


_HELP_ALL = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_whole_help,
    help="Show all options.",
)


class CommandGroup(click.Group):
    """A group that shows its help without a command; for an unknown one it names the closest, or what replaced it."""

    command_class = Command

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, context_settings={"help_option_names": ["-h", "--help"]}, **options)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without a command, print the help and end with status 0."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The called command, or fail with the closest one."""
        command = super().get_command(ctx, cmd_name)
        if command is None and not ctx.resilient_parsing:
            words = _words_of(ctx, cmd_name)
            if instead := read_removed().get(words):
                ctx.fail(f"'bftrainer {words}' was removed: {instead}")
            ctx.fail(f"No such command {cmd_name!r}.{suggestion(cmd_name, self.list_commands(ctx))}")
        return command


class LazyGroup(CommandGroup):
    """A group that imports a command when it is called.

    `lazy` holds the place of each command, as ``module:attribute`` below `bftrainer.cli`, and its line of help; help
    shows `seldom` used ones in a second section.
    """

    def __init__(
        self, *args: Any, lazy: Mapping[str, tuple[str, str]], seldom: tuple[str, ...], **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._lazy, self._seldom = lazy, seldom

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Names of the commands, sorted; nothing is imported."""
        return sorted(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the called command."""
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(f"bftrainer.cli.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and help lines, without importing commands."""
        rows = {name: (name, self._lazy[name][1]) for name in self.list_commands(ctx)}
        seldom = [rows.pop(name) for name in self._seldom]
        for heading, shown in (("Commands", list(rows.values())), ("Seldom used", seldom)):
            with formatter.section(heading):
                formatter.write_dl(shown)


def read_removed() -> dict[str, str]:
    """What replaces commands and options that earlier versions had, by their words after `bftrainer`, * for all."""
    text = Path(__file__).with_name("removed.csv").read_text(encoding="utf-8")
    table: dict[str, str] = {}
    for words, instead in csv.reader(text.splitlines()):
        command, *options = re.split(r" (?=-)", words)
        table |= dict.fromkeys([f"{command} {option}" for option in options] or [command], instead)
    return table


def _words_of(ctx: click.Context, *more: str) -> str:
    """Words of a command after the program's name, such as `trace stats`; `bftrainer-replay` is `replay`."""
    program, *words = ctx.command_path.split()
    return " ".join(["replay"] * (program == "bftrainer-replay") + words + list(more))


_COMMANDS = {
    "advise": ("campaigns:advise", "Search settings on a part of a log, and prove them on the rest."),
    "assess": ("assess:assess", "Say whether harvesting is worth it on the machine of a log."),
    "audit": ("results:audit", "Check finished runs: decisions, progress and all figures."),
    "bound": ("campaigns:bound", "How much better decisions could do that knew the future."),
    "bso": ("bso:bso", "Serve batch sizes to recurring training jobs."),
    "compare": ("results:compare", "Compare finished runs."),
    "convert": ("trace:convert", "Convert node logs and task sets, legacy to native and back."),
    "forecast": ("campaigns:forecast", "Tell how probably tasks are done by a deadline."),
    "harvest": ("harvest:harvest", "Train on nodes that nobody uses, and give them back."),
    "import": ("imports:import_log", "Turn a scheduler's log into a node log."),
    "master": ("master:master", "Drive a real training job through its recurrences."),
    "plot": ("results:plot", "Draw a figure of finished runs for print."),
    "replay": ("replay:replay", "Replay a node log with a task set."),
    "report": ("results:report", "Make one page of finished runs."),
    "reproduce": ("campaigns:reproduce", "Make the evaluation of a paper again, as one page."),
    "solvers": ("replay:solvers", "List the solvers: installed, licensed, exact, version."),
    "spot": ("spot:spot", "Simulate checkpointed training on preemptible nodes."),
    "sweep": ("campaigns:sweep", "Replay a grid or list of settings."),
    "tasks": ("trace:tasks", "Make task sets and scalability curves."),
    "trace": ("trace:trace", "Measure, generate, edit and share traces of nodes."),
    "watch": ("harvest:watch", "Write down when nodes are idle, by asking a scheduler."),
    "zeus": ("zeus:zeus", "Tune batch sizes and power limits of recurring jobs, in simulation."),
}
_SELDOM = ("audit", "bound", "bso", "convert", "master", "reproduce", "solvers", "spot", "tasks", "zeus")


@click.group(
    cls=LazyGroup,
    lazy=_COMMANDS,
    seldom=_SELDOM,
    epilog="Example: bftrainer replay --solver dp --report page.html --open",
)
@click.version_option(__version__, prog_name="bftrainer")
def cli() -> None:
    """What would I get from my idle nodes, and with which settings?"""


def guarded(command: Callable[..., Any], program: str) -> int:
    """Run a click command; return its exit status after at most one line on stderr about what went wrong.

    A signal that asks it to end, and a reader of its output that has gone, give the status that a shell has for them.
    """
    with endable():
        try:
            # `ctx.exit(status)` is returned as the status; a command that simply ends returns None.
            status: int | None = command(standalone_mode=False, prog_name=program)
            sys.stdout.flush()
            return status or 0
        except (click.Abort, KeyboardInterrupt) as error:
            ignore_signals()
            number = number_of(error)
            click.echo(SAID[signal.Signals(number)], err=True)
            return KILLED_BY + number
        except (BrokenPipeError, SystemExit) as error:
            # So end click and rich where nobody reads what they print.
            if not (type(sys.stdout).__name__.endswith("PacifyFlushWrapper") or _stems_from(error, errno.EPIPE)):
                raise
            settle_stdout()
            return KILLED_BY + signal.SIGPIPE
        except (click.ClickException, BftrainerError, OSError, ImportError, MemoryError, OverflowError) as error:
            message, status = _explain(error)
            settle_stdout()
            tell(f"Error: {' '.join(message.split())}")
            return status


# A disk, quota or file that is full is no fault of the input.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _explain(error: Exception) -> tuple[str, int]:
    """What an error says, and the exit status for it."""
    failure = BftrainerError.exit_status
    match error:
        case click.NoSuchOption():
            if isinstance(full := error.__context__, click.NoSuchOption):
                error = full  # click goes on to read -word letter by letter, and then names -w alone
            former = [f"* {error.option_name}", *([_words_of(error.ctx, error.option_name)] if error.ctx else [])]
            instead = next(filter(None, map(read_removed().get, former)), None)
            text = f"{error.option_name} was removed: {instead}" if instead else error.format_message()
            return text, error.exit_code
        case click.ClickException():
            return error.format_message(), error.exit_code
        case BftrainerError():
            return str(error), failure if _stems_from(error, *_FULL) else error.exit_status
        case OSError():
            place = "" if error.filename is None else f"{error.filename}: "
            status = failure if _stems_from(error, *_FULL) else InputError.exit_status
            return f"{place}{error.strerror or error}.", status
        case ImportError():
            cause: BaseException = error  # libraries wrap the system's message in pages of advice
            while (inner := cause.__cause__ or cause.__context__) is not None:
                cause = inner
            return f"Cannot load {error.name or 'a library'}: {cause}.", failure
        case MemoryError():
            return "Out of memory.", failure
        case _:
            # Numbers are checked where they are read, but what follows from two of them may be too large all the same.
            return f"A number that is given, or follows from one, is too large: {error}.", InputError.exit_status


def _stems_from(error: BaseException | None, *numbers: int) -> bool:
    """Whether an error, or one behind it, is one of these errors of the system."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in numbers:
            return True
        error = error.__cause__ or error.__context__
    return False


def main() -> None:
    """Entry point of `bftrainer`."""
    run_program(cli, "bftrainer")


def run_program(command: click.Command, program: str) -> NoReturn:
    """Run a command as a program; end with its exit status."""
    ready_streams()
    status = guarded(command, program)
    if status > KILLED_BY:
        ignore_signals()  # a second one would only add a traceback
    sys.exit(status)
