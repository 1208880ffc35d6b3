"""Standard streams that can always be written to, wherever they lead."""

from __future__ import annotations

import io
import os
import sys

import click

from bftrainer.errors import legible

__all__ = ["ready_streams", "settle_stdout", "tell"]


def tell(message: str) -> None:
    """Print a line on stderr, whatever it quotes from files."""
    click.echo(legible(message), err=True)


def ready_streams() -> None:
    """Let closed standard streams lead nowhere, and print what their encoding cannot hold by its code.

    The next file that is opened would take a closed stream's number, and what libraries print would end up in it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    # Python has none for what was closed when it started.
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as for stderr anyway; names of files may be any bytes


def settle_stdout() -> None:
    """Print what is still to be printed, or drop it where its place takes no more: exit would complain again."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
