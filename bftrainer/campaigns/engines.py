"""Engines that compute the points of a campaign: processes of this machine, or a Dask cluster."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from bftrainer.errors import SettingsError, suggestion
from bftrainer.files.text_files import toml_file
from bftrainer.parallel import MOST_TRIES, Lost, Work, as_ready, usable_processors
from bftrainer.plugins import require_extra

CONNECT_S = 10.0


class Engine(Protocol):
    """Interface of an engine: compute a function of many items."""

    def run(self, work: Work, items: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
        """Yield the index of each item and its result, or a `Lost`, in any order; `work` raises nothing.

        What cannot be reached is refused by the call, before the first result is asked for.
        """
        ...


class LocalEngine:
    """Processes of this machine, by default one per usable processor. One worker computes in this process."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = usable_processors() if workers is None else workers
        if self.workers < 1:
            raise SettingsError(f"Expected at least one worker, got {self.workers}.")

    def run(self, work: Work, items: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
        """Yield results as they are ready; when a process ends abruptly, another one replaces it."""
        return as_ready(work, items, self.workers)


class DaskEngine:
    """A Dask cluster: a running one, or one made of a batch system's jobs.

    `jobqueue` is a TOML file: ``system``, a class of dask-jobqueue in lower case (slurm, pbs, lsf, ...), ``jobs``, how
    many, and arguments of that class; the output of jobs goes to `job_logs`, unless it names a `log_directory`. A
    `SettingsError` if neither or both are given, Dask is not installed, or the file cannot be used.
    """

    def __init__(
        self, scheduler: str | None = None, jobqueue: Path | None = None, job_logs: Path | None = None
    ) -> None:
        if (scheduler is None) == (jobqueue is None):
            raise SettingsError("Give either --scheduler or --dask-jobqueue for the engine dask.")
        require_extra("The engine dask needs", "dask", "distributed", *(["dask_jobqueue"] if jobqueue else []))
        self._scheduler, self._file = scheduler, jobqueue
        self._jobqueue = None if jobqueue is None else _read_jobqueue(jobqueue, job_logs)

    def run(self, work: Work, items: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
        """Connect, then yield results as they are ready; Dask repeats the work of a lost worker.

        A `SettingsError` if the scheduler cannot be reached, or the batch system takes no jobs.
        """
        with ExitStack() as stack:
            client = stack.enter_context(self._client())
            return self._compute(client, stack.pop_all(), work, items)

    def _compute(
        self, client: Any, connection: ExitStack, work: Work, items: Sequence[Any]
    ) -> Generator[tuple[int, Any], None, None]:
        from distributed import as_completed

        with connection:
            futures = client.map(work, items, pure=False, retries=MOST_TRIES - 1)
            places = {future.key: index for index, future in enumerate(futures)}
            for future in as_completed(futures, loop=client.loop):
                error = future.exception()
                lost = None if error is None else Lost(_first_line(error))
                yield places[future.key], future.result() if lost is None else lost
                future.release()

    @contextmanager
    def _client(self) -> Iterator[Any]:
        from distributed import Client

        with self._cluster() as address:
            try:
                if isinstance(address, str):
                    import asyncio

                    # A client without a server takes another 20 s to close, and prints a traceback.
                    asyncio.run(_check_answers(address))
                client = Client(address, timeout=CONNECT_S, set_as_default=False)
            except (OSError, ValueError, MemoryError, EOFError) as error:
                # The answer of another kind of server may be taken for the length of a huge message.
                raise SettingsError(
                    f"{address}: No Dask scheduler answered within {CONNECT_S:.0f} s: {_first_line(error)}"
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
        try:
            cluster = self._jobqueue.make()
        except (TypeError, ValueError, OSError) as error:
            raise SettingsError(f"{self._file}: {_first_line(error)}") from None
        try:
            cluster.scale(jobs=self._jobqueue.jobs)
            yield cluster
        finally:
            cluster.close()


def _first_line(error: BaseException) -> str:
    """The first line of a library's message, which may be empty."""
    return str(error).partition("\n")[0] or type(error).__name__


async def _check_answers(address: str) -> None:
    from distributed.comm import connect

    comm = await connect(address, timeout=CONNECT_S)
    await comm.close()


def import_jobqueue() -> ModuleType:
    """The module dask_jobqueue, without what it makes of Ctrl-C: the end of the process, with status 0."""
    handler = signal.getsignal(signal.SIGINT)
    import dask_jobqueue

    signal.signal(signal.SIGINT, handler)
    module: ModuleType = dask_jobqueue
    return module


@dataclass(frozen=True, slots=True)
class _JobQueue:
    """Number of jobs, and what makes their cluster."""

    jobs: int
    make: Callable[[], Any]


def _read_jobqueue(path: Path, job_logs: Path | None) -> _JobQueue:
    table = toml_file(path, SettingsError)
    system, jobs = str(table.pop("system", "")), table.pop("jobs", None)
    # Importing the library writes its configuration into the home directory.
    dask_jobqueue = import_jobqueue() if system else None
    kinds = {name.removesuffix("Cluster").lower(): name for name in dir(dask_jobqueue) if name.endswith("Cluster")}
    if system not in kinds:
        raise SettingsError(
            f"{path}: Expected the system of a batch scheduler, got {system!r}.{suggestion(system, kinds)}"
        )
    if not isinstance(jobs, int) or jobs < 1:
        raise SettingsError(f"{path}: Expected jobs, how many to submit, got {jobs!r}.")
    # dask-jobqueue inserts values into a job's script without quotes.
    table.setdefault("python", shlex.quote(sys.executable))
    if job_logs is not None:
        logs = str(job_logs.resolve())
        if "log_directory" not in table and len(logs.split()) > 1:  # some batch systems' options take quotes literally
            raise SettingsError(f"{path}: Expected a log_directory, as jobs cannot log to one with blanks, {logs}.")
        table.setdefault("log_directory", logs)
    return _JobQueue(jobs, partial(getattr(dask_jobqueue, kinds[system]), **table))
