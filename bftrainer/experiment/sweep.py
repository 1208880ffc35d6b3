"""Sweeps: many replays, each kept as it is finished, and one table of all."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bftrainer import __version__
from bftrainer.errors import BftrainerError, OutputError, RunDirectoryError, SweepError
from bftrainer.experiment.columns import integers, known_integers, reals, texts
from bftrainer.experiment.directory import result_directory
from bftrainer.experiment.engines import Engine, Lost
from bftrainer.experiment.files import write_run
from bftrainer.experiment.finished import read_summary
from bftrainer.experiment.generation import GenerationConfig, generate_trace
from bftrainer.experiment.readers import file_source, shared_readers
from bftrainer.experiment.run import load_inputs, run_replay
from bftrainer.experiment.sweep_file import SweepPoint, SweepSpec
from bftrainer.report.assumptions import Assumption, assumption
from bftrainer.report.comparison import figures_of
from bftrainer.traces import write_node_log
from bftrainer.traces.writing import replacing

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TABLE", "PointResult", "SweepResult", "prepare_directory", "run_sweep", "told_value"]

TABLE = "sweep.parquet"
_RUNS, _TRACES, _FILE = "runs", "traces", "sweep.toml"
# What the clock says differs between two equal runs, so the table has none of it; summaries have all.
_WALL = frozenset({"load_s", "replay_s", "baseline_s", "wall_s", "solve_wall_share"})


@dataclass(frozen=True, slots=True)
class PointResult:
    """What came of a point.

    Parameters
    ----------
    point : SweepPoint
    figures : mapping
        All figures of the run; empty if it failed.
    assumed : Assumption or None
        What figures of the run rest on.
    error : str or None
        Why it failed.
    was_done : bool
        Whether an earlier call had finished it.
    """

    point: SweepPoint
    figures: Mapping[str, float | None]
    assumed: Assumption | None = None
    error: str | None = None
    was_done: bool = False


@dataclass(frozen=True, slots=True)
class SweepResult:
    """All points of a sweep, in the order of its file."""

    points: tuple[PointResult, ...]

    @property
    def failed(self) -> list[PointResult]:
        """Points that failed."""
        return [point for point in self.points if point.error is not None]

    def table(self) -> pa.Table:
        """One row a point: its number, key, what is varied, its error, and all figures that no clock has a part in."""
        import pyarrow as pa

        points = self.points
        columns: dict[str, Any] = {
            "point": integers([each.point.number for each in points]),
            "run": texts([f"{_RUNS}/{each.point.key}" for each in points]),
        }
        for place, (name, _) in enumerate(points[0].point.varied if points else ()):
            columns[name] = _column([each.point.varied[place][1] for each in points])
        columns["error"] = _column([each.error for each in points])
        if any(each.assumed for each in points):
            columns["assumed_scaling"] = _column([each.assumed.note if each.assumed else None for each in points])
        names = dict.fromkeys(name for each in points for name in each.figures)
        for name in names:
            if name not in columns:
                columns[name] = _column([each.figures.get(name) for each in points])
        return pa.table(columns)


def _column(values: Sequence[Any]) -> pa.Array:
    """Whole numbers, numbers or texts, whichever holds them all; what else there is becomes text."""
    import numpy as np

    known = [value for value in values if value is not None]
    if known and all(isinstance(value, int) and not isinstance(value, bool) for value in known):
        return known_integers(values)
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in known):
        return reals([np.nan if value is None else value for value in values])
    told = list(dict.fromkeys(map(_text, known)))
    places = {text: place for place, text in enumerate(told)}
    which = [-1 if value is None else places[_text(value)] for value in values]
    return texts(told, np.array(which, dtype=np.int32))


def told_value(value: Any) -> Any:
    """The value of an option as tables and JSON tell it: numbers and texts as they are, windows and times as text."""
    if isinstance(value, tuple | list):
        return " to ".join(str(told_value(part)) for part in value)
    return value.isoformat() if isinstance(value, date | datetime | time) else value


def _text(value: Any) -> str:
    return str(told_value(value))


def prepare_directory(path: Path, spec: SweepSpec, *, resume: bool, force: bool) -> None:
    """Make the directory of a sweep, or find the one to go on in; its description is kept there.

    Raises
    ------
    OutputError
        If there is one already and it is neither to be resumed nor replaced, or what is there is no sweep.
    """
    if path.exists() and not path.is_dir():
        raise OutputError(f"{path}: Expected a directory or nothing, found a file.")
    if path.is_dir() and any(path.iterdir()):
        if not (path / _FILE).is_file():
            raise OutputError(f"{path}: Expected a sweep's directory (with a {_FILE}), found other files.")
        if not resume and not force:
            raise OutputError(f"{path}: Expected no such directory yet; --resume goes on in it, --force starts anew.")
        if force and not resume:
            shutil.rmtree(path)
    try:
        (path / _RUNS).mkdir(parents=True, exist_ok=True)
        for unfinished in (path / _RUNS).glob(".*"):
            shutil.rmtree(unfinished)
        with replacing(path / _FILE) as stream:
            stream.write(spec.path.read_bytes())
    except OSError as error:
        raise OutputError(f"{path}: Expected a place to write results to, got: {error.strerror}.") from None


def run_sweep(
    spec: SweepSpec, directory: Path, engine: Engine, told: Callable[[PointResult], None] = lambda _: None
) -> SweepResult:
    """Replay all points that are not finished yet, and write the table of all.

    Parameters
    ----------
    spec : SweepSpec
    directory : Path
        Of `prepare_directory`. Runs are kept in it by their keys, so that none is computed twice.
    engine : Engine
        A Dask cluster must see the directory and the inputs under the same paths.
    told : callable
        Told of each point that is done, in whatever order.

    Raises
    ------
    InputError
        If the sweep names what is not there.
    """
    points = spec.resolved(_generated(spec, directory))
    results: dict[int, PointResult] = {}
    for point in points:
        finished = _finished(point, directory)
        if finished is not None:
            results[point.number] = finished
            told(finished)
    # Points that are the same replay are computed once.
    left = list({point.key: point for point in points if point.number not in results}.values())
    for index, outcome in engine.run(_Work(directory.resolve()), left):
        for point in points:
            if point.key == left[index].key:
                results[point.number] = _result(point, outcome)
                told(results[point.number])
    result = SweepResult(tuple(results[point.number] for point in points))
    _write_table(result, directory / TABLE)
    return result


def _result(point: SweepPoint, outcome: PointResult | Lost) -> PointResult:
    if isinstance(outcome, Lost):
        return PointResult(point, {}, error=outcome.reason)
    return replace(outcome, point=point)


@dataclass(frozen=True, slots=True)
class _Work:
    """What workers are sent: replays a point, unless it has been, and keeps the run."""

    directory: Path

    def __call__(self, point: SweepPoint) -> PointResult:
        """Whatever goes wrong is the point's, and does not end the sweep."""
        try:
            finished = _finished(point, self.directory)
            if finished is not None:
                return finished
            result = run_replay(
                inputs=load_inputs(point.config(), shared_readers()), command=f"bftrainer sweep: {point.key}"
            )
            # What may be replaced is the empty directory that a worker reserved before it was killed.
            with result_directory([self.directory / _RUNS / point.key], force=True) as place:
                write_run(result, place.working)
            return _read(point, result.summary())
        except BftrainerError as error:
            return PointResult(point, {}, error=str(error))
        except Exception as error:  # an objective or a solver of the user's may raise anything
            return PointResult(point, {}, error=f"{type(error).__name__}: {error}")


def _finished(point: SweepPoint, directory: Path) -> PointResult | None:
    """The result of a point whose run is there, whole."""
    path = directory / _RUNS / point.key
    if not (path / "summary.json").is_file():
        return None
    try:
        return replace(_read(point, read_summary(path)), was_done=True)
    except RunDirectoryError as error:
        raise SweepError(f"{error} Remove it to have it computed again.") from None


def _read(point: SweepPoint, summary: Mapping[str, Any]) -> PointResult:
    """What the summary of a point's run says."""
    return PointResult(point, _figures(summary), assumption(summary))


def _figures(summary: Mapping[str, Any]) -> dict[str, float | None]:
    figures = figures_of(json.loads(json.dumps(summary)))
    return {name: value for name, value in figures.items() if name not in _WALL and not name.startswith("solve_s_")}


def _generated(spec: SweepSpec, directory: Path) -> dict[int, Path]:
    """Files of the traces that points ask for, by seed; those that are there already stay.

    Their names tell what they were generated from: after a change of that others are made.
    """
    if not spec.trace_seeds:
        return {}
    if spec.generate is None:
        raise SweepError(f"{spec.path}: Expected a section [generate] for generated traces, found none.")
    origin, found = _origin(spec.path, spec.generate), {}
    for seed in spec.trace_seeds:
        path = directory.resolve() / _TRACES / f"seed-{seed}-{origin}.parquet"
        if not path.is_file():
            path.parent.mkdir(exist_ok=True)
            write_node_log(path, generate_trace(replace(spec.generate, seed=seed)).log)
        found[seed] = path
    return found


def _origin(file: Path, generate: GenerationConfig) -> str:
    """A checksum of what traces are generated from: options, and the trace that they are to be like."""
    try:
        content = None if generate.like is None else file_source(generate.like)["sha256"]
    except OSError as error:
        raise SweepError(f"{file}: like: {generate.like}: {error.strerror}.") from None
    options = asdict(replace(generate, like=None))
    return hashlib.sha256(json.dumps([options, content], sort_keys=True).encode()).hexdigest()[:8]


def _write_table(result: SweepResult, path: Path) -> None:
    import pyarrow.parquet as pq

    table = result.table().replace_schema_metadata({"bftrainer.version": __version__})
    with replacing(path) as stream:
        pq.write_table(table, stream, compression="zstd")
