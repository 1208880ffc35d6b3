"""Sweeps: many replays, on this machine or by Dask, one table of all, and what options change, pair by pair."""

from __future__ import annotations

import asyncio
import json
import math
import re
import shlex
import signal
import sys
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bftrainer._version import __version__
from bftrainer.campaigns.sweep_file import SweepPoint, SweepSpec, locate_option, plain_value
from bftrainer.errors import BftrainerError, InputError, OutputError, SettingsError, SolverUnavailableError, suggestion
from bftrainer.files import directories
from bftrainer.files.arrow import parquet_file
from bftrainer.files.directories import LOCK, MANIFEST, SUMMARY, written_files
from bftrainer.files.text_files import toml_file
from bftrainer.files.writing import lock_file, replacing, report_os_errors, temporary_path
from bftrainer.objectives import get_objective
from bftrainer.parallel import Lost, Work, count_workers, map_as_ready
from bftrainer.plugins import require_extra
from bftrainer.report.campaign_pages import REPEATED
from bftrainer.report.comparison import figures_of, setting_label
from bftrainer.report.drawing import PrintFigure, Sheet, palette, wrap_label
from bftrainer.report.glossary import ASSUMED, assumption_notes, check_metrics
from bftrainer.report.metrics import Estimate, estimate, opposite_means
from bftrainer.runs.run import run_replay
from bftrainer.runs.run_files import read_summary, write_run
from bftrainer.runs.run_inputs import load_inputs
from bftrainer.terms import ON_SCALING, term_of
from bftrainer.zeus.policies.policy_registry import BATCH_SIZES, POWER_LIMITS
from solvers.registry import describe_solver

if TYPE_CHECKING:
    import pyarrow as pa

CONNECT_S = 10.0
Engine = Callable[[Work, Sequence[Any]], Generator[tuple[int, Any], None, None]]
"""Yields the index of each item and its result, or a `Lost`, in any order.

What cannot be reached is refused by the call, before the first result is asked for.
"""
TABLE, RUNS = "sweep.parquet", "runs"
SWEEP = "sweep.toml"
_KEY = re.compile("[0-9a-f]{16}")
# Clock times differ between equal runs, so the table leaves them out; summaries have them.
_WALL = frozenset({"load_s", "replay_s", "baseline_s", "wall_s", "solve_wall_share", "backend_s"})
_LOOKUPS: dict[str, Callable[[str], Any]] = {
    "objective": get_objective,
    **dict.fromkeys(("solver", "fallback"), describe_solver),
    "policy": BATCH_SIZES.get,
    "power_policy": POWER_LIMITS.get,
}
"""Options whose values are names of code, perhaps as ``module:callable``, and what looks them up."""
# Beyond it a ratio says no more than that the other figure is 0 but for rounding.
_MOST_RATIO = 1e12


@dataclass(frozen=True, slots=True)
class PointResult:
    """Result of a point: all figures of its run, and the assumption that they rest on, or why it failed."""

    point: SweepPoint
    figures: Mapping[str, float | None]
    assumed_scaling: Mapping[str, Any] | None = None
    error: str | None = None
    was_done: bool = False
    """Whether an earlier call had finished it."""

    @classmethod
    def of(cls, point: SweepPoint, summary: Mapping[str, Any], *, was_done: bool = False) -> PointResult:
        """Result of a point from the summary of its run."""
        figures = figures_of(json.loads(json.dumps(summary))).items()
        steady = {name: value for name, value in figures if name not in _WALL and not name.startswith("solve_s_")}
        return cls(point, steady, summary.get("assumed_scaling"), was_done=was_done)


@dataclass(frozen=True, slots=True)
class SweepResult:
    """All points of a sweep, in the order of its file."""

    points: tuple[PointResult, ...]

    @property
    def failures(self) -> list[PointResult]:
        """Points that failed."""
        return [point for point in self.points if point.error is not None]

    def table(self) -> pa.Table:
        """One row per point: number, key, varied options, error, and all figures that do not depend on the clock."""
        import pyarrow as pa

        rows, has_notes = [], any(result.assumed_scaling for result in self.points)
        for result in self.points:
            row = {"point": result.point.number, "run": f"{RUNS}/{result.point.key}", **result.point.varied}
            row["error"] = result.error
            if has_notes:
                row["assumed_scaling"] = result.assumed_scaling and result.assumed_scaling["note"]
            rows.append(row | {name: value for name, value in result.figures.items() if name not in row})
        names = dict.fromkeys(name for row in rows for name in row)
        return pa.table({name: _column([row.get(name) for row in rows]) for name in names})


def _column(values: Sequence[Any]) -> pa.Array:
    """Column of whole numbers, numbers or texts, the first type that fits all values; others become text."""
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        return pa.array(values, pa.int64() if kinds == {int} else pa.float64(), from_pandas=True)
    return pa.array([None if value is None else str(plain_value(value)) for value in values], pa.string())


def run_sweep(
    spec: SweepSpec,
    directory: Path,
    engine: Engine,
    on_done: Callable[[PointResult], None] = lambda _: None,
    *,
    resume: bool = False,
    force: bool = False,
) -> SweepResult:
    """Replay all points, and write the table of all.

    Runs are saved in the directory under their keys, so that none is computed twice; a Dask cluster must see it and the
    inputs under the same paths. `on_done` is called with each finished point, in any order. With `resume`, finished
    runs in a sweep's directory are not computed again; with `force`, they are deleted first.

    An `InputError` if a named input is missing, or no point can begin; the directory is unchanged then. An
    `OutputError` if a sweep's results exist and neither `resume` nor `force` is given, or the directory has other
    files.
    """
    _check_place(directory, has_leave=resume or force)
    points = spec.resolve_points()
    _check_points(spec, points)
    _check_start(points, is_replacing=force)
    results: dict[int, PointResult] = {}
    for point in () if force else points:
        if (earlier := _read_finished(point, directory)) is not None:
            results[point.number] = earlier
            on_done(earlier)
    pending = list({point.key: point for point in points if point.number not in results}.values())
    # What runs and the table are written with, imported once before processes are forked.
    import pyarrow.compute
    import pyarrow.parquet

    # A cluster is reached before anything is written.
    with (
        closing(engine(partial(_compute_point, directory.resolve()), pending)) as outcomes,
        open_sweep(directory, {SWEEP, TABLE}, has_leave=resume or force),
    ):
        if force:
            _drop_results(directory, {point.key for point in points})
        if not (directory / TABLE).exists():
            with replacing(directory / SWEEP) as stream:
                stream.write(spec.text)
        for index, outcome in outcomes:
            for point in points:
                if point.key == pending[index].key:
                    is_lost = isinstance(outcome, Lost)
                    result = PointResult(point, {}, error=outcome.reason) if is_lost else replace(outcome, point=point)
                    results[point.number] = result
                    on_done(result)
        whole = SweepResult(tuple(results[point.number] for point in points))
        table = whole.table().replace_schema_metadata({"bftrainer.version": __version__})
        with replacing(directory / SWEEP) as stream:
            stream.write(spec.text)
        with replacing(directory / TABLE) as stream:
            pyarrow.parquet.write_table(table, stream, compression="zstd")
    return whole


def _check_points(spec: SweepSpec, points: Sequence[SweepPoint]) -> None:
    """Refuse code that cannot be found, and options that have no effect on any point, naming the line of the first."""
    for name, value in dict.fromkeys(item for point in points for item in point.options.items() if item[0] in _LOOKUPS):
        try:
            _LOOKUPS[name](value)
        except InputError as error:
            raise SettingsError(f"{locate_option(spec.path, spec.text, name)}: {error}") from None
    effective = {name for point in points for name in point.options if name not in point.ineffective}
    reasons = {name: why for point in points for name, why in point.ineffective.items() if name not in effective}
    if reasons:
        listed = ", ".join(f"{name} ({why})" for name, why in reasons.items())
        line = locate_option(spec.path, spec.text, next(iter(reasons)))
        raise SettingsError(f"{line}: Options that have no effect: {listed}.")


def _check_start(points: Sequence[SweepPoint], *, is_replacing: bool) -> None:
    """Refuse points of which none can begin, or, if they replace results, get past its first event: an `InputError`."""
    faults = list[Exception]()
    for point in points:
        try:
            inputs = load_inputs(replace(point.config(), max_events=1, baseline=False))
            if is_replacing:
                run_replay(inputs=inputs)
            return
        except SolverUnavailableError:  # a solver may be licensed on the workers only
            return
        except Exception as error:  # a user's objective or solver may raise anything
            if not (is_replacing or isinstance(error, InputError)):
                return
            faults.append(error)
    raise SettingsError(f"Nothing was replaced, as all points failed: {faults[0]}") if is_replacing else faults[0]


def _compute_point(directory: Path, point: SweepPoint) -> PointResult:
    """Replay a point, unless that was done, and save the run; any error becomes its result, and others go on."""
    try:
        if (earlier := _read_finished(point, directory)) is not None:
            return earlier
        inputs = load_inputs(point.config())
        for name, source in inputs.sources.items():
            if isinstance(source, dict) and source["sha256"] != point.contents.get(name, source["sha256"]):
                raise InputError(
                    f"{source['path']}: Expected a file that stays as it is, got one that changed meanwhile."
                )
        result = run_replay(inputs=inputs, command=f"bftrainer sweep: {point.key}")
        if not (directory / RUNS).is_dir():
            # The sweep was given up, and a cluster's worker was not notified.
            raise SettingsError(f"{directory}: The directory of the sweep was removed meanwhile.")
        # This replaces the empty directory of a killed worker.
        with directories.result_directory(directory / RUNS / point.key, force=True) as place:
            write_run(result, place.working)
        return PointResult.of(point, result.summary())
    except BftrainerError as error:
        return PointResult(point, {}, error=str(error))
    except Exception as error:  # a user's objective or solver may raise anything
        return PointResult(point, {}, error=f"{type(error).__name__}: {error}")


def _read_finished(point: SweepPoint, directory: Path) -> PointResult | None:
    """Result of a point whose run is finished, else None."""
    path = directory / RUNS / point.key
    if not (path / "summary.json").is_file():
        return None
    try:
        return PointResult.of(point, read_summary(path), was_done=True)
    except OutputError as error:
        raise SettingsError(f"{error} Remove it to have it computed again.") from None


def _check_place(path: Path, *, has_leave: bool) -> None:
    """Refuse a directory with files that are no sweep's, and one with results, unless these may be used."""
    if path.exists() and not path.is_dir():
        raise OutputError(f"{path}: Expected a directory or nothing, found a file.")
    if not path.is_dir() or not {*path.iterdir()} - {temporary_path(path / MANIFEST), path / LOCK}:
        return
    if SWEEP not in written_files(path):
        raise OutputError(f"{path}: Expected a sweep's directory, found other files, or those of an earlier version.")
    if not has_leave and ((path / TABLE).exists() or any((path / RUNS).glob(f"*/{SUMMARY}"))):
        raise OutputError(f"{path}: Directory exists; --resume continues in it, --force starts anew.")


@contextmanager
def open_sweep(path: Path, names: Iterable[str], *, has_leave: bool) -> Iterator[None]:
    """Make the directory of a sweep, as its only writer, and list files of these names as ours.

    What is there without a result is gone on with, as nothing is lost; `has_leave` allows the same with results. An
    `OutputError` if there are others, or it cannot be written.
    """
    _check_place(path, has_leave=has_leave)
    with ExitStack() as stack:
        with report_os_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            stack.enter_context(lock_file(path / LOCK, path))
            # The manifest comes first, so that a killed sweep can be resumed.
            directories.list_written(path, {*names, *written_files(path)})
            (path / RUNS).mkdir(exist_ok=True)
            directories.clear_leftovers(path / RUNS, _KEY)
        yield


def _drop_results(path: Path, keys: Collection[str]) -> None:
    """Delete table and runs of an earlier sweep; an `OutputError` if other files are where a run of `keys` goes."""
    places = [place for place in sorted((path / RUNS).iterdir()) if place.is_dir() and not place.is_symlink()]
    # Of a run that a killed process was deleting an empty directory may be left.
    emptied = {place for place in places if _KEY.fullmatch(place.name) and not any(place.iterdir())}
    runs = [place for place in places if place in emptied or SUMMARY in written_files(place)]
    for run in runs:
        if run.name in keys:
            directories.check_free(run, force=True)
    (path / TABLE).unlink(missing_ok=True)  # first, as it says of the runs that they are whole
    for run in runs:
        directories.remove_written(run)


def local_engine(workers: int | None = None) -> Engine:
    """Processes of this machine, by default one per usable processor; one worker computes in this process."""
    return partial(map_as_ready, workers=count_workers(workers))


class DaskEngine:
    """A Dask cluster: a running one, or one made of a batch system's jobs.

    `jobqueue` is a TOML file: ``system``, a class of dask-jobqueue in lower case (slurm, pbs, lsf, ...), ``jobs``, how
    many, and arguments of that class. A `SettingsError` if neither or both are given, Dask is not installed, or the
    file cannot be used.
    """

    def __init__(self, scheduler: str | None = None, jobqueue: Path | None = None) -> None:
        if (scheduler is None) == (jobqueue is None):
            raise SettingsError("Give either --scheduler or --dask-jobqueue for the engine dask.")
        require_extra("The engine dask needs", "dask", "distributed", *(["dask_jobqueue"] if jobqueue else []))
        self._scheduler, self._file = scheduler, jobqueue
        if jobqueue is None:
            return
        table = toml_file(jobqueue, SettingsError)
        system, jobs, kinds = str(table.pop("system", "")), table.pop("jobs", None), {}
        if system:
            handler = signal.getsignal(signal.SIGINT)
            import dask_jobqueue  # which has Ctrl-C end the process with status 0, and writes to the home directory

            signal.signal(signal.SIGINT, handler)
            kinds = {name.removesuffix("Cluster").lower(): name for name in dir(dask_jobqueue) if "Cluster" in name}
        if system not in kinds:
            hint = suggestion(system, kinds)
            raise SettingsError(f"{jobqueue}: Expected the system of a batch scheduler, got {system!r}.{hint}")
        if not isinstance(jobs, int) or jobs < 1:
            raise SettingsError(f"{jobqueue}: Expected jobs, how many to submit, got {jobs!r}.")
        # dask-jobqueue inserts values into a job's script without quotes.
        table.setdefault("python", shlex.quote(sys.executable))
        self._jobs, self._make_cluster = jobs, partial(getattr(dask_jobqueue, kinds[system]), **table)

    def __call__(self, work: Work, items: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
        """Connect, then yield results as they are ready; Dask repeats the work of a lost worker.

        A `SettingsError` if the scheduler cannot be reached, or the batch system takes no jobs.
        """
        from distributed import Client, as_completed
        from distributed.comm import connect

        async def check_answers(address: str) -> None:
            await (await connect(address, timeout=CONNECT_S)).close()

        scheduler: Any = self._scheduler
        with ExitStack() as stack:
            try:
                if self._file is None:
                    # A client without a server takes 20 s more to close, and prints a traceback (distributed 2026.8).
                    asyncio.run(check_answers(scheduler))
                else:
                    scheduler = stack.enter_context(self._make_cluster())
                    scheduler.scale(jobs=self._jobs)
                client = stack.enter_context(Client(scheduler, timeout=CONNECT_S, set_as_default=False))
            except (OSError, TypeError, ValueError, MemoryError, EOFError) as error:
                # The answer of another kind of server may be taken for the length of a huge message.
                waited = f"{scheduler}: No Dask scheduler answered within {CONNECT_S:.0f} s"
                raise SettingsError(f"{self._file or waited}: {_first_line(error)}") from None
            connection = stack.pop_all()

        def compute() -> Generator[tuple[int, Any], None, None]:
            with connection:
                futures = client.map(work, items, pure=False)
                places = {future.key: index for index, future in enumerate(futures)}
                for future in as_completed(futures, loop=client.loop):
                    error = future.exception()
                    yield places[future.key], future.result() if error is None else Lost(_first_line(error))
                    future.release()

        return compute()


def _first_line(error: BaseException) -> str:
    """The first line of a library's message, which may be empty."""
    return str(error).partition("\n")[0] or type(error).__name__


@dataclass(frozen=True, slots=True)
class PairedChange:
    """How a figure changes from one value of an option to another, the first one in the sweep."""

    value: Any
    against: Any
    metric: str
    change: Estimate | None
    """Mean over pairs of the figure's ratio, less 1, with its 95 % interval; None without a pair."""
    points: int
    """Points with the value."""
    unequal: int = 0
    """Pairs whose figures are of different numbers of tasks, as completed ones, and so not comparable."""
    opposite: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Mean changes at values of other options, by these, if some rise and some fall, each beyond its interval."""

    @property
    def lone_points(self) -> int:
        """Points without a partner, or whose ratio is undefined."""
        return self.points - (0 if self.change is None else self.change.number)

    @property
    def verdict(self) -> str:
        """Whether the change is for the better or the worse; "unclear" where its interval holds 0, or there is none."""
        if self.change is None or not self.change.is_clear:
            return "unclear"
        return "better" if self.change.mean * term_of(self.metric).better > 0 else "worse"

    @property
    def note(self) -> str:
        """Why the figures are not comparable, and what the mean hides; empty if neither."""
        texts, term, pairs = list[str](), term_of(self.metric), self.points - self.lone_points
        if self.unequal:
            counted = term_of(term.over).label
            texts.append(f"not comparable, as {self.unequal} of {pairs} pairs differ in {counted}")
        for name, means in self.opposite.items():
            values = ", ".join(f"{value} {100 * mean:+.2f} %" for value, mean in means.items())
            texts.append(f"pooled over {name}, where the change differs in sign: {values}")
        return f"{term.label}: {'; '.join(texts)}" if texts else ""

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self) | {"unpaired": self.lone_points, "verdict": self.verdict, "note": self.note}


def check_pairing(varied: Sequence[str], option: str, metrics: Sequence[str]) -> None:
    """Refuse an option that a sweep does not vary, and figures that cannot be better or worse: `SettingsError`."""
    check_metrics(metrics)
    if option not in varied:
        raise SettingsError(f"Expected an option that the sweep varies, got {option!r}.{suggestion(option, varied)}")


def paired_changes(
    sweep: pa.Table | str | Path, option: str, metrics: Sequence[str] = ("work_done",)
) -> list[PairedChange]:
    """Compare each value of an option, named as in the sweep's file, with its first one, point by point, by figures.

    The sweep is its table or its directory. Two points are a pair if all else that varies is the same: window, seed and
    other options. How windows and seeds differ is no part of a pair's ratio, so that intervals are those of the change
    alone. A mean over values of another option that hides opposite changes has them beside it.

    A `SettingsError` if the option does not vary, a figure cannot be better or worse, or there is no table.
    """
    table = read_sweep_table(Path(sweep)) if isinstance(sweep, str | Path) else sweep
    varied = table.column_names[2 : table.column_names.index("error")]
    check_pairing(varied, option, metrics)
    sides: dict[Any, dict[Hashable, dict[str, Any]]] = {}
    for row in table.to_pylist():
        sides.setdefault(row[option], {})[tuple(row[name] for name in varied if name != option)] = row
    (against, base), *others = sides.items()
    changes, axes = [], [name for name in varied if name not in (option, *REPEATED)]
    for metric in metrics:
        for value, side in others:
            pairs = [(row, base[key]) for key, row in side.items() if key in base]
            ratios = [(ratio, *pair) for pair in pairs if (ratio := ratio_less_one(metric, *pair)) is not None]
            change = estimate([ratio for ratio, *_ in ratios]) if ratios else None
            counted = term_of(metric).over
            unequal = sum(row.get(counted) != other.get(counted) for _, row, other in ratios)
            by_axis = {name: opposite_means((str(row[name]), ratio) for ratio, row, _ in ratios) for name in axes}
            opposite = {name: means for name, means in by_axis.items() if means}
            changes.append(PairedChange(value, against, metric, change, len(side), unequal, opposite))
    return changes


def ratio_less_one(metric: str, one: Mapping[str, Any], two: Mapping[str, Any]) -> float | None:
    """Ratio less 1 of a figure that both have, and that is not 0 in the second one."""
    figure, base = one.get(metric), two.get(metric)
    ratio = math.nan if figure is None or not base else figure / base - 1.0
    return ratio if abs(ratio) < _MOST_RATIO else None


def read_sweep_table(directory: Path) -> pa.Table:
    """The table of a sweep; a `SettingsError` if there is none."""
    path = directory / TABLE
    if not path.is_file():
        raise SettingsError(f"{directory}: Expected a sweep's directory with a {TABLE}, found none in it.")
    with parquet_file(path, SettingsError) as file:
        table = file.read()
    if table.column_names[:2] != ["point", "run"] or "error" not in table.column_names:
        raise SettingsError(f"{path}: Expected columns point, run, options, error and figures.")
    return table


def plot_changes(table: pa.Table, option: str, metric: str, sheet: Sheet) -> PrintFigure:
    """Draw how each value of an option changes a figure against its first one, with whiskers for 95 % intervals."""
    changes = [change for change in paired_changes(table, option, [metric]) if change.change is not None]
    if not changes:
        raise SettingsError(f"Expected two points that differ in {option} alone and have {metric}, found none.")
    ink, label, name, against = palette(), term_of(metric).label, setting_label(option), str(changes[0].against)
    way = "more" if term_of(metric).better > 0 else "less"
    rows = [
        (str(one.value), against, 100 * of.mean, of.half_width and 100 * of.half_width, of.number, one.lone_points)
        for one in changes
        if (of := one.change)
    ]
    figure = sheet.figure(max(42.0, 0.5 * sheet.width_mm))
    ax = figure.add_subplot()
    ax.axhline(0.0, color=ink["gray"], linewidth=0.8)
    ax.plot(0, 0.0, "o", color=ink["gray"], markerfacecolor="white")  # what is compared with
    look = {"fmt": "o", "color": ink["blue"], "capsize": 3, "linewidth": 1.0}
    ax.errorbar(range(1, len(rows) + 1), [row[2] for row in rows], [row[3] or 0.0 for row in rows], **look)
    ax.set_xticks(range(len(rows) + 1), [wrap_label(text, 20) for text in (against, *(row[0] for row in rows))])
    ax.set(xlabel=name, ylabel=f"change of {label} (%),\n{way} is better", xlim=(-0.5, len(rows) + 0.5))
    few, most = min(row[4] for row in rows), max(row[4] for row in rows)
    caption = (
        f"How values of {name} change {label}, of which {way} is better, against {against}: the mean of the ratios of "
        "points that are otherwise the same, less 1. Whiskers are 95 % confidence intervals (Student's t) over "
        f"{few if few == most else f'{few} to {most}'} pairs."
    )
    caption += "".join(f" {change.value}: {change.note}." for change in changes if change.note)
    notes = {row.get("assumed_scaling") for row in table.to_pylist()} - {None}
    if notes and metric.rpartition(".")[2] in {key.rpartition(".")[2] for key in ON_SCALING}:
        figure.supxlabel(ASSUMED, x=0.01, ha="left")
        caption += "".join(f" {text}" for note in sorted(notes) for text in assumption_notes(note))
    return PrintFigure(figure, (option, "against", "change_percent", "half_width", "pairs", "unpaired"), rows, caption)
