"""Pages of campaigns: the option that asks for one, checks before anything is replayed, and writing."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bftrainer.cli._shared.usage import open_option, refuse_inputs, refuse_unused
from bftrainer.cli.zeus.zeus_options import FILE, with_options

report_option = with_options(
    click.option("--report", type=FILE, help="Also make one page of it: a file that any browser shows."), open_option
)
page_options = with_options(report_option, click.option("--force", is_flag=True, help="Replace an existing page."))


def check_report(report: Path | None, *, force: bool) -> None:
    """Refuse a page that could not be made or written, or opened without being made, before anything is replayed.

    Raises
    ------
    InputError
        If it exists and not `force`, or cannot be written, or a library is missing, or there is none to open.
    """
    from bftrainer.extras import require_extra
    from bftrainer.files.writing import refuse_existing

    refuse_unused({"open": report is None and "there is no --report"})
    if report is not None:
        require_extra("Pages need", "report", "jinja2", "matplotlib")
        refuse_inputs(report)
        refuse_existing(report, force=force)


def save_report(report: Path | None, make: Callable[[dict[str, Any], str], bytes], found: dict[str, Any]) -> None:
    """Write the page of a forecast or of advice, if one is asked for.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    from bftrainer.files.writing import replacing

    if report is not None:
        with replacing(report) as stream:
            stream.write(make(found, shlex.join(["bftrainer", *sys.argv[1:]])))
