"""Go on in the background: a process of its own serves, and this one tells where, or why not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click

from bftrainer.errors import OutputError


def in_background(log: Path) -> Callable[[str], None]:
    """Go on in a process of its own, which outlives the terminal and writes to a log.

    This process waits for what the other one says, prints it and ends: with status 0 and the address, or, if the other
    one ends before it has said something, with its status and its last words.

    Parameters
    ----------
    log : Path
        File that output is appended to; made so that its owner alone may read it.

    Returns
    -------
    callable
        Tells this process the address, once.

    Raises
    ------
    OutputError
        If the log cannot be written.
    """
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise OutputError(f"{log}: cannot be written ({error.strerror}).") from None
    before = os.fstat(output).st_size
    reading, writing = os.pipe()
    process = os.fork()
    if process:
        os.close(writing)
        with open(reading, encoding="utf-8") as pipe:
            address = pipe.read()
        if address:
            click.echo(f"Serving at {address}; process {process}, log {log}.")
            raise click.exceptions.Exit(0)
        _, status = os.waitpid(process, 0)
        with log.open(encoding="utf-8", errors="replace") as said:
            said.seek(before)
            last = (said.read().strip().splitlines() or ["The server has ended."])[-1]
        why = last if last.startswith("Error: ") else f"Error: {log}: the server has ended, and says there why."
        click.echo(why, err=True)
        raise click.exceptions.Exit(os.waitstatus_to_exitcode(status))
    os.close(reading)
    os.setsid()
    with open(os.devnull, "rb") as nothing:
        for number, place in enumerate((nothing.fileno(), output, output)):
            os.dup2(place, number)
    os.close(output)

    def tell(address: str) -> None:
        """Tell the address."""
        os.write(writing, address.encode())
        os.close(writing)

    return tell
