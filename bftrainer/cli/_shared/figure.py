"""Writing figures from commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["refuse_figure", "write_figure"]


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
