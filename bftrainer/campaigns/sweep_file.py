"""SWEEP.toml: which replays a sweep is made of."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from bftrainer.campaigns.sweep_options import PATHS, TRACE_SEED, WINDOW, OptionReader, merged
from bftrainer.errors import BftrainerError, SweepError, suggestion
from bftrainer.files.documents import toml_file
from bftrainer.runs.config import ReplayConfig
from bftrainer.runs.readers import CachedReaders
from bftrainer.spot.generation import GenerationConfig

__all__ = ["SweepPoint", "SweepSpec", "read_sweep"]

SCHEMA = 1
MOST_POINTS = 100_000
_SECTIONS = ("schema", "base", "grid", "point", "generate")


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One replay of a sweep.

    Parameters
    ----------
    number : int
        From 0, in the order of the file.
    options : tuple of (str, object)
        Fields of `ReplayConfig`, values as TOML has them.
    varied : tuple of (str, object)
        Of what is varied, as the file calls it.
    key : str
        The same for the same replay: options, and contents of the files that it reads.
    """

    number: int
    options: tuple[tuple[str, Any], ...]
    varied: tuple[tuple[str, Any], ...]
    key: str

    def config(self) -> ReplayConfig:
        """What is replayed."""
        return ReplayConfig(**dict(self.options))


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """A sweep as its file describes it.

    Parameters
    ----------
    path : Path
    text : bytes
        What it holds.
    base : mapping
        Options of all points.
    points : tuple of mapping
        Options of each, as the file calls them.
    generate : GenerationConfig or None
        What traces are generated from, for points with a `trace_seed`.
    """

    path: Path
    text: bytes
    base: Mapping[str, Any]
    points: tuple[Mapping[str, Any], ...]
    generate: GenerationConfig | None

    @property
    def varied(self) -> tuple[str, ...]:
        """Options in which points may differ, in the order of the file."""
        return tuple(dict.fromkeys(name for point in self.points for name in point))

    @property
    def trace_seeds(self) -> tuple[int, ...]:
        """Seeds of the traces that are generated."""
        given = (merged(self.base, point) for point in self.points)
        return tuple(dict.fromkeys(options[TRACE_SEED] for options in given if TRACE_SEED in options))

    def resolved(self, traces: Mapping[int, Path], readers: CachedReaders | None = None) -> list[SweepPoint]:
        """The points, with paths as they are and keys.

        Parameters
        ----------
        traces : mapping
            Files of generated logs by their seeds; points whose log is not among them have none yet.
        readers : CachedReaders, optional

        Raises
        ------
        SweepError
            If a file that is named is not there.
        """
        readers = CachedReaders() if readers is None else readers
        return [self._resolved(number, point, traces, readers) for number, point in enumerate(self.points)]

    def _resolved(
        self, number: int, point: Mapping[str, Any], traces: Mapping[int, Path], readers: CachedReaders
    ) -> SweepPoint:
        options = merged(self.base, point)
        seed, window = options.pop(TRACE_SEED, None), options.pop(WINDOW, None)
        if seed in traces:
            options["node_log"] = str(traces[seed])
        if window is not None:
            begin, end = window
            # Seconds of a window are counted from the log's start, those of `until` from the window's.
            options |= {"since": begin, "until": end if isinstance(end, datetime) else end - begin}
        contents = {}
        for name in PATHS:
            if isinstance(options.get(name), str):
                # Whoever computes the point may be at work in another directory.
                path = (self.path.parent / options[name]).absolute()
                options[name] = str(path)
                try:
                    contents[name] = readers.source(path)["sha256"]
                except OSError as error:
                    raise SweepError(f"{self.path}: {name}: {path}: {error.strerror}.") from None
        text = json.dumps([{**options, **contents}, _read_beside(options, readers)], sort_keys=True, default=_told)
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        varied = tuple((name, point.get(name)) for name in self.varied)
        return SweepPoint(number, tuple(options.items()), varied, key)


def _read_beside(options: Mapping[str, Any], readers: CachedReaders) -> list[str]:
    """Checksums of what a task set brings with it: the scalability beside it, and the traces that it is tuned by."""
    if "tasks" not in options:
        return []
    scalability = options.get("scalability")
    try:
        found = readers.task_set(
            Path(options["tasks"]), None if scalability is None else Path(scalability), options.get("scaling")
        )
        tuned = [task.tuning for task in found.tasks if task.tuning is not None]
        traces = dict.fromkeys(Path(file) for each in tuned for file in (each.train_trace, each.power_trace))
        return [readers.source(path)["sha256"] for path in (*found.sources, *traces)]
    except (BftrainerError, OSError) as error:
        # A point whose tasks cannot be read fails when its turn comes, with this reason, and is not the end of others.
        return [str(error)]


def _told(value: object) -> str:
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    raise TypeError(f"Expected a value of TOML, got {value!r}.")


def read_sweep(path: Path) -> SweepSpec:
    """Read a sweep, and check every option by name, type and range.

    Raises
    ------
    SweepError
        If it cannot be read, or an option is unknown or has a value it cannot have; the message names the line.
    """
    tables, text = toml_file(path, SweepError)
    reader = OptionReader(path, text)
    for name in tables:
        if name not in _SECTIONS:
            close = suggestion(name, _SECTIONS)
            raise SweepError(f"{reader.at(name)}: Expected a section of a sweep, got {name!r}.{close}")
    if tables.get("schema") != SCHEMA or isinstance(tables["schema"], bool):
        raise SweepError(f"{path}: Expected schema = {SCHEMA}, got {tables.get('schema')!r}.")
    base = reader.options(tables.get("base", {}), "base")
    grid = reader.grid(tables.get("grid", {}))
    listed = [reader.options(point, "point") for point in reader.points(tables.get("point", []))]
    number = (math.prod(map(len, grid.values())) if grid else 0) + len(listed)
    if number > MOST_POINTS:
        raise SweepError(f"{path}: Expected at most {MOST_POINTS:,} points, got {number:,}.")
    points = [*_products(grid), *listed] if number else [{}]
    generate = reader.generation(tables["generate"]) if "generate" in tables else None
    if generate is None and any(TRACE_SEED in point for point in (base, *points)):
        raise SweepError(f"{reader.at(TRACE_SEED)}: Expected a section [generate] for {TRACE_SEED}, found none.")
    for point in points:
        reader.check(base, point)
    return SweepSpec(path, text.encode(), base, tuple(points), generate)


def _products(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    if grid:
        for values in itertools.product(*grid.values()):
            yield dict(zip(grid, values, strict=True))
