"""Engines that compute the points of a campaign: processes of this machine, or a Dask cluster."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from bftrainer.errors import SettingsError, suggestion
from bftrainer.files.text_files import toml_file
from bftrainer.parallel import Lost, Work, as_ready, count_workers
from bftrainer.plugins import require_extra

CONNECT_S = 10.0
Engine = Callable[[Work, Sequence[Any]], Generator[tuple[int, Any], None, None]]
"""Yields the index of each item and its result, or a `Lost`, in any order.

What cannot be reached is refused by the call, before the first result is asked for.
"""


def local_engine(workers: int | None = None) -> Engine:
    """Processes of this machine, by default one per usable processor; one worker computes in this process."""
    return partial(as_ready, workers=count_workers(workers))


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
        if jobqueue is not None:
            self._read_jobqueue(jobqueue)

    def __call__(self, work: Work, items: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
        """Connect, then yield results as they are ready; Dask repeats the work of a lost worker.

        A `SettingsError` if the scheduler cannot be reached, or the batch system takes no jobs.
        """
        with ExitStack() as connection:
            client = self._connect(connection)
            return self._compute(client, connection.pop_all(), work, items)

    def _compute(
        self, client: Any, connection: ExitStack, work: Work, items: Sequence[Any]
    ) -> Generator[tuple[int, Any], None, None]:
        from distributed import as_completed

        with connection:
            futures = client.map(work, items, pure=False)
            places = {future.key: index for index, future in enumerate(futures)}
            for future in as_completed(futures, loop=client.loop):
                error = future.exception()
                yield places[future.key], future.result() if error is None else Lost(_first_line(error))
                future.release()

    def _connect(self, connection: ExitStack) -> Any:
        """A client of the scheduler, or of a cluster of jobs; both end with the connection."""
        from distributed import Client

        scheduler: Any = self._scheduler
        try:
            if self._file is None:
                # A client without a server takes another 20 s to close, and prints a traceback (distributed 2026.8).
                asyncio.run(_check_answers(scheduler))
            else:
                scheduler = connection.enter_context(self._make_cluster())
                scheduler.scale(jobs=self._jobs)
            return connection.enter_context(Client(scheduler, timeout=CONNECT_S, set_as_default=False))
        except (OSError, TypeError, ValueError, MemoryError, EOFError) as error:
            # The answer of another kind of server may be taken for the length of a huge message.
            waited = f"{scheduler}: No Dask scheduler answered within {CONNECT_S:.0f} s"
            raise SettingsError(f"{self._file or waited}: {_first_line(error)}") from None

    def _read_jobqueue(self, path: Path) -> None:
        """Take number of jobs, and what makes their cluster, from a file."""
        table = toml_file(path, SettingsError)
        system, jobs, kinds = str(table.pop("system", "")), table.pop("jobs", None), {}
        if system:
            handler = signal.getsignal(signal.SIGINT)
            import dask_jobqueue  # which has Ctrl-C end the process with status 0, and writes to the home directory

            signal.signal(signal.SIGINT, handler)
            kinds = {name.removesuffix("Cluster").lower(): name for name in dir(dask_jobqueue) if "Cluster" in name}
        if system not in kinds:
            hint = suggestion(system, kinds)
            raise SettingsError(f"{path}: Expected the system of a batch scheduler, got {system!r}.{hint}")
        if not isinstance(jobs, int) or jobs < 1:
            raise SettingsError(f"{path}: Expected jobs, how many to submit, got {jobs!r}.")
        # dask-jobqueue inserts values into a job's script without quotes.
        table.setdefault("python", shlex.quote(sys.executable))
        self._jobs, self._make_cluster = jobs, partial(getattr(dask_jobqueue, kinds[system]), **table)


def _first_line(error: BaseException) -> str:
    """The first line of a library's message, which may be empty."""
    return str(error).partition("\n")[0] or type(error).__name__


async def _check_answers(address: str) -> None:
    from distributed.comm import connect

    comm = await connect(address, timeout=CONNECT_S)
    await comm.close()
