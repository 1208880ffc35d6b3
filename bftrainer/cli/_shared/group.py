"""The `bftrainer` command: names its subcommands and turns errors into one line and an exit status."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any

import click

from bftrainer._version import __version__
from bftrainer.cli._shared.lazy import LateGroup
from bftrainer.cli._shared.stdio import ready_streams, settle_stdout, tell
from bftrainer.errors import BftrainerError, InputError

__all__ = ["cli", "guarded", "main", "replay_main"]

INTERRUPTED = 130

# Command: module, attribute, one line of help; nothing else of them is needed for `bftrainer --help`.
_COMMANDS = {
    "advise": (
        "bftrainer.cli.campaigns.advise",
        "advise",
        "Search settings on a part of a log, and prove them on the rest.",
    ),
    "audit": ("bftrainer.cli.replay.audit", "audit", "Check finished runs by independent code."),
    "bso": ("bftrainer.cli.zeus.bso", "bso", "Serve batch sizes to recurring training jobs."),
    "compare": ("bftrainer.cli.replay.compare", "compare", "Compare finished runs."),
    "completion": ("bftrainer.cli.completion", "completion", "Print a shell's completion script."),
    "convert": ("bftrainer.cli.logs.convert", "convert", "Convert node logs and task sets, legacy to native and back."),
    "forecast": ("bftrainer.cli.campaigns.forecast", "forecast", "Tell how probably tasks are done by a deadline."),
    "import": ("bftrainer.cli.logs.import_log", "import_log", "Turn a scheduler's log into a node log."),
    "master": ("bftrainer.cli.zeus.master", "master", "Drive a real training job through its recurrences."),
    "plot": ("bftrainer.cli.replay.plot", "plot", "Draw a figure of finished runs for print."),
    "replay": ("bftrainer.cli.replay.replay", "replay", "Replay a node log with a task set."),
    "report": ("bftrainer.cli.replay.report", "report", "Make one page of finished runs."),
    "solvers": ("bftrainer.cli.replay.solvers", "solvers", "List the solvers: installed, licensed, exact, version."),
    "spot": ("bftrainer.cli.spot.spot", "spot", "Simulate checkpointed training on preemptible nodes."),
    "sweep": ("bftrainer.cli.campaigns.sweep", "sweep", "Replay a grid or list of settings."),
    "tasks": ("bftrainer.cli.logs.tasks", "tasks", "Make task sets and scalability curves."),
    "trace": ("bftrainer.cli.logs.trace", "trace", "Measure, generate, cut and share traces of nodes."),
    "zeus": ("bftrainer.cli.zeus.zeus", "zeus", "Tune batch sizes and power limits of recurring jobs, in simulation."),
}


@click.group(cls=LateGroup, late=_COMMANDS)
@click.version_option(__version__, prog_name="bftrainer")
def cli() -> None:
    """What would I get from my idle nodes, and with which settings?"""


def guarded(command: Callable[..., Any], program: str) -> int:
    """Run a click command; return its exit status after at most one line on stderr about what went wrong."""
    try:
        # `ctx.exit(status)` comes back as the status; a command that simply ends gives None.
        status: int | None = command(standalone_mode=False, prog_name=program)
        sys.stdout.flush()
    except (click.Abort, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # another would say nothing new, and end in a traceback
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
        click.echo("Error: Expected more memory than there is.", err=True)
        return BftrainerError.exit_status
    return status or 0


def _root(error: BaseException) -> BaseException:
    """The fault that others were raised for: libraries wrap what the system said in pages of advice."""
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
