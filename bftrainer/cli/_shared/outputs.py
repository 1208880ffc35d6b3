"""Where commands write: never onto what they read, and no figure that cannot be drawn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["refuse_figure", "refuse_inputs", "write_figure"]


def refuse_inputs(*outputs: Path | None) -> None:
    """Refuse to write onto a file that this call reads, or two outputs onto one file, also with `--force`.

    Read is every file that a parameter names which is none of `outputs`, what forms keep beside it, and the files of
    a directory that are results.

    Parameters
    ----------
    *outputs : Path or None
        As the parameters gave them, and what is written beside them.

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
    """Files that a value names: paths, and text where the parameter takes a file or something else."""
    for each in value if isinstance(value, tuple) else (value,):
        if isinstance(each, Path):
            yield each
        elif isinstance(each, str) and "FILE" in (getattr(param, "metavar", None) or ""):
            yield Path(each)


def _with_what_is_beside(path: Path) -> Iterator[Path]:
    from bftrainer.files.directory import written_files
    from bftrainer.nodelogs.native import metadata_path
    from bftrainer.tasksets.task_files import scalability_path

    yield path
    if path.is_dir():
        yield from (path / name for name in written_files(path))
        return
    beside = (metadata_path(path) if ".csv" in path.suffixes else None, scalability_path(path))
    yield from (other for other in beside if other is not None and other.is_file())


def refuse_figure(path: Path | None, *, force: bool) -> None:
    """Refuse a figure that could not be drawn or written, before there is one.

    Raises
    ------
    InputError
        If it exists and not `force`, its name promises no known form, or matplotlib is missing.
    """
    from bftrainer.files.writing import refuse_existing
    from bftrainer.report.drawing import check_drawable

    if path is not None:
        check_drawable(path.name)
        refuse_existing(path, force=force)


def write_figure(path: Path, figure: Figure) -> None:
    """Write a figure in the form that its name promises.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    from bftrainer.files.writing import replacing
    from bftrainer.report.drawing import check_drawable, rendered

    with replacing(path) as stream:
        stream.write(rendered(figure, check_drawable(path.name)))
