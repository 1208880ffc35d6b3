"""Commands called in this process, each in a directory of its own: what they print and write is public."""

from inspect import signature
from pathlib import Path

from click.testing import CliRunner

from benchmarks.published import shared_data
from bftrainer.cli.group import cli
from bftrainer.errors import BftrainerError
from tests.tiny import Done

# Before click 8.2 runners put errors among the output unless told not to; since then they take no such word.
APART = {"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {}


def run_command(*words: object) -> Done:
    """Run `bftrainer WORDS` as click's runner does; its exit status is that of the entry point."""
    result = CliRunner(**APART).invoke(cli, [str(word) for word in words], prog_name="bftrainer")
    error = result.exception
    if isinstance(error, BftrainerError):
        return Done(error.exit_status, result.stdout, f"{result.stderr}Error: {error}\n")
    if error is not None and not isinstance(error, SystemExit):
        raise error
    return Done(result.exit_code, result.stdout, result.stderr)


def check_command(*words: object) -> Done:
    """Run a command that has to succeed."""
    done = run_command(*words)
    assert done.status == 0, (words, done)
    return done


def find_shared_data() -> Path | None:
    """Folder of published data and logs, which the repository does not carry; None without it."""
    folder = shared_data()
    return folder if (folder / "bftrainer").is_dir() else None
