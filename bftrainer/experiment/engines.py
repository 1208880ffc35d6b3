"""Where the points of a campaign are computed: on processes of this machine, or on a Dask cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from bftrainer.errors import SettingsError, SweepError, suggestion
from bftrainer.parallel import MOST_TRIES, Lost, Work, as_ready, usable_processors

__all__ = ["DaskEngine", "Engine", "LocalEngine"]

CONNECT_S = 10.0


class Engine(Protocol):
    """Computes a function of many items."""

    def run(self, work: Work, items: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
        """Yield the index of each item and its result, or a `Lost`, in whatever order they come.

        `work` is a function of a module, and raises nothing.
        """
        ...


class LocalEngine:
    """Processes of this machine.

    Parameters
    ----------
    workers : int, optional
        By default as many as there are processors to be used. One computes in this process.

    Raises
    ------
    SettingsError
        If there is none.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = usable_processors() if workers is None else workers
        if self.workers < 1:
            raise SettingsError(f"Expected at least one worker, got {self.workers}.")

    def run(self, work: Work, items: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
        """Results in the order in which they are ready; when a process ends abruptly, others start in its place."""
        return as_ready(work, items, self.workers)


class DaskEngine:
    """A Dask cluster: one that runs already, or one of a batch system's jobs.

    Parameters
    ----------
    scheduler : str, optional
        Address of a scheduler.
    jobqueue : Path, optional
        TOML file: ``system``, a class of dask-jobqueue in lower case (slurm, pbs, lsf, ...), ``jobs``, how many, and
        what that class takes.

    Raises
    ------
    SettingsError
        If neither or both are given, or Dask is not installed.
    """

    def __init__(self, scheduler: str | None = None, jobqueue: Path | None = None) -> None:
        if (scheduler is None) == (jobqueue is None):
            raise SettingsError("Expected either --scheduler or --dask-jobqueue for the engine dask.")
        missing = [
            name for name in ("distributed", *(["dask_jobqueue"] if jobqueue else [])) if find_spec(name) is None
        ]
        if missing:
            raise SettingsError(f"Expected {missing[0]}, found none; pip install 'bftrainer[dask]' brings it.")
        self._scheduler, self._jobqueue = scheduler, jobqueue

    def run(self, work: Work, items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Results in the order in which they are ready; Dask repeats what a lost worker was at.

        Raises
        ------
        SweepError
            If the scheduler cannot be reached, or the batch system takes no jobs.
        """
        from distributed import as_completed

        with self._client() as client:
            futures = client.map(work, items, pure=False, retries=MOST_TRIES - 1)
            places = {future.key: index for index, future in enumerate(futures)}
            for future in as_completed(futures, loop=client.loop):
                error = future.exception()
                lost = None if error is None else Lost(str(error).splitlines()[0])
                yield places[future.key], future.result() if lost is None else lost
                future.release()

    @contextmanager
    def _client(self) -> Iterator[Any]:
        from distributed import Client

        with self._cluster() as address:
            try:
                if isinstance(address, str):
                    # A client that reaches nobody takes another 20 s, and a traceback, to be forgotten.
                    asyncio.run(_reach(address))
                client = Client(address, timeout=CONNECT_S, set_as_default=False)
            except (OSError, ValueError, MemoryError, EOFError) as error:
                # What some other server says is taken for lengths of messages that no memory holds.
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise SweepError(
                    f"{address}: Expected a Dask scheduler within {CONNECT_S:.0f} s, got: {reason}"
                ) from None
            try:
                yield client
            finally:
                client.close()

    @contextmanager
    def _cluster(self) -> Iterator[Any]:
        """The address of the scheduler, or a cluster of jobs that ends with the campaign."""
        if self._jobqueue is None:
            yield self._scheduler
            return
        kind, jobs, options = _jobqueue(self._jobqueue)
        try:
            cluster = kind(**options)
        except (TypeError, ValueError, OSError) as error:
            raise SweepError(f"{self._jobqueue}: {str(error).splitlines()[0]}") from None
        try:
            cluster.scale(jobs=jobs)
            yield cluster
        finally:
            cluster.close()


async def _reach(address: str) -> None:
    from distributed.comm import connect

    comm = await connect(address, timeout=CONNECT_S)
    await comm.close()


def _jobqueue(path: Path) -> tuple[Callable[..., Any], int, dict[str, Any]]:
    """The class of a batch system's clusters, how many jobs, and what the class takes."""
    import tomllib

    import dask_jobqueue

    kinds = {name.removesuffix("Cluster").lower(): name for name in dir(dask_jobqueue) if name.endswith("Cluster")}
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SweepError(f"{path}: {error.strerror}.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SweepError(f"{path}: Expected TOML, got something else ({error}).") from None
    system, jobs = str(table.pop("system", "")), table.pop("jobs", None)
    if system not in kinds:
        raise SweepError(
            f"{path}: Expected the system of a batch scheduler, got {system!r}.{suggestion(system, kinds)}"
        )
    if not isinstance(jobs, int) or jobs < 1:
        raise SweepError(f"{path}: Expected jobs, how many to submit, got {jobs!r}.")
    return getattr(dask_jobqueue, kinds[system]), jobs, table
