"""The `bftrainer` command and its groups: import commands when called, turn errors into a line and a status."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import click

from bftrainer._version import __version__
from bftrainer.cli._shared.stdio import ready_streams, settle_stdout, tell
from bftrainer.errors import BftrainerError, InputError, suggestion

LazyCommands = Mapping[str, tuple[str, str, str]]
"""Module, attribute and one line of help of each command, which is all that its group's help needs."""


class HelpfulGroup(click.Group):
    """A group that suggests the closest command for an unknown name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first argument names, or suggest the closest one."""
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}.{suggestion(args[0], names)}")
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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without a command, print the help and end with status 0."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

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


INTERRUPTED = 130

# Module, attribute and one line of help of each command, which is all that `bftrainer --help` needs.
_COMMANDS = {
    "advise": (
        "bftrainer.cli.campaigns",
        "advise",
        "Search settings on a part of a log, and prove them on the rest.",
    ),
    "audit": ("bftrainer.cli.replay.results", "audit", "Check finished runs by independent code."),
    "bso": ("bftrainer.cli.zeus.bso", "bso", "Serve batch sizes to recurring training jobs."),
    "compare": ("bftrainer.cli.replay.results", "compare", "Compare finished runs."),
    "completion": ("bftrainer.cli._shared.group", "completion", "Print a shell's completion script."),
    "convert": ("bftrainer.cli.logs.trace", "convert", "Convert node logs and task sets, legacy to native and back."),
    "forecast": ("bftrainer.cli.campaigns", "forecast", "Tell how probably tasks are done by a deadline."),
    "import": ("bftrainer.cli.logs.imports", "import_log", "Turn a scheduler's log into a node log."),
    "master": ("bftrainer.cli.zeus.master", "master", "Drive a real training job through its recurrences."),
    "plot": ("bftrainer.cli.replay.results", "plot", "Draw a figure of finished runs for print."),
    "replay": ("bftrainer.cli.replay.replay", "replay", "Replay a node log with a task set."),
    "report": ("bftrainer.cli.replay.results", "report", "Make one page of finished runs."),
    "solvers": ("bftrainer.cli.replay.replay", "solvers", "List the solvers: installed, licensed, exact, version."),
    "spot": ("bftrainer.cli.spot", "spot", "Simulate checkpointed training on preemptible nodes."),
    "sweep": ("bftrainer.cli.campaigns", "sweep", "Replay a grid or list of settings."),
    "tasks": ("bftrainer.cli.logs.tasks", "tasks", "Make task sets and scalability curves."),
    "trace": ("bftrainer.cli.logs.trace", "trace", "Measure, generate, cut and share traces of nodes."),
    "zeus": ("bftrainer.cli.zeus.zeus", "zeus", "Tune batch sizes and power limits of recurring jobs, in simulation."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS)
@click.version_option(__version__, prog_name="bftrainer")
def cli() -> None:
    """What would I get from my idle nodes, and with which settings?"""


@click.command()
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
    """Run a click command; return its exit status after at most one line on stderr about what went wrong."""
    try:
        # `ctx.exit(status)` is returned as the status; a command that simply ends returns None.
        status: int | None = command(standalone_mode=False, prog_name=program)
        sys.stdout.flush()
    except (click.Abort, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would add nothing, and end in a traceback
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        tell(f"Error: {_one_line(error.format_message())}")
        return error.exit_code
    except BftrainerError as error:
        tell(f"Error: {_one_line(str(error))}")
        return error.exit_status
    except BrokenPipeError:
        settle_stdout()
        return 1
    except OSError as error:
        settle_stdout()
        where = "" if error.filename is None else f"{error.filename}: "
        tell(f"Error: {where}{_one_line(error.strerror or str(error))}.")
        return InputError.exit_status
    except ImportError as error:
        tell(f"Error: Cannot load {error.name or 'a library'}: {_one_line(str(_root(error)))}.")
        return BftrainerError.exit_status
    except MemoryError:
        click.echo("Error: Out of memory.", err=True)
        return BftrainerError.exit_status
    return status or 0


def _root(error: BaseException) -> BaseException:
    """Original cause of an error: libraries wrap the system's message in pages of advice."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error


def _one_line(message: str) -> str:
    return " ".join(message.split())


def main() -> None:
    """Entry point of `bftrainer`."""
    ready_streams()
    sys.exit(guarded(cli, "bftrainer"))


def replay_main() -> None:
    """Entry point of `bftrainer-replay`, the same as `bftrainer replay`."""
    from bftrainer.cli.replay.replay import replay

    ready_streams()
    sys.exit(guarded(replay, "bftrainer-replay"))
