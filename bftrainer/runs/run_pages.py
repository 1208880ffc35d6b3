"""Write pages about runs: those of result directories, and results in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from bftrainer._version import __version__
from bftrainer.errors import escaped
from bftrainer.extras import absent, require_extra
from bftrainer.files.writing import refuse_existing, replacing
from bftrainer.report.brief import Worth, brief_of, brief_pdf
from bftrainer.report.finished_run import FinishedRun
from bftrainer.report.page import brief_page, page, rendered_page
from bftrainer.runs.finished import finished_run, read_runs

if TYPE_CHECKING:
    from bftrainer.runs.run import RunResult


def check_pages() -> None:
    """Refuse to make pages without the libraries for them: `SettingsError`."""
    require_extra("Pages need", "report", "jinja2", "matplotlib")


def write_page(
    paths: Sequence[Path], output: Path, *, force: bool = False, brief: bool = False, worth: Worth | None = None
) -> None:
    """Write a page about the runs in these directories; one whose name ends in ``.pdf`` has an A4 side for each run.

    Parameters
    ----------
    paths : sequence of Path
    output : Path
    force : bool
        Whether to replace a page.
    brief : bool
        Whether the page has the brief of each run alone.
    worth : Worth, optional
        What a useful node-hour stands for.

    Raises
    ------
    RunDirectoryError
        If one of them is not a readable result directory.
    OutputError
        If the page exists and not `force`, or cannot be written.
    SettingsError
        If matplotlib or Jinja is not installed.
    """
    _write_page(read_runs(paths), output, force=force, brief=brief, worth=worth)


def write_page_of_result(result: RunResult, output: Path, *, force: bool) -> None:
    """Write a page about a run in memory, as `write_page`."""
    _write_page([_finish(result, escaped(output.stem.removesuffix("-itrOut")))], output, force=force)


def _write_page(
    runs: Sequence[FinishedRun], output: Path, *, force: bool, brief: bool = False, worth: Worth | None = None
) -> None:
    check_pages()
    refuse_existing(output, force=force)
    if output.suffix.lower() == ".pdf":
        content = brief_pdf([brief_of(run, worth) for run in runs])
    else:
        briefs = [brief_of(run, worth) for run in runs] if brief else []
        text = brief_page(briefs, __version__) if brief else page(runs, __version__, worth)
        content = text.encode(errors="backslashreplace")  # it names files, whose names need not be valid text
    with replacing(output) as stream:
        stream.write(content)


def notebook_view(result: RunResult) -> str | None:
    """The brief of a run as a part of a page, for notebooks; None where libraries for it are missing."""
    if absent("jinja2", "matplotlib"):
        return None
    run = _finish(result, "this run")
    brief = brief_of(run)
    # Ids in pictures must differ from those of other results in the notebook.
    prefix = crc32(f"{run.name}{run.summary['command']}{brief.subtitle}{brief.headline}".encode(errors="replace"))
    return rendered_page("brief_notebook.html", brief=brief, prefix=prefix)


def _finish(result: RunResult, name: str) -> FinishedRun:
    """The run as if read from its files."""
    summary = json.loads(json.dumps(result.summary()))  # converted as in its file
    return finished_run(name, summary, lambda table: table.of(result))
