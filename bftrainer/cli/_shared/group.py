"""The `bftrainer` command and its groups: import commands when called, turn errors into a line and a status."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NoReturn

import click

from bftrainer._version import __version__
from bftrainer.cli._shared.removed import describe_unknown_option, refuse_removed_command
from bftrainer.cli._shared.signals import KILLED_BY, SAID, endable, ignore_signals, number_of
from bftrainer.cli._shared.stdio import ready_streams, settle_stdout, tell
from bftrainer.errors import BftrainerError, InputError, suggestion

LazyCommands = Mapping[str, tuple[str, str, str]]
"""Module, attribute and one line of help of each command, which is all that its group's help needs."""


class HelpfulGroup(click.Group):
    """A group that prints its help without a command, and suggests the closest one for an unknown name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without a command, print the help and end with status 0."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first argument names, or suggest the closest one."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            refuse_removed_command(ctx, args[0])
            ctx.fail(f"No such command {args[0]!r}.{suggestion(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


class LazyGroup(HelpfulGroup):
    """A group whose commands are imported when they are called.

    Parameters
    ----------
    lazy : mapping of str to (str, str, str)
        Module, attribute and one line of help of each command.
    """

    def __init__(self, *args: Any, lazy: LazyCommands, **options: Any) -> None:
        options.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*args, **options)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Names of the commands, sorted; nothing is imported."""
        return sorted(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the called command; None if there is none of that name."""
        if cmd_name not in self._lazy:
            return None
        module, attribute, _ = self._lazy[cmd_name]
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and help lines, without importing commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._lazy[name][2]) for name in self.list_commands(ctx)])


# Module, attribute and one line of help of each command, which is all that `bftrainer --help` needs.
_COMMANDS = {
    "bound": ("bftrainer.cli.campaigns", "bound", "How much better decisions could do that knew the future."),
    "advise": (
        "bftrainer.cli.campaigns",
        "advise",
        "Search settings on a part of a log, and prove them on the rest.",
    ),
    "assess": ("bftrainer.cli.assess", "assess", "Say whether harvesting is worth it on the machine of a log."),
    "audit": ("bftrainer.cli.replay.results", "audit", "Check finished runs: decisions, progress and all figures."),
    "bso": ("bftrainer.cli.zeus.bso", "bso", "Serve batch sizes to recurring training jobs."),
    "compare": ("bftrainer.cli.replay.results", "compare", "Compare finished runs."),
    "completion": ("bftrainer.cli._shared.group", "completion", "Print a shell's completion script."),
    "convert": ("bftrainer.cli.logs.trace", "convert", "Convert node logs and task sets, legacy to native and back."),
    "forecast": ("bftrainer.cli.campaigns", "forecast", "Tell how probably tasks are done by a deadline."),
    "harvest": ("bftrainer.cli.harvest.harvest", "harvest", "Train on nodes that nobody uses, and give them back."),
    "import": ("bftrainer.cli.logs.imports", "import_log", "Turn a scheduler's log into a node log."),
    "master": ("bftrainer.cli.zeus.master", "master", "Drive a real training job through its recurrences."),
    "plot": ("bftrainer.cli.replay.results", "plot", "Draw a figure of finished runs for print."),
    "replay": ("bftrainer.cli.replay.replay", "replay", "Replay a node log with a task set."),
    "report": ("bftrainer.cli.replay.results", "report", "Make one page of finished runs."),
    "reproduce": ("bftrainer.cli.sweeps", "reproduce", "Make the evaluation of a paper again, as one page."),
    "solvers": ("bftrainer.cli.replay.replay", "solvers", "List the solvers: installed, licensed, exact, version."),
    "spot": ("bftrainer.cli.spot", "spot", "Simulate checkpointed training on preemptible nodes."),
    "sweep": ("bftrainer.cli.sweeps", "sweep", "Replay a grid or list of settings."),
    "tasks": ("bftrainer.cli.logs.tasks", "tasks", "Make task sets and scalability curves."),
    "trace": ("bftrainer.cli.logs.trace", "trace", "Measure, generate, cut and share traces of nodes."),
    "watch": ("bftrainer.cli.harvest.watch", "watch", "Write down when nodes are idle, by asking a scheduler."),
    "zeus": ("bftrainer.cli.zeus.zeus", "zeus", "Tune batch sizes and power limits of recurring jobs, in simulation."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS, epilog="Example: bftrainer replay --solver dp --report page.html --open")
@click.version_option(__version__, prog_name="bftrainer")
def cli() -> None:
    """What would I get from my idle nodes, and with which settings?"""


@click.command(epilog='Example: eval "$(bftrainer completion bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL, which the shell has to source.

    For bash: eval "$(bftrainer completion bash)".
    """
    from click.shell_completion import get_completion_class

    from bftrainer.cli.replay.replay import replay

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"Expected a shell that click completes for, got {shell}.")
    for command, program in ((cli, "bftrainer"), (replay, "bftrainer-replay")):
        variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
        click.echo(kind(command, {}, program, variable).source())


def guarded(command: Callable[..., Any], program: str) -> int:
    """Run a click command; return its exit status after at most one line on stderr about what went wrong.

    A signal that asks it to end, and a reader of its output that has gone, give the status that a shell has for them.
    """
    with endable():
        return _guarded(command, program)


def _guarded(command: Callable[..., Any], program: str) -> int:
    try:
        # `ctx.exit(status)` is returned as the status; a command that simply ends returns None.
        status: int | None = command(standalone_mode=False, prog_name=program)
        sys.stdout.flush()
    except (click.Abort, KeyboardInterrupt) as error:
        ignore_signals()
        number = number_of(error)
        click.echo(SAID[signal.Signals(number)], err=True)
        return KILLED_BY + number
    except click.NoSuchOption as error:
        tell(f"Error: {_one_line(describe_unknown_option(error))}")
        return error.exit_code
    except click.ClickException as error:
        tell(f"Error: {_one_line(error.format_message())}")
        return error.exit_code
    except BftrainerError as error:
        tell(f"Error: {_one_line(str(error))}")
        return BftrainerError.exit_status if _stems_from(error, *_FULL) else error.exit_status
    except BrokenPipeError:
        settle_stdout()
        return KILLED_BY + signal.SIGPIPE
    except SystemExit as error:
        # So end click and rich where nobody reads what they print.
        if not (type(sys.stdout).__name__.endswith("PacifyFlushWrapper") or _stems_from(error, errno.EPIPE)):
            raise
        return KILLED_BY + signal.SIGPIPE
    except OSError as error:
        settle_stdout()
        where = "" if error.filename is None else f"{error.filename}: "
        tell(f"Error: {where}{_one_line(error.strerror or str(error))}.")
        return BftrainerError.exit_status if _stems_from(error, *_FULL) else InputError.exit_status
    except ImportError as error:
        tell(f"Error: Cannot load {error.name or 'a library'}: {_one_line(str(_root(error)))}.")
        return BftrainerError.exit_status
    except MemoryError:
        click.echo("Error: Out of memory.", err=True)
        return BftrainerError.exit_status
    except OverflowError as error:
        # Numbers are checked where they are read, but what follows from two of them may be too large all the same.
        tell(f"Error: A number that is given, or follows from one, is too large: {_one_line(str(error))}.")
        return InputError.exit_status
    return status or 0


# A disk, quota or file that is full is no fault of the input.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _stems_from(error: BaseException | None, *numbers: int) -> bool:
    """Whether an error, or one behind it, is one of these errors of the system."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in numbers:
            return True
        error = error.__cause__ or error.__context__
    return False


def _root(error: BaseException) -> BaseException:
    """Original cause of an error: libraries wrap the system's message in pages of advice."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error


def _one_line(message: str) -> str:
    return " ".join(message.split())


def main() -> None:
    """Entry point of `bftrainer`."""
    _end(cli, "bftrainer")


def replay_main() -> None:
    """Entry point of `bftrainer-replay`, the same as `bftrainer replay`."""
    from bftrainer.cli.replay.replay import replay

    _end(replay, "bftrainer-replay")


def _end(command: click.Command, program: str) -> NoReturn:
    ready_streams()
    status = guarded(command, program)
    if status > KILLED_BY:
        ignore_signals()  # a second one would only add a traceback
    sys.exit(status)
