"""The page of a sweep while it runs: rewritten as points are done, and loading itself anew until all are."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from bftrainer.campaigns.sweep import PointResult, SweepResult
from bftrainer.campaigns.sweep_file import SweepSpec
from bftrainer.files.writing import replacing
from bftrainer.report.sweep_page import check_metrics, sweep_page

_EVERY_S = 2.0
_MOST_SHARE = 0.05
"""Largest share of the time that is spent on pages."""


class LivePage:
    """Writes the page of a sweep, at most every two seconds; within a block that fails, the last one says so.

    Parameters
    ----------
    path : Path
    spec : SweepSpec
    metrics : sequence of str
        Figures to judge settings by, as `sweep_page` takes them.

    Raises
    ------
    SettingsError
        If a figure cannot be better or worse.
    """

    def __init__(self, path: Path, spec: SweepSpec, metrics: Sequence[str] = ()) -> None:
        check_metrics(metrics)
        self._path, self._spec, self._metrics = path, spec, tuple(metrics)
        self._done: dict[int, PointResult] = {}
        self._next_s = 0.0

    def __call__(self, result: PointResult) -> None:
        """Take a point that is done."""
        self._done[result.point.number] = result
        begun_s = time.monotonic()
        if begun_s >= self._next_s:
            self._write(total=len(self._spec.points))
            now_s = time.monotonic()
            self._next_s = now_s + max(_EVERY_S, (now_s - begun_s) / _MOST_SHARE)

    def __enter__(self) -> LivePage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Write the page that stays: of all points, or of those that were done before the sweep ended."""
        if self._done:
            self._write(stopped=kind is not None)

    def _write(self, total: int | None = None, *, stopped: bool = False) -> None:
        result = SweepResult(tuple(self._done[number] for number in sorted(self._done)))
        rows, varied = result.table().to_pylist(), self._spec.varied
        left = len(self._spec.points) - len(rows) if stopped else 0
        made = self._spec.text.decode(errors="backslashreplace")
        text = sweep_page(self._spec.path.name, rows, varied, made, self._metrics, total=total, left=left)
        with replacing(self._path) as stream:
            stream.write(text)
